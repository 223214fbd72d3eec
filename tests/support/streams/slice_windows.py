"""Fixed windows of slices: which slices windows of given sizes give whole, and the smallest sizes that do.

A window of w holds the newest w tuples of its stream, as the thesis's W-Join does (5.10.2). A slice is whole if all its
tuples are still in their windows when it is emitted: with its last tuple, or, in order of time, once all older slices
were emitted or given up, which they are as soon as one of their tuples has left its window.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tests.support.streams.arrivals import Arrivals, Integers
from tests.support.streams.fixed_window import smallest_sizes

PASSES = 6
"""Times that slices which the windows give up are let go of, while sizes are sought for slices in order of time."""


@dataclass(frozen=True, eq=False)
class Slices:
    """The d slices of some streams, by key."""

    keys: Integers
    """Ascending, shape (d,)."""
    row: Integers
    """Number of the first tuple of each slice in its stream, from 0; -1 where it has none, shape (d, streams)."""
    places: tuple[Integers, ...]
    """Arrivals of each stream, among those of all."""
    last: Integers
    """Arrival of the last tuple of each slice, shape (d,)."""
    arrivals: Arrivals

    @classmethod
    def of(cls, arrivals: Arrivals) -> Self:
        """Find the slices; each has all tuples that ever arrive with its key."""
        keys, number = np.unique(arrivals.key, return_inverse=True)
        row, last = np.full((len(keys), arrivals.streams), -1), np.full(len(keys), -1)
        np.maximum.at(last, number, np.arange(len(arrivals)))
        places = tuple(np.flatnonzero(arrivals.stream == stream) for stream in range(arrivals.streams))
        for stream, own in enumerate(places):
            # Backwards, so that the first of several tuples stays.
            row[number[own[::-1]], stream] = np.arange(len(own))[::-1]
        return cls(keys, row, places, last, arrivals)

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def of_tuples(self) -> Integers:
        """Which slice each tuple is of, shape (n,)."""
        return np.searchsorted(self.keys, self.arrivals.key)

    def given_up(self, sizes: Integers) -> Integers:
        """Return the arrival with which the first tuple of each slice leaves its window, shape (d,)."""
        leaves = np.full(self.row.shape, len(self.arrivals))
        for stream, own in enumerate(self.places):
            after = self.row[:, stream] + int(sizes[stream])
            leaves[:, stream] = np.append(own, len(self.arrivals))[np.minimum(after, len(own))]
        leaves[self.row < 0] = len(self.arrivals)
        return leaves.min(axis=1)

    def needed(self, emitted: Integers) -> Integers:
        """Return how far back each slice reaches in each stream when it is emitted [tuples], shape (d, streams)."""
        come = np.stack([np.searchsorted(own, emitted, side="right") for own in self.places], axis=1)
        return np.where(self.row < 0, 0, come - self.row)

    def whole(self, sizes: Integers, *, in_order: bool, chosen: NDArray[np.bool_] | None = None) -> NDArray[np.bool_]:
        """Return which slices, or the chosen ones, are whole with windows of these sizes [tuples], in order of key."""
        mask = np.ones(len(self), bool) if chosen is None else chosen
        gone = self.given_up(sizes)[mask]
        ready = np.minimum(self.last[mask], gone)
        emitted = np.maximum.accumulate(ready) if in_order else ready
        return np.asarray(emitted < gone)

    def smallest(
        self, share: float, *, each: bool, in_order: bool, chosen: NDArray[np.bool_] | None = None
    ) -> Integers:
        """Return the smallest sizes of windows, shape (streams,), by which this share of the slices is whole.

        In order of time the sizes are those of hindsight: slices that the windows give up hold nothing up, as if they
        were given up at once.
        """
        mask = np.ones(len(self), bool) if chosen is None else chosen
        last, kept, best = self.last[mask], np.ones(int(mask.sum()), bool), None
        for _ in range(PASSES if in_order else 1):
            emitted = np.zeros(len(self), np.int64)
            emitted[mask] = np.maximum.accumulate(np.where(kept, last, -1)) if in_order else last
            needed = self.needed(np.maximum(emitted, self.last))[mask]
            sizes = smallest_sizes(needed, share, each=each)
            if best is None or sizes.sum() < best.sum():
                best = sizes
            fits = (needed <= sizes).all(axis=1)
            if (fits == kept).all():
                break
            kept = fits
        assert best is not None
        return np.maximum(best, 1)

    def least_held(self, *, in_order: bool) -> float:
        """Return the mean number of tuples that any join holds which gives every slice whole [tuples]."""
        emitted = np.maximum.accumulate(self.last) if in_order else self.last
        waits = emitted[self.of_tuples] - np.arange(len(self.arrivals))
        return float(waits.sum() / len(self.arrivals))

    def held(self, sizes: Integers) -> float:
        """Return the mean number of tuples that windows of these sizes hold [tuples]."""
        # The first tuples of a stream, as many as its window has, are each a place that stays taken.
        size = len(self.arrivals)
        taken = [(size - own[:most]).sum() for own, most in zip(self.places, sizes.tolist(), strict=True)]
        return float(sum(taken) / size)
