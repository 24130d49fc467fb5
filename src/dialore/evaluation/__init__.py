"""Metrics, judges, statistics and reports. Nothing here runs a method: responses are scored apart from generation."""
