"""Stations in one place, and stations far away."""

from typing import Any

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, NotFound, SingularSystem
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.interpolation import Stations
from hypergrid.interpolation.methods.station_selection import (
    PARAMETERS,
    far_limit_m,
    join_names,
    parse_selection,
    treat_coincident,
)

PLACES = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 0.0], [10.0, 3.0], [50.0, 50.0], [0.0, 0.0]])
VALUES = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 8.0], [np.nan, 2.0, 3.0, 4.0, 5.0, np.nan], [np.nan, 2.0] + [np.nan] * 4])


def stations(places: np.ndarray[Any, Any] = PLACES) -> Stations:
    return Stations(places, tuple("abcdef"[: len(places)]), {"elevation": np.arange(len(places), dtype=float)})


def test_merged_stations_are_the_mean_of_those_that_report() -> None:
    merged, values, notes = treat_coincident("x", stations(), VALUES, {"coincident": "merge"})
    assert merged.names == ("a+c+f", "b", "d", "e")
    np.testing.assert_array_equal(merged.positions_m, [[0, 0], [10, 0], [10, 3], [50, 50]])
    np.testing.assert_allclose(merged.covariates["elevation"], [7 / 3, 1, 3, 4])
    np.testing.assert_allclose(values, [[4, 2, 4, 5], [3, 2, 4, 5], [np.nan, 2, np.nan, np.nan]])
    assert notes == ("stations in one place are one, of their mean: a and c and f",)


def test_stations_near_each_other_are_merged_where_it_is_asked() -> None:
    merged, values, _ = treat_coincident("x", stations(), VALUES, {"merge_within_m": 3.0})
    assert merged.names == ("a+c+f", "b+d", "e")
    np.testing.assert_allclose(merged.positions_m[1], [10, 1.5])
    np.testing.assert_allclose(values[0], [4, 3, 5])
    apart, _, _ = treat_coincident("x", stations(), VALUES, {"merge_within_m": 2.99})
    assert apart.names == ("a+c+f", "b", "d", "e")


def test_on_the_sphere_the_middle_stays_on_it() -> None:
    places = places_m(np.array([0.0, 1.0, 90.0]), np.array([0.0, 0.0, 0.0]))
    arc = RADIUS_M * np.pi / 180
    merged, _, _ = treat_coincident("x", stations(places), np.ones((1, 3)), {"merge_within_m": arc * 1.000001})
    np.testing.assert_allclose(merged.positions_m[0], places_m(np.array([0.5]), np.array([0.0]))[0], atol=1e-6)
    assert merged.count == 2
    assert treat_coincident("x", stations(places), np.ones((1, 3)), {"merge_within_m": arc * 0.999999})[0].count == 3


@pytest.mark.parametrize("given", [{}, {"coincident": "keep"}])
def test_kept_stations_stay_and_a_note_says_so(given: dict[str, Any]) -> None:
    here = stations()
    kept, values, notes = treat_coincident("x", here, VALUES, given)
    assert kept is here
    assert values is VALUES
    assert notes == ("stations in one place are used each with its own error: a and c and f",)


def test_refused_stations_are_named() -> None:
    with pytest.raises(
        SingularSystem, match=r"kriging got stations in one place: a and c and f; use coincident='merge'"
    ):
        treat_coincident("kriging", stations(), VALUES, {"coincident": "refuse"})


@pytest.mark.parametrize("given", [{}, {"coincident": "refuse"}, {"coincident": "merge"}])
def test_stations_apart_are_left_alone(given: dict[str, Any]) -> None:
    for places in (PLACES[[0, 1, 3]], np.empty((0, 2)), np.empty((0, 3))):
        here = stations(places)
        found, _, notes = treat_coincident("x", here, np.ones((2, len(places))), given)
        assert found is here
        assert notes == ()


def test_the_far_limit_keeps_networks_whole() -> None:
    # A grid of 1 km in the middle of a country 300 km wide: everything is used.
    country = np.linspace(0, 150e3, 50)
    assert far_limit_m(country, diagonal_m=1.4e3, range_m=0) > country.max()
    # Nine stations in the grid and one 5,000 km away: more than ten diagonals, and no other is so far.
    assert far_limit_m(np.array([0.0] * 9 + [5e6]), diagonal_m=100e3, range_m=50e3) == 1e6
    # A long range reaches it, and an unbounded variogram everything.
    assert far_limit_m(np.array([0.0, 5e6]), diagonal_m=1.0, range_m=2e6) == 2.5e7
    assert far_limit_m(np.array([0.0, 5e6]), diagonal_m=1.0, range_m=np.inf) == np.inf


def test_at_least_half_of_the_stations_stay() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        distance = rng.lognormal(sigma=4, size=rng.integers(1, 30))
        assert np.count_nonzero(distance <= far_limit_m(distance, diagonal_m=0, range_m=0)) >= len(distance) / 2


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        ({"coincident": "merged"}, NotFound, "did you mean 'merge'"),
        ({"merge_within_m": -1.0}, InvalidQuery, "'merge_within_m' of zero or more; got -1"),
        ({"merge_within_m": float("nan")}, InvalidQuery, "got nan"),
        ({"ignore_beyond_m": -1.0}, InvalidQuery, "'ignore_beyond_m'"),
        ({"merge_within_m": 5.0, "coincident": "keep"}, InvalidQuery, "together with coincident='keep'"),
    ],
)
def test_what_cannot_be_asked_is_refused(given: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        parse_selection("x", {item.name: given.get(item.name) for item in PARAMETERS})


def test_what_is_absent_is_left_out() -> None:
    absent = dict.fromkeys(item.name for item in PARAMETERS)
    assert parse_selection("x", absent) == {}
    assert parse_selection("x", {**absent, "merge_within_m": 0.0}) == {"merge_within_m": 0.0}


def test_names_are_shortened() -> None:
    assert join_names(f"s{i}" for i in range(12)) == ", ".join(f"s{i}" for i in range(10)) + " and 2 more"
