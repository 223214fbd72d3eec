"""Memory cost model, and shares of several joins (thesis 3.3 to 3.5)."""
