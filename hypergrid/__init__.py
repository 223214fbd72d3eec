"""HyperGrid: query readings of station networks on grids in space and time.

::

    import hypergrid as hg
    archive = hg.open("archive")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").compute()
    hg.plot(hourly)
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any, Final

from hypergrid.core import moved_modules
from hypergrid.core.version import VERSION as __version__

if TYPE_CHECKING:
    from hypergrid.analysis.geostatistics import (
        compare_methods,
        cross_validate,
        fit_variogram,
        fit_variogram_by_group,
        simulate,
    )
    from hypergrid.analysis.incremental import Growing, Update
    from hypergrid.analysis.lineage import lineage
    from hypergrid.analysis.reproduce import again, second_opinion
    from hypergrid.analysis.suggestion import suggest
    from hypergrid.continuous.query import continuous
    from hypergrid.core.parameters import Parameter
    from hypergrid.interpolation import Variogram, variogram
    from hypergrid.perspective.functions.user_functions import (
        aggregate_function,
        convert_function,
        forget_function,
        interpolation_function,
        merge_function,
    )
    from hypergrid.plots import plot
    from hypergrid.query import OpenArchive, Query, base
    from hypergrid.query import open_archive as open
    from hypergrid.refinement import Refinement
    from hypergrid.topology import Grid, Points, Zones, grid, points, zones

__all__ = [
    "Grid", "Growing", "OpenArchive", "Parameter", "Points", "Query", "Refinement", "Update", "Variogram", "Zones",
    "__version__", "again", "aggregate_function", "base", "compare_methods", "continuous", "convert_function",
    "cross_validate", "fit_variogram", "fit_variogram_by_group", "forget_function", "grid", "interpolation_function",
    "lineage", "merge_function", "open", "plot", "points", "second_opinion", "simulate", "suggest", "variogram",
    "zones",
]  # fmt: skip

# Lazy imports: a process that needs one module, such as a Spark worker, does not wait for the others.
_MODULES: Final = {
    "analysis.geostatistics": (
        "compare_methods",
        "cross_validate",
        "fit_variogram",
        "fit_variogram_by_group",
        "simulate",
    ),
    "analysis.incremental": ("Growing", "Update"),
    "analysis.lineage": ("lineage",),
    "analysis.reproduce": ("again", "second_opinion"),
    "analysis.suggestion": ("suggest",),
    "core.parameters": ("Parameter",),
    "interpolation": ("Variogram", "variogram"),
    "perspective.functions.user_functions": (
        "aggregate_function",
        "convert_function",
        "forget_function",
        "interpolation_function",
        "merge_function",
    ),
    "plots": ("plot",),
    "query": ("OpenArchive", "Query", "base", "open_archive"),
    "refinement": ("Refinement",),
    "topology": ("Grid", "Points", "Zones", "grid", "points", "zones"),
}
"""Public names by module, imported on first use."""
moved_modules.install()
_HOME: Final = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any attribute of a module
    attribute = "open_archive" if name == "open" else name
    if attribute in _HOME and name in __all__:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[attribute]}"), attribute)
        globals()[name] = value
        return value
    # `continuous` is a package that can be called.
    # When this one imported its modules eagerly, `hypergrid.topology` was an attribute; it still is.
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    # What completion offers: the public names, not what this module imports for itself.
    return sorted(__all__)
