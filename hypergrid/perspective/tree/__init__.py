"""Operators, perspectives and surfaces: the tree that a query means."""
