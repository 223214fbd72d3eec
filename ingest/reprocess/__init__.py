"""Reprocessing: quality flags and mappings of a whole archive once more."""
