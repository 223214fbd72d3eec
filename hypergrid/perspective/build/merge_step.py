"""Build merge steps on the cells common to all sources; refuse sources without common cells."""

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_duration, format_instant
from hypergrid.core.tokens import token
from hypergrid.perspective.build.restrict import find_index, restrict
from hypergrid.perspective.functions.rows import MERGES, MergeRow
from hypergrid.perspective.sources.series_selection import find_common_stations
from hypergrid.perspective.tree import Merge, Perspective, Recur
from hypergrid.topology import (
    Bands,
    Bins,
    Grid,
    Periodic,
    Points,
    Regular,
    SeriesAxis,
    Space,
    TimeAxis,
    Topology,
    ZoneCells,
    describe_levels,
    find_normal_cells,
)
from hypergrid.topology.axes import PER_UNIT


def merge(
    name: str, sources: tuple[Perspective, ...], *, normal: frozenset[int], given: Mapping[str, Any]
) -> Perspective:
    """Merge perspectives, each narrowed to the common time cells.

    Parameters
    ----------
    name, given
        Function, and its validated parameters.
    sources
        Sources in the order of the function.
    normal
        Indices of sources that are climatologies: each cell of the others takes the value of the cell that contains it.

    Raises
    ------
    InvalidQuery
        Sources that are readings or have different cells (the message names both), or a cell that lies in no or several
        cells of a climatology.
    InvalidUnit
        Incompatible units.
    """
    row = MERGES[name]
    if any(source.holds_readings for source in sources):
        raise InvalidQuery(
            "its sources are readings with clocks of their own; align both with an aggregate over time first"
        )
    time = sources[0].topology.time
    # Climatologies have other cells, so they are left out.
    for first, second in pairwise(source for number, source in enumerate(sources) if number not in normal):
        time = _find_common_time(name, time, first, second)
    space = sources[0].topology.space
    for other in sources[1:]:
        space = _find_common_space(row, space, sources[0], other)
    narrowed = tuple(
        _look_up_normal(source, time)
        if number in normal
        else restrict(source, _locate_part(source.topology.time, time))
        for number, source in enumerate(sources)
    )
    unit = row.unit(*(source.unit for source in narrowed))
    return Perspective(narrowed, Topology(time, space), Merge(name, tuple(sorted(given.items()))), unit)


def _look_up_normal(normal: Perspective, time: TimeAxis) -> Perspective:
    # Validates now; execution repeats the lookup, from the cache.
    find_normal_cells(normal.topology.time, time)
    return Perspective((normal,), Topology(time, normal.topology.space), Recur(), normal.unit)


