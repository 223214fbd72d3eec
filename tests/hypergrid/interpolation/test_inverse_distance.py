"""Inverse distance and the nearest station against a slow oracle that knows no numpy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hypergrid.interpolation.methods.deterministic_methods import MASKS_AT_ONCE, InverseDistanceField
from hypergrid.interpolation.points import Targets

Floats = NDArray[np.float64]


def slow(
    places: Floats, line: Floats, point: Floats, *, power: float, neighbours: int | None, radius_m: float | None
) -> tuple[float, int]:
    """Return the estimate of one point in one slice, and how many stations it is from."""
    present = [
        (math.dist(place, point), float(value)) for place, value in zip(places, line, strict=True) if value == value
    ]
    near = sorted(present)[: neighbours or len(present)]
    near = [(distance, value) for distance, value in near if radius_m is None or distance <= radius_m]
    if not near:
        return math.nan, 0
    here = [value for distance, value in near if distance <= 1e-10]
    if here:
        return math.fsum(here) / len(here), len(near)
    weights = [distance**-power for distance, _ in near]
    total = math.fsum(weight * value for weight, (_, value) in zip(weights, near, strict=True))
    return total / math.fsum(weights), len(near)


@given(
    st.integers(0, 10_000),
    st.sampled_from([0.5, 1.0, 2.0, 3.7, 12.0]),
    st.sampled_from([None, 1, 2, 5, 40]),
    st.sampled_from([None, 150.0, 600.0]),
)
def test_agrees_with_the_slow_oracle(seed: int, power: float, neighbours: int | None, radius_m: float | None) -> None:
    rng = np.random.default_rng(seed)
    stations = int(rng.integers(1, 12))
    places = rng.uniform(0, 1000, (stations, 2))
    values = np.where(rng.random((4, stations)) < 0.35, np.nan, rng.normal(size=(4, stations)))
    # Also points at stations, which report in some slices only.
    points = np.concatenate([rng.uniform(-200, 1200, (5, 2)), places[:3]])
    field = InverseDistanceField(
        places, values, method="inverse_distance", power=power, neighbours=neighbours, radius_m=radius_m
    )
    found, counts = field.estimate(Targets(points)), field.counts_at(Targets(points))
    for i, line in enumerate(values):
        for j, point in enumerate(points):
            wanted, used = slow(places, line, point, power=power, neighbours=neighbours, radius_m=radius_m)
            assert found[i, j] == pytest.approx(wanted, rel=1e-9, abs=1e-9, nan_ok=True)
            assert counts[i, j] == used
            assert math.isnan(found[i, j]) == (used == 0)
    assert (counts <= field.counts[:, None]).all()


def test_stations_in_one_place_give_their_mean_there() -> None:
    places = np.array([[0.0, 0.0], [0.0, 0.0], [500.0, 0.0]])
    values = np.array([[1.0, 3.0, 50.0], [np.nan, 3.0, 50.0], [np.nan, np.nan, 50.0]])
    for neighbours in (None, 2):
        field = InverseDistanceField(places, values, method="inverse_distance", power=2.0, neighbours=neighbours)
        np.testing.assert_allclose(field.estimate(Targets(np.zeros((1, 2))))[:, 0], [2.0, 3.0, 50.0])


def test_a_slice_in_which_the_near_stations_are_silent_does_not_underflow() -> None:
    places = np.array([[0.0, 0.0], [4e6, 0.0], [5e6, 0.0]])
    values = np.array([[np.nan, 2.0, 2.0]])
    field = InverseDistanceField(places, values, method="inverse_distance", power=16.0)
    # At the silent station itself, and a millimetre from it.
    np.testing.assert_allclose(field.estimate(Targets(np.array([[0.0, 0.0], [0.001, 0.0]]))), 2.0)


def test_estimates_stay_between_the_values_they_are_from() -> None:
    rng = np.random.default_rng(5)
    values = rng.normal(size=(3, 30))
    field = InverseDistanceField(rng.uniform(0, 1, (30, 2)), values, method="inverse_distance", power=2.0)
    found = field.estimate(Targets(rng.uniform(0, 1, (500, 2))))
    assert (found >= values.min(axis=1, keepdims=True) - 1e-12).all()
    assert (found <= values.max(axis=1, keepdims=True) + 1e-12).all()


def test_more_sets_of_stations_than_are_summed_at_once() -> None:
    rng = np.random.default_rng(8)
    places, points = rng.uniform(0, 1000, (12, 2)), rng.uniform(0, 1000, (7, 2))
    values = np.where(rng.random((3 * MASKS_AT_ONCE, 12)) < 0.5, np.nan, rng.normal(size=(3 * MASKS_AT_ONCE, 12)))
    whole = InverseDistanceField(places, values, method="inverse_distance", power=2.0).estimate(Targets(points))
    for number in range(0, len(values), 17):
        alone = InverseDistanceField(places, values[[number]], method="inverse_distance", power=2.0).estimate(
            Targets(points)
        )
        np.testing.assert_allclose(whole[[number]], alone, rtol=1e-12)
