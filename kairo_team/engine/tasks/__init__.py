"""The tasks of a run: which is ready, who works on it, with which budget."""
