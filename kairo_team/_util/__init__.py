"""Internal helpers that do not depend on teams. Nothing in here is public."""
