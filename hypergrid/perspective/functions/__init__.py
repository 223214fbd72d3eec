"""Data functions as rows: converts, aggregates, merges, and those that users add."""
