"""What the library costs, as ratios within one run: `python -m benchmarks`."""
