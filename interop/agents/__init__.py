"""One small agent for each library; only the library's own environment has what its file imports."""
