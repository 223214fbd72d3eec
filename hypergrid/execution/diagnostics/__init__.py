"""Diagnostics of a run: notes, counters that were bridged, coverage, missing values."""
