"""HyperGrid: readings of station networks, asked on grids in space and time.

::

    import hypergrid as hg
    archive = hg.open("archive")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()
    hg.plot(hourly)
"""

from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from hypergrid.pictures import plot

__all__ = [
    "Grid", "Growing", "OpenArchive", "Parameter", "Query", "Refinement", "Update", "Variogram", "Zones", "__version__",
    "again", "aggregate_function", "base", "compare_methods", "convert_function", "cross_validate", "fit_variogram",
    "fit_variogram_by_group", "forget_function", "grid", "merge_function", "open", "plot", "simulate", "variogram",
    "zones",
]  # fmt: skip


def __getattr__(name: str) -> Any:  # noqa: ANN401 - of a module
    if name == "plot":
        # Matplotlib takes half a second to load.
        from hypergrid.pictures import plot  # noqa: PLC0415

        return plot
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
