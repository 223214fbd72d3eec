"""Data functions as rows: converts, aggregates, merges, and user functions."""
