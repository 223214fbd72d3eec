"""Backup, repair, salvage and upgrade of archives."""
