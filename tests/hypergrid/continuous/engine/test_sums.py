"""Exact sums: the number nearest to the exact sum, whatever was added and removed, and in whatever order."""

import math
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.continuous.engine.kernels.sums import WORDS, add_number, read_large_sum, read_long_sum, read_sum

DRAWS = {
    "readings": lambda rng, n: rng.normal(10, 5, n).round(2),
    "any size": lambda rng, n: rng.normal(size=n) * 10.0 ** rng.integers(-300, 300, n),
    "readings and others": lambda rng, n: rng.normal(10, 5, n).round(2) * rng.choice([1.0, 0.0, 1e-7, 1e12], n),
    "like size, large sums": lambda rng, n: rng.uniform(1, 2, n) * 2.0 ** np.append(0, rng.integers(-16, 27, n - 1)),
    "whole multiples": lambda rng, n: rng.integers(-9, 9, n) * 2.0 ** rng.integers(-70, 70, n),
    "ties": lambda rng, n: np.array([1.0, 2.0**-53, -(2.0**-106) * rng.integers(0, 3), 2.0**-53 * rng.integers(0, 3)]),
    "subnormal": lambda rng, n: np.concatenate([rng.normal(size=n) * 5e-323, [5e-324]]),
}


@numba.njit
def sum_up(bits: NDArray[np.int64], sign: NDArray[np.int64], words: NDArray[np.int64]) -> Any:  # noqa: ANN401 - compiled
    for at in range(len(bits)):
        add_number(words, 0, 0, bits[at], sign[at])
    # Each of them for any sum: what reads fewer bits is chosen within.
    large, long = np.int64(read_large_sum(words, 0, 0)), np.int64(read_long_sum(words, 0, 0))
    return read_sum(words, 0, 0), large.view(np.float64), long.view(np.float64)


@pytest.mark.parametrize("draw", DRAWS)
def test_a_sum_is_the_number_nearest_to_the_exact_sum(draw: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(2000):
        values = DRAWS[draw](rng, int(rng.integers(1, 12)))
        removed = np.unique(rng.integers(0, len(values), len(values) // 2))
        given = np.concatenate([values, values[removed]])
        signs = np.repeat(np.array([1, -1]), [len(values), len(removed)])
        order = np.concatenate([rng.permutation(len(values)), np.arange(len(values), len(given))])
        words = np.zeros((1, WORDS), np.int64)
        sums = sum_up(given[order].view(np.int64), signs[order], words)
        expected = math.fsum(np.delete(values, removed))
        assert sums == (expected, expected, expected)


def test_infinities_are_counted_and_leave_no_trace() -> None:
    words = np.zeros((1, WORDS), np.int64)

    def add(value: float, sign: int) -> float:
        bits = np.array([value]).view(np.int64)
        return float(sum_up(bits, np.array([sign]), words)[0])

    assert add(1.5, 1) == 1.5
    assert add(math.inf, 1) == math.inf
    assert math.isnan(add(-math.inf, 1))
    assert add(math.inf, -1) == -math.inf
    assert add(-math.inf, -1) == 1.5
    # Beyond the largest number a sum is infinite, and finite again afterwards.
    assert add(1.7e308, 1) == 1.7e308
    assert add(1.7e308, 1) == math.inf
    assert add(1.7e308, -1) == 1.7e308
