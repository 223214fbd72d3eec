"""Standing queries: evaluate incrementally on each commit, detect episodes, raise and deliver alerts."""
