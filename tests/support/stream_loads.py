"""Small random loads of streams, of every kind that a join meets: what joins are proved on against the brute force."""

import numpy as np

from tests.support.streams.arrivals import Arrivals
from tests.support.streams.generator import Burst, Lag, Load, Source


def small_load(seed: int, *, most_streams: int = 8, keys: int = 8) -> Arrivals:
    """Return the arrivals of two and more short streams, each with parameters of its own, drawn at random.

    Scrambling factors are up to 6, multiplicities up to 3 (up to 2 of more than three streams, 1 of more than five, so
    that results can be listed), lags up to 0.6 s, some with a congestion or a burst; some streams have every other key
    only. Every other load lacks a fifth of its tuples, so that keys remain without a result.

    Parameters
    ----------
    seed
        Which load.
    most_streams
        Streams at most, 2 or more.
    keys
        Distinct keys of each stream.
    """
    rng = np.random.default_rng(seed)
    streams = int(rng.integers(2, most_streams + 1))
    most_times = 3 if streams <= 3 else 2 if streams <= 5 else 1
    sources = []
    for _ in range(streams):
        times, step = int(rng.integers(1, most_times + 1)), int(rng.choice([1, 1, 2]))
        factor = int(rng.integers(times - 1, 7))
        bursts = ((), (), (Burst(0.05, 0.1, 1 / 8),), (Burst(0.05, 0.1, 8.0),))[rng.integers(4)]
        lag = Lag(float(rng.random() * 0.3) * (seed % 3))
        sources.append(Source(factor, times, 0.02 * step / times, lag, bursts, step=step))
    arrivals = Load(tuple(sources), keys=keys, seed=seed).arrivals()
    return arrivals.take(rng.random(len(arrivals)) < 0.8) if seed % 2 else arrivals
