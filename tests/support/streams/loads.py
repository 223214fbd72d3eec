"""The loads that the join is measured on: of thesis 3.6 and 5.10.2, and two that need memory for one reason alone."""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from tests.support.streams.arrivals import Arrivals, Integers, merged
from tests.support.streams.generator import NANOSECONDS, Burst, Lag, Load, Source, scrambled

MEAN_GAP_S = 0.02
"""Mean time between two tuples of a stream (thesis 3.6) [s]."""
GREATEST_SF = 500
"""Scrambling factors are drawn evenly up to this (thesis 3.6) [tuples]."""
GREATEST_DSF = 300
"""Dependent scrambling factors are drawn evenly up to this (thesis 3.6) [tuples]."""
CONGESTION = Burst(10.0, 30.0, 1 / 8)
"""Of the second stream (thesis 3.6.1)."""
BURST = Burst(80.0, 10.0, 8.0)
"""Of the third stream (thesis 3.6.1)."""
TUPLE_BYTES = 24
"""Size of a tuple (thesis 3.6): key, payload, arrival [bytes]."""

Setting = Literal[
    "ordered", "scrambled", "lag 120 min", "lag 10 min", "scrambled, lag 10 min", "scrambled, lag 120 min"
]
SETTINGS: dict[Setting, tuple[int, float]] = {
    "ordered": (0, 0.0),
    "scrambled": (200, 0.0),
    "lag 120 min": (0, 7200.0),
    "lag 10 min": (0, 600.0),
    "scrambled, lag 10 min": (200, 600.0),
    "scrambled, lag 120 min": (200, 7200.0),
}
"""The four settings of table 5.4: greatest scrambling factor [tuples] and greatest lag [s]. Its third row says 120 min,
its text 10 min: both are here, alone and with disorder."""


