"""Answers cached per snapshot: catalogue, latest readings, extents, station health."""
