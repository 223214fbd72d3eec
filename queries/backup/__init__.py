"""Backup and restoration of archives together with the server's state."""
