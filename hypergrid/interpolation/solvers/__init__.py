"""Kriging systems: drift, factors, inverses, and fields that share them across slices."""
