"""Monitors of streams by themselves: what a join keeps of its streams, for those who do not join them.

All are brought up to date at every arrival and tell of the last one to two epochs (4,096 tuples of the stream each), so
that they fall as well as rise; rates are those of the last 128 tuples.
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
    RANKS_FULL,
    RECORDS_SHORT,
    KnownArrays,
)

RANKS = 4096
"""Sorted keys of each stream that there is room for at first."""
SLACK = 1024
"""Tuples that wait to be sorted, by default."""


class Monitors:
    """Scrambling factor, multiplicity, rate and lag of n streams.

    Parameters
    ----------
    streams
        How many.
    rare
        Of this many tuples one may be more disordered than `disorder` tells.

    Examples
    --------
    >>> monitors = Monitors(2)
    >>> monitors.observe(stream=[0, 0, 0, 1], key=[3, 1, 1, 1], arrival=[0, 10**9, 2 * 10**9, 2 * 10**9])
    >>> monitors.scrambling_factor.tolist(), monitors.multiplicity.tolist(), monitors.lag()[0, 1].item()
    ([2, 0], [2, 1], 1.0)
    """

    def __init__(self, streams: int, *, rare: int = RARE) -> None:
        if streams < 1 or rare < 1:
            message = f"monitors need at least one stream, and rare= of at least 1; got {streams} and {rare}"
            raise InvalidQuery(message)
        self._rare = rare
        self._state = state.make_state(streams, ranks=RANKS, scattered=True, timed=False, jump=0)
        self._state.monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
        self._known = KnownArrays(np.full(streams, np.nan), np.full((streams, streams), np.nan))

    def observe(self, stream: ArrayLike, key: ArrayLike, arrival: ArrayLike) -> None:
        """Take note of tuples in order of arrival: stream, key and arrival [ns] of each, shape (m,).

        Raises
        ------
        InvalidQuery
            Columns of different lengths or of no whole numbers, or a stream out of range.
        """
        given = parse_integers("stream", stream), parse_keys("key", key), parse_integers("arrival", arrival)
        streams, keys, arrivals = (np.array(column, np.int64) for column in given)
        n = len(self._state.monitors.per)
        if not streams.shape == keys.shape == arrivals.shape or streams.ndim != 1:
            message = f"monitors need columns of one length; got {streams.shape}, {keys.shape} and {arrivals.shape}"
            raise InvalidQuery(message)
        if len(streams) and not 0 <= int(streams.min()) <= int(streams.max()) < n:
            message = f"monitors of {n} streams need streams 0 to {n - 1}; got {streams.min()} to {streams.max()}"
            raise InvalidQuery(message)
        numbers = streams.astype(np.int32)
        code, start = lags.observe_tuples(self._state.monitors, numbers, keys, arrivals, self._rare, 0)
        while code != DONE:
            if code == RECORDS_SHORT:
                state.grow_records(self._state, 2 * self._state.monitors.records.shape[1])
            elif code == RANKS_FULL:
                state.grow_ranks(self._state, 2 * self._state.monitors.ranks.shape[1])
            code, start = lags.observe_tuples(self._state.monitors, numbers, keys, arrivals, self._rare, start)

    @property
    def physical_index(self) -> NDArray[np.int64]:
        """Tuples of each stream so far: the physical index of its last one, shape (n,)."""
        return self._state.monitors.per[:, COUNT].copy()

    @property
    def scrambling_factor(self) -> NDArray[np.int64]:
        """Scrambling factor of each stream [tuples] (definition 3.2.2), shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([scrambling(stream_state, stream) for stream in range(len(stream_state))], np.int64)

    @property
    def multiplicity(self) -> NDArray[np.int64]:
        """The most tuples with one key, shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([multiplicity(stream_state, stream) for stream in range(len(stream_state))], np.int64)

    @property
    def disorder(self) -> NDArray[np.int64]:
        """Quantile of how far keys lie below the greatest before them [key units], to 1/32; shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([max(0, disorder_of(stream_state, stream)) for stream in range(len(stream_state))], np.int64)

    def rate_hz(self, clock_ns: int | None = None) -> NDArray[np.float64]:
        """Return the rate of each stream until an instant, by default its last arrival [Hz]; NaN before two tuples."""
        monitors = self._state.monitors
        clocks = monitors.per[:, LAST] if clock_ns is None else np.full(len(monitors.per), clock_ns)
        rates = [
            rate_of(monitors.per, monitors.rates, self._known.rate, i, int(clock)) for i, clock in enumerate(clocks)
        ]
        return np.array(rates, np.float64)

    def lag(self) -> NDArray[np.float64]:
        """Return the lag from each stream (row) to each other (column) [tuples], 0 on the diagonal (definition 3.2.6).

        A leading stream's is how many of its tuples have keys beyond the greatest of the other: the greatest lower
        bound that the arrivals allow where it is in order. A lagging stream's is negative: what it lacks of the other's
        tuples, at its own rate.
        """
        monitors, n = self._state.monitors, len(self._state.monitors.per)
        lag_matrix = np.zeros((n, n))
        clock, known = int(monitors.per[:, LAST].max()), self._known
        lags.fill_lags(monitors.per, monitors.rates, monitors.ranks, known.rate, known.lag, clock, lag_matrix)
        return lag_matrix

    def virtual_index(self, stream: int, key: int) -> tuple[int, int]:
        """Return the least and the greatest virtual index of a key among what has arrived (definition 3.2.5), from 1.

        Where the stream did not bring the key, the greatest is one below the least. Exact for keys among the last
        thousand or more of the stream.
        """
        monitors = self._state.monitors
        min_index = lags.least_index(monitors.per, monitors.ranks, stream, key)
        return min_index, lags.greatest_index(monitors.per, monitors.ranks, stream, key)


