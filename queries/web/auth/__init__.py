"""Who may ask what: keys, scopes, audit."""
