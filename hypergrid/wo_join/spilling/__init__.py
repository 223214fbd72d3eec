"""Joins with less memory: release gate, sorted runs and segments on disk (thesis 3.5)."""
