"""The web API; the only folder that imports FastAPI."""
