"""Still pictures by matplotlib: maps, time series, and days by hours."""

from hypergrid.pictures.plot import KINDS, picture_bytes, plot

__all__ = ["KINDS", "picture_bytes", "plot"]
