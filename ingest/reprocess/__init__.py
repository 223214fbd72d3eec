"""Reprocessing of whole archives: quality flags, mappings and surfaces."""
