"""File formats of results and readings."""
