"""Surfaces of an archive as relations that change: each slice, from its end on, in place of the one before."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.sources.batch import Column, SourceBatch
from hypergrid.continuous.sources.relations import code_texts
from hypergrid.continuous.surface_catalogue import NamedSurface
from hypergrid.core.times import Window
from hypergrid.topology import Grid, SeriesAxis, Space


def surface_changes(surface: NamedSurface, window: Window) -> SourceBatch:
    """Return the changes of a surface's relation within a window, after the rows that it holds before.

    Columns are those of its attributes: station (of stations), x, y, value and variance, NaN where a cell has none. A
    row that the next slice has, too, does not change.

    Raises
    ------
    TooLarge
        There are too many cells and slices, or they take too much memory; nothing was computed.
    HyperGridError
        The surface cannot be computed.
    """
    chosen = surface.select(window)
    if not chosen:
        empty: list[Column] = [code_texts([]) if part.kind == "text" else np.empty(0) for part in surface.attributes]
        return SourceBatch(np.empty(0, np.int64), tuple(empty), np.empty(0, np.int8))
    values, variances = surface.compute(chosen)
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
    space = surface.clipped.topology.space
    x, y = _find_places(space)
    columns: list[Column] = [x[cells], y[cells], values[row, cells].astype(np.float64), variances[row, cells]]
    if isinstance(space, SeriesAxis):
        columns.insert(0, code_texts([series.station for series in space.series]).take(cells))
    return SourceBatch(surface.ends[chosen.start : chosen.stop][slices], tuple(columns), signs)


def _differ(values: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.asarray((values != others) & ~(np.isnan(values) & np.isnan(others)))


def _find_places(space: Space) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return longitude and latitude [degree], or x and y [m], of the cells of a slice."""
    if isinstance(space, SeriesAxis):
        return np.asarray(space.x, np.float64), np.asarray(space.y, np.float64)
    assert isinstance(space, Grid)
    x, y = space.centres(np.arange(space.count)).T
    return x, y
