"""Interpolation: variograms, the kriging system, and the methods by name."""

# Methods are listed in order of registration: kriging comes first.
from hypergrid.interpolation.methods.kriging_methods import VARIANCES

# isort: split
from hypergrid.interpolation.methods.automatic import AUTO
from hypergrid.interpolation.methods.deterministic_methods import NO_VARIOGRAM
from hypergrid.interpolation.methods.in_time import TimeMethod, method_in_time, method_over
from hypergrid.interpolation.methods.registry import METHODS, Method
from hypergrid.interpolation.points import Field, Samples, Stations, Targets
from hypergrid.interpolation.validation.compare import Comparison, Comparisons, compare_methods, list_candidates
from hypergrid.interpolation.validation.cross_validate import CrossValidation, Score, cross_validate
from hypergrid.interpolation.variograms.variogram import MODELS, Variogram, parse_variogram, variogram
from hypergrid.interpolation.weight_cache import WEIGHTS

__all__ = [
    "AUTO",
    "METHODS",
    "MODELS",
    "NO_VARIOGRAM",
    "VARIANCES",
    "WEIGHTS",
    "Comparison",
    "Comparisons",
    "CrossValidation",
    "Field",
    "Method",
    "Samples",
    "Score",
    "Stations",
    "Targets",
    "TimeMethod",
    "Variogram",
    "compare_methods",
    "cross_validate",
    "list_candidates",
    "method_in_time",
    "method_over",
    "parse_variogram",
    "variogram",
]  # fmt: skip
