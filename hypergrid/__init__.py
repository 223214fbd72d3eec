"""HyperGrid: readings of station networks, asked on grids in space and time.

::

    import hypergrid as hg
    archive = hg.open("archive")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()
"""

from hypergrid.growing import Growing, Update
from hypergrid.kriging import Variogram, variogram
from hypergrid.parameters import Parameter
from hypergrid.perspective.user_functions import (
    aggregate_function,
    convert_function,
    forget_function,
    merge_function,
)
from hypergrid.query import OpenArchive, Query, base
from hypergrid.query import open_archive as open
from hypergrid.recomputed import again
from hypergrid.refinement import Refinement
from hypergrid.study import compare_methods, cross_validate, fit_variogram, fit_variogram_by_group, simulate
from hypergrid.topology import Grid, Zones, grid, zones
from hypergrid.version import VERSION as __version__

__all__ = [
    "Grid", "Growing", "OpenArchive", "Parameter", "Query", "Refinement", "Update", "Variogram", "Zones", "__version__",
    "again", "aggregate_function", "base", "compare_methods", "convert_function", "cross_validate", "fit_variogram",
    "fit_variogram_by_group", "forget_function", "grid", "merge_function", "open", "simulate", "variogram", "zones",
]  # fmt: skip
