"""Gaps: filled one slice after the other by compiled loops or in batches, and what they add to variances."""

import numpy as np
import pytest

from hypergrid.interpolation.kernels.covariance import WORTH_COMPILED
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import TARGETS_AT_ONCE, KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.variograms.variogram import Variogram, variogram


def filled(values: np.ndarray, places_m: np.ndarray, model: Variogram, *, drift: Drift, compiled: bool) -> np.ndarray:
    stations = Stations(places_m, tuple(f"s{i}" for i in range(len(places_m))))
    field = KrigingField(KrigingSystem.of(stations, model, drift), values)
    field.expect(WORTH_COMPILED if compiled else 0, 1)
    return field.complete


def some_values(rng: np.random.Generator, slices: int, stations: int) -> np.ndarray:
    values = rng.normal(20.0, 3.0, (slices, stations))
    values[rng.random(values.shape) < rng.random((slices, 1))] = np.nan
    values[0], values[1, 1:], values[2] = np.nan, np.nan, 5.0
    return values


@pytest.mark.parametrize("drift", [Drift(), Drift(mean=18.0), Drift(degree=1)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_compiled_gaps_equal_batches(drift: Drift, order: str) -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        places_m, model = rng.uniform(0, 1000, (13, 2)), variogram("exponential", psill=2.0, range_m=600.0, nugget=0.1)
        values = np.asarray(some_values(rng, 60, 13), order=order)
        fast, slow = (filled(values, places_m, model, drift=drift, compiled=which) for which in (True, False))
        np.testing.assert_array_equal(np.isnan(fast), np.isnan(slow))
        np.testing.assert_allclose(fast, slow, rtol=1e-11)
        held = np.isfinite(values) & np.isfinite(fast)
        np.testing.assert_allclose(fast[held], values[held], rtol=1e-15)


@pytest.mark.parametrize("nugget", [1e-2, 1e-4, 1e-7])
def test_compiled_gaps_lose_no_more_digits_than_batches(nugget: float) -> None:
    """A smooth model almost without a nugget, beside kriging from the stations present alone."""
    rng = np.random.default_rng(4)
    places_m, model = rng.uniform(0, 1000, (14, 2)), variogram("gaussian", psill=2.0, range_m=4000.0, nugget=nugget)
    values = some_values(rng, 40, 14)
    fast, slow = (filled(values, places_m, model, drift=Drift(), compiled=which) for which in (True, False))
    np.testing.assert_array_equal(np.isnan(fast), np.isnan(slow))
    direct = np.array([from_present(line, places_m, model) for line in values])
    assert np.nanmax(abs(fast - direct)) <= 3 * np.nanmax(abs(slow - direct)) + 1e-12


def from_present(line: np.ndarray, places_m: np.ndarray, model: Variogram) -> np.ndarray:
    heard = np.isfinite(line)
    if not heard.any():
        return np.full(len(line), np.nan)
    stations = Stations(places_m[heard], tuple(map(str, np.flatnonzero(heard))))
    return KrigingField(KrigingSystem.of(stations, model), line[None, heard]).estimate(Targets(places_m))[0]


@pytest.mark.parametrize("drift", [Drift(), Drift(degree=1)])
def test_what_gaps_add_to_variances_is_the_same_in_tiles_on_threads(drift: Drift) -> None:
    rng = np.random.default_rng(8)
    places_m, model = rng.uniform(0, 1000, (40, 2)), variogram("exponential", psill=2.0, range_m=600.0, nugget=0.1)
    stations = Stations(places_m, tuple(f"s{i}" for i in range(40)))
    field = KrigingField(KrigingSystem.of(stations, model, drift), some_values(rng, 90, 40))
    # Three tiles of targets, the last one of a few.
    targets = Targets(rng.uniform(0, 1000, (2 * TARGETS_AT_ONCE + 5, 2)))
    weights = field.system.sides(targets) @ field.inverse
    expected = np.zeros((90, targets.count))
    for number, present in enumerate(field.present):
        lost = np.flatnonzero(~present)
        solved = np.linalg.solve(field.inverse[np.ix_(lost, lost)], weights[:, lost].T)
        expected[number] = (weights[:, lost].T * solved).sum(axis=0) if present.any() else np.nan
    serial = field.growth(weights)
    np.testing.assert_allclose(serial, expected, rtol=1e-8, atol=1e-10)
    field.expect(WORTH_COMPILED, 90)
    np.testing.assert_array_equal(field.growth(weights), serial)
