"""The bound of a clock error is that of the last instant before a stamp, of its own station."""

import json

import numpy as np

from hypergrid.core.clock_errors import (
    ClockError,
    decode_clock_errors,
    encode_clock_errors,
    find_bounds_by_station_ns,
    find_bounds_ns,
)

NS = 10**9
ERRORS = {"always": (ClockError(None, 90.0),), "for a while": (ClockError(100 * NS, 2.5), ClockError(200 * NS, 0.0))}


def test_a_bound_is_of_stamps_from_its_instant_on() -> None:
    stamps = np.array([-5, 99, 100, 199, 200, 10**6], np.int64) * NS
    assert find_bounds_ns(ERRORS["always"], stamps).tolist() == [90 * NS] * 6
    assert find_bounds_ns(ERRORS["for a while"], stamps).tolist() == [0, 0, 2.5 * NS, 2.5 * NS, 0, 0]
    code = np.array([0, 1, 2, 1, 0, 2])
    bounds = find_bounds_by_station_ns(ERRORS, ["right", "for a while", "always"], code, stamps)
    assert bounds.tolist() == [0, 0, 90 * NS, 2.5 * NS, 0, 90 * NS]


def test_clock_errors_survive_json() -> None:
    assert decode_clock_errors(json.loads(json.dumps(encode_clock_errors(ERRORS)))) == ERRORS
