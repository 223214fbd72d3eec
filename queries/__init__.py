"""What users ask, when it runs, and how it reaches them."""
