"""Imports of uploaded files: their folders, their proposals, and the processes that ingest them."""
