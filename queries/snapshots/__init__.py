"""Answers that hold for one snapshot: catalogue, latest readings, extents, station health."""
