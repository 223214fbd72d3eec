"""Standing queries: what a new slice touches is evaluated again, alerts are raised, and those who asked are told."""
