"""Commands about ingest."""
