"""Batch ingest: plan, stage and write station files in one commit."""
