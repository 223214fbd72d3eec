"""Narrow perspectives to fewer cells, by the windows and instants that values stand for."""

from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.perspective.sources.array_source import find_before_ns, has_intervals
from hypergrid.perspective.tree import Aggregate, Base, Interpolate, InterpolateInTime, Perspective, Recur
from hypergrid.topology import (
    Bins,
    Instants,
    Periodic,
    Regular,
    SeriesAxis,
    TimeAxis,
    Topology,
    axes_of,
    blocks_of,
    replace_axes,
)

ALL = slice(None)


def restrict(node: Perspective, time: slice, space: tuple[slice, ...] = ()) -> Perspective:
    """Narrow a perspective to some cells; every cell keeps its value.

    Parameters
    ----------
    node
        Perspective to narrow.
    time
        Range of time cells; each range contains at least one cell.
    space
        Ranges along each axis of the space, in order; all cells if empty.
    """
    space = space or (ALL,) * len(axes_of(node.topology.space))
    topology = _cut_topology(node.topology, time, space)
    # The same object keeps its cached token.
    if topology.shape == node.topology.shape:
        return node
    operator = node.operator
    if isinstance(operator, Base):
        axis = topology.time
        inside = operator.window.intersect(Window(axis.origin, axis.stop))
        return replace(node, topology=topology, operator=replace(operator, window=inside or operator.window))
    if isinstance(operator, Aggregate):
        sources: tuple[Perspective, ...] = (_restrict_below(node, operator, topology, time, space),)
    elif isinstance(operator, Interpolate):
        # Any station may affect any cell, so only time is narrowed.
        sources = (restrict(node.source, time),)
    elif isinstance(operator, InterpolateInTime):
        sources = (_restrict_around(node.source, operator, topology.time),)
    elif isinstance(operator, Recur):
        # A climatology needs all times, whichever cells are requested.
        sources = (restrict(node.source, ALL, space),)
    else:
        sources = tuple(restrict(source, time, space) for source in node.sources)
    return replace(node, topology=topology, sources=sources)


def narrow_source(node: Perspective) -> Perspective:
    """Narrow the source of an aggregate to what its cells need."""
    every = (ALL,) * len(axes_of(node.topology.space))
    return replace(node, sources=(_restrict_below(node, node.aggregate, node.topology, ALL, every),))


def _cut_topology(topology: Topology, time: slice, space: tuple[slice, ...]) -> Topology:
    parts = [axis.part(*s.indices(axis.count)[:2]) for axis, s in zip(axes_of(topology.space), space, strict=True)]
    return Topology(topology.time.part(*time.indices(topology.time.count)[:2]), replace_axes(topology.space, parts))


def _restrict_below(
    node: Perspective, operator: Aggregate, topology: Topology, time: slice, parts: tuple[slice, ...]
) -> Perspective:
    source = node.source
    if "time" in operator.dimensions:
        start_ns, stop_ns = topology.time.origin - operator.reach_ns, topology.time.stop + operator.reach_ns
        if source.holds_readings:
            return restrict_readings(source, Window(start_ns, stop_ns))
        # A value may be stamped after the cell in which its interval begins.
        late_ns = find_latest_stamp_ns(source) if isinstance(topology.space, SeriesAxis) else 0
        time = _find_covered(source.topology.time, topology.time, late_ns)
        if operator.reach_ns:
            edges = _clip_to_int64(start_ns, stop_ns)
            first, stop = (int(edge) for edge in np.searchsorted(source.topology.time.corners, edges))
            time = slice(min(time.start, first), max(time.stop, stop))
    space, below = topology.space, source.topology.space
    if type(space) is not type(below):
        # Any source cell may lie in a zone or a band.
        return restrict(source, time)
    axes = zip(axes_of(below), axes_of(space), parts, strict=True)
    return restrict(
        source, time, tuple(_find_covered(b, a) if a.name in operator.dimensions else s for b, a, s in axes)
    )


def find_latest_stamp_ns(node: Perspective) -> int:
    """Return the longest delay from interval start to stamp of an array [ns], else 0."""
    time, space = node.topology.time, node.topology.space
    if not isinstance(space, SeriesAxis) or not has_intervals(time, space):
        return 0
    return int(find_before_ns(space).max())


