"""Surfaces of an archive as relations that change: each slice, from its end on, in place of the one before."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.sources.batch import Column, SourceBatch
from hypergrid.continuous.sources.relations import code_texts
from hypergrid.continuous.surface_catalogue import NamedSurface
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role
from hypergrid.core.times import Window


def surface_changes(surface: NamedSurface, window: Window) -> SourceBatch:
    """Return the changes of a surface's relation within a window, with the slice that holds when it begins.

    Columns are those of its attributes: station (of stations), x, y, value and variance, NaN where a cell has none. A
    row that the next slice has, too, does not change.

    Raises
    ------
    TooLarge
        There are too many cells and slices, or they take too much memory; nothing was computed.
    HyperGridError
        The surface cannot be computed.
    """
    query = surface.restrict(window)
    if query is None:
        empty: list[Column] = [code_texts([]) if part.kind == "text" else np.empty(0) for part in surface.attributes]
        return SourceBatch(np.empty(0, np.int64), tuple(empty), np.empty(0, np.int8))
    result = by_role(query.compute())
    values = result["value"].to_numpy().reshape(result.sizes["time"], -1)
    variances = np.full_like(values, np.nan)
    if "variance" in result:
        variances = result["variance"].to_numpy().reshape(values.shape)
    differs = np.ones(values.shape, bool)
    differs[1:] = _differ(values[1:], values[:-1]) | _differ(variances[1:], variances[:-1])
    # Rows of a slice that leave come before those that enter.
    entering_slice, entering = np.nonzero(differs)
    is_held = entering_slice > 0
    leaving_slice, leaving = entering_slice[is_held], entering[is_held]
    slices = np.concatenate([leaving_slice, entering_slice])
    cells = np.concatenate([leaving, entering])
    signs = np.concatenate([np.full(len(leaving), -1, np.int8), np.ones(len(entering), np.int8)])
    order = np.lexsort((cells, signs, slices))
    slices, cells, signs = slices[order], cells[order], signs[order]
    row = np.where(signs < 0, slices - 1, slices)
    x, y = _places(result)
    columns: list[Column] = [x[cells], y[cells], values[row, cells].astype(np.float64), variances[row, cells]]
    if "station" in result["value"].dims:
        columns.insert(0, code_texts([str(name) for name in result["station"].to_numpy()]).take(cells))
    return SourceBatch(_find_ends(result)[slices], tuple(columns), signs)


def _differ(values: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((values != others) & ~(np.isnan(values) & np.isnan(others)))


def _find_ends(result: "xr.Dataset") -> NDArray[np.int64]:
    """Return the end of each slice [ns since 1970 UTC], of instants the instant itself."""
    ends = result["time_bounds"].to_numpy()[:, 1] if "time_bounds" in result.coords else result["time"].to_numpy()
    return ends.astype("datetime64[ns]").astype(np.int64)


def _places(result: "xr.Dataset") -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitude and latitude [degree], or x and y [m], of the cells of a slice."""
    names = ("lon", "lat") if "lon" in result.coords else ("x", "y")
    x, y = (result[name].to_numpy().astype(np.float64) for name in names)
    if "station" in result["value"].dims:
        return x, y
    columns, rows = np.meshgrid(x, y)
    return columns.ravel(), rows.ravel()
