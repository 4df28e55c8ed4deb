"""Worker processes, coordinators and a PostgreSQL server to which everything happens: `python -m benchmarks.chaos`."""
