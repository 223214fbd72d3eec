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
    RANKS_FULL,
    RECORDS_SHORT,
    KnownArrays,
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
        self._state = state.make_state(streams, ranks=RANKS, scattered=True, timed=False, jump=0)
        self._state.monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
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
        n = len(self._state.monitors.per)
        if not streams.shape == keys.shape == arrivals.shape or streams.ndim != 1:
            raise InvalidQuery(
                f"monitors need columns of one length; got {streams.shape}, {keys.shape} and {arrivals.shape}"
            )
        if len(streams) and not 0 <= int(streams.min()) <= int(streams.max()) < n:
            raise InvalidQuery(
                f"monitors of {n} streams need streams 0 to {n - 1}; got {streams.min()} to {streams.max()}"
            )
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
        """Physical index of each stream's last tuple: its number of tuples so far, shape (n,)."""
        return self._state.monitors.per[:, COUNT].copy()

    @property
    def scrambling_factor(self) -> NDArray[np.int64]:
        """Scrambling factor of each stream [tuples] (definition 3.2.2), shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([scrambling(stream_state, stream) for stream in range(len(stream_state))], np.int64)

    @property
    def multiplicity(self) -> NDArray[np.int64]:
        """Most tuples with one key in each stream, shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([multiplicity(stream_state, stream) for stream in range(len(stream_state))], np.int64)

    @property
    def disorder(self) -> NDArray[np.int64]:
        """Quantile of the distance of keys below the greatest before [key units], to 1/32; shape (n,)."""
        stream_state = self._state.monitors.per
        return np.array([max(0, disorder_of(stream_state, stream)) for stream in range(len(stream_state))], np.int64)

    def rate_hz(self, clock_ns: int | None = None) -> NDArray[np.float64]:
        """Return each stream's rate [Hz] up to `clock_ns` (default: its last arrival); NaN before two tuples."""
        monitors = self._state.monitors
        clocks = monitors.per[:, LAST] if clock_ns is None else np.full(len(monitors.per), clock_ns)
        rates = [
            rate_of(monitors.per, monitors.rates, self._known.rate, i, int(clock)) for i, clock in enumerate(clocks)
        ]
        return np.array(rates, np.float64)

    def lag(self) -> NDArray[np.float64]:
        """Return the lag [tuples] from each stream (row) to each other (column; definition 3.2.6).

        The diagonal is 0. For a leading stream the lag is the number of its tuples with keys beyond the greatest of the
        other: the greatest lower bound that the arrivals allow if the stream is in order. For a lagging stream it is
        negative: the number of the other's tuples that it lacks, converted to its own rate.
        """
        monitors, n = self._state.monitors, len(self._state.monitors.per)
        lag_matrix = np.zeros((n, n))
        clock, known = int(monitors.per[:, LAST].max()), self._known
        lags.fill_lags(monitors.per, monitors.rates, monitors.ranks, known.rate, known.lag, clock, lag_matrix)
        return lag_matrix

    def virtual_index(self, stream: int, key: int) -> tuple[int, int]:
        """Return a key's least and greatest virtual index among the arrivals (definition 3.2.5), from 1.

        For a key that the stream has not brought, the greatest is one less than the least. Exact for keys among the
        last thousand or more of the stream.
        """
        monitors = self._state.monitors
        min_index = lags.least_index(monitors.per, monitors.ranks, stream, key)
        return min_index, lags.greatest_index(monitors.per, monitors.ranks, stream, key)


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
        self._slack = slack
        self._state = state.make_state(1, ranks=0, scattered=True, timed=False, jump=0)
        self._state.monitors.per[:, [KNOWN_DISPLACED, KNOWN_REPEATED]] = -1
        self._waiting = np.zeros((4 * slack + 4, 2), np.int64)
        self._ends = np.zeros(2, np.int64)

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
        _sort_pairs(self._state, self._waiting, self._ends, first_keys, other, self._slack)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the state as columns of a snapshot."""
        own_state = self._state
        names = ("per", "records", "rates", "spread")
        return {
            "waiting": self._waiting,
            "ends": self._ends,
            **{name: getattr(own_state.monitors, name) for name in names},
        }

    def restore(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Restore the state from `columns`."""
        own = dict(columns)
        self._waiting, self._ends = own.pop("waiting"), own.pop("ends")
        self._slack = len(self._waiting) // 4 - 1
        self._state.monitors = self._state.monitors._replace(**own)

    @property
    def scrambling_factor(self) -> int:
        """Dependent scrambling factor over the last one to two epochs [tuples], including buffered tuples."""
        monitors = self._state.monitors
        # Buffered tuples are observed on a copy, because reading must not change the monitor.
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