class DependentMonitor:
    """The dependent scrambling factor from one column of a stream to another (definition 3.4.1).

    It is the scrambling factor on the second column when the stream is sorted on the first. Tuples are sorted within a
    buffer as they come, which is exact where the first column's scrambling factor is not above `slack`.

    Parameters
    ----------
    slack
        Tuples that wait to be sorted.

    Examples
    --------
    >>> monitor = DependentMonitor()
    >>> monitor.observe(first=[2, 1, 3], second=[10, 30, 20])
    >>> monitor.scrambling_factor
    2
    """

    def __init__(self, *, slack: int = SLACK) -> None:
        if slack < 0:
            message = f"a dependent scrambling factor needs a slack of 0 tuples or more; got {slack}"
            raise InvalidQuery(message)
        self._slack = slack
        self._state = state.make_state(1, ranks=0, scattered=True, timed=False, jump=0)
        self._state.monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
        self._waiting = np.zeros((4 * slack + 4, 2), np.int64)
        self._ends = np.zeros(2, np.int64)

    def observe(self, first: ArrayLike, second: ArrayLike) -> None:
        """Take note of tuples in order of arrival, by their keys on both columns, shape (m,).

        Raises
        ------
        InvalidQuery
            Columns of different lengths.
        """
        first_keys, other = (np.array(parse_keys(*each), np.int64) for each in (("first", first), ("second", second)))
        if first_keys.shape != other.shape or first_keys.ndim != 1:
            message = (
                f"a dependent scrambling factor needs two columns of one length; got {first_keys.shape} and "
                f"{other.shape}"
            )
            raise InvalidQuery(message)
        _sort_pairs(self._state, self._waiting, self._ends, first_keys, other, self._slack)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return all that it remembers, as columns of a snapshot."""
        own_state = self._state
        names = ("per", "records", "rates", "spread")
        return {
            "waiting": self._waiting,
            "ends": self._ends,
            **{name: getattr(own_state.monitors, name) for name in names},
        }

    def restore(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Be as `columns` told."""
        own = dict(columns)
        self._waiting, self._ends = own.pop("waiting"), own.pop("ends")
        self._slack = len(self._waiting) // 4 - 1
        self._state.monitors = self._state.monitors._replace(**own)

    @property
    def scrambling_factor(self) -> int:
        """Of the last one to two epochs [tuples], what waits included."""
        monitors = self._state.monitors
        ahead = state.JoinState(
            self._state.join_state,
            self._state.steps,
            monitors._replace(per=monitors.per.copy(), records=monitors.records.copy(), spread=monitors.spread.copy()),
            self._state.held,
            self._state.rows,
        )
        waiting = self._waiting[self._ends[0] : self._ends[1]]
        none = np.zeros((4, 2), np.int64)
        _sort_pairs(ahead, none, np.zeros(2, np.int64), waiting[:, 0].copy(), waiting[:, 1].copy(), 0)
        return int(scrambling(ahead.monitors.per, 0))


def _sort_pairs(
    own_state: state.JoinState,
    waiting: NDArray[np.int64],
    ends: NDArray[np.int64],
    first: NDArray[np.int64],
    second: NDArray[np.int64],
    slack: int,
) -> None:
    code, start = lags.sort_along(own_state.monitors, waiting, ends, first, second, slack, RARE, 0)
    while code != DONE:
        state.grow_records(own_state, 2 * own_state.monitors.records.shape[1])
        code, start = lags.sort_along(own_state.monitors, waiting, ends, first, second, slack, RARE, start)
