"""Authentication and authorisation: keys, sessions, scopes, audit log."""
