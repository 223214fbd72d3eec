"""Interpolation: variograms, the kriging system, and the methods by name."""

from hypergrid.kriging.compare import Comparison, candidates, compare_methods
from hypergrid.kriging.local import POINTS_AT_ONCE
from hypergrid.kriging.methods import METHODS, Field, Method
from hypergrid.kriging.other_methods import NO_VARIOGRAM
from hypergrid.kriging.samples import Samples
from hypergrid.kriging.scores import Score
from hypergrid.kriging.validate import CrossValidation, cross_validate
from hypergrid.kriging.variogram import MODELS, Variogram, parse_variogram, variogram

__all__ = [
    "METHODS", "MODELS", "NO_VARIOGRAM", "POINTS_AT_ONCE", "Comparison", "CrossValidation", "Field", "Method",
    "Samples", "Score", "Variogram", "candidates", "compare_methods", "cross_validate", "parse_variogram",
    "variogram",
]  # fmt: skip
