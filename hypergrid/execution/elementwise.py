"""Converts and merges of a block: cell by cell, from what the sources hold in the same cells."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.cells import Cells
from hypergrid.kriging.trend import ELEVATION
from hypergrid.perspective import Base, Convert, Merge, Perspective
from hypergrid.perspective.functions import Where
from hypergrid.perspective.matching import columns_of
from hypergrid.topology import Grid, Regular, SeriesAxis, ZoneCells
from hypergrid.units import convert

Floats = NDArray[np.float64]


def merged(here: Perspective, operator: Merge, sources: list[Cells]) -> Cells:
    """Return two sources merged; stations that one of them lacks are left out where the function says so."""
    row, units = operator.row, [source.unit for source in here.sources]
    first, second = (
        _matched(here, source, block) if row.matched else block
        for source, block in zip(here.sources, sources, strict=True)
    )
    needed = row.takes or (units[0], units[0] if row.alike else units[1])
    values = row.apply(convert(first.value, units[0], needed[0]), convert(second.value, units[1], needed[1]))
    if row.counts_first:
        return Cells(values, first.count, first.possible)
    return Cells(values, np.minimum(first.count, second.count), np.minimum(first.possible, second.possible))


def _matched(here: Perspective, source: Perspective, block: Cells) -> Cells:
    wanted, axis = here.topology.space, source.topology.space
    if not isinstance(wanted, SeriesAxis) or not isinstance(axis, SeriesAxis):
        return block
    return columns(block, columns_of(wanted, axis))


def columns(whole: Cells, places: NDArray[np.intp]) -> Cells:
    """Return some places of a block."""

    def pick(array: NDArray[np.int64]) -> NDArray[np.int64]:
        return array[:, places] if array.shape[1] > 1 else array

    return Cells(whole.value[:, places], pick(whole.count), pick(whole.possible))


def converted(operator: Convert, values: Floats, where: Where | None = None) -> Floats:
    """Return values after every function of a convert.

    Parameters
    ----------
    operator
        The functions.
    values
        Shape (time cells, places); or (readings,), for functions that do not depend on place and time.
    where
        Where and when the values are; needed where a function is `placed`.
    """
    for call, row in zip(operator.calls, operator.rows(), strict=True):
        values = row.apply(values, call.given, where) if row.placed else row.apply(values, call.given)
    return values


def where_of(here: Perspective, places: NDArray[np.intp]) -> tuple[Where, str]:
    """Return where and when the values of a perspective are, and a note where an elevation had to be assumed.

    Parameters
    ----------
    here
        The perspective; its stations have lon and lat.
    places
        Flat cells of its grid, or series.
    """
    base = here.bases()[0]
    stations, time = base.topology.space, here.topology.time
    if not isinstance(base.operator, Base) or not isinstance(stations, SeriesAxis):
        message = "a base holds series"
        raise TypeError(message)
    space = here.topology.space
    if isinstance(space, Grid):
        points, known = space.centres(places), np.full(len(places), np.nan)
    elif isinstance(space, ZoneCells):
        message = "a zone has many places"
        raise TypeError(message)
    else:
        points, known = np.stack([space.x, space.y], axis=1)[places], space.elevation_m[places]
    if isinstance(here.operator, Convert) and here.operator.layers:
        placed = np.isfinite(points).all(axis=1) & np.isnan(known)
        known = known.copy()
        known[placed] = base.operator.source.layer(ELEVATION).at(points[placed])
    note = ""
    if np.isnan(known).any():
        heights = stations.elevation_m[np.isfinite(stations.elevation_m)]
        assumed = float(heights.mean()) if len(heights) else 0.0
        known = np.where(np.isnan(known), assumed, known)
        note = f"the clear sky is that of {assumed:.0f} m where the elevation is not known"
    length = time.length if isinstance(time, Regular) else 0
    return Where(time.corners, length, points[:, 0], points[:, 1], known), note
