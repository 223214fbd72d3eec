"""Where the intervals lie that the values of an array stand for, which is known by their stamps."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS, Window
from hypergrid.topology import Instants, SeriesAxis, Space, TimeAxis

Integers = NDArray[np.int64]


def has_intervals(time: TimeAxis, space: Space) -> bool:
    """Return whether values are those of an array at its stations that stand for intervals.

    An aggregate over time takes them by the starts of these, as the readings of an archive.
    """
    if not isinstance(time, Instants) or not isinstance(space, SeriesAxis):
        return False
    return any(item.statistic != "sample" for item in space.series)


def find_before_ns(axis: SeriesAxis) -> Integers:
    """Return how far before its stamp the interval of each series begins [ns], shape (series,)."""
    return np.array([length if stamp == "end" else 0 for length, stamp in _list_intervals(axis)], dtype=np.int64)


def find_after_ns(axis: SeriesAxis) -> Integers:
    """Return how far after its stamp the interval of each series ends [ns], one of a sample, shape (series,)."""
    ends = [0 if stamp == "end" and length else max(length, 1) for length, stamp in _list_intervals(axis)]
    return np.array(ends, dtype=np.int64)


def _list_intervals(axis: SeriesAxis) -> list[tuple[int, str]]:
    """Return length [ns], 0 for samples, and stamp of the intervals of each series."""
    return [
        (0 if item.statistic == "sample" else round(item.interval_s * SECOND_NS), item.stamp) for item in axis.series
    ]


def find_span(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return from where the first interval begins to where the last one ends."""
    return Window(
        int(times_ns[0]) - int(find_before_ns(axis).max()), int(times_ns[-1]) + int(find_after_ns(axis).max())
    )


def find_start_window(times_ns: Integers, axis: SeriesAxis) -> Window:
    """Return from where the first interval begins to just after where the last one does."""
    before = find_before_ns(axis)
    return Window(int(times_ns[0]) - int(before.max()), int(times_ns[-1]) - int(before.min()) + 1)
