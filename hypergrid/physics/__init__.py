"""Formulas of the atmosphere: pure functions of arrays, each with its units, its source and where it holds."""
