"""Intervals of array values, derived from their stamps."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS, Window
from hypergrid.topology import Instants, SeriesAxis, Space, TimeAxis

Integers = NDArray[np.int64]


def has_intervals(time: TimeAxis, space: Space) -> bool:
    """Return whether values belong to intervals of an array at its stations.

    An aggregate over time assigns these by interval start, like archive readings.
    """
    if not isinstance(time, Instants) or not isinstance(space, SeriesAxis):
        return False
    return any(item.statistic != "sample" for item in space.series)


def find_before_ns(axis: SeriesAxis) -> Integers:
    """Return the time from interval start to stamp of each series [ns], shape (series,)."""
    return np.array([length if stamp == "end" else 0 for length, stamp in _list_intervals(axis)], dtype=np.int64)


def find_after_ns(axis: SeriesAxis) -> Integers:
    """Return the time from stamp to interval end of each series [ns], shape (series,).

    It is 1 for samples.
    """
    ends = [0 if stamp == "end" and length else max(length, 1) for length, stamp in _list_intervals(axis)]
    return np.array(ends, dtype=np.int64)


def _list_intervals(axis: SeriesAxis) -> list[tuple[int, str]]:
    """Return the interval length [ns], 0 for samples, and the stamp of each series."""
    return [
        (0 if item.statistic == "sample" else round(item.interval_s * SECOND_NS), item.stamp) for item in axis.series
    ]


def find_span(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return the window from the first interval's start to the last one's end."""
    return Window(
        int(times_ns[0]) - int(find_before_ns(axis).max()), int(times_ns[-1]) + int(find_after_ns(axis).max())
    )


def find_start_window(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return the window of interval starts, up to just after the last one."""
    before = find_before_ns(axis)
    return Window(int(times_ns[0]) - int(before.max()), int(times_ns[-1]) - int(before.min()) + 1)
