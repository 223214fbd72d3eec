"""Records and descriptions of the API's JSON."""
