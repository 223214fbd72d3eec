"""Intervals of 95 % hold the truth in about 95 % of 1,000 simulated fields: of points, of regions, of means over time.

Fields are slices of one network, or means of the slices of an hour or a day; each is kriged from readings with random
holes. The fraction counted over fields and targets scatters by about 0.7 % where the targets of a field go together
wholly, so 93 to 97 % is three of its standard deviations.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from hypergrid.interpolation import Variogram, variogram
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.uncertainty.block_variance import (
    combinations_of,
    mean_variance,
    regions_of,
    slice_variance,
)
from hypergrid.interpolation.uncertainty.mean_variance import ALIKE, INDEPENDENT, Correlation
from hypergrid.interpolation.uncertainty.residual_correlation import (
    estimate_correlation,
    standardise_residuals,
)
from hypergrid.interpolation.uncertainty.simulate import Simulator

Floats = NDArray[np.float64]

FIELDS = 1_000
HALF = 1.959963984540054
"""Half the width of an interval that holds 95 % of a normal distribution [standard deviations]."""
MODELS = [
    variogram("exponential", psill=1.0, range_m=1500.0),
    variogram("spherical", psill=1.0, range_m=1500.0, nugget=0.2),
    variogram("exponential", psill=1.0, range_m=1500.0, nugget=0.3, nugget_is="measurement error"),
]


def inside(error: Floats, variance: Floats) -> float:
    return float(np.mean(np.abs(error) <= HALF * np.sqrt(variance)))


def network(stations: int) -> tuple[Stations, Targets]:
    rng = np.random.default_rng(11)
    places = Stations(rng.uniform(0, 2000, (stations, 2)), tuple(f"s{i}" for i in range(stations)))
    x, y = np.meshgrid(np.arange(10) * 200.0 + 100, np.arange(10) * 200.0 + 100)
    return places, Targets(np.stack([x.ravel(), y.ravel()], axis=1))


def readings(
    stations: Stations, targets: Targets, model: Variogram, *, times_s: Floats, count: int, correlation: Correlation
) -> tuple[Floats, Floats]:
    """Return readings (count * times, stations) with holes in bursts, and the truth at targets (…, targets)."""
    rng = np.random.default_rng(5)
    simulator = Simulator(np.concatenate([stations.positions_m, targets.positions_m]), model)
    fields = simulator.draw_through(times_s, count, rng, correlation=correlation)
    fields = fields.reshape(-1, fields.shape[-1])
    values = fields[:, : stations.count].copy()
    if model.nugget_is == "measurement error":
        values += math.sqrt(model.nugget) * rng.standard_normal(values.shape)
    burst = np.repeat(rng.random((-(-len(values) // 4), stations.count)) < 0.25, 4, axis=0)[: len(values)]
    burst[:, :2] = False
    return np.where(burst, np.nan, values), fields[:, stations.count :]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: f"{m.model}, {m.nugget_is}" if m.nugget else m.model)
def test_intervals_of_points_and_regions_hold_the_truth(model: Variogram) -> None:
    stations, targets = network(15)
    values, truth = readings(
        stations, targets, model, times_s=np.zeros(1), count=FIELDS, correlation=INDEPENDENT
    )  # fmt: skip
    field = KrigingField(KrigingSystem.of(stations, model), values, noise_free=True)
    estimate = field.estimate(targets)
    assert 0.93 <= inside(estimate - truth, field.variance(targets)) <= 0.97
    quarters = (np.arange(100) // 50) * 2 + np.arange(100) % 10 // 5
    share = np.concatenate([np.full((1, 100), 0.01), (quarters == np.arange(4)[:, None]) / 25])
    regions = regions_of(field, targets, sparse.csr_array(share))
    assert 0.93 <= inside((estimate - truth) @ share.T, slice_variance(field, regions)) <= 0.97


def test_intervals_of_observable_values_hold_what_an_instrument_would_read() -> None:
    model = MODELS[2]
    stations, targets = network(15)
    values, truth = readings(stations, targets, model, times_s=np.zeros(1), count=FIELDS, correlation=INDEPENDENT)
    read = truth + math.sqrt(model.nugget) * np.random.default_rng(9).standard_normal(truth.shape)
    field = KrigingField(KrigingSystem.of(stations, model), values)
    estimate, variance = field.estimate(targets), field.variance(targets)
    assert 0.93 <= inside(estimate - read, variance) <= 0.97
    assert inside(estimate - truth, variance) > 0.98
    share = np.concatenate([np.eye(100)[[0, 55]], np.eye(100)[[3, 4]].mean(axis=0)[None]])
    regions = regions_of(field, targets, sparse.csr_array(share))
    assert 0.93 <= inside((estimate - read) @ share.T, slice_variance(field, regions)) <= 0.97


def test_intervals_of_means_of_observable_values_hold_means_of_readings() -> None:
    model, slices, correlation = MODELS[2], 4, Correlation(3600.0)
    stations, targets = network(12)
    targets = targets.take_targets(slice(30, 50))
    times_s = np.arange(slices) * 1800.0
    values, truth = readings(stations, targets, model, times_s=times_s, count=FIELDS, correlation=correlation)
    read = truth + math.sqrt(model.nugget) * np.random.default_rng(9).standard_normal(truth.shape)
    field = KrigingField(KrigingSystem.of(stations, model), values)
    averaged = sparse.csr_array(np.kron(np.eye(FIELDS), np.full((1, slices), 1 / slices)))
    regions = regions_of(field, targets, sparse.csr_array(np.eye(20)))
    clock_s = np.tile(times_s, FIELDS)
    found = mean_variance(combinations_of(field, averaged, times_s=clock_s, correlation=correlation), regions)
    assert 0.93 <= inside(averaged @ (field.estimate(targets) - read), found) <= 0.97
    assert inside(averaged @ (field.estimate(targets) - truth), found) > 0.96


@pytest.mark.parametrize("hours", [0.0, 1.0, 6.0])
@pytest.mark.parametrize("model", MODELS[::2], ids=["no nugget", "measurement error"])
def test_intervals_of_means_over_time_hold_the_truth(model: Variogram, hours: float) -> None:
    stations, targets = network(12)
    slices, correlation = 24, Correlation(hours * 3600)
    times_s = np.arange(slices) * 1800.0
    values, truth = readings(stations, targets, model, times_s=times_s, count=FIELDS, correlation=correlation)
    field = KrigingField(KrigingSystem.of(stations, model), values, noise_free=True)
    averaged = sparse.csr_array(np.kron(np.eye(FIELDS), np.full((1, slices), 1 / slices)))
    everywhere = sparse.csr_array(np.concatenate([np.eye(100)[[0, 37, 44, 99]], np.full((1, 100), 0.01)]))
    regions = regions_of(field, targets, everywhere)
    error = averaged @ (field.estimate(targets) - truth) @ everywhere.T

    def variance(between: Correlation) -> Floats:
        # Fields follow one another as slices do; no mean spans two of them.
        clock_s = np.tile(times_s, FIELDS)
        return mean_variance(combinations_of(field, averaged, times_s=clock_s, correlation=between), regions)

    found = variance(correlation)
    assert 0.92 <= inside(error[:, :4], found[:, :4]) <= 0.98
    assert 0.92 <= inside(error[:, 4:], found[:, 4:]) <= 0.98
    low, high = variance(INDEPENDENT), variance(ALIKE)
    scatter = (error**2).mean(axis=0)
    assert (low.mean(axis=0) * 0.85 < scatter).all()
    assert (scatter < high.mean(axis=0) * 1.15).all()
    assert (low <= found * (1 + 1e-9)).all()
    assert (found <= high * (1 + 1e-9)).all()


@pytest.mark.parametrize("hours", [0.0, 1.0, 6.0])
def test_intervals_hold_the_truth_with_the_correlation_estimated(hours: float) -> None:
    model = MODELS[2]
    stations, targets = network(12)
    targets = targets.take_targets(slice(30, 50))
    slices, days = 48, 60
    times_s = np.arange(slices * days) * 1800.0
    errors, variances = [], []
    for number in range(5):
        rng = np.random.default_rng(number)
        simulator = Simulator(np.concatenate([stations.positions_m, targets.positions_m]), model)
        fields = simulator.draw_through(times_s, 1, rng, correlation=Correlation(hours * 3600))[0]
        values = fields[:, :12] + math.sqrt(model.nugget) * rng.standard_normal((len(fields), 12))
        holes = rng.random(values.shape) < 0.2
        holes[:, 0] = False
        values[holes] = np.nan
        field = KrigingField(KrigingSystem.of(stations, model), values, noise_free=True)
        residuals = standardise_residuals(field.inverse[:12, :12], field.present, field.complete)
        found = estimate_correlation(residuals, times_s).correlation
        averaged = sparse.csr_array(np.kron(np.eye(days), np.full((1, slices), 1 / slices)))
        regions = regions_of(field, targets, sparse.csr_array(np.eye(20)))
        combinations = combinations_of(field, averaged, times_s=times_s, correlation=found)
        errors.append(averaged @ (field.estimate(targets) - fields[:, 12:]))
        variances.append(mean_variance(combinations, regions))
    assert 0.92 <= inside(np.concatenate(errors), np.concatenate(variances)) <= 0.98
