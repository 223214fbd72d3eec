"""Compiled loops of continuous queries, generic over kinds of values."""
