"""Ingest commands of the command line."""
