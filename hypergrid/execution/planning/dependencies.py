"""Time cells of its sources that a perspective needs, buffers of them, and those that changed slices can affect.

Needed cells determine how a box passes through a chain. Through aggregates this is interval arithmetic
(topology/cover.py), through an interpolation in time the reach of its method; any other step has the time cells of its
source.

The windows in which an archive changed are propagated from the base to the surface by the same rules: a convert, a
merge and an interpolation over space keep the time cells, an aggregate covers them, an interpolation in time reaches as
far as its longest gap, and a normal reaches all cells that recur in it. `list_fitted_steps` and `needs_all_slices` tell
the steps whose cells depend on all slices, `list_contents` what steps are whatever their time and snapshot.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS, Window
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.operators.grids import TimePart
from hypergrid.interpolation import Variogram
from hypergrid.interpolation.solvers.trend import trend_of
from hypergrid.perspective import Aggregate, Base, Interpolate, InterpolateInTime, Perspective, Recur
from hypergrid.perspective.build.restrict import find_lengths_ns
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.topology import (
    Cover,
    Instants,
    Periodic,
    TimeAxis,
    TimeCells,
    blocks_of,
    cover,
    find_normal_cells,
)

Times = NDArray[np.intp]
"""Indices of some time cells of a perspective, increasing, shape (chosen,)."""


# All boxes of a run ask for the same covers.
_cached_cover = lru_cache(maxsize=64)(cover)


def find_covered_cells(source: TimeAxis, target: TimeCells, operator: Aggregate, times: Times) -> tuple[Times, Cover]:
    """Return the source cells under cells of an aggregate over time, and their cover.

    If they need none, the first source cell is returned, which covers nothing.
    """
    whole = _cached_cover(source, target)
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
    source = node.source.topology.time
    if isinstance(source, Periodic):
        # Each periodic cell is at many times.
        return np.arange(source.count)
    instants = node.topology.time.corners[times]
    reach = operator.reach_ns(node.source.stations) + int(np.max(find_lengths_ns(source)))
    first = int(np.searchsorted(source.corners, instants[0] - reach))
    stop = int(np.searchsorted(source.corners, instants[-1] + reach, side="right"))
    return np.arange(first, stop) if stop > first else np.zeros(1, dtype=np.intp)


def recurred(node: Perspective, times: Times | None) -> tuple[Times, Times]:
    """Return the distinct climatology cells of some time cells, and their positions therein."""
    numbers = find_normal_cells(node.source.topology.time, node.topology.time)
    needed, places = np.unique(numbers if times is None else numbers[times], return_inverse=True)
    return needed, places


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


Changes = Mapping[str, Sequence[Window]]
"""Windows of the written slices, by variable."""
Leaf = Callable[[Perspective, TimeAxis, int], NDArray[np.bool_]]
"""Masks the time cells of an axis that what happened to the readings of a base, or of its converts, may affect, as far
as `reach` [ns] around the cells; shape (time cells,)."""


def affected_time_cells(node: Perspective, changes: Changes) -> NDArray[np.bool_]:
    """Mask the time cells of a perspective that may have changed, shape (time cells,)."""

    def find_changed(readings: Perspective, time: TimeAxis, reach_ns: int) -> NDArray[np.bool_]:
        return mask_cells(time, [_widen_window(window, reach_ns) for window in _reading_windows(readings, changes)])

    return propagate_to_cells(node, find_changed)


def propagate_to_cells(node: Perspective, leaf: Leaf) -> NDArray[np.bool_]:
    """Mask the time cells of a perspective that what `leaf` masks above the readings may affect."""
    operator, time = node.operator, node.topology.time
    if isinstance(operator, Base):
        return leaf(node, time, 0)
    if isinstance(operator, Aggregate) and "time" in operator.dimensions:
        return _mask_covering(node, operator, leaf)
    if isinstance(operator, InterpolateInTime):
        # A value of an interval stands at its middle.
        longest_s = max((series.interval_s for base in node.list_bases() for series in base.series), default=0.0)
        return _mask_around(node, operator.reach_ns(node.source.stations) + round(longest_s * SECOND_NS / 2), leaf)
    if isinstance(operator, Recur):
        return propagate_to_cells(node.source, leaf)[find_normal_cells(node.source.topology.time, time)]
    affected = np.logical_or.reduce([propagate_to_cells(source, leaf) for source in node.sources])
    if isinstance(operator, Interpolate) and is_fitted_to_data(operator) and affected.any():
        return np.ones_like(affected)
    return np.asarray(affected, dtype=bool)


def is_fitted_to_data(operator: Interpolate) -> bool:
    """Return whether a new slice changes all slices of an interpolation.

    It does with a fitted variogram, even one fitted by slice: slices that allow no fit take the variogram of all
    slices. It also does if the trend is chosen from the data. A named trend is fitted slice by slice, and centred by
    the whole network, whichever stations report.
    """
    trend = trend_of(operator.arguments)
    if trend is not None and trend.is_chosen:
        return True
    has_model = any(parameter.name == "variogram" for parameter in operator.row.parameters)
    return has_model and not isinstance(operator.arguments.get("variogram"), Variogram)


def needs_all_slices(node: Perspective) -> bool:
    """Return whether a variance estimates its temporal correlation from all slices, as none was given."""
    below, aggregates = split_aggregates(node)
    operator = below.operator
    over_time = any("time" in item.aggregate.dimensions for item in aggregates)
    is_asked = (
        isinstance(operator, Interpolate) and operator.variance and not isinstance(operator.error_correlation, float)
    )
    return is_asked and over_time


def list_fitted_steps(node: Perspective) -> list[Perspective]:
    """Return the interpolations of a chain of which a new slice changes all slices (`is_fitted_to_data`)."""
    return [
        item
        for item in node.list_chain()
        if isinstance(item.operator, Interpolate) and is_fitted_to_data(item.operator)
    ]


def list_contents(node: Perspective) -> list[object]:
    """Return the content of each step of a chain, independent of time and snapshot."""
    return [
        (item.topology.space.token(), "base" if isinstance(item.operator, Base) else item.operator.content())
        for item in node.list_chain()
    ]


def _mask_covering(node: Perspective, operator: Aggregate, leaf: Leaf) -> NDArray[np.bool_]:
    """Mask the cells of an aggregate over time that cover an affected cell."""
    source, time = node.source, node.topology.time
    # A function that looks around is affected by changes before and after its cells.
    if operator.reach_ns or source.holds_readings:
        return _mask_around(node, operator.reach_ns, leaf)
    if isinstance(time, Instants):
        raise TypeError("an aggregate over time has cells")
    ranges = cover(source.topology.time, time)
    below = propagate_to_cells(source, leaf)
    before = np.append(0, np.cumsum(below if ranges.members is None else below[ranges.members]))
    return np.asarray(before[ranges.stop] > before[ranges.first])


def _mask_around(node: Perspective, reach_ns: int, leaf: Leaf) -> NDArray[np.bool_]:
    """Mask the cells of a step that looks around by `reach_ns`."""
    source, time = node.source, node.topology.time
    if source.holds_readings:
        return leaf(source, time, reach_ns)
    starts, ends = find_block_bounds(source.topology.time)
    affected = propagate_to_cells(source, leaf)
    edges = zip(starts[affected].tolist(), ends[affected].tolist(), strict=True)
    return mask_cells(time, [Window(start - reach_ns, end + reach_ns) for start, end in edges])


def _reading_windows(node: Perspective, changes: Changes) -> list[Window]:
    """Return the windows in which intervals of changed readings may begin."""
    # Readings are stored by their stamp.
    ends = [series.interval_s for series in node.list_bases()[0].series if series.stamp == "end"]
    longest_ns = round(max(ends, default=0.0) * SECOND_NS)
    written = changes.get(node.bases[0].source.variable.name, ())
    return [Window(window.start_ns - longest_ns, window.stop_ns) for window in written]


def _widen_window(window: Window, reach_ns: int) -> Window:
    return Window(window.start_ns - reach_ns, window.stop_ns + reach_ns)


def mask_cells(time: TimeAxis, windows: Sequence[Window]) -> NDArray[np.bool_]:
    """Mask the cells that share an instant with any of the windows."""
    starts, ends = find_block_bounds(time)
    edges = [(max(window.start_ns, -(2**63)), min(window.stop_ns, 2**63 - 1)) for window in windows]
    opening, closing = np.array(edges, np.int64).reshape(-1, 2).T
    first, stop = np.searchsorted(ends, opening, side="right"), np.searchsorted(starts, closing)
    return mask_blocks(time, first, stop)


def mask_blocks(time: TimeAxis, first: NDArray[np.intp], stop: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Mask the cells with a block in any range from `first` to below `stop`, shape (ranges,) each."""
    blocks = len(find_block_bounds(time)[0])
    opened, closed = (np.bincount(edge, minlength=blocks + 1) for edge in (first, stop))
    block_mask = np.cumsum(opened - closed)[:blocks] > 0
    if not isinstance(time, Periodic):
        return block_mask
    cells = np.zeros(time.count, dtype=bool)
    cells[time.owners[block_mask]] = True
    return cells


