"""Foundations shared by all packages: errors, units, times, flags, tokens, settings and domain records."""
