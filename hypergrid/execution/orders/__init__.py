"""Orders in which cells are computed, and estimates of those that are not computed yet."""
