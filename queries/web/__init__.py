"""The web API; the only package that imports FastAPI."""
