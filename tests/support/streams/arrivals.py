"""Tuples of several streams in one order of arrival, a column a property: what a join is fed, generated or recorded."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Arrivals:
    """n tuples of several streams, in order of arrival; tuples that arrive at one instant are ordered too."""

    streams: int
    """How many streams there are; some may be silent."""
    stream: NDArray[np.int32]
    """Stream of each tuple, from 0, shape (n,)."""
    key: Integers
    """Join key, shape (n,)."""
    payload: NDArray[np.float64]
    """What a tuple carries, shape (n,)."""
    arrival_ns: Integers
    """When it arrived [ns], never falling, shape (n,)."""
    second: Integers | None = None
    """A second join key, shape (n,); None where there is one key only."""

    def __post_init__(self) -> None:
        columns = [c for c in (self.stream, self.key, self.payload, self.arrival_ns, self.second) if c is not None]
        if len({len(column) for column in columns}) != 1:
            message = f"arrivals need columns of one length; got lengths {[len(column) for column in columns]}"
            raise ValueError(message)

    def __len__(self) -> int:
        return len(self.stream)

    def take(self, rows: NDArray[np.bool_] | Integers | slice) -> "Arrivals":
        """Return the chosen tuples, in their order."""
        return replace(
            self,
            stream=self.stream[rows],
            key=self.key[rows],
            payload=self.payload[rows],
            arrival_ns=self.arrival_ns[rows],
            second=None if self.second is None else self.second[rows],
        )

    def by_second(self) -> "Arrivals":
        """Return the same tuples with the second key as the join key."""
        if self.second is None:
            message = "these arrivals have no second key; generate one with dependent_scrambling_factor"
            raise ValueError(message)
        return replace(self, key=self.second, second=self.key)

    def of(self, chosen: Sequence[int]) -> "Arrivals":
        """Return the tuples of some streams, which are counted anew in the order given."""
        number = np.full(self.streams, -1, np.int32)
        number[list(chosen)] = np.arange(len(chosen), dtype=np.int32)
        kept = self.take(number[self.stream] >= 0)
        return replace(kept, streams=len(chosen), stream=number[kept.stream])

    def rows(self) -> Integers:
        """Return the order of arrival of each tuple within its stream, from 0: its physical index less 1 (n,)."""
        order = np.argsort(self.stream, kind="stable")
        counts = np.bincount(self.stream, minlength=self.streams)
        rows = np.empty(len(self), np.int64)
        rows[order] = np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows


def merged(parts: Sequence[Arrivals]) -> Arrivals:
    """Return the tuples of all parts, which count the same streams, in order of arrival; ties keep the parts' order.

    Raises
    ------
    ValueError
        No part, or parts that count different numbers of streams.
    """
    if not parts or any(part.streams != parts[0].streams for part in parts):
        message = "arrivals can be merged only where they count the same streams; got none, or different ones"
        raise ValueError(message)
    seconds = [part.second for part in parts if part.second is not None]
    arrival_ns = np.concatenate([part.arrival_ns for part in parts])
    whole = Arrivals(
        parts[0].streams,
        np.concatenate([part.stream for part in parts]),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.payload for part in parts]),
        arrival_ns,
        np.concatenate(seconds) if len(seconds) == len(parts) else None,
    )
    return whole.take(np.argsort(arrival_ns, kind="stable"))


def of_readings(readings: Readings, slice_ns: int) -> Arrivals:
    """Return readings as they arrived: a stream a series, the key the number of the slice that the stamp falls into.

    Parameters
    ----------
    readings
        Readings of one variable, with their arrival times.
    slice_ns
        Length of a slice of the base [ns]; slices count from 1970-01-01T00:00Z.

    Returns
    -------
    Arrivals
        With `len(readings.series)` streams, in order of arrival; the payload is the reading's value.
    """
    if slice_ns < 1:
        message = f"arrivals of readings need slices of at least 1 ns; got {slice_ns}"
        raise ValueError(message)
    order = np.argsort(readings.arrival_ns, kind="stable")
    return Arrivals(
        max(len(readings.series), 1),
        readings.index[order],
        readings.time_ns[order] // slice_ns,
        readings.value[order],
        readings.arrival_ns[order],
    )
