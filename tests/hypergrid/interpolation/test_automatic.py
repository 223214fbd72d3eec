"""The method "auto": what it chooses, how well it does beside the truth, and what it says."""

from dataclasses import replace

import numpy as np
import pytest

from hypergrid.interpolation import METHODS, Stations, Targets
from hypergrid.interpolation.methods.automatic import choose_drift
from hypergrid.interpolation.solvers.drift import Drift
from tests.hypergrid.interpolation.simulated import Network, simulate_network


def stations_of(positions_m: np.ndarray, **covariates: np.ndarray) -> Stations:
    return Stations(positions_m, tuple(f"s{i}" for i in range(len(positions_m))), covariates)


def estimate(network: Network, method: str, **given: object) -> tuple[np.ndarray, np.ndarray]:
    """Return estimates and variances at the places of a network."""
    row = METHODS[method]
    field = row.prepare(stations_of(network.positions_m), network.readings, given)
    targets = Targets(network.places_m)
    return field.estimate(targets), field.variance(targets)


@pytest.mark.parametrize("stations", [5, 8, 12, 24, 60])
def test_close_to_kriging_with_the_true_variogram(stations: int) -> None:
    ratios, inside = [], []
    rng = np.random.default_rng(stations)
    for number in range(18):
        network = simulate_network(
            rng, stations=stations, range_m=(30e3, 60e3, 150e3)[number % 3], nugget=(0.02, 0.2)[number % 2],
            slices=(1, 5, 30)[number // 2 % 3], memory=0.9, model=("exponential", "matern")[number // 3 % 2],
        )  # fmt: skip
        best, _ = estimate(network, "ordinary_kriging", variogram=network.variogram)
        auto, variance = estimate(network, "auto")
        errors = [np.sqrt(np.mean((values - network.truth) ** 2)) for values in (auto, best)]
        ratios.append(errors[0] / errors[1])
        # The variance is that of a reading, which has the nugget's error as well.
        readings = network.truth + np.sqrt(network.variogram.nugget) * rng.normal(size=network.truth.shape)
        inside.append(np.mean(np.abs(auto - readings) < 1.96 * np.sqrt(variance)))
    assert np.median(ratios) < 1.1
    assert np.quantile(ratios, 0.9) < 1.3
    assert 0.9 <= np.mean(inside) <= 0.98


def test_stations_that_differ_are_not_drawn_flat() -> None:
    # The station means of the issue: a pure nugget drew one value.
    positions = np.array(
        [[0, 0], [9e3, 2e3], [4e3, 8e3], [15e3, 12e3], [21e3, 3e3], [26e3, 15e3], [12e3, 20e3], [24e3, 22e3]]
    ).astype(float)
    means = np.array([8.5, 8.7, 8.8, 9.1, 9.2, 9.5, 9.0, 9.6])
    readings = means + 0.1 * np.random.default_rng(1).normal(size=(48, 8))
    field = METHODS["auto"].prepare(stations_of(positions), readings, {})
    drawn = field.estimate(Targets(positions + 400.0)).mean(axis=0)
    assert np.ptp(drawn) >= 0.5 * np.ptp(means)


@pytest.mark.parametrize("scale", [1e-45, 1e-30, 1e-13, 1e45])
def test_units_change_no_choice(scale: float) -> None:
    network = simulate_network(np.random.default_rng(3), stations=20, range_m=60e3, nugget=0.1, slices=3)
    stations = stations_of(network.positions_m)
    expected, choice = (choose_drift(stations, values) for values in (network.readings, scale * network.readings))
    assert choice.drift == expected.drift
    assert choice.variogram.sill == pytest.approx(scale**2 * expected.variogram.sill, rel=1e-9)
    values, variances = estimate(network, "auto")
    scaled = estimate(replace(network, readings=scale * network.readings), "auto")
    np.testing.assert_allclose(scaled[0], scale * values, rtol=1e-6, atol=1e-9 * scale)
    np.testing.assert_allclose(scaled[1], scale**2 * variances, rtol=1e-6)


def test_noise_is_drawn_flat_and_said() -> None:
    rng = np.random.default_rng(3)
    flat = 0
    for _ in range(10):
        positions = rng.uniform(0, 100e3, (30, 2))
        field = METHODS["auto"].prepare(stations_of(positions), 10 + rng.normal(size=(4, 30)), {})
        drawn = field.estimate(Targets(rng.uniform(0, 100e3, (200, 2))))
        flat += "the map is flat on purpose" in " ".join(field.notes)
        assert drawn.std(axis=1).max() < 0.5
    # By chance, a neighbour helps in some.
    assert flat >= 3


def test_elevation_and_planes_are_found_where_they_are() -> None:
    rng = np.random.default_rng(4)
    positions, elevation = rng.uniform(0, 100e3, (40, 2)), rng.uniform(0, 3000, 40)
    noise = 0.3 * rng.normal(size=(5, 40))
    stations = stations_of(positions, elevation=elevation)
    assert choose_drift(stations, 15 - 0.0065 * elevation + noise, ("elevation",)).drift == Drift(
        covariates=("elevation",)
    )
    assert choose_drift(stations, 15 + 1e-4 * positions[:, 0] + noise, ("elevation",)).drift == Drift(degree=1)
    assert choose_drift(stations, 15 + noise, ("elevation",)).drift == Drift()
    # Elevation that no target has is no candidate.
    assert choose_drift(stations, 15 - 0.0065 * elevation + noise).drift.covariates == ()


def test_errors_of_stations_left_out_are_those_of_kriging_each_from_the_others() -> None:
    network = simulate_network(8, stations=12, range_m=150e3, nugget=0.02, slices=4)
    readings = network.readings.copy()
    readings[1, 3] = readings[2, 7] = np.nan
    choice = choose_drift(stations_of(network.positions_m), readings)
    squares = np.full(readings.shape, np.nan)
    for slice_, station in np.argwhere(np.isfinite(readings)):
        others = np.isfinite(readings[slice_]) & (np.arange(12) != station)
        kept = stations_of(network.positions_m[others]), readings[slice_ : slice_ + 1, others]
        field = METHODS["ordinary_kriging"].prepare(*kept, {"variogram": choice.variogram})
        error = field.estimate(Targets(network.positions_m[station : station + 1]))[0, 0] - readings[slice_, station]
        squares[slice_, station] = error**2
    expected = np.sqrt(np.nanmean(np.nanmean(squares, axis=0)))
    assert (
        f"auto chose kriging: the root mean square error of 12 stations left out is {expected:.3g} (" in choice.notes[0]
    )


@pytest.mark.parametrize(
    ("positions", "readings"),
    [
        (np.array([[0.0, 0.0]]), np.array([[4.0], [5.0]])),
        (np.array([[0.0, 0.0], [1e3, 0.0]]), np.array([[4.0, 6.0]])),
        (np.arange(12.0).reshape(6, 2) ** 2, np.full((2, 6), 7.0)),
        (np.arange(12.0).reshape(6, 2) ** 2, np.full((2, 6), np.nan)),
    ],
    ids=["one", "two", "constant", "missing"],
)
def test_what_tells_nothing_is_still_drawn(positions: np.ndarray, readings: np.ndarray) -> None:
    field = METHODS["auto"].prepare(stations_of(positions), readings, {})
    drawn = field.estimate(Targets(np.array([[300.0, 200.0]])))
    np.testing.assert_allclose(drawn[:, 0], np.where(np.isnan(readings[:, 0]), np.nan, readings.mean(axis=1)), rtol=0.3)
    assert "variogram not fitted" in " ".join(field.notes)


def test_large_networks_take_neighbours_and_a_sample() -> None:
    network = simulate_network(9, stations=500, range_m=40e3, nugget=0.1)
    auto, _ = estimate(network, "auto")
    best, _ = estimate(network, "ordinary_kriging", variogram=network.variogram)
    errors = [np.sqrt(np.mean((values - network.truth) ** 2)) for values in (auto, best)]
    assert errors[0] < 1.1 * errors[1]
