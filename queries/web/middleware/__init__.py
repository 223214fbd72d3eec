"""Middleware for every request: limits, authentication, headers, compression, logs."""
