"""Responses: problem documents, content negotiation, files, entity tags, waiting."""
