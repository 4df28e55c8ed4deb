"""Chat models: what is said to them, how a call is admitted, and where names become models."""
