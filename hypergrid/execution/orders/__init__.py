"""Orders in which cells are computed, and estimates of cells not yet computed."""
