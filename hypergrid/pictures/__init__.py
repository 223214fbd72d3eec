"""Still pictures by matplotlib: maps, time series, days by hours, and the best method's map with its uncertainty."""

from hypergrid.pictures.comparison import map_of_best, plot_comparison
from hypergrid.pictures.plot import KINDS, picture_bytes, plot

__all__ = ["KINDS", "map_of_best", "picture_bytes", "plot", "plot_comparison"]