def _restrict_around(source: Perspective, operator: InterpolateInTime, instants: TimeAxis) -> Perspective:
    """Narrow a source to the values within reach of instants."""
    time, reach_ns = source.topology.time, operator.reach_ns(source.stations)
    start, stop = instants.origin - reach_ns, instants.stop + reach_ns
    if source.holds_readings:
        # Readings are read by interval start, but their value applies within the interval.
        longest_ns = max((round(series.interval_s * SECOND_NS) for series in source.series), default=0)
        return restrict_readings(source, Window(start - longest_ns, stop))
    if isinstance(time, Regular):
        # Cell values are stamped at the middle of the cell.
        first, end = (find_index(time, edge - time.length // 2) for edge in (start, stop))
    else:
        first, end = (
            int(edge) for edge in np.searchsorted(find_standing_instants_ns(time), _clip_to_int64(start, stop))
        )
    first = min(first, time.count - 1)
    return restrict(source, slice(first, max(end, first + 1)))


def _find_covered(source: TimeAxis, target: TimeAxis, late_ns: int = 0) -> slice:
    """Return the range of source cells from the first to the last target cell.

    Instants up to `late_ns` [ns] after the last target cell are included. If the range is empty (a gap), the nearest
    cell is kept: it lies in no target cell, so the targets stay empty.
    """
    if isinstance(source, Periodic):
        return ALL
    if isinstance(source, Regular):
        # Arithmetic, not a list of cells: a regular axis may have 10^13 of them.
        first = max(-(-(target.origin - source.origin) // source.step), 0)
        stop = min((target.stop - source.length - source.origin) // source.step + 1, source.count)
    else:
        edges = _clip_to_int64(target.origin, target.stop + late_ns)
        first = int(np.searchsorted(source.corners, edges[0]))
        ends = blocks_of(source)[1] if isinstance(source, Bins) else source.corners + 1
        stop = int(np.searchsorted(ends, edges[1], side="right"))
    # An axis cannot be empty.
    first = min(first, source.count - 1)
    return slice(first, max(stop, first + 1))


def find_index(axis: TimeAxis, bound: int) -> int:
    """Return the first cell whose corner is at or above a bound."""
    if isinstance(axis, Regular):
        # Arithmetic, not a list of cells: a regular axis may have 10^13 of them.
        return min(max(-(-(bound - axis.origin) // axis.step), 0), axis.count)
    return int(np.searchsorted(axis.corners, bound))


def _clip_to_int64(*edges: int) -> tuple[int, ...]:
    return tuple(min(max(edge, -(2**63)), 2**63 - 1) for edge in edges)


def restrict_readings(node: Perspective, window: Window) -> Perspective:
    """Narrow readings (a base or its converts) to intervals that start in a window.

    If the base has none, one slice is kept, as in `_find_covered`.
    """
    operator = node.operator
    if not isinstance(operator, Base):
        source = restrict_readings(node.source, window)
        return replace(node, sources=(source,), topology=source.topology)
    start = operator.window.start_ns
    inside = operator.window.intersect(window) or Window(start, start + 1)
    axis = operator.source.time_axis(inside)
    if axis is None:
        raise TypeError(f"{operator.source.variable.name} is an array, not readings")
    return replace(node, topology=Topology(axis, node.topology.space), operator=replace(operator, window=inside))


def widen_readings(node: Perspective, reach_ns: int) -> Perspective:
    """Extend the window of readings by `reach_ns` on both sides; cells stay the same."""
    operator = node.operator
    if not isinstance(operator, Base):
        return replace(node, sources=(widen_readings(node.source, reach_ns),))
    window = Window(operator.window.start_ns - reach_ns, operator.window.stop_ns + reach_ns)
    return replace(node, operator=replace(operator, window=window))


INSTANT_NS: Final = 1
"""Length of an instant cell [ns]: the shortest half-open interval."""


def are_instants(axis: TimeAxis) -> bool:
    return isinstance(axis, Instants) or (isinstance(axis, Regular) and axis.length == INSTANT_NS)


def find_standing_instants_ns(axis: TimeAxis) -> NDArray[np.int64]:
    """Return the timestamps of cell values [ns since 1970 UTC], shape (count,).

    Cells with an extent are stamped at their middle.
    """
    return axis.corners + find_lengths_ns(axis) // 2


def find_lengths_ns(axis: TimeAxis) -> int | NDArray[np.int64]:
    """Return the length of cells [ns], common or of shape (count,); 0 for instants and periodic cells."""
    if isinstance(axis, Bins):
        return axis.lengths
    return axis.length if isinstance(axis, Regular) else 0


def find_reading_instants_ns(readings: Readings) -> NDArray[np.int64]:
    """Return the timestamps of readings [ns since 1970 UTC], shape (n,).

    A sample keeps its stamp; the value of an interval is stamped at its middle, or keeps its stamp if that does not say
    which end of the interval it marks.
    """
    shift = np.array([_find_shift_ns(series) for series in readings.series] or [0], np.int64)
    return readings.time_ns + shift[readings.index] if shift.any() else readings.time_ns


def _find_shift_ns(series: Series) -> int:
    if series.statistic == "sample" or series.stamp == "instant":
        return 0
    half = round(series.interval_s * SECOND_NS) // 2
    return half if series.stamp == "start" else -half


def describe_interval_values(node: Perspective) -> str | None:
    """Describe values that belong to whole intervals; None for all others."""
    operator = node.operator
    if isinstance(operator, Base):
        statistics = {series.statistic for series in node.series} & {"total", "max", "min"}
        return f"{min(statistics)} values of the stations" if statistics else None
    if isinstance(operator, Aggregate) and not operator.row.of_instants:
        return f"a {operator.function} of each cell"
    return next(filter(None, map(describe_interval_values, node.sources)), None)
