"""Locate failures of user functions: the step, and the first cell or reading."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidFunction
from hypergrid.core.readings import Readings
from hypergrid.core.times import format_instant
from hypergrid.perspective import Perspective
from hypergrid.perspective.functions.user_function_calls import Fault
from hypergrid.topology import Points, SeriesAxis, ZoneCells
from hypergrid.topology.axes import PER_UNIT


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
def name_faulty_reading(node: Perspective, readings: Readings) -> Iterator[None]:
    """Turn a fault in converting `readings` into an error naming step and reading."""
    try:
        yield
    except Fault as fault:
        at = fault.at or 0
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
