"""Interpolation: variograms, the kriging system, and the methods by name."""

from hypergrid.kriging.local import POINTS_AT_ONCE
from hypergrid.kriging.methods import METHODS, Field, Method
from hypergrid.kriging.variogram import MODELS, Variogram, parse_variogram, variogram

__all__ = ["METHODS", "MODELS", "POINTS_AT_ONCE", "Field", "Method", "Variogram", "parse_variogram", "variogram"]
