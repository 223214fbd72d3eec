"""Responses: problem documents, negotiation, files, entity tags, waiting."""
