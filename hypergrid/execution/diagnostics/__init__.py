"""Diagnostics of a run: notes, bridged counter gaps, coverage, missing values."""
