"""HyperGrid: readings of station networks, asked on grids in space and time.

::

    import hypergrid as hg
    archive = hg.open("archive")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()
"""

from hypergrid.kriging import Variogram, variogram
from hypergrid.query import OpenArchive, Query, Refinement, base
from hypergrid.query import open_archive as open
from hypergrid.study import compare_methods, cross_validate, fit_variogram, fit_variogram_by_group, simulate
from hypergrid.topology import Grid, Zones, grid, zones
from hypergrid.version import VERSION as __version__

__all__ = [
    "Grid", "OpenArchive", "Query", "Refinement", "Variogram", "Zones", "__version__", "base", "compare_methods",
    "cross_validate", "fit_variogram", "fit_variogram_by_group", "grid", "open", "simulate", "variogram",
    "zones",
]  # fmt: skip
