"""Web pages and their figures; all data come through the web API."""
