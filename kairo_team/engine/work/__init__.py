"""What an attempt works with: the runtime, services, models, constraints, the context."""
