"""What runs: timers, enforced ends, the pool of tasks, the event bus, functions as agents."""
