"""Stand-alone monitors of streams: the parameters that a join monitors, without joining.

All are updated at every arrival and cover the last one to two epochs (4,096 tuples of the stream each), so they fall as
well as rise; rates cover the last 128 tuples.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join import lags, state
from hypergrid.wo_join.batches import parse_integers, parse_keys
from hypergrid.wo_join.config import RARE
from hypergrid.wo_join.observe import disorder_of, multiplicity, rate_of, scrambling
from hypergrid.wo_join.state_layout import (
    COUNT,
    DONE,
    KNOWN_DISPLACED,
    KNOWN_REPEATED,
    LAST,
    RECORDS_SHORT,
    KnownArrays,
    MonitorState,
    SortBuffer,
)

RANKS = 4096
"""Initial capacity for sorted keys of each stream."""
SLACK = 1024
"""Default size of the sort buffer [tuples]."""


class Monitors:
    """Scrambling factor, multiplicity, rate and lag of n streams.

    Parameters
    ----------
    streams
        Number of streams.
    rare
        One in this many tuples may exceed `disorder`.

    Examples
    --------
    >>> monitors = Monitors(2)
    >>> monitors.observe(stream=[0, 0, 0, 1], key=[3, 1, 1, 1], arrival=[0, 10**9, 2 * 10**9, 2 * 10**9])
    >>> monitors.scrambling_factor.tolist(), monitors.multiplicity.tolist(), monitors.lag()[0, 1].item()
    ([2, 0], [2, 1], 1.0)
    """

    def __init__(self, streams: int, *, rare: int = RARE) -> None:
        if streams < 1 or rare < 1:
            raise InvalidQuery(f"monitors need at least one stream, and rare= of at least 1; got {streams} and {rare}")
        self._rare = rare
        self._monitors = state.make_monitors(streams, RANKS)
        self._monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
        self._known = KnownArrays(np.full(streams, np.nan), np.full((streams, streams), np.nan))

    def observe(self, stream: ArrayLike, key: ArrayLike, arrival: ArrayLike) -> None:
        """Update the monitors with tuples in order of arrival.

        Stream, key and arrival [ns] of each tuple have shape (m,).

        Raises
        ------
        InvalidQuery
            Columns of different lengths or not of whole numbers, or a stream out of range.
        """
        given = parse_integers("stream", stream), parse_keys("key", key), parse_integers("arrival", arrival)
        streams, keys, arrivals = (np.array(column, np.int64) for column in given)
        n = len(self._monitors.per)
        if not streams.shape == keys.shape == arrivals.shape or streams.ndim != 1:
            raise InvalidQuery(
                f"monitors need columns of one length; got {streams.shape}, {keys.shape} and {arrivals.shape}"
            )
        if len(streams) and not 0 <= int(streams.min()) <= int(streams.max()) < n:
            raise InvalidQuery(
                f"monitors of {n} streams need streams 0 to {n - 1}; got {streams.min()} to {streams.max()}"
            )
        numbers = streams.astype(np.int32)
        code, start = lags.observe_tuples(self._monitors, numbers, keys, arrivals, self._rare, 0)
        while code != DONE:
            grow = state.grow_records if code == RECORDS_SHORT else state.grow_ranks
            self._monitors = grow(self._monitors)
            code, start = lags.observe_tuples(self._monitors, numbers, keys, arrivals, self._rare, start)

    @property
    def physical_index(self) -> NDArray[np.int64]:
        """Physical index of each stream's last tuple: its number of tuples so far, shape (n,)."""
        return self._monitors.per[:, COUNT].copy()

    @property
    def scrambling_factor(self) -> NDArray[np.int64]:
        """Scrambling factor of each stream [tuples] (definition 3.2.2), shape (n,)."""
        return np.array([scrambling(self._monitors.per, i) for i in range(len(self._monitors.per))], np.int64)

    @property
    def multiplicity(self) -> NDArray[np.int64]:
        """Most tuples with one key in each stream, shape (n,)."""
        return np.array([multiplicity(self._monitors.per, i) for i in range(len(self._monitors.per))], np.int64)

    @property
    def disorder(self) -> NDArray[np.int64]:
        """Quantile of the distance of keys below the greatest before [key units], to 1/32; shape (n,)."""
        return np.array([max(0, disorder_of(self._monitors.per, i)) for i in range(len(self._monitors.per))], np.int64)

    def rate_hz(self, clock_ns: int | None = None) -> NDArray[np.float64]:
        """Return each stream's rate [Hz] up to `clock_ns` (default: its last arrival); NaN before two tuples."""
        monitors = self._monitors
        clocks = monitors.per[:, LAST] if clock_ns is None else np.full(len(monitors.per), clock_ns)
        rates = [rate_of(monitors, self._known, i, int(clock)) for i, clock in enumerate(clocks)]
        return np.array(rates, np.float64)

    def lag(self) -> NDArray[np.float64]:
        """Return the lag [tuples] from each stream (row) to each other (column; definition 3.2.6).

        The diagonal is 0. For a leading stream the lag is the number of its tuples with keys beyond the greatest of the
        other: the greatest lower bound that the arrivals allow if the stream is in order. For a lagging stream it is
        negative: the number of the other's tuples that it lacks, converted to its own rate.
        """
        lag_matrix = np.zeros_like(self._monitors.reaches)
        lags.fill_lags(self._monitors, self._known, int(self._monitors.per[:, LAST].max()), lag_matrix)
        return lag_matrix

    def virtual_index(self, stream: int, key: int) -> tuple[int, int]:
        """Return a key's least and greatest virtual index among the arrivals (definition 3.2.5), from 1.

        For a key that the stream has not brought, the greatest is one less than the least. Exact for keys among the
        last thousand or more of the stream.
        """
        return lags.least_index(self._monitors, stream, key), lags.greatest_index(self._monitors, stream, key)