def find_block_bounds(time: TimeAxis) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and ends of the blocks of time cells, ascending, shape (blocks,) each."""
    # An instant is a cell of one nanosecond.
    return (time.corners, time.corners + 1) if isinstance(time, Instants) else blocks_of(time)


Compute = Callable[[Times], Cells]


class Buffer:
    """Computed time cells of a perspective over the current places that a later box needs again (thesis 5.7.2.1).

    After every box it evicts the cells outside the candidate window, which no later box needs, so its size does not
    grow with the length of the surface. Below an interpolation every box of places needs all stations again (the input
    selection of kriging from all stations; for local kriging their union over a box), so there the window reopens until
    the last places. The look-ahead of the thesis is for selections of users: they are dear, and kept by `LookAhead` of
    `perspective/functions/user_interpolation.py`.
    """

    def __init__(self) -> None:
        self._places = np.empty(0, dtype=np.intp)
        self._times = np.empty(0, dtype=np.intp)
        self._held: Cells | None = None

    def get_cells(self, places: NDArray[np.intp], times: Times, compute: Compute) -> Cells:
        """Return time cells, increasing; compute only those that are not held."""
        if not np.array_equal(places, self._places):
            self._places, self._times, self._held = places, np.empty(0, dtype=np.intp), None
        missing = times
        if len(self._times):
            # Both arrays are increasing.
            nearest = np.searchsorted(self._times[:-1], times)
            missing = times[self._times[nearest] != times]
        if len(missing):
            made = compute(missing)
            if self._held is None:
                self._held, self._times = made, missing
            else:
                order = np.argsort(np.concatenate([self._times, missing]), kind="stable")
                self._held = _join_blocks(self._held, len(self._times), made, len(missing), order)
                self._times = np.concatenate([self._times, missing])[order]
        if self._held is None:
            raise TypeError("a box asks for at least one time cell")
        return self._held.select_times(None if len(times) == len(self._times) else np.searchsorted(self._times, times))

    def evict_old(self, last: NDArray[np.intp], box: int) -> None:
        """Evict time cells whose `last` box, shape (time cells,), is not after `box`."""
        if self._held is None:
            return
        kept = last[self._times] > box
        if kept.all():
            return
        self._held = self._held.select_times(np.flatnonzero(kept)) if kept.any() else None
        self._times = self._times[kept]

    @property
    def cell_count(self) -> int:
        return 0 if self._held is None else self._held.value.size


class Buffers:
    """The buffers of a run, one per perspective that needs one."""

    def __init__(self, surface: Perspective, last: Mapping[str, NDArray[np.intp]], worth: frozenset[str]) -> None:
        """Set up the buffers from the candidate windows.

        Parameters
        ----------
        surface
            The perspective to compute.
        last
            The last box that needs each time cell, from `dependencies.first_and_last_boxes`.
        worth
            Tokens of the perspectives with cells that are needed more than once.
        """
        self._last = {token: last_boxes for token, last_boxes in last.items() if token in worth}
        self._buffers = {token: Buffer() for token in self._last}
        self._at_stations = {item.token for item in surface.list_chain() if item.is_at_stations}
        self.peak = 0
        """Maximum number of cells held after any box."""

    def has_buffer(self, node: Perspective) -> bool:
        return node.token in self._buffers

    def get_cells(self, node: Perspective, places: NDArray[np.intp], times: Times | None, compute: Compute) -> Cells:
        """Return some time cells, or all, of a perspective that has a buffer."""
        wanted = np.arange(node.topology.time.count) if times is None else times
        return self._buffers[node.token].get_cells(places, wanted, compute)

    def evict_box(self, box: int, *, last_places: bool) -> None:
        """Evict what no later box in time needs; each block of places restarts at 0."""
        for token, buffer in self._buffers.items():
            if last_places or token not in self._at_stations:
                buffer.evict_old(self._last[token], box)
        self.peak = max(self.peak, sum(buffer.cell_count for buffer in self._buffers.values()))


def _join_blocks(first: Cells, rows: int, second: Cells, more: int, order: NDArray[np.intp]) -> Cells:
    """Join two blocks over the same places, with time cells in the given order."""

    def join(left_counts: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        width = max(left_counts.shape[1], other.shape[1])
        if left_counts.shape[0] == other.shape[0] == 1 and rows + more > 2 and np.array_equal(left_counts, other):
            return left_counts
        whole = np.concatenate([np.broadcast_to(left_counts, (rows, width)), np.broadcast_to(other, (more, width))])
        return whole[order]

    value = np.concatenate([first.value, second.value])[order]
    return Cells(value, join(first.count, second.count), join(first.possible, second.possible))
