"""Variograms by restricted likelihood, against the textbook's formula evaluated one covariance at a time."""

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.variograms.likelihood import (
    LONGEST,
    NUGGET_SHARES,
    PRIOR_RANGE,
    PRIOR_SPREAD,
    RANGES,
    SHAPES,
    fit_by_likelihood,
)
from hypergrid.interpolation.variograms.variogram import Variogram
from tests.hypergrid.interpolation.simulated import Network, simulate_network


def restricted_log_likelihood(covariance: np.ndarray, columns: np.ndarray, line: np.ndarray) -> tuple[float, float]:
    """Return the terms of Patterson and Thompson's likelihood: logarithms of determinants, and the quadratic form."""
    inverse = np.linalg.inv(covariance)
    normal = columns.T @ inverse @ columns
    projected = inverse - inverse @ columns @ np.linalg.inv(normal) @ columns.T @ inverse
    determinants = (
        np.linalg.slogdet(covariance)[1] + np.linalg.slogdet(normal)[1] - np.linalg.slogdet(columns.T @ columns)[1]
    )
    return float(determinants), float(line @ projected @ line)


def average_slowly(network: Network, columns: np.ndarray) -> tuple[dict[tuple[str, float], float], float]:
    """Return the averaged partial sill of each model and range, and the nugget, for one slice."""
    positions, line = network.positions_m, network.readings[0]
    distance = np.linalg.norm(positions[:, None] - positions[None], axis=2)
    extent = float(np.linalg.norm(np.ptp(positions, axis=0)))
    least = min(distance[distance > 0].min(), 0.1 * extent) / 2
    degrees = len(line) - columns.shape[1]
    density, sills = {}, {}
    for model, smoothness in SHAPES:
        for range_m in np.geomspace(least, LONGEST * extent, RANGES):
            correlation = 1.0 - Variogram(model, 1.0, range_m, 0.0, smoothness=smoothness).semivariance(distance)
            np.fill_diagonal(correlation, 1.0)
            for share in NUGGET_SHARES:
                covariance = (1 - share) * correlation + (share + 1e-6) * np.eye(len(line))
                determinants, squares = restricted_log_likelihood(covariance, columns, line)
                prior = -0.5 * (np.log(range_m / (PRIOR_RANGE * extent)) / PRIOR_SPREAD) ** 2
                density[model, range_m, share] = -0.5 * (degrees * np.log(squares) + determinants) + prior
                sills[model, range_m, share] = squares / degrees
    greatest = max(density.values())
    weights = {key: np.exp(value - greatest) for key, value in density.items()}
    total = sum(weights.values())
    psill: dict[tuple[str, float], float] = {}
    for (model, range_m, share), weight in weights.items():
        psill[model, range_m] = psill.get((model, range_m), 0.0) + weight / total * sills[model, range_m, share] * (
            1 - share
        )
    nugget = sum(weight / total * sills[key] * key[2] for key, weight in weights.items())
    return psill, nugget


@pytest.mark.parametrize(("seed", "degree"), [(1, 0), (2, 0), (3, 1)])
def test_the_average_is_that_of_the_formula(seed: int, degree: int) -> None:
    network = simulate_network(seed, stations=14, range_m=50_000.0, nugget=0.2)
    ones = np.ones((14, 1))
    columns = np.column_stack([ones, network.positions_m / 1e5]) if degree else ones
    fit = fit_by_likelihood(network.positions_m, columns, network.readings)
    psill, nugget = average_slowly(network, columns)
    assert fit.variogram.nugget / fit.widening == pytest.approx(nugget, rel=1e-6)
    assert fit.variogram.sill / fit.widening == pytest.approx(sum(psill.values()) + nugget, rel=1e-6)
    # Terms of neighbouring ranges are joined, which keeps the shape.
    distance = np.linspace(2_000, 100_000, 20)
    whole = nugget + sum(
        Variogram(model, sill, range_m, 0.0, smoothness=dict(SHAPES)[model]).semivariance(distance)
        for (model, range_m), sill in psill.items()
        if sill > 0
    )
    np.testing.assert_allclose(fit.variogram.semivariance(distance) / fit.widening, whole, rtol=0.1)


def test_gaps_leave_what_reports() -> None:
    network = simulate_network(4, stations=20, range_m=50_000.0, nugget=0.1, slices=6)
    readings = network.readings.copy()
    readings[:, 5] = np.nan
    kept = np.delete(np.arange(20), 5)
    ones = np.ones((20, 1))
    with_gap = fit_by_likelihood(network.positions_m, ones, readings)
    without = fit_by_likelihood(network.positions_m[kept], ones[kept], readings[:, kept])
    # The extent, and so the grid of ranges, may differ a little.
    assert with_gap.variogram.sill == pytest.approx(without.variogram.sill, rel=0.05)


def test_equal_slices_count_once() -> None:
    network = simulate_network(5, stations=12, range_m=50_000.0, nugget=0.1)
    repeated = np.repeat(network.readings, 40, axis=0)
    once = fit_by_likelihood(network.positions_m, np.ones((12, 1)), network.readings)
    often = fit_by_likelihood(network.positions_m, np.ones((12, 1)), repeated)
    assert often.independent_slices == pytest.approx(1.0)
    distance = np.linspace(1_000, 100_000, 50)
    np.testing.assert_allclose(often.variogram.semivariance(distance), once.variogram.semivariance(distance), rtol=1e-9)
    assert once.widening == pytest.approx((2.200985 / 1.959964) ** 2, rel=1e-5)


def test_the_unit_does_not_matter() -> None:
    network = simulate_network(6, stations=15, range_m=40_000.0, nugget=0.1, slices=3)
    plain = fit_by_likelihood(network.positions_m, np.ones((15, 1)), network.readings)
    scaled = fit_by_likelihood(network.positions_m / 1000, np.ones((15, 1)), 1e4 * network.readings + 5.0)
    assert scaled.variogram.sill == pytest.approx(1e8 * plain.variogram.sill, rel=1e-6)
    assert scaled.variogram.range_m == pytest.approx(plain.variogram.range_m / 1000, rel=1e-9)


@pytest.mark.parametrize(
    ("positions", "values"),
    [
        (np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 2.0]])),
        (np.arange(10.0).reshape(5, 2), np.full((3, 5), 7.0)),
        (np.arange(10.0).reshape(5, 2), np.full((3, 5), np.nan)),
        (np.zeros((5, 2)), np.arange(5.0)[None]),
    ],
    ids=["two stations", "constant", "missing", "one place"],
)
def test_what_tells_nothing_is_refused(positions: np.ndarray, values: np.ndarray) -> None:
    with pytest.raises(InvalidQuery, match="a variogram needs"):
        fit_by_likelihood(positions, np.ones((len(positions), 1)), values)
