"""When tuples arrive: bursts by the b-model (thesis 4.9.2.4), or taken from given times."""

import numpy as np
from numpy.typing import NDArray

LEVELS = 10
"""Halvings of the whole time: bursts are told apart down to a thousandth of it."""


def b_model(rng: np.random.Generator, count: int, *, duration_s: float, bias: float) -> NDArray[np.float64]:
    """Return the times of self-similar arrivals [s], ordered, shape (count,).

    The time is halved again and again; one half, by chance the first or the second, gets `bias` of what the whole has.

    Parameters
    ----------
    rng
        Where chance comes from.
    count
        Tuples.
    duration_s
        The whole time [s].
    bias
        Share of the fuller half, 0.5 (even) to below 1.
    """
    if not 0.5 <= bias < 1:
        message = f"the b-model needs a bias from 0.5 to below 1; got {bias}"
        raise ValueError(message)
    masses = np.ones(1)
    for _ in range(LEVELS):
        first = np.where(rng.random(len(masses)) < 0.5, bias, 1 - bias)
        masses = np.stack((masses * first, masses * (1 - first)), axis=1).ravel()
    edges = np.concatenate(([0.0], np.cumsum(masses)))
    edges[-1] = 1.0
    # One tuple for each equal share, at an even place within it.
    shares = (np.arange(count) + rng.random(count)) / count
    return np.interp(shares, edges, np.linspace(0.0, duration_s, len(edges)))


def replayed(times_s: NDArray[np.float64], *, duration_s: float, count: int, start: float = 0.0) -> NDArray[np.float64]:
    """Return so many given arrivals in a row, stretched to a given time [s], ordered, shape (count,).

    Parameters
    ----------
    times_s
        When tuples arrived [s], in any order, shape (n,).
    duration_s
        How long the part that is taken shall last [s].
    count
        How many are taken, at most n.
    start
        Where the part begins, as a share of what can be left out: 0 the first, 1 the last.
    """
    if not 2 <= count <= len(times_s):
        message = f"a replay needs at least {max(count, 2)} arrivals; got {len(times_s)}"
        raise ValueError(message)
    first = round(start * (len(times_s) - count))
    taken = np.sort(times_s)[first : first + count]
    span = taken[-1] - taken[0]
    if span <= 0:
        message = f"a replay needs arrivals at different times; got {count} at {taken[0]} s"
        raise ValueError(message)
    return (taken - taken[0]) / span * duration_s
