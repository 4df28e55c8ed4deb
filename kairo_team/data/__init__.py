"""Files of data that people write: YAML, TOML and JSON with the line of each value; and teams as data."""
