"""Does revising help: `python -m benchmarks.revising`, and what came of it stands in `docs/revising.md`."""
