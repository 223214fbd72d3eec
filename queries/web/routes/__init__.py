"""Routes of the native API, one module a kind."""