def query_load(
    number: Literal[1, 2, 3], *, seed: int = 0, until_s: float = 120.0, multiplicity: int = 2, catches_up: bool = False
) -> Load:
    """Return the streams of query 1, 2 or 3 as section 3.6 describes them.

    Three streams (query 1) or six of Poisson arrivals, with scrambling factors drawn from the least possible to 500.
    The second sends at 1/8 of its rate for 30 s from t = 10 s, the third at 8 times its rate for 10 s from t = 80 s.
    In query 3 the first and the fourth have a second key, with dependent scrambling factors up to 300.

    Parameters
    ----------
    number
        Which query.
    seed
        Of the factors and of the tuples.
    until_s
        How long the streams last [s].
    multiplicity
        Tuples of each key.
    catches_up
        Whether the second stream sends what it kept back at 8 times its rate when its congestion ends; the thesis
        tells of its rate only that it is restored, which leaves the stream behind for good.
    """
    rng = np.random.default_rng([number, seed])
    least = multiplicity - 1
    bursts: dict[int, tuple[Burst, ...]] = {1: (CONGESTION,), 2: (BURST,)}
    if catches_up:
        kept_back_s = CONGESTION.duration_s * (1 - CONGESTION.factor)
        end_s = CONGESTION.start_s + CONGESTION.duration_s
        bursts[1] = (CONGESTION, Burst(end_s, kept_back_s / (BURST.factor - 1), BURST.factor))
    sources = []
    for stream in range(3 if number == 1 else 6):
        factor = int(rng.integers(least, max(least, GREATEST_SF) + 1))
        groups = int(rng.integers(1, max(1, (GREATEST_DSF + 1) // multiplicity) + 1))
        dependent = groups * multiplicity - 1 if number == 3 and stream in {0, 3} else None
        sources.append(
            Source(
                factor, multiplicity, MEAN_GAP_S, bursts=bursts.get(stream, ()), dependent_scrambling_factor=dependent
            )
        )
    return Load(tuple(sources), until_s=until_s, seed=seed)


DAY_S = 86_400.0


def station_sources(
    setting: Setting, streams: int, seed: int, *, moving: bool = False, period_s: float = 120.0, lag_s: float = DAY_S
) -> list[Source]:
    """Return the stations of a setting of table 5.4; `lag_s` is the period of lags that move [s]."""
    greatest, most_s = SETTINGS[setting]
    rng = np.random.default_rng([54, seed])
    factors = np.rint(greatest * rng.random(streams)).astype(int)
    lags_s = most_s * rng.random(streams)
    phases = rng.random(streams)
    lags = [
        Lag(0.0, float(most), lag_s, phase=float(phase)) if moving else Lag(float(most))
        for most, phase in zip(lags_s, phases, strict=True)
    ]
    return [Source(int(k), 1, period_s, lag, regular=True) for k, lag in zip(factors, lags, strict=True)]


def station_load(
    setting: Setting,
    *,
    moving: bool = False,
    streams: int = 23,
    keys: int = 5000,
    seed: int = 0,
    lag_s: float = DAY_S,
) -> Load:
    """Return the streams of a setting of table 5.4: stations that sample regularly, one reading a slice.

    Parameters
    ----------
    setting
        A name of `SETTINGS`; of each station the scrambling factor and the lag are drawn evenly up to the greatest.
    moving
        Whether each lag moves between 0 and its greatest, or is constant.
    streams
        Stations, each with a reading every 120 s, as in the network of section 5.8.2.
    keys
        Slices.
    seed
        Of the parameters and of the tuples.
    lag_s
        How long a lag that moves takes from one greatest to the next [s].
    """
    sources = station_sources(setting, streams, seed, moving=moving, lag_s=lag_s)
    return Load(tuple(sources), keys=keys, seed=seed)


def stamped_load(
    stamps_s: Sequence[Integers], setting: Setting, *, moving: bool = False, seed: int = 0, slice_s: int = 120
) -> Arrivals:
    """Return recorded stamps as streams with the disorder and the lags of a setting of table 5.4 (thesis 5.10.2).

    A reading is sent at each recorded instant, so gaps and clocks that are not synchronised stay; which reading it is
    follows from the scrambling factor, and it arrives a lag later.

    Parameters
    ----------
    stamps_s
        Stamps of each station [s since 1970], in order.
    setting, moving, seed
        As in `station_load`.
    slice_s
        Length of a slice [s], which divides a day; keys are numbers of slices.

    Returns
    -------
    Arrivals
        Stamps, which are the payload [s], slices and arrivals count from the first day.
    """
    begins_s = min(int(own[0]) for own in stamps_s) // int(DAY_S) * int(DAY_S)
    parts = []
    for number, source in enumerate(station_sources(setting, len(stamps_s), seed, moving=moving)):
        own = stamps_s[number] - begins_s
        # Numbers are scrambled, not slices, of which a clock of 119 s brings some twice.
        order = scrambled(np.arange(len(own)), source.scrambling_factor, np.random.default_rng([seed, number]))
        arrival_ns = np.rint((own + source.lag.at(own.astype(np.float64))) * NANOSECONDS).astype(np.int64)
        stream = np.full(len(own), number, np.int32)
        stamps = own[order]
        parts.append(Arrivals(len(stamps_s), stream, stamps // slice_s, stamps.astype(np.float64), arrival_ns))
    return merged(parts)


def lag_dominated(needed_bytes: int, *, streams: int = 3, seed: int = 0, tuple_bytes: int = TUPLE_BYTES) -> Load:
    """Return ordered streams of which the last lags so far behind that a join must hold this much [bytes].

    All others are held from their arrival until the last stream brings the key. `Load.chunks` makes it in little
    memory.
    """
    held = math.ceil(needed_bytes / (tuple_bytes * (streams - 1)))
    lead = Source(0, 1, MEAN_GAP_S)
    # A twentieth more than is needed, so that Poisson's chances do not miss it.
    behind = Source(0, 1, MEAN_GAP_S, Lag(1.05 * held * MEAN_GAP_S))
    return Load((lead,) * (streams - 1) + (behind,), keys=held + max(held // 4, 1000), seed=seed)


def disorder_dominated(needed_bytes: int, *, streams: int = 3, seed: int = 0, tuple_bytes: int = TUPLE_BYTES) -> Load:
    """Return streams without lag whose bound by equation 3.8, 2 k tuples a stream, is this much [bytes].

    `Load.chunks` makes it in memory for some pieces of `PIECE_FACTORS` scrambling factors a stream.
    """
    factor = max(math.ceil(needed_bytes / (2 * tuple_bytes * streams)), 1)
    return Load((Source(factor, 1, MEAN_GAP_S),) * streams, keys=8 * (factor + 1), seed=seed)
