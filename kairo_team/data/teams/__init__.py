"""Teams as data: YAML, TOML, JSON or a dict, with all mistakes of a file at once."""
