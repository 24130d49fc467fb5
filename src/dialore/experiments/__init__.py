"""Experiments: runs that can be killed and resumed, and their scoring."""
