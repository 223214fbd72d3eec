"""The smallest fixed window that gives a share of the results: what the thesis's W-Join needs (3.6.1, table 5.4)."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tests.support.streams.arrivals import Arrivals, Integers
from tests.support.streams.optimum import every_result

Kind = Literal["count", "time"]


@dataclass(frozen=True, eq=False)
class FixedWindow:
    """Windows of fixed size, what they give and what they hold."""

    kind: Kind
    sizes: Integers
    """Tuples, the newest included, or age up to which a tuple is held [ns], shape (streams,)."""
    accuracy: float
    """Share of all results that they give (equation 3.1)."""
    mean: NDArray[np.float64]
    """Tuples held, mean over all arrivals, shape (streams,)."""
    peak: Integers
    """Tuples held at most, shape (streams,)."""


def smallest_window(arrivals: Arrivals, accuracy: float, *, kind: Kind = "count", each: bool = False) -> FixedWindow:
    """Return the smallest window with which a join gives at least this share of its results.

    Each result needs a window that reaches back from its completion to each of its tuples; the window is chosen among
    what the results need, so that nothing is tried.

    Parameters
    ----------
    arrivals
        All tuples, in order of arrival.
    accuracy
        Share of the results, above 0 and up to 1.
    kind
        A window of so many tuples, or of so much time.
    each
        Whether every stream has a size of its own, or one size serves all, as the thesis's W-Join has it. Sizes of
        their own start from the same share of results cut off in each stream; then each in turn, the longest held
        first, is lowered as far as the others allow, so that none can be lowered alone.

    Raises
    ------
    ValueError
        An accuracy outside 0 to 1, or no result at all.

    Examples
    --------
    >>> stream, key = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int32), np.array([2, 1, 1, 2, 4, 3, 3, 4])
    >>> arrivals = Arrivals(2, stream, key, np.zeros(8), np.arange(8))
    >>> smallest_window(arrivals, 1.0).sizes.tolist(), smallest_window(arrivals, 1.0, each=True).sizes.tolist()
    ([2, 2], [2, 1])
    """
    if not 0 < accuracy <= 1:
        message = f"the smallest fixed window needs an accuracy above 0 and up to 1; got {accuracy}"
        raise ValueError(message)
    needed = needed_by_results(arrivals, kind)
    if not len(needed):
        message = "the smallest fixed window needs at least one result; the streams have no key in common"
        raise ValueError(message)
    sizes = smallest_sizes(needed, accuracy, each=each)
    means, peaks = _held(arrivals, kind, sizes)
    return FixedWindow(kind, sizes, float((needed <= sizes).all(axis=1).mean()), means, peaks)


def smallest_sizes(needed: Integers, accuracy: float, *, each: bool) -> Integers:
    """Return the sizes, shape (streams,), that reach as far back as this share of the rows of `needed` asks for."""
    target = min(max(math.ceil(accuracy * len(needed) - 1e-9), 1), len(needed))
    if each:
        return _sizes_of_each(needed, target)
    return np.full(needed.shape[1], np.partition(needed.max(axis=1), target - 1)[target - 1])


def needed_by_results(arrivals: Arrivals, kind: Kind) -> Integers:
    """Return how far back each result reaches in each stream [tuples or ns], shape (r, streams)."""
    results = every_result(arrivals)
    needed = np.empty_like(results.rows)
    for stream in range(arrivals.streams):
        own = arrivals.stream == stream
        rows = results.rows[:, stream]
        if kind == "count":
            needed[:, stream] = np.cumsum(own)[results.completed] - rows
        else:
            needed[:, stream] = arrivals.arrival_ns[results.completed] - arrivals.arrival_ns[own][rows]
    return needed


def _sizes_of_each(needed: Integers, target: int) -> Integers:
    """Return sizes, shape (streams,), with which at least `target` results stay."""
    ordered = np.sort(needed, axis=0)
    low, high = target - 1, len(needed) - 1
    while low < high:
        middle = (low + high) // 2
        if (needed <= ordered[middle]).all(axis=1).sum() >= target:
            high = middle
        else:
            low = middle + 1
    sizes: Integers = ordered[high].copy()
    fits = needed <= sizes
    for stream in np.argsort(-sizes, kind="stable"):
        others = np.delete(fits, stream, axis=1).all(axis=1)
        sizes[stream] = np.partition(needed[others, stream], target - 1)[target - 1]
        fits[:, stream] = needed[:, stream] <= sizes[stream]
    return sizes


def _held(arrivals: Arrivals, kind: Kind, sizes: Integers) -> tuple[NDArray[np.float64], Integers]:
    """Return mean and greatest number of tuples held after each arrival, shape (streams,) each."""
    means, peaks = np.empty(arrivals.streams), np.empty(arrivals.streams, np.int64)
    for stream, size in enumerate(sizes):
        own = arrivals.stream == stream
        arrived = np.cumsum(own)
        if kind == "count":
            held = np.minimum(arrived, size)
        else:
            held = arrived - np.searchsorted(arrivals.arrival_ns[own], arrivals.arrival_ns - size, side="left")
        means[stream], peaks[stream] = held.mean(), held.max()
    return means, peaks
