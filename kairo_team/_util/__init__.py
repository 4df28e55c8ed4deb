"""Tools of the library's own that know nothing of teams. Nothing in here is public."""
