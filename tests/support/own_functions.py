"""Functions as users add them, and the same as an oracle computes them: one number, or one list, at a time."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES

Floats = NDArray[np.float64]


def _soft(value: float, scale: float = 3.0) -> float:
    return value / (scale + abs(value))


def _travel(values: Sequence[float]) -> float:
    return math.fsum(abs(later - value) for value, later in pairwise(values))


def _power(values: Sequence[float], exponent: float = 2.0) -> float:
    return math.pow(math.fsum(abs(value) ** exponent for value in values) / len(values), 1 / exponent)


def _shared(first: float, second: float) -> float:
    return first * second / (1.0 + abs(first) + abs(second))


def _is_uphill(east_m: float, north_m: float) -> bool:
    return north_m > 0.37 * east_m - 211.3


def _uphill(near: Sequence[tuple[float, float, float]], tilt: float = 0.001) -> float:
    """Return the value of an estimate from the value, east and north [m] of each station that is used."""
    weights = [1.0 / (60.0 + math.hypot(east_m, north_m)) for _, east_m, north_m in near]
    mean = math.fsum(weight * value for weight, (value, _, _) in zip(weights, near, strict=True)) / math.fsum(weights)
    return mean + tilt * math.fsum(north_m for _, _, north_m in near) / len(near)


OWN_CONVERTS: Final[Mapping[str, Callable[..., float]]] = {"own_soft": _soft}
OWN_AGGREGATES: Final[Mapping[str, Callable[..., float]]] = {"own_travel": _travel, "own_power": _power}
OWN_MERGES: Final[Mapping[str, Callable[..., float]]] = {"own_shared": _shared}
OWN_METHODS: Final[Mapping[str, tuple[Callable[[float, float], bool], Callable[..., float]]]] = {
    "own_uphill": (_is_uphill, _uphill)
}
"""Methods: whether an estimate uses a station at an offset, and its value."""


@contextmanager
def forgotten_functions() -> Iterator[None]:
    """Forget at the end what was added meanwhile: functions belong to the process, and so to other tests."""
    before = set(FUNCTION_IDENTITIES)
    try:
        yield
    finally:
        for name in {name for _, name in FUNCTION_IDENTITIES.keys() - before}:
            hg.forget_function(name)


@contextmanager
def own_functions() -> Iterator[None]:
    """Add a convert, two aggregates, a merge and an interpolation by decorator, and forget them at the end."""

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

    def uphill(east_m: Floats, north_m: Floats, tilt: float = 0.001) -> NDArray[np.bool_]:
        return np.asarray(north_m > 0.37 * east_m - 211.3)

    @hg.interpolation_function("own_uphill", select=uphill, vectorised=True)
    def tilted_mean(values: Floats, east_m: Floats, north_m: Floats, tilt: float = 0.001) -> Floats:
        """Mean of the stations uphill, the nearer the more, on a slope."""
        weights = 1.0 / (60.0 + np.hypot(east_m, north_m))
        return np.asarray(weights @ values / weights.sum() + tilt * north_m.mean())

    try:
        yield
    finally:
        for name in (*OWN_CONVERTS, *OWN_AGGREGATES, *OWN_MERGES, *OWN_METHODS):
            hg.forget_function(name)