def _find_common_time(name: str, common: TimeAxis, first: Perspective, second: Perspective) -> TimeAxis:
    """Return the time cells of `common` that the second source has as well.

    `common` are the cells of all sources up to `first`.
    """
    other = second.topology.time
    if isinstance(common, Regular) and isinstance(other, Regular):
        same = common.step == other.step and common.length == other.length
        if same and (common.origin - other.origin) % common.step == 0:
            start = max(common.origin, other.origin)
            last = min(common.origin + common.step * common.count, other.origin + other.step * other.count)
            if start < last:
                return Regular("time", start, common.step, (last - start) // common.step, common.length)
            raise InvalidQuery(
                f"its sources have no time cell in common: {_describe_both(first, second, describe_time)}; choose "
                "times that both have, with .clip(time=…)"
            )
    elif isinstance(common, Bins) and isinstance(other, Bins):
        return find_common_bins(common, other)
    elif isinstance(common, Periodic) and isinstance(other, Periodic) and common.cycle == other.cycle:
        return find_common_cycle(common, other)
    elif type(common) is type(other) and Topology(common, first.topology.space).token() == (
        Topology(other, first.topology.space).token()
    ):
        return common
    message = f"its sources have different time cells: {_describe_both(first, second, describe_time)}; "
    if _may_be_normal(common) and not _may_be_normal(other):
        message += (
            "swap them: a climatology comes after what has the cells of the result, for example "
            f"hourly.merge({name!r}, normal)"
        )
    else:
        message += "aggregate both to the same step and length first, for example .aggregate('mean', time='1h') on each"
    raise InvalidQuery(message)


def _may_be_normal(time: TimeAxis) -> bool:
    return isinstance(time, Periodic) or (isinstance(time, Regular) and time.count == 1)


def _find_common_space(row: MergeRow, common: Space, first: Perspective, second: Perspective) -> Space:
    other = second.topology.space
    if row.matched and isinstance(common, SeriesAxis) and isinstance(other, SeriesAxis):
        return find_common_stations(common, other)
    # Series of different variables have different tokens even at the same stations.
    if common.token() != other.token() and not _same_stations(common, other):
        raise InvalidQuery(
            f"its sources have different cells in space: {_describe_both(first, second, describe_space)}; interpolate "
            "both to one grid, or use stations that have both"
        )
    return common


def _same_stations(first: Space, other: Space) -> bool:
    return (
        isinstance(first, SeriesAxis)
        and isinstance(other, SeriesAxis)
        and [series.station for series in first.series] == [series.station for series in other.series]
    )


def _locate_part(axis: TimeAxis, part: TimeAxis) -> slice:
    """Return the range of a part on its axis."""
    # Periodic cells are all in the part, and in no order of time.
    first = 0 if isinstance(axis, Periodic) else find_index(axis, part.origin)
    return slice(first, first + part.count)


def _describe_both(first: Perspective, second: Perspective, words: Callable[[Perspective], str]) -> str:
    names = [node.bases[0].source.variable.name for node in (first, second)]
    return f"the first ({names[0]}) has {words(first)}, the other ({names[1]}) has {words(second)}"


def describe_time(node: Perspective) -> str:
    axis = node.topology.time
    first = format_instant(axis.origin)
    if not isinstance(axis, Regular):
        kind = "instant" if hasattr(axis, "times_ns") else f"{axis.name} cell"
        return f"{axis.count:,} {kind}{'s' if axis.count > 1 else ''} from {first}"
    step = "" if axis.step == axis.length or axis.count == 1 else f" every {format_duration(axis.step)}"
    return f"{axis.count:,} x {format_duration(axis.length)}{step} from {first}"


def describe_space(node: Perspective) -> str:
    """Describe a perspective's places for messages: a grid with its shape, steps and corner, or their number."""
    space = node.topology.space
    if isinstance(space, Grid):
        levels = f" on {describe_levels(space.z)}" if space.z else ""
        sides = " x ".join(f"{axis.step / PER_UNIT[axis.quantum]:.6g}" for axis in (space.y, space.x))
        corner = ", ".join(f"{axis.name} {axis.origin / PER_UNIT[axis.quantum]:.6g}" for axis in (space.y, space.x))
        return f"{space.y.count} x {space.x.count} cells of {sides} from {corner}{levels}"
    if isinstance(space, Points):
        levels = f" on {describe_levels(space.z)}" if space.z else ""
        first = ", ".join(f"{float(coordinates[0]):.6g}" for coordinates in (space.x, space.y))
        plural = "s" if len(space.at) > 1 else ""
        return f"{len(space.at)} point{plural} from {first}{levels}"
    if isinstance(space, Bands):
        return f"bands, {describe_levels(space.z)}"
    if isinstance(space, ZoneCells):
        names, kind = list(space.zones.names), "zone" if space.count == 1 else "zones"
    else:
        names, kind = [series.station for series in space.series], "series"
    return f"{len(names)} {kind} ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})"


def find_common_bins(first: Bins, second: Bins) -> Bins:
    """Return the common cells of two irregular axes.

    Raises
    ------
    InvalidQuery
        The axes do not overlap, or differ where they do.
    """
    start, stop = max(first.origin, second.origin), min(first.stop, second.stop)
    if start >= stop:
        raise InvalidQuery("its sources have no time cell in common")
    first_part, other = (axis.part(*np.searchsorted(axis.starts, (start, stop)).tolist()) for axis in (first, second))
    if not np.array_equal(first_part.starts, other.starts) or not np.array_equal(first_part.ends, other.ends):
        raise InvalidQuery(
            f"its sources have different time cells: {first.describe()} and {second.describe()}; aggregate both to the "
            "same first"
        )
    return first_part


def find_common_cycle(first: Periodic, second: Periodic) -> Periodic:
    """Return the periodic cells of two sources, which must have identical blocks.

    Raises
    ------
    InvalidQuery
        The blocks cover different times.
    """
    if token(first) == token(second):
        return first
    spans = [f"{format_instant(axis.origin)} to {format_instant(axis.stop)}" for axis in (first, second)]
    raise InvalidQuery(
        f"its sources are by {first.describe()} over different times, {spans[0]} and {spans[1]}; clip the time so that "
        "both are over the same"
    )
