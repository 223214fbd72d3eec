"""Ingest station files and streams into the archive; the entry point is `ingest.job.ingest`."""
