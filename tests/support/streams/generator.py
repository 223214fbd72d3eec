"""A generator of streams whose disorder, multiplicity, lag, bursts and congestion are known (thesis 3.6).

A stream is a growing sequence of keys, each as often as its multiplicity says, of which `scrambled` changes the order
so that the scrambling factor is exactly the one that was asked for. Its tuples are sent by a Poisson process, or
regularly, whose rate bursts and congestions change; each arrives a lag after it was sent. Arrival instants keep their
order, so that lag and rate change no physical index.

Sequences are made piece by piece and merged lazily: a load of any size needs memory for a few pieces a stream.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.support.streams.arrivals import Arrivals, Integers, merged

Floats = NDArray[np.float64]

PIECE = 1 << 16
"""Tuples in a piece of a stream at least; more where the scrambling factor is large."""
PIECE_FACTORS = 4
"""A piece is at least so many scrambling factors long."""
NANOSECONDS = 1e9


@dataclass(frozen=True)
class Burst:
    """A time in which a stream sends at another rate: a burst above 1, a congestion below."""

    start_s: float
    """When it begins, in the time of sending [s]."""
    duration_s: float
    """How long it lasts [s]."""
    factor: float
    """What the rate is multiplied by, 0 or more; the keys go on from where they were, so that a lag arises."""


@dataclass(frozen=True)
class Lag:
    """How long after sending a tuple arrives: constant, or moving as a cosine between two bounds."""

    least_s: float = 0.0
    """Least lag [s]."""
    most_s: float | None = None
    """Greatest lag [s]; None: always the least."""
    period_s: float = 86_400.0
    """Time from one greatest lag to the next [s], above pi times the difference, so that nothing is overtaken."""
    phase: float = 0.0
    """Share of the period that has passed at the beginning, from 0 to 1; the lag is least at 0."""

    def __post_init__(self) -> None:
        swing = 0.0 if self.most_s is None else self.most_s - self.least_s
        if self.least_s < 0 or swing < 0 or self.period_s <= math.pi * swing:
            message = (
                f"a lag needs 0 <= least <= most and a period above pi times their difference; got {self.least_s} s, "
                f"{self.most_s} s and a period of {self.period_s} s; lengthen the period"
            )
            raise ValueError(message)

    def at(self, sent_s: Floats) -> Floats:
        """Return the lag of tuples sent at these times [s], shape (n,)."""
        swing = 0.0 if self.most_s is None else self.most_s - self.least_s
        angle = 2 * math.pi * (sent_s / self.period_s + self.phase)
        return self.least_s + swing / 2 * (1 - np.cos(angle))


@dataclass(frozen=True)
class Source:
    """One stream: the parameters that the monitors and the oracles shall find again."""

    scrambling_factor: int = 0
    """SF (definition 3.2.2) on the key [tuples]; at least the multiplicity less 1."""
    multiplicity: int = 1
    """Tuples of each key."""
    mean_gap_s: float = 0.02
    """Mean time between two tuples outside bursts [s]."""
    lag: Lag = Lag()
    bursts: tuple[Burst, ...] = ()
    """Where two overlap their factors are multiplied."""
    dependent_scrambling_factor: int | None = None
    """DSF (definition 3.4.1) from the key to the second key [tuples]; None: the second key is the key, or there is none
    where no stream of a load has one. All tuples of a key share a second key, so it is a multiple of the multiplicity,
    less 1."""
    step: int = 1
    """From key to key."""
    regular: bool = False
    """Whether tuples are sent at equal times, as by a station, and not by a Poisson process."""

    def __post_init__(self) -> None:
        dependent, least = self.dependent_scrambling_factor, self.multiplicity - 1
        wrong = (
            ("a multiplicity of at least 1", self.multiplicity < 1),
            (
                f"a scrambling factor of at least {least}",
                self.scrambling_factor < least,
            ),
            ("a mean time between tuples above 0 s", not 0 < self.mean_gap_s < math.inf),
            ("a step of at least 1", self.step < 1),
            ("factors of bursts of 0 and more", any(burst.factor < 0 for burst in self.bursts)),
            (
                f"a dependent scrambling factor of a multiple of {self.multiplicity}, less 1",
                dependent is not None and (dependent < 0 or (dependent + 1) % self.multiplicity != 0),
            ),
        )
        for needed, is_wrong in wrong:
            if is_wrong:
                message = f"a source of a stream needs {needed}; got {self}"
                raise ValueError(message)


def scrambled(keys: Integers, scrambling_factor: int, rng: np.random.Generator) -> Integers:
    """Return the order in which ordered keys arrive so that their scrambling factor is exactly this.

    Each key is delayed by a random number of places, evenly from 0 to about the scrambling factor. What is missing then
    one key makes up, which is put back as far as is allowed.

    Parameters
    ----------
    keys
        Never falling, shape (n,).
    scrambling_factor
        At least the greatest number of equal keys, less 1 [tuples].
    rng
        Where chance comes from.

    Returns
    -------
    (n,) integers
        Positions in `keys` in order of arrival. Of no more keys than the factor the order is at most so scrambled.
    """
    size = len(keys)
    if scrambling_factor == 0:
        return np.arange(size)
    delays, width = rng.random(size), float(scrambling_factor)
    while True:
        order = np.argsort(np.arange(size) + width * delays, kind="stable")
        back = places_back(keys[order])
        found = int(back.max(initial=0))
        if found <= scrambling_factor:
            break
        width *= 0.995 * scrambling_factor / found
    # The first places are to show the whole factor, so that a stream which ends with its time has it too.
    head = back[: PIECE_FACTORS * (scrambling_factor + 1)]
    movable = np.flatnonzero(np.arange(size) - back + scrambling_factor < size)[: len(head) // 2]
    if int(head.max(initial=0)) < scrambling_factor and len(movable):
        # Whoever is moved leaves a gap that the others close by one place, which they all have left here.
        moved = int(movable[np.argmax(back[movable])])
        to = moved - int(back[moved]) + scrambling_factor
        order[moved : to + 1] = np.roll(order[moved : to + 1], -1)
    return order


def places_back(keys: Integers) -> Integers:
    """Return how many places before each key the first one stands that is not less, shape (n,): SF is the greatest."""
    first = np.searchsorted(np.maximum.accumulate(keys), keys, side="left") if len(keys) else np.empty(0, np.int64)
    return np.asarray(np.arange(len(keys)) - first, np.int64)


@dataclass(frozen=True)
class _Rate:
    """When a process that counts tuples at a changing rate reaches a number."""

    starts_s: Floats
    per_s: Floats
    counted: Floats
    """How many were sent before each start."""

    @classmethod
    def of(cls, source: Source) -> "_Rate":
        edges = {0.0}.union(*((burst.start_s, burst.start_s + burst.duration_s) for burst in source.bursts))
        starts = np.array(sorted(edge for edge in edges if 0 <= edge < math.inf))
        per_s = np.full(len(starts), 1 / source.mean_gap_s)
        for burst in source.bursts:
            per_s[(starts >= burst.start_s) & (starts < burst.start_s + burst.duration_s)] *= burst.factor
        return cls(starts, per_s, np.concatenate(([0.0], np.cumsum(np.diff(starts) * per_s[:-1]))))

    def times_s(self, counts: Floats) -> Floats:
        """Return when so many were sent [s]; a piece of time without any is leapt over."""
        piece = np.searchsorted(self.counted, counts, side="right") - 1
        with np.errstate(divide="ignore", invalid="ignore"):
            times: Floats = self.starts_s[piece] + (counts - self.counted[piece]) / self.per_s[piece]
        return times


def _pieces(source: Source, stream: int, streams: int, load: "Load") -> Iterator[Arrivals]:
    """Yield the tuples of one stream, piece by piece."""
    times = source.multiplicity
    keys_a_piece = -(-max(PIECE, PIECE_FACTORS * (source.scrambling_factor + 1)) // times)
    if source.dependent_scrambling_factor is not None:
        keys_a_piece = max(keys_a_piece, PIECE_FACTORS * (source.dependent_scrambling_factor + 1))
    rate, sent, row, first_key, piece = _Rate.of(source), 0.0, 0, 0, 0
    while load.keys is None or first_key < load.keys:
        rng = np.random.default_rng([load.seed, stream, piece])
        count = keys_a_piece if load.keys is None else min(keys_a_piece, load.keys - first_key)
        numbers = np.arange(first_key, first_key + count)
        order = scrambled(np.repeat(numbers, times), source.scrambling_factor, rng)
        key = np.repeat(numbers, times)[order] * source.step
        second = key if load.has_second else None
        if source.dependent_scrambling_factor is not None:
            spread = (source.dependent_scrambling_factor + 1) // times - 1
            second = np.repeat(numbers[scrambled(numbers, spread, rng)], times)[order] * source.step
        # A station has a phase of its own, which a Poisson process has by nature.
        gaps = np.ones(count * times) if source.regular else rng.exponential(size=count * times)
        if source.regular and piece == 0:
            gaps[0] = rng.random()
        counts = sent + np.cumsum(gaps)
        sent_s = rate.times_s(counts)
        arrival_ns = np.rint((sent_s + source.lag.at(sent_s)) * NANOSECONDS).astype(np.int64)
        stop = len(key)
        if load.until_s is not None:
            stop = int(np.searchsorted(arrival_ns, load.until_s * NANOSECONDS))
        payload = np.arange(row, row + len(key), dtype=np.float64)
        yield Arrivals(streams, np.full(len(key), stream, np.int32), key, payload, arrival_ns, second).take(slice(stop))
        if stop < len(key):
            return
        sent, row, first_key, piece = float(counts[-1]), row + len(key), first_key + count, piece + 1


@dataclass(frozen=True)
class Load:
    """Streams to be generated: equal loads give equal tuples, however they are cut.

    The payload of a tuple is its order of arrival in its stream, from 0.

    Examples
    --------
    >>> load = Load((Source(scrambling_factor=2), Source(lag=Lag(0.1))), keys=6, seed=1)
    >>> arrivals = load.arrivals()
    >>> arrivals.key[arrivals.stream == 0].tolist(), arrivals.key[arrivals.stream == 1].tolist()
    ([0, 2, 4, 1, 3, 5], [0, 1, 2, 3, 4, 5])
    """

    sources: tuple[Source, ...]
    keys: int | None = None
    """Distinct keys of each stream; None: as many as fit into the time."""
    until_s: float | None = None
    """When it ends [s]; None: with the last key."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.sources or (self.keys is None and self.until_s is None):
            message = "a load of streams needs at least one source, and keys or until_s, or it would never end"
            raise ValueError(message)
        for source in self.sources:
            # Of fewer tuples no order is scrambled as far as was asked for; of a given time this is not known before.
            tuples = max(source.scrambling_factor, source.dependent_scrambling_factor or 0)
            longest = tuples // source.multiplicity
            if self.keys is not None and self.keys <= longest:
                message = (
                    f"a load of {self.keys} keys a stream cannot be as scrambled as {source} asks for; "
                    f"give at least {longest + 1} keys"
                )
                raise ValueError(message)
        for rate in map(_Rate.of, self.sources):
            if rate.per_s[-1] == 0:
                message = "a source of a stream needs a rate above 0 in the end; let its last congestion end"
                raise ValueError(message)

    @property
    def has_second(self) -> bool:
        """Whether its tuples have a second key."""
        return any(source.dependent_scrambling_factor is not None for source in self.sources)

    def chunks(self) -> Iterator[Arrivals]:
        """Yield the tuples in order of arrival, in chunks of unequal length, as they are made.

        At any time a few pieces of each stream are held (`PIECE`, `PIECE_FACTORS`), however long the load is.
        """
        streams = len(self.sources)
        makers = [_pieces(source, number, streams, self) for number, source in enumerate(self.sources)]
        pending: list[Arrivals | None] = [next(maker, None) for maker in makers]
        while True:
            for number, maker in enumerate(makers):
                waiting = pending[number]
                while waiting is not None and not len(waiting):
                    waiting = next(maker, None)
                pending[number] = waiting
            held = [part for part in pending if part is not None]
            if not held:
                return
            # What comes next of a stream is not before its last tuple here.
            horizon = min(int(part.arrival_ns[-1]) for part in held)
            cuts = [int(np.searchsorted(part.arrival_ns, horizon, side="right")) for part in held]
            yield merged([part.take(slice(cut)) for part, cut in zip(held, cuts, strict=True)])
            rest = iter([part.take(slice(cut, None)) for part, cut in zip(held, cuts, strict=True)])
            pending = [None if part is None else next(rest) for part in pending]

    def arrivals(self) -> Arrivals:
        """Return all tuples at once, in order of arrival."""
        integers = np.empty(0, np.int64)
        none = Arrivals(
            len(self.sources),
            np.empty(0, np.int32),
            integers,
            np.empty(0),
            integers,
            integers if self.has_second else None,
        )
        return merged([none, *self.chunks()])
