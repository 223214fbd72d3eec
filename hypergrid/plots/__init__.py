"""Still pictures with matplotlib: maps, time series, days by hours, variograms."""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from hypergrid.plots.kinds import KINDS, picture_bytes, plot
    from hypergrid.plots.labels import part_shown, place_names
    from hypergrid.plots.positions import plot_positions
    from hypergrid.plots.variogram import plot_variogram

__all__ = [
    "KINDS",
    "part_shown",
    "picture_bytes",
    "place_names",
    "plot",
    "plot_positions",
    "plot_variogram",
]

_MODULES: Final = {
    "KINDS": "kinds",
    "part_shown": "labels",
    "picture_bytes": "kinds",
    "place_names": "labels",
    "plot": "kinds",
    "plot_positions": "positions",
    "plot_variogram": "variogram",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - any attribute of a module
    # Lazy, because matplotlib takes a second to load, and a server draws few pictures.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
