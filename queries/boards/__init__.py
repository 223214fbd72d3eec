"""Boards of pinned panels, and short links: what users arrange and share."""
