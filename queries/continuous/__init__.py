"""Continuous queries for callers of the web API: names, explanations, back-tests."""
