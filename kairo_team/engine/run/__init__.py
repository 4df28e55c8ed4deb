"""A run from attempts to its end, as coordinators drive it."""
