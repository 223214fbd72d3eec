"""Evaluate converts and merges of a block cell by cell, and locate the failures of user functions."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidFunction
from hypergrid.core.readings import Readings
from hypergrid.core.times import format_instant
from hypergrid.core.units import convert
from hypergrid.execution.operators.cells import Cells
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.perspective import Convert, Merge, Perspective
from hypergrid.perspective.build.restrict import find_lengths_ns
from hypergrid.perspective.functions.rows import CellPlaces
from hypergrid.perspective.functions.user_function_calls import Fault
from hypergrid.perspective.sources.series_selection import find_columns
from hypergrid.topology import Grid, Points, SeriesAxis, ZoneCells
from hypergrid.topology.axes import PER_UNIT

Floats = NDArray[np.float64]


def merge_sources(node: Perspective, operator: Merge, sources: list[Cells]) -> Cells:
    """Merge sources; stations missing from one of them are dropped if the function matches stations."""
    row, units = operator.row, tuple(source.unit for source in node.sources)
    blocks = [
        _match_stations(node, source, block) if row.matched else block
        for source, block in zip(node.sources, sources, strict=True)
    ]
    known = zip(blocks, units, row.list_needed_units(units), strict=True)
    values = row.apply(*(convert(block.value, unit, needed) for block, unit, needed in known), **operator.arguments)
    counting = blocks[:1] if row.counts_first else blocks
    count = reduce(np.minimum, (block.count for block in counting))
    return Cells(values, count, reduce(np.minimum, (block.possible for block in counting)))


def _match_stations(node: Perspective, source: Perspective, block: Cells) -> Cells:
    wanted, axis = node.topology.space, source.topology.space
    if not isinstance(wanted, SeriesAxis) or not isinstance(axis, SeriesAxis):
        return block
    return block.select_places(find_columns(wanted, axis))


def convert_values(operator: Convert, values: Floats, where: CellPlaces | None = None) -> Floats:
    """Apply every function of a convert to the values.

    Parameters
    ----------
    operator
        The functions.
    values
        Shape (time cells, places); or (readings,), for functions that do not depend on place and time.
    where
        Place and time of the values; required if a function is `placed`.
    """
    for number, (call, row) in enumerate(zip(operator.calls, operator.list_rows(), strict=True)):
        try:
            values = row.apply(values, call.arguments, where) if row.placed else row.apply(values, call.arguments)
        except Fault as fault:
            fault.call = number
            raise
    return values


def locate_values(node: Perspective, places: NDArray[np.intp]) -> tuple[CellPlaces, str]:
    """Locate values in space and time, with a note if an elevation was assumed.

    Parameters
    ----------
    node
        The perspective; its stations have lon and lat.
    places
        Flat cells of its grid, or series.
    """
    stations, space, time = node.list_bases()[0].stations, node.topology.space, node.topology.time
    if isinstance(space, Grid | Points):
        heights_m = space.heights_m(places)
        points, known = space.centres(places), np.full(len(places), np.nan) if heights_m is None else heights_m
    elif isinstance(space, SeriesAxis):
        points, known = np.stack([space.x, space.y], axis=1)[places], space.elevation_m[places]
    else:
        raise TypeError("a zone or a band has many places")
    if isinstance(node.operator, Convert) and node.operator.layers:
        placed = np.isfinite(points).all(axis=1) & np.isnan(known)
        known = known.copy()
        known[placed] = node.bases[0].source.layer(ELEVATION).sample(points[placed])
    note = ""
    if np.isnan(known).any():
        heights = stations.elevation_m[np.isfinite(stations.elevation_m)]
        assumed = float(heights.mean()) if len(heights) else 0.0
        known = np.where(np.isnan(known), assumed, known)
        note = f"the clear sky is that of {assumed:.0f} m where the elevation is not known"
    return CellPlaces(time.corners, find_lengths_ns(time), points[:, 0], points[:, 1], known), note


@contextmanager
def name_faulty_cell(
    node: Perspective, places: NDArray[np.intp] | None = None, times: NDArray[np.intp] | slice | None = None
) -> Iterator[None]:
    """Turn a fault inside the context into an error naming step and cell.

    Parameters
    ----------
    node
        The perspective being computed.
    places, times
        Its places and time cells being computed, in order; None for all.

    Raises
    ------
    InvalidFunction
        Raised in place of a `Fault`.
    """
    try:
        yield
    except Fault as fault:
        topology = node.topology
        columns = np.arange(topology.space.count) if places is None else places
        corners = topology.time.corners[slice(None) if times is None else times]
        row, column = divmod(fault.at or 0, max(len(columns), 1))
        # If the position is unknown, name the first of the cells that were computed together.
        begin = "in the cell" if fault.at is not None else "in the cells from"
        where = f"{begin} {format_instant(int(corners[row]))} {_format_place(node, int(columns[column]))}"
        raise InvalidFunction(f"{_step_prefix(node, fault)}{fault} ({where})") from fault.__cause__


@contextmanager
def name_faulty_reading(node: Perspective, readings: Readings, rows: NDArray[np.intp] | None = None) -> Iterator[None]:
    """Turn a fault in converting readings, or some rows of them, into an error naming step and reading."""
    try:
        yield
    except Fault as fault:
        at = (fault.at or 0) if rows is None else int(rows[fault.at or 0])
        begin = "in the reading of" if fault.at is not None else "in the readings from"
        when = format_instant(int(readings.starts_ns()[at]))
        raise InvalidFunction(
            f"{_step_prefix(node, fault)}{fault} ({begin} {when} {_format_place(node, int(readings.index[at]))})"
        ) from fault.__cause__


def _step_prefix(node: Perspective, fault: Fault) -> str:
    return f"{node.steps[fault.call]}: " if fault.call < len(node.steps) else ""


def _format_place(node: Perspective, place_index: int) -> str:
    space = node.topology.space
    if isinstance(space, SeriesAxis):
        return f"at station {space.series[place_index].station!r}"
    if isinstance(space, ZoneCells):
        return f"in zone {space.zones.names[place_index]!r}"
    if isinstance(space, Points):
        return f"at point {place_index % len(space.at)}"
    numbers = np.unravel_index(place_index, space.shape)
    corners = zip(space.axes[::-1], numbers[::-1], strict=True)
    return "at " + ", ".join(
        f"{axis.name} {axis.corners[number] / PER_UNIT[axis.quantum]:.7g}" for axis, number in corners
    )
