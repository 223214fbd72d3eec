"""Evaluation of single operators on blocks of cells."""
