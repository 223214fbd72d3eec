"""Streaming ingest: rows that arrive become slices, and slices become commits."""
