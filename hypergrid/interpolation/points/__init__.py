"""Data points and estimation points, and the distances between them."""
