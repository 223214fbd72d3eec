"""JSON records and OpenAPI schemas."""
