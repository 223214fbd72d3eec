"""Operators, perspectives and surfaces: the tree of a resolved query."""
