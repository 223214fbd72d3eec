"""Functions as users add them, and the same as an oracle computes them: one number, or one list, at a time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg

Floats = NDArray[np.float64]


def _soft(value: float, scale: float = 3.0) -> float:
    return value / (scale + abs(value))


def _travel(values: Sequence[float]) -> float:
    return math.fsum(abs(later - value) for value, later in pairwise(values))


def _power(values: Sequence[float], exponent: float = 2.0) -> float:
    return math.pow(math.fsum(abs(value) ** exponent for value in values) / len(values), 1 / exponent)


def _shared(first: float, second: float) -> float:
    return first * second / (1.0 + abs(first) + abs(second))


OWN_CONVERTS: Final[Mapping[str, Callable[..., float]]] = {"own_soft": _soft}
OWN_AGGREGATES: Final[Mapping[str, Callable[..., float]]] = {"own_travel": _travel, "own_power": _power}
OWN_MERGES: Final[Mapping[str, Callable[..., float]]] = {"own_shared": _shared}


@contextmanager
def own_functions() -> Iterator[None]:
    """Add a convert, two aggregates and a merge by decorator, and forget them at the end."""

    @hg.convert_function("own_soft")
    def soft(values: Floats, scale: float = 3.0) -> Floats:
        """Value over its size and a scale."""
        return np.asarray(values / (scale + np.abs(values)))

    @hg.aggregate_function("own_travel")
    def travel(values: Floats) -> float:
        """Way that the values go, in order of time."""
        return float(np.abs(np.diff(values)).sum())

    @hg.aggregate_function("own_power", vectorised=True)
    def power(values: Floats, exponent: float = 2.0) -> Floats:
        """Power mean of the values' sizes."""
        return np.asarray(np.nanmean(np.abs(values) ** exponent, axis=0) ** (1 / exponent))

    @hg.merge_function("own_shared")
    def shared(first: Floats, second: Floats) -> Floats:
        """Product over the sizes of both."""
        return np.asarray(first * second / (1.0 + np.abs(first) + np.abs(second)))

    try:
        yield
    finally:
        for name in (*OWN_CONVERTS, *OWN_AGGREGATES, *OWN_MERGES):
            hg.forget_function(name)
