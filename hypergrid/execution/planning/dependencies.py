"""Time cells of its sources that a perspective needs for some of its own.

They determine how a box passes through a chain. Through aggregates this is interval arithmetic (topology/cover.py),
through an interpolation in time the reach of its method; any other step has the time cells of its source.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.operators.grids import TimePart
from hypergrid.perspective import Aggregate, InterpolateInTime, Perspective, Recur
from hypergrid.topology import (
    Bins,
    Cover,
    Instants,
    Periodic,
    Regular,
    SeriesAxis,
    TimeAxis,
    TimeCells,
    cover,
    find_normal_cells,
)

Times = NDArray[np.intp]
"""Indices of some time cells of a perspective, increasing, shape (chosen,)."""


@lru_cache(maxsize=64)
def make_cover(source: TimeAxis, target: TimeCells) -> Cover:
    """Return `cover`, cached for all boxes."""
    return cover(source, target)


def find_covered_cells(source: TimeAxis, target: TimeCells, operator: Aggregate, times: Times) -> tuple[Times, Cover]:
    """Return the source cells under cells of an aggregate over time, and their cover.

    If they need none, the first source cell is returned, which covers nothing.
    """
    whole = make_cover(source, target)
    if operator.row.prepare is not None:
        # How far back the last value before a cell lies depends on the values: all source cells are needed.
        return np.arange(source.count), Cover(whole.first[times], whole.stop[times], whole.members)
    needed, between = whole.select_targets(times)
    return (needed if len(needed) else np.zeros(1, dtype=np.intp)), between


# At least one cell, so that notes on places are still collected.


def make_time_part(
    times: tuple[TimeAxis, TimeCells], operator: Aggregate, wanted: Times | None
) -> tuple[Times | None, TimePart | None]:
    """Return the source cells and cover of some aggregated time cells; None for all."""
    if wanted is None:
        return None, None
    needed, ranges = find_covered_cells(*times, operator, wanted)
    return needed, TimePart(wanted, ranges, needed)


def find_reached_cells(node: Perspective, operator: InterpolateInTime, times: Times) -> Times:
    """Return the range of source cells whose values may affect some instants."""
    axis, source = node.source.topology.space, node.source.topology.time
    if not isinstance(axis, SeriesAxis):
        raise TypeError("an interpolation in time is at stations")
    if isinstance(source, Periodic):
        # Each periodic cell is at many times.
        return np.arange(source.count)
    instants = node.topology.time.corners[times]
    reach = operator.reach_ns(axis) + _longest_ns(source)
    first = int(np.searchsorted(source.corners, instants[0] - reach))
    stop = int(np.searchsorted(source.corners, instants[-1] + reach, side="right"))
    return np.arange(first, stop) if stop > first else np.zeros(1, dtype=np.intp)


def recurred(node: Perspective, times: Times | None) -> tuple[Times, Times]:
    """Return the distinct climatology cells of some time cells, and their positions therein."""
    numbers = find_normal_cells(node.source.topology.time, node.topology.time)
    needed, places = np.unique(numbers if times is None else numbers[times], return_inverse=True)
    return needed, places


def _longest_ns(axis: TimeAxis) -> int:
    if isinstance(axis, Bins):
        return int(axis.lengths.max(initial=0))
    return axis.length if isinstance(axis, Regular) else 0


def find_needed_cells(node: Perspective, times: Times) -> Times | None:
    """Return the source time cells that `times` need; None if the sources are readings."""
    operator, time = node.operator, node.topology.time
    if node.sources and node.source.holds_readings:
        return None
    if isinstance(operator, InterpolateInTime):
        return find_reached_cells(node, operator, times)
    if isinstance(operator, Recur):
        return recurred(node, times)[0]
    if isinstance(operator, Aggregate) and "time" in operator.dimensions and not isinstance(time, Instants):
        return find_covered_cells(node.source.topology.time, time, operator, times)[0]
    return times


Numbers = dict[str, NDArray[np.intp]]
"""By token, a number for each time cell of a perspective."""


def first_and_last_boxes(surface: Perspective, boxes: Sequence[Times]) -> tuple[Numbers, Numbers]:
    """Find the first and last box that needs each time cell; -1 if none.

    Both are arrays by token of a perspective. The last box gives the candidate window (thesis 5.7.2.1) at any moment: a
    cell leaves it after its last box.
    """
    chain = surface.list_chain()
    first, last = ({item.token: np.full(item.topology.time.count, -1, dtype=np.intp) for item in chain} for _ in "ab")
    for number, times in enumerate(boxes):
        for token, needed in find_all_needed(surface, times).items():
            first[token][needed[first[token][needed] < 0]] = number
            last[token][needed] = number
    return first, last


def find_all_needed(surface: Perspective, times: Times) -> dict[str, Times]:
    """Find the time cells of every perspective, by token, that the surface's `times` need."""
    needed = {surface.token: times}
    # Consumers precede their sources in this order, so all needs of a perspective are known when it is visited.
    for item in reversed(surface.list_chain()):
        own = needed.get(item.token)
        below = None if own is None else find_needed_cells(item, own)
        if below is None:
            continue
        for source in item.sources:
            held = needed.get(source.token)
            needed[source.token] = below if held is None else np.union1d(held, below)
    return needed
