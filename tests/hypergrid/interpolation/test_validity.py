"""Variograms on the sphere."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import places_m
from hypergrid.interpolation import Variogram, variogram
from hypergrid.interpolation.points import separations
from hypergrid.interpolation.variograms.variogram import check_validity, is_valid_on_sphere

ALWAYS: list[dict[str, Any]] = [
    {"model": "exponential", "psill": 1, "range_m": 2e7},
    {"model": "spherical", "psill": 1, "range_m": 2e7},
    {"model": "matern", "psill": 1, "range_m": 2e7, "smoothness": 0.4},
    {"model": "linear", "psill": 1, "range_m": 1e6},
    {"model": "power", "psill": 1, "range_m": 1e6, "exponent": 0.8},
    {"model": "nugget", "nugget": 1},
]
NOT_ALWAYS: list[dict[str, Any]] = [
    {"model": "gaussian", "psill": 1, "range_m": 2e7},
    {"model": "matern", "psill": 1, "range_m": 6e7, "smoothness": 2.5},
    {"model": "power", "psill": 1, "range_m": 1e6, "exponent": 1.8},
]


def network(count: int = 60) -> NDArray[np.float64]:
    rng = np.random.default_rng(1)
    return places_m(rng.uniform(-180, 180, count), np.degrees(np.arcsin(rng.uniform(-1, 1, count))))


def least_variance(model: Variogram, places: NDArray[np.float64]) -> float:
    """Return the least eigenvalue among contrasts, by projection on a basis of them."""
    gamma = model.semivariance(separations(places, places))
    np.fill_diagonal(gamma, 0)
    basis = np.linalg.svd(np.ones((1, len(places))))[2][1:]
    return float(np.linalg.eigvalsh(-basis @ gamma @ basis.T)[0])


@pytest.mark.parametrize("given", ALWAYS)
def test_models_that_are_valid_everywhere_give_no_negative_variance(given: dict[str, Any]) -> None:
    model = variogram(**given)
    assert is_valid_on_sphere(model)
    assert least_variance(model, network()) > -1e-10
    assert check_validity("ordinary_kriging", model, network()) == ()


@pytest.mark.parametrize("given", NOT_ALWAYS)
def test_models_that_are_not_are_refused_where_they_fail_and_say_by_how_much(given: dict[str, Any]) -> None:
    model = variogram(**given)
    assert not is_valid_on_sphere(model)
    lowest = least_variance(model, network())
    assert lowest < -1e-4
    with pytest.raises(InvalidQuery) as caught:
        check_validity("ordinary_kriging", model, network())
    assert f"cannot use the {given['model']} model" in str(caught.value)
    told = float(str(caught.value).split("the variance ")[1].split()[0])
    assert told == pytest.approx(lowest, rel=0.05)
    # The same model on a plane is valid, and is not looked at.
    assert check_validity("ordinary_kriging", model, network()[:, :2]) == ()


@pytest.mark.parametrize("given", [{"range_m": 5e5}, {"range_m": 2e7, "nugget": 1.0}])
def test_where_they_do_not_fail_a_note_says_that_they_could(given: dict[str, Any]) -> None:
    model = variogram("gaussian", psill=1, **given)
    assert least_variance(model, network()) > -1e-10
    (note,) = check_validity("ordinary_kriging", model, network())
    assert "no valid variogram of great-circle distances in general" in note


def test_a_nested_term_counts_and_one_without_a_sill_does_not() -> None:
    good, bad = variogram(**ALWAYS[0]), variogram(**NOT_ALWAYS[0])
    assert not is_valid_on_sphere(good + bad)
    assert is_valid_on_sphere(variogram("gaussian", psill=0, range_m=1, nugget=1))


def test_more_stations_than_can_be_checked_are_refused() -> None:
    with pytest.raises(InvalidQuery, match="more than 5,000 stations"):
        check_validity("ordinary_kriging", variogram(**NOT_ALWAYS[0]), network(5001))
