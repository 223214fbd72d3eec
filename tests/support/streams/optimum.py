"""The optimum: the least memory that first-in-first-out buffers need, found by looking back from the results.

As long as buffers let go of the oldest tuple first (thesis 3.6.1), nobody can do with less, not even who knows the
future: the limit that all is compared with. All results are found at once from the first and the last tuple of each key
in each stream; only `every_result` lists them.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import TooLarge
from tests.support.streams.arrivals import Arrivals, Integers

Form = Literal["inner", "assembling"]

MOST_RESULTS = 200_000_000
"""Results that are listed at most: each takes 8 bytes a stream and some more."""


@dataclass(frozen=True, eq=False)
class Optimum:
    """Tuples that buffers must hold, counted after each arrival, once what nobody needs any more is let go."""

    mean: NDArray[np.float64]
    """Mean over all arrivals [tuples], shape (streams,)."""
    peak: Integers
    """Greatest [tuples], shape (streams,)."""
    mean_in_any_order: NDArray[np.float64]
    """Mean where tuples may be let go in any order [tuples], shape (streams,): a join that evicts by key can come below
    `mean`, but not below this."""
    at: Integers
    """The arrivals that the course is given for, from 0, shape (m,)."""
    held: NDArray[np.int32]
    """The course: tuples held after these arrivals, shape (streams, m)."""


def _cells(arrivals: Arrivals) -> tuple[Integers, Integers, int]:
    """Return which key each tuple has, its cell in a table of streams by keys, shape (n,) each, and how many keys."""
    distinct, number = np.unique(arrivals.key, return_inverse=True)
    return number, arrivals.stream.astype(np.int64) * len(distinct) + number, len(distinct)


@dataclass(frozen=True, eq=False)
class _Keys:
    """First and last arrival of each of d distinct keys in each stream; -1 where a stream does not have it."""

    number: Integers
    """Which key each of n tuples has, from 0 to d - 1, shape (n,)."""
    first: Integers
    """Place of the first tuple among all arrivals, shape (streams, d)."""
    last: Integers
    """Place of the last tuple, shape (streams, d)."""

    @classmethod
    def of(cls, arrivals: Arrivals) -> "_Keys":
        number, cells, distinct = _cells(arrivals)
        places = np.arange(len(arrivals))
        first, last = np.full((arrivals.streams, distinct), len(arrivals)), np.full((arrivals.streams, distinct), -1)
        np.minimum.at(first.reshape(-1), cells, places)
        np.maximum.at(last.reshape(-1), cells, places)
        first[last < 0] = -1
        return cls(number, first, last)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Whether every stream has the key, shape (d,)."""
        return np.asarray((self.first >= 0).all(axis=0))


def optimum(arrivals: Arrivals, *, form: Form = "inner", every: int = 1) -> Optimum:
    """Return the smallest buffers that give all results: the course over the arrivals, its mean and its peak.

    A tuple is needed from its arrival to that of the last result that it is part of; in the assembling form, of the
    last tuple of its key. A buffer holds everything from the oldest tuple that is still needed to the newest.

    Parameters
    ----------
    arrivals
        All tuples, in order of arrival.
    form
        Of the join.
    every
        The course is given for every so many arrivals; mean and peak are of all.

    Raises
    ------
    ValueError
        No arrivals, or a step below 1.

    Examples
    --------
    A stream whose keys come in pairs of the wrong order, and one that is in order:

    >>> stream, key = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int32), np.array([2, 1, 1, 2, 4, 3, 3, 4])
    >>> optimum(Arrivals(2, stream, key, np.zeros(8), np.arange(8))).held.tolist()
    [[1, 2, 2, 0, 1, 2, 2, 0], [0, 0, 0, 0, 0, 0, 0, 0]]
    """
    if every < 1 or not len(arrivals):
        message = f"the optimum needs at least one arrival and a step of at least 1; got {len(arrivals)} and {every}"
        raise ValueError(message)
    keys, size = _Keys.of(arrivals), len(arrivals)
    at = np.arange(every - 1, size, every)
    means, freest = np.empty(arrivals.streams), np.empty(arrivals.streams)
    peaks, held = np.empty(arrivals.streams, np.int64), []
    whole = np.ones(keys.first.shape[1], bool) if form == "assembling" else keys.complete
    latest, stream_of_latest, others = _latest(keys.last)
    for stream in range(arrivals.streams):
        places = np.flatnonzero(arrivals.stream == stream)
        number = keys.number[places]
        until = latest[number]
        if form == "inner":
            # A result takes one tuple of each stream: later ones of its own are no reason to hold a tuple.
            until = np.where(stream_of_latest[number] == stream, others[number], until)
        rows = np.flatnonzero(whole[number] & (until > places))
        oldest = np.full(size + 1, len(places), np.int64)
        np.minimum.at(oldest, until[rows], rows)
        needed = np.minimum.accumulate(oldest[::-1])[::-1][1:]
        here = np.maximum(np.cumsum(arrivals.stream == stream) - needed, 0)
        means[stream], peaks[stream] = here.mean(), here.max()
        freest[stream] = (until - places)[rows].sum() / size
        held.append(here[at].astype(np.int32))
    return Optimum(means, peaks, freest, at, np.stack(held))


def _latest(last: Integers) -> tuple[Integers, Integers, Integers]:
    """Return each key's last arrival, the stream of that, and the last arrival of any other stream, shape (d,) each."""
    stream = last.argmax(axis=0)
    numbers = np.arange(last.shape[1])
    latest = last[stream, numbers]
    rest = last.copy()
    rest[stream, numbers] = -1
    return latest, stream, rest.max(axis=0)


