"""Streaming ingest: arriving rows become slices, and slices become commits."""
