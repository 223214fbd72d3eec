"""Joins that make do with less memory: gates, sorted runs and segments on disk (thesis 3.5)."""
