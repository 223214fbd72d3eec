"""Resolve and check query specifications against their data into trees of perspectives."""
