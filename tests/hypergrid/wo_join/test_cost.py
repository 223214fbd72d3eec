"""The cost model, by hand."""

import numpy as np
import pytest

from hypergrid.core.errors import TooLarge
from hypergrid.wo_join.memory import (
    StreamParameters,
    admit,
    buffer_bounds,
    combine_parameters,
    convert_to_key,
    split_memory,
)
from tests.bench.wo_join_strategies import strategy_bounds


def test_equations_3_6_to_3_8() -> None:
    # k = (4, 10, 0), r = (1, 2, 4): stream 0 waits 4 + 1 * 10 / 2 + 3 for stream 1, 4 + 0 + 7 for stream 2.
    bounds = buffer_bounds([4, 10, 0], [1.0, 2.0, 4.0], [[0, 3, 7], [-50, 0, 1], [2, -100, 0]])
    #         max(12, 11)   max(10 + 2 * 4 / 1 - 50, 11)   max(0 + 4 * 4 / 1 + 2, 0 + 4 * 10 / 2 - 100)
    assert bounds.tolist() == [12, 11, 18]
    # Equation 3.6: synchronised; equation 3.7: at least one.
    assert buffer_bounds([3, 5], [1.0, 1.0], np.zeros((2, 2))).tolist() == [8, 8]
    assert buffer_bounds([0, 0], [1.0, 1.0], [[0, -9], [9, 0]]).tolist() == [1, 9]
    # Nobody knows how long a stream of unknown rate takes to come into order.
    assert buffer_bounds([0, 5], [1.0, np.nan], np.zeros((2, 2))).tolist() == [np.inf, 5]


def test_strategies_of_3_5() -> None:
    factors, rates, repeated = [40, 100], [1.0, 2.0], [2, 4]
    lag = [[0.0, 30.0], [-50.0, 0.0]]
    # Sorted: Mul_i + r_i Mul_j / r_j + lag; synchronised: without the lag, and C more; both.
    assert strategy_bounds("msf", factors, rates, repeated, lag, ahead=9).tolist() == [2 + 4 / 2 + 30, 1]
    assert strategy_bounds("dbf", factors, rates, repeated, lag, ahead=9).tolist() == [40 + 50 + 9, 100 + 80 + 9]
    assert strategy_bounds("hybrid", factors, rates, repeated, lag, ahead=9).tolist() == [2 + 2 + 9, 4 + 4 + 9]


def test_theorem_3_4_1() -> None:
    out = combine_parameters([StreamParameters(10, 1.0, 2), StreamParameters(20, 2.0, 3), StreamParameters(5, 4.0, 1)])
    assert out == StreamParameters(10 * 3 + 20 * 2 + 5 * 6, 1.0 * 3 + 2.0 * 2 + 4.0 * 6, 6)


def test_theorem_3_4_2() -> None:
    assert convert_to_key(StreamParameters(100, 3.0, 6), 30.0, 2) == StreamParameters(230, 3.0, 2)


def test_memory_is_shared_by_need() -> None:
    assert split_memory([100.0, 300.0], [10.0, 10.0], 1000.0) == [100, 300]
    assert split_memory([100.0, 300.0], [10.0, 50.0], 230.0) == [55, 175]
    assert split_memory([5.0, 5.0], [10.0, 10.0], 20.0) == [10, 10]
    with pytest.raises(TooLarge, match="2 joins together projects 60 bytes, above the 50 allowed"):
        split_memory([100.0, 300.0], [10.0, 50.0], 50.0)
    admit("a join", 5.0, 5.0)
