"""Local kriging from the nearest stations."""
