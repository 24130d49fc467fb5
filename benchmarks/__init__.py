"""Benchmarks of Dialore's own cost; run from a checkout: `python -m benchmarks --help`."""
