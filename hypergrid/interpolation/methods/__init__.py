"""Interpolation methods, one row each."""
