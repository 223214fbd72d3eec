"""Invalidation: the cells of a perspective that changed slices of its bases can affect.

Time passes through a chain in one direction: a convert, a merge and an interpolation over space keep the time cells, an
aggregate covers them, an interpolation in time reaches as far as its longest gap, and a normal reaches all cells that
recur in it. So the windows in which an archive changed are propagated from the base to the surface.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS, Window
from hypergrid.interpolation import Variogram
from hypergrid.interpolation.solvers.trend import trend_of
from hypergrid.perspective import Aggregate, Base, Interpolate, InterpolateInTime, Perspective, Recur
from hypergrid.topology import Instants, Periodic, SeriesAxis, TimeAxis, blocks_of, cover, find_normal_cells

Changes = Mapping[str, Sequence[Window]]
"""Windows of the written slices, by variable."""


def affected_time_cells(node: Perspective, changes: Changes) -> NDArray[np.bool_]:
    """Mask the time cells of a perspective that may have changed, shape (time cells,)."""
    operator, time = node.operator, node.topology.time
    if isinstance(operator, Base):
        return _mask_cells(time, _reading_windows(node, changes))
    if isinstance(operator, Aggregate) and "time" in operator.dimensions:
        return _mask_covering(node, changes)
    if isinstance(operator, InterpolateInTime):
        reach_ns = operator.reach_ns(_require_series(node.source))
        return _mask_cells(time, [_widen_window(window, reach_ns) for window in _source_windows(node.source, changes)])
    if isinstance(operator, Recur):
        return affected_time_cells(node.source, changes)[find_normal_cells(node.source.topology.time, time)]
    touched_mask = np.logical_or.reduce([affected_time_cells(source, changes) for source in node.sources])
    if isinstance(operator, Interpolate) and is_fitted_to_data(operator) and touched_mask.any():
        return np.ones_like(touched_mask)
    return np.asarray(touched_mask, dtype=bool)


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


def _mask_covering(node: Perspective, changes: Changes) -> NDArray[np.bool_]:
    """Mask the cells of an aggregate over time that cover a change."""
    source, time, operator = node.source, node.topology.time, node.operator
    if isinstance(operator, Aggregate) and operator.reach_ns:
        # A function that looks around is affected by changes before and after its cells.
        return _mask_cells(
            time, [_widen_window(window, operator.reach_ns) for window in _source_windows(source, changes)]
        )
    if source.holds_readings:
        return _mask_cells(time, _reading_windows(source, changes))
    if isinstance(time, Instants):
        raise TypeError("an aggregate over time has cells")
    ranges = cover(source.topology.time, time)
    below = affected_time_cells(source, changes)
    before = np.append(0, np.cumsum(below if ranges.members is None else below[ranges.members]))
    return np.asarray(before[ranges.stop] > before[ranges.first])


def _reading_windows(node: Perspective, changes: Changes) -> list[Window]:
    """Return the windows in which intervals of changed readings may begin."""
    base = node.list_bases()[0]
    if not isinstance(base.operator, Base):
        raise TypeError("a base has a source")
    # Readings are stored by their stamp.
    ends = [series.interval_s for series in _require_series(base).series if series.stamp == "end"]
    longest_ns = round(max(ends, default=0.0) * SECOND_NS)
    written = changes.get(base.operator.source.variable.name, ())
    return [Window(window.start_ns - longest_ns, window.stop_ns) for window in written]


def _source_windows(node: Perspective, changes: Changes) -> list[Window]:
    """Return the windows of changes in the source of a step that looks around."""
    if node.holds_readings:
        return _reading_windows(node, changes)
    starts, ends = _block_bounds(node.topology.time)
    changed = affected_time_cells(node, changes)
    return [Window(*edges) for edges in zip(starts[changed].tolist(), ends[changed].tolist(), strict=True)]


def _widen_window(window: Window, reach_ns: int) -> Window:
    return Window(window.start_ns - reach_ns, window.stop_ns + reach_ns)


def _mask_cells(time: TimeAxis, windows: Sequence[Window]) -> NDArray[np.bool_]:
    """Mask the cells that share an instant with any of the windows."""
    starts, ends = _block_bounds(time)
    block_mask = np.zeros(len(starts), dtype=bool)
    for window in windows:
        block_mask |= (starts < window.stop_ns) & (ends > window.start_ns)
    if not isinstance(time, Periodic):
        return block_mask
    cells = np.zeros(time.count, dtype=bool)
    cells[time.owners[block_mask]] = True
    return cells


def _block_bounds(time: TimeAxis) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # An instant is a cell of one nanosecond.
    return (time.corners, time.corners + 1) if isinstance(time, Instants) else blocks_of(time)


def _require_series(node: Perspective) -> SeriesAxis:
    if not isinstance(node.topology.space, SeriesAxis):
        raise TypeError("readings lie at series")
    return node.topology.space