def needed_each(arrivals: Arrivals, *, bin_s: float = 1.0) -> tuple[NDArray[np.float64], Integers]:
    """Return the thesis's curve of figures 3.7 to 3.11: the greatest buffer that a result of each second needed.

    For each result the smallest buffer of each stream that would have produced it counts from the stream's tuple to the
    newest; the maximum over the results of a bin is taken.

    Parameters
    ----------
    arrivals
        All tuples, in order of arrival.
    bin_s
        Length of a bin [s].

    Returns
    -------
    starts, needed
        Starts of the bins [s after 0 of the arrivals' clock], shape (m,), and tuples, shape (streams, m), 0 where no
        result came.
    """
    keys, rows = _Keys.of(arrivals), arrivals.rows()
    has_all = np.arange(len(arrivals)) >= keys.first.max(axis=0, initial=-1)[keys.number]
    produces = np.flatnonzero(keys.complete[keys.number] & has_all)
    bins = arrivals.arrival_ns // round(bin_s * 1e9)
    numbers = np.arange(bins[0], bins[-1] + 1) if len(bins) else np.empty(0, np.int64)
    needed = np.zeros((arrivals.streams, len(numbers)), np.int64)
    for stream in range(arrivals.streams):
        arrived = np.cumsum(arrivals.stream == stream)[produces]
        size = arrived - rows[keys.first[stream, keys.number[produces]]]
        # The tuple that completes a result need not be found in its buffer: 1, the least that a buffer has.
        size[arrivals.stream[produces] == stream] = 1
        np.maximum.at(needed[stream], bins[produces] - bins[:1], size)
    return np.asarray(numbers * bin_s, np.float64), needed


@dataclass(frozen=True, eq=False)
class Results:
    """All results of a join, in order of completion."""

    rows: Integers
    """The order of arrival of each stream's tuple within its stream, from 0, shape (r, streams)."""
    completed: Integers
    """Arrival that completes each, among the arrivals of all streams, from 0, shape (r,)."""

    def __len__(self) -> int:
        return len(self.completed)


def count_results(arrivals: Arrivals) -> int:
    """Return how many results the join of all input has, without listing them."""
    return sum(_combinations(_counts(arrivals)[1]).tolist())


def _counts(arrivals: Arrivals) -> tuple[Integers, Integers]:
    """Return which key each tuple has, shape (n,), and how often each stream has each key, shape (streams, d)."""
    number, cells, distinct = _cells(arrivals)
    counts = np.bincount(cells, minlength=arrivals.streams * distinct)
    return number, counts.reshape(arrivals.streams, distinct)


def _combinations(counts: Integers) -> NDArray[np.object_]:
    """Return the products over the streams, shape (d,), as Python's integers: 40 streams with twos exceed 64 bits."""
    return np.asarray(np.prod(counts.astype(object), axis=0))


def every_result(arrivals: Arrivals) -> Results:
    """Return every combination of one tuple of each stream with equal keys, each once.

    Raises
    ------
    TooLarge
        More than `MOST_RESULTS`.
    """
    number, counts = _counts(arrivals)
    expected = count_results(arrivals)
    if expected > MOST_RESULTS:
        who = "a list of all results"
        raise TooLarge(who, "results", expected, MOST_RESULTS, "take fewer tuples or streams")
    combinations = _combinations(counts).astype(np.int64)
    key = np.repeat(np.arange(len(combinations)), combinations)
    # A result's number among those of its key, read with the counts as digits, says which tuple it takes of each
    # stream.
    digits = np.arange(expected) - np.repeat(np.cumsum(combinations) - combinations, combinations)
    rows = np.empty((expected, arrivals.streams), np.int64)
    completed = np.full(expected, -1, np.int64)
    for stream in reversed(range(arrivals.streams)):
        places = np.flatnonzero(arrivals.stream == stream)
        by_key = np.argsort(number[places], kind="stable")
        starts = np.cumsum(counts[stream]) - counts[stream]
        digits, digit = np.divmod(digits, counts[stream][key])
        rows[:, stream] = by_key[starts[key] + digit]
        np.maximum(completed, places[rows[:, stream]], out=completed)
    order = np.lexsort((*rows.T[::-1], completed))
    return Results(rows[order], completed[order])


def intermediate(arrivals: Arrivals, groups: tuple[tuple[int, ...], ...], *, on_second: bool = False) -> Arrivals:
    """Return what joins of some of the streams give as streams of their own: the input of a pipeline's last join.

    Parameters
    ----------
    arrivals
        All tuples, in order of arrival.
    groups
        The streams of each join, as ((0, 1, 2), (3, 4, 5)) for queries 2 and 3 of figure 3.6.
    on_second
        Whether the next join is on the second key (query 3), of which a result has that of its first stream.

    Returns
    -------
    Arrivals
        A stream a join; a result arrives when it is completed. Those of one arrival are ordered by join, then by
        rows. The payload is the number of the arrival that completes the result.
    """
    columns = []
    for number, group in enumerate(groups):
        own = np.flatnonzero(np.isin(arrivals.stream, group))
        chosen = arrivals.of(group)
        results = every_result(chosen)
        firsts = chosen.take(chosen.stream == 0)
        key = firsts.by_second().key if on_second else firsts.key
        stream = np.full(len(results), number, np.int64)
        columns.append(np.stack([own[results.completed], stream, key[results.rows[:, 0]]]))
    completed, stream, key = np.concatenate(columns, axis=1)
    order = np.argsort(completed, kind="stable")
    return Arrivals(
        len(groups),
        stream[order].astype(np.int32),
        key[order],
        completed[order].astype(np.float64),
        arrivals.arrival_ns[completed[order]],
    )