class DependentMonitor:
    """Dependent scrambling factor from one column of a stream to another (definition 3.4.1).

    This is the scrambling factor on the second column when the stream is sorted by the first. Tuples are sorted within
    a buffer as they arrive, which is exact if the first column's scrambling factor is at most `slack`.

    Parameters
    ----------
    slack
        Size of the sort buffer [tuples].

    Examples
    --------
    >>> monitor = DependentMonitor()
    >>> monitor.observe(first=[2, 1, 3], second=[10, 30, 20])
    >>> monitor.scrambling_factor
    2
    """

    def __init__(self, *, slack: int = SLACK) -> None:
        if slack < 0:
            raise InvalidQuery(f"a dependent scrambling factor needs a slack of 0 tuples or more; got {slack}")
        self._monitors = state.make_monitors(1, 0)
        self._monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
        self._buffer = _make_buffer(slack)

    def observe(self, first: ArrayLike, second: ArrayLike) -> None:
        """Update the monitor with the keys of tuples in order of arrival, shape (m,).

        Raises
        ------
        InvalidQuery
            Columns of different lengths.
        """
        first_keys, other = (np.array(parse_keys(*each), np.int64) for each in (("first", first), ("second", second)))
        if first_keys.shape != other.shape or first_keys.ndim != 1:
            raise InvalidQuery(
                f"a dependent scrambling factor needs two columns of one length; got {first_keys.shape} and "
                f"{other.shape}"
            )
        self._monitors = _sort_pairs(self._monitors, self._buffer, first_keys, other)

    def columns(self) -> dict[str, NDArray[Any]]:
        names = ("per", "records", "rates", "spread")
        return {**self._buffer._asdict(), **{name: getattr(self._monitors, name) for name in names}}

    def restore(self, columns: Mapping[str, NDArray[Any]]) -> None:
        own = dict(columns)
        self._buffer = SortBuffer(own.pop("waiting"), own.pop("ends"))
        self._monitors = self._monitors._replace(**own)

    @property
    def scrambling_factor(self) -> int:
        """Dependent scrambling factor over the last one to two epochs [tuples], including buffered tuples."""
        waiting, ends = self._buffer
        first, second = waiting[ends[0] : ends[1]].T.copy()
        # Buffered tuples are observed on a copy, because reading must not change the monitor.
        ahead = MonitorState._make(array.copy() for array in self._monitors)
        return int(scrambling(_sort_pairs(ahead, _make_buffer(0), first, second).per, 0))


def _make_buffer(slack: int) -> SortBuffer:
    return SortBuffer(np.zeros((4 * slack + 4, 2), np.int64), np.zeros(2, np.int64))


def _sort_pairs(
    monitors: MonitorState, buffer: SortBuffer, first: NDArray[np.int64], second: NDArray[np.int64]
) -> MonitorState:
    """Sort tuples by their first keys and monitor the second; return the monitors, which may have grown."""
    code, start = lags.sort_along(monitors, buffer, first, second, RARE, 0)
    while code != DONE:
        monitors = state.grow_records(monitors)
        code, start = lags.sort_along(monitors, buffer, first, second, RARE, start)
    return monitors
