"""What a push is given, checked at the door and made into columns that compiled loops can take."""

from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from hypergrid.errors import InvalidQuery
from hypergrid.streams.fields import Batch, Ints

Number = TypeVar("Number", np.int32, np.int64, np.float64)

KEYS_AT_ONCE = 4096
"""The most keys that one reading may have."""
TICK_NS = 1_000_000_000
"""A tick of a join that is given no arrivals: one a tuple."""


def ticks(first: int, count: int) -> Ints:
    """Return the arrivals of tuples from number `first` on, where none are given [ns]."""
    return np.arange(first, first + count, dtype=np.int64) * TICK_NS


def batch_of(
    count: int, stream: ArrayLike, key: ArrayLike, payload: ArrayLike, arrival: ArrayLike, key_high: ArrayLike | None
) -> Batch:
    """Return the columns of a push to a join of `count` streams, without numbers of rows.

    Raises
    ------
    InvalidQuery
        Columns of different lengths, a stream or a key out of range.
    """
    streams = _column(stream, np.int32)
    keys = _column(key, np.int64)
    payloads = _column(payload, np.float64)
    arrivals = _column(arrival, np.int64)
    n = len(streams)
    high = keys if key_high is None else np.asarray(key_high, np.int64)
    if any(column.shape != (n,) for column in (streams, keys, payloads, arrivals, high)):
        message = (
            f"a push needs columns of one length; got {streams.shape}, {keys.shape}, {payloads.shape} and "
            f"{arrivals.shape}"
        )
        raise InvalidQuery(message)
    if n:
        least, greatest = int(streams.min()), int(streams.max())
        if least < 0 or greatest >= count:
            wrong = least if least < 0 else greatest
            message = f"a join of {count} streams needs streams 0 to {count - 1}; got {wrong}"
            raise InvalidQuery(message)
        if int(keys.min()) < -(2**61) or int(high.max()) > 2**61:
            message = f"keys need to lie within 2^61 of zero; got {keys.min()} to {high.max()}"
            raise InvalidQuery(message)
        if key_high is not None and not 0 <= int((high - keys).min()) <= int((high - keys).max()) < KEYS_AT_ONCE:
            message = (
                f"key_high needs to be from key to key + {KEYS_AT_ONCE - 1}; got {(high - keys).min()} to "
                f"{(high - keys).max()} more: give keys in whole slices"
            )
            raise InvalidQuery(message)
    return Batch(streams, np.empty(0, np.int64), keys, payloads, arrivals)


def _column(values: ArrayLike, kind: type[Number]) -> np.ndarray[tuple[int], np.dtype[Number]]:
    """Return values as the loop was compiled for: it would be compiled anew for an array that cannot be written to."""
    column = np.ascontiguousarray(values, kind)
    return column if column.flags.writeable and column.flags.aligned else column.copy()


def nothing() -> Batch:
    """Return a batch of no tuples."""
    integers = np.empty(0, np.int64)
    return Batch(np.empty(0, np.int32), integers, integers, np.empty(0), integers)


def echoed(batch: Batch, high: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Batch:
    """Return a batch in which each reading comes once for every key that it may have; all but the first are echoes."""
    times = high - batch.key + 1
    ends = np.cumsum(times)
    offset = np.arange(ends[-1]) - np.repeat(ends - times, times)
    row = np.repeat(batch.row, times)
    return Batch(
        np.repeat(batch.stream, times),
        np.where(offset > 0, ~row, row),
        np.repeat(batch.key, times) + offset,
        np.repeat(batch.payload, times),
        np.repeat(batch.arrival, times),
    )
