"""Interpolation: variograms, the kriging system, and the methods by name."""

from hypergrid.kriging.compare import Comparison, candidates, compare_methods
from hypergrid.kriging.kriging_methods import VARIANCES
from hypergrid.kriging.methods import METHODS, Field, Method
from hypergrid.kriging.other_methods import NO_VARIOGRAM
from hypergrid.kriging.places import Stations, Targets
from hypergrid.kriging.samples import Samples
from hypergrid.kriging.scores import Score
from hypergrid.kriging.time_methods import TimeMethod, method_in_time, method_over
from hypergrid.kriging.validate import CrossValidation, cross_validate
from hypergrid.kriging.variogram import MODELS, Variogram, parse_variogram, variogram
from hypergrid.kriging.weights import WEIGHTS

__all__ = [
    "METHODS", "MODELS", "NO_VARIOGRAM", "VARIANCES", "WEIGHTS", "Comparison", "CrossValidation", "Field", "Method",
    "Samples", "Score", "Stations", "Targets", "TimeMethod", "Variogram", "candidates",
    "compare_methods", "cross_validate", "method_in_time", "method_over", "parse_variogram", "variogram",
]  # fmt: skip
