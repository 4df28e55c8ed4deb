"""Does revising help? Run `python -m benchmarks.revising`; the results are in `docs/revising.md`."""
