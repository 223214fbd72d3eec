"""Routes of the native API, one module per topic."""
