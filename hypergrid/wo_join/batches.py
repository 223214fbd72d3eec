"""Validation of pushes, and their conversion to columns for the compiled loops."""

from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join.state_layout import Batch, Floats, Ints

Number = TypeVar("Number", np.int32, np.int64, np.float64)

KEYS_AT_ONCE = 4096
"""Most keys of one reading of uncertain key."""
MIN_KEY, MAX_KEY = -(2**61), 2**62 - 2
"""Range of keys: in nanoseconds since 1970, the years 1896 to 2116."""
TICK_NS = 1_000_000_000
"""Time per tuple [ns] in a join without arrivals."""


def make_ticks(first: int, count: int) -> Ints:
    """Generate the arrivals [ns] of tuples from number `first` on, for a join without arrivals."""
    return np.arange(first, first + count, dtype=np.int64) * TICK_NS


def make_batch(
    count: int, stream: ArrayLike, key: ArrayLike, payload: ArrayLike, arrival: ArrayLike, key_high: ArrayLike | None
) -> Batch:
    """Validate the columns of a push to a join of `count` streams, without row numbers.

    Raises
    ------
    InvalidQuery
        Columns of different lengths or not of whole numbers, a stream or a key out of range.
    """
    streams = parse_integers("stream", stream)
    keys = parse_keys("key", key)
    payloads = _parse_payloads(payload)
    arrivals = parse_integers("arrival", arrival)
    n = streams.size
    high = keys if key_high is None else parse_keys("key_high", key_high)
    if any(column.shape != (n,) for column in (streams, keys, payloads, arrivals, high)):
        raise InvalidQuery(
            f"a push needs columns of one length; got stream {streams.shape}, key {keys.shape}, payload "
            f"{payloads.shape}, arrival {arrivals.shape}{'' if key_high is None else f', key_high {high.shape}'}"
        )
    if n:
        lowest, greatest = int(streams.min()), int(streams.max())
        if lowest < 0 or greatest >= count:
            wrong = lowest if lowest < 0 else greatest
            raise InvalidQuery(f"a join of {count} streams needs streams 0 to {count - 1}; got {wrong}")
        if int(arrivals.max()) > MAX_KEY:
            _refuse(f"arrivals in nanoseconds since 1970 up to {MAX_KEY} (the year 2116); got {arrivals.max()}")
        if key_high is not None and not 0 <= int((high - keys).min()) <= int((high - keys).max()) < KEYS_AT_ONCE:
            raise InvalidQuery(
                f"key_high needs to be from key to key + {KEYS_AT_ONCE - 1}; got {(high - keys).min()} to "
                f"{(high - keys).max()} more: give keys in whole slices"
            )
    columns = (_to_writable(streams, np.int32), np.empty(0, np.int64), _to_writable(keys, np.int64), payloads)
    return Batch(*columns, _to_writable(arrivals, np.int64))


def parse_integers(name: str, values: ArrayLike) -> NDArray[np.signedinteger[Any]]:
    """Convert a column to whole numbers; instants become nanoseconds since 1970.

    Raises
    ------
    InvalidQuery
        A value is not a whole number. It is not rounded, because that could join tuples that do not belong together.
    """
    given = np.asarray(values)
    kind = given.dtype.kind
    if kind == "M" and name != "stream":
        given = given.astype("datetime64[ns]").astype(np.int64)
    elif kind == "u" and given.size and int(given.max()) > 2**62:
        _refuse(f"{name} of whole numbers within 2^62 of zero; got {given.max()}")
    # Floats do not represent every whole number beyond 2^53.
    elif kind == "f" and not np.all((np.rint(given) == given) & (np.abs(given) <= 2**53)):
        wrong = given[~((np.rint(given) == given) & (np.abs(given) <= 2**53))].ravel()[0]
        _refuse(f"{name} of whole numbers; got {wrong}: round it as it is meant, or give int64")
    elif kind not in "iufb" and given.size:
        _refuse(f"{name} of whole numbers; got values of type {given.dtype}")
    return given if given.dtype in (np.int32, np.int64) else given.astype(np.int64)


def parse_keys(name: str, values: ArrayLike) -> NDArray[np.signedinteger[Any]]:
    """Convert a column to keys.

    Raises
    ------
    InvalidQuery
        They are not whole numbers, or out of range.
    """
    keys = parse_integers(name, values)
    if keys.size and (int(keys.min()) < MIN_KEY or int(keys.max()) > MAX_KEY):
        _refuse(f"{name} from {MIN_KEY} (-2^61) to {MAX_KEY} (2^62 - 2); got {keys.min()} to {keys.max()}")
    return keys


def _parse_payloads(values: ArrayLike) -> Floats:
    given = np.asarray(values)
    if given.dtype.kind not in "iufb" and given.size:
        _refuse(f"payload of numbers; got values of type {given.dtype}")
    return _to_writable(given, np.float64)


def _to_writable(column: NDArray[Any], kind: type[Number]) -> np.ndarray[tuple[int], np.dtype[Number]]:
    """Convert a column to the layout that the loops are compiled for."""
    # A read-only array is another type to the compiler, for which the loops would be compiled again.
    taken = np.ascontiguousarray(column, kind)
    return taken if taken.flags.writeable and taken.flags.aligned else taken.copy()


def _refuse(needed: str) -> NoReturn:
    raise InvalidQuery(f"a push needs {needed}")


def make_empty_batch() -> Batch:
    integers = np.empty(0, np.int64)
    return Batch(np.empty(0, np.int32), integers, integers, np.empty(0), integers)


def echo_keys(batch: Batch, high: "np.ndarray[tuple[int], np.dtype[np.int64]]") -> Batch:
    """Repeat each reading for every key that it may have, marking repeats as echoes."""
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
