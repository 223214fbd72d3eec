"""Atmospheric formulas: pure functions of arrays, each with units, source and range of validity."""
