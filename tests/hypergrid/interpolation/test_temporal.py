"""Errors of means over time against the covariances of every reading with every other."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation import Variogram, variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty.mean_variance import (
    ALIKE,
    INDEPENDENT,
    RUNG,
    Combination,
    Correlation,
    combine,
    make_ladder,
)

Floats = NDArray[np.float64]
MEANINGS = ("micro-scale", "measurement error")


def holes(rng: np.random.Generator, slices: int, stations: int) -> NDArray[np.bool_]:
    present = rng.random((slices, stations)) < 0.7
    present[np.arange(slices), rng.integers(0, stations, slices)] = True
    present[::3] = present[0]
    return present


def cov(a: Floats, b: Floats, model: Variogram) -> Floats:
    """Covariance of the field's values without the instruments' noise."""
    distance = cdist(a, b)
    structured = model.sill - model.nugget - (model.semivariance(distance) - model.nugget)
    return structured + (model.nugget * (distance == 0) if model.nugget_is == "micro-scale" else 0.0)


def ordinary_weights(places: Floats, present: NDArray[np.bool_], target: Floats, model: Variogram) -> Floats:
    """Weights of one slice from its own system, as a textbook writes it, and 0 for those that do not report."""
    here = places[present]
    noise = model.nugget if model.nugget_is == "measurement error" else 0.0
    matrix = np.ones((len(here) + 1, len(here) + 1))
    matrix[-1, -1] = 0.0
    matrix[:-1, :-1] = cov(here, here, model) + noise * np.eye(len(here))
    result = np.zeros(len(places))
    result[present] = np.linalg.solve(matrix, np.append(cov(here, target, model)[:, 0], 1.0))[:-1]
    return result


def brute_force(
    places: Floats, present: NDArray[np.bool_], target: Floats, model: Variogram, share: Floats, correlation: Floats
) -> float:
    """Variance of `sum u_t (w_t' z_t - y_t)` from the covariance of all readings and values, at all times at once."""
    noise = model.nugget if model.nugget_is == "measurement error" else 0.0
    everywhere = np.concatenate([places, target])
    space = cov(everywhere, everywhere, model)
    whole = np.kron(correlation, space)
    reads = np.tile(np.append(np.full(len(places), noise), 0.0), len(present))
    whole += np.diag(reads)
    functional = [
        u * np.append(ordinary_weights(places, line, target, model), -1.0)
        for u, line in zip(share, present, strict=True)
    ]
    line = np.concatenate(functional)
    return float(line @ whole @ line)


def found(
    places: Floats, present: NDArray[np.bool_], target: Floats, model: Variogram, share: Floats, *,
    times_s: Floats, correlation: Correlation,
) -> float:  # fmt: skip
    stations = Stations(places, tuple(map(str, range(len(places)))))
    field = KrigingField(KrigingSystem.of(stations, model, Drift()), np.where(present, 1.0, np.nan), noise_free=True)
    solved = field.sides(Targets(target)) @ field.inverse
    everyone = KrigingField(KrigingSystem.of(stations, model, Drift()), np.ones((1, len(places))), noise_free=True)
    noise = model.nugget if model.nugget_is == "measurement error" else 0.0
    core = field.inverse[: len(places), : len(places)]
    made = combine(core, field.present, weights=share, times_s=times_s, correlation=correlation, noise=noise)
    weights = solved[:, : len(places)]
    return float(made.variance(weights, weights @ core, everyone.variance(Targets(target))[0])[0])


@pytest.mark.parametrize("meaning", MEANINGS)
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    nugget=st.sampled_from([0.0, 0.3]),
    e_folding_s=st.sampled_from([0.0, 50.0, 1000.0, math.inf]),
    slices=st.integers(1, 9),
)
def test_a_mean_over_time_is_what_all_covariances_say(
    meaning: str, seed: int, nugget: float, e_folding_s: float, slices: int
) -> None:
    rng = np.random.default_rng(seed)
    places, target = rng.uniform(0, 1000, (7, 2)), rng.uniform(0, 1000, (1, 2))
    present = holes(rng, slices, 7)
    model = variogram("exponential", psill=1.5, range_m=900.0, nugget=nugget, nugget_is=meaning)
    times_s = np.cumsum(rng.choice([60.0, 600.0, 1234.5], slices))
    share = rng.uniform(0.2, 1.0, slices)
    lag_s = np.abs(times_s[:, None] - times_s)
    matrix = np.where(lag_s > 0, Correlation(e_folding_s).evaluate(lag_s), 1.0)
    wanted = brute_force(places, present, target, model, share, matrix)
    got = found(places, present, target, model, share, times_s=times_s, correlation=Correlation(e_folding_s))
    assert got == pytest.approx(wanted, rel=1e-9, abs=1e-12)


def combined(correlation: Correlation, *, slices: int = 4, missing: bool = False) -> Combination:
    places = np.random.default_rng(1).uniform(0, 1000, (5, 2))
    model = variogram("spherical", psill=1.0, range_m=800.0)
    values = np.ones((slices, 5))
    if missing:
        values[::2, 0] = np.nan
    field = KrigingField(KrigingSystem.of(Stations(places, tuple("abcde")), model), values)
    times_s = np.arange(slices) * 600.0
    weights = np.full(slices, 1 / slices)
    return combine(field.inverse[:5, :5], field.present, weights=weights, times_s=times_s, correlation=correlation)


def test_independent_slices_divide_the_variance_and_equal_ones_keep_it() -> None:
    assert combined(INDEPENDENT).correlated == pytest.approx(1 / 4)
    assert combined(ALIKE).correlated == pytest.approx(1.0)
    assert combined(Correlation(600.0)).correlated == pytest.approx(
        (4 + 2 * (3 / math.e + 2 / math.e**2 + 1 / math.e**3)) / 16
    )
    assert not len(combined(ALIKE).gone)


def test_a_missing_station_adds_the_more_the_longer_errors_last() -> None:
    weights = np.full((1, 5), 0.2)
    added = [
        combined(Correlation(t), missing=True).variance(weights, weights, np.zeros(1))[0]
        for t in (0, 300, 3000, math.inf)
    ]
    assert 0 < added[0] < added[1] < added[2] < added[3]


def test_slices_of_weight_zero_are_not_in_the_mean() -> None:
    rng = np.random.default_rng(5)
    core = np.linalg.inv(np.eye(4) + 0.5)
    present = np.array([[1, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 1]], dtype=bool)
    times_s, weights = np.array([0.0, 10.0, 20.0, 40.0]), np.array([0.5, 0.0, 0.25, 0.25])
    every = combine(core, present, weights=weights, times_s=times_s, correlation=Correlation(30.0), noise=0.1)
    kept = np.array([0, 2, 3])
    some = combine(
        core, present[kept], weights=weights[kept], times_s=times_s[kept], correlation=Correlation(30.0), noise=0.1
    )
    at = rng.uniform(0, 1, (3, 4))
    np.testing.assert_array_equal(every.variance(at, at @ core, np.ones(3)), some.variance(at, at @ core, np.ones(3)))
    with pytest.raises(ValueError, match="without stations"):
        combine(core, present, weights=np.ones(4), times_s=times_s, correlation=INDEPENDENT)


@pytest.mark.parametrize("e_folding_s", [-1.0, math.nan])
def test_an_e_folding_time_is_zero_or_more(e_folding_s: float) -> None:
    with pytest.raises(InvalidQuery, match="zero or more"):
        Correlation(e_folding_s)


@pytest.mark.parametrize(("step_s", "span_s"), [(600.0, 3000.0), (3600.0, 3e7), (10.0, 0.0)])
def test_a_ladder_leads_from_independent_to_alike_in_small_steps(step_s: float, span_s: float) -> None:
    first, *between, last = make_ladder(step_s, span_s)
    assert (first, last) == (INDEPENDENT, ALIKE)
    times_s = np.array([rung.e_folding_s for rung in between])
    assert len(times_s) >= 8
    assert between[0].evaluate(np.array(step_s)) < 0.02
    assert between[-1].evaluate(np.array(span_s)) > 0.9
    assert (times_s[1:] > times_s[:-1]).all()
    assert (times_s[1:] <= times_s[:-1] * RUNG * (1 + 1e-12)).all()
