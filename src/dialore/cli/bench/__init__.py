"""Benchmarks of our own overhead, against an endpoint of this machine whose latency is known."""
