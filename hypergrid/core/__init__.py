"""Foundations that every room stands on: errors, units, times, flags, tokens, settings, and the domain records."""
