"""Cross-validation, scores and comparison of methods."""
