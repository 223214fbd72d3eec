"""Still pictures by matplotlib: maps, time series, days by hours, variograms, and the best method's map."""

from hypergrid.plots.comparison import map_of_best, plot_comparison
from hypergrid.plots.plot import KINDS, part_shown, picture_bytes, place_names, plot
from hypergrid.plots.variogram import plot_variogram

__all__ = [
    "KINDS",
    "map_of_best",
    "part_shown",
    "picture_bytes",
    "place_names",
    "plot",
    "plot_comparison",
    "plot_variogram",
]
