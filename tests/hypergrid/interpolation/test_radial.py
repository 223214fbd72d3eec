"""Radial basis functions: what a polynomial asks of the stations, and systems that lose their digits."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.interpolate import RBFInterpolator

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.methods.deterministic_methods import DEGREES, SCALED, RadialBasis, RadialField
from hypergrid.interpolation.points import Stations, Targets

Floats = NDArray[np.float64]


def field(
    places: Floats,
    values: Floats,
    *,
    kernel: str = "thin_plate_spline",
    smoothing: float = 0.0,
    scale_m: float | None = None,
) -> RadialField:
    stations = Stations(places, tuple(f"s{i}" for i in range(len(places))))
    return RadialField(stations, values, RadialBasis(kernel, smoothing, scale_m))


@pytest.mark.parametrize("kernel", DEGREES)
@pytest.mark.parametrize("smoothing", [0.0, 0.5])
def test_agrees_with_scipy_slice_by_slice(kernel: str, smoothing: float) -> None:
    rng = np.random.default_rng(4)
    places, points = rng.uniform(0, 9000, (18, 2)), rng.uniform(0, 9000, (30, 2))
    values = np.where(rng.random((6, 18)) < 0.3, np.nan, rng.normal(size=(6, 18)))
    scale_m = 2000.0 if kernel in SCALED else None
    found = field(places, values, kernel=kernel, smoothing=smoothing, scale_m=scale_m).estimate(Targets(points))
    for line, estimate in zip(values, found, strict=True):
        present = np.isfinite(line)
        expected = RBFInterpolator(
            places[present] / 1000,
            line[present],
            kernel=kernel,
            smoothing=smoothing,
            epsilon=0.5 if scale_m else None,
        )
        np.testing.assert_allclose(estimate, expected(points / 1000), rtol=1e-7, atol=1e-7)


def test_a_thin_plate_spline_reproduces_a_plane_also_outside_the_stations() -> None:
    places = np.random.default_rng(2).uniform(0, 5000, (9, 2))
    points = np.array([[-4000.0, 2000.0], [9000.0, 9000.0]])
    found = field(places, (1.0 + places @ [0.002, -0.001])[None, :]).estimate(Targets(points))
    np.testing.assert_allclose(found[0], 1.0 + points @ [0.002, -0.001], rtol=1e-8)


def test_smoothing_moves_towards_the_plane() -> None:
    rng = np.random.default_rng(3)
    places, values = rng.uniform(0, 5000, (30, 2)), rng.normal(size=(1, 30))
    near, far = (
        np.abs(field(places, values, smoothing=by).estimate(Targets(places)) - values).mean() for by in (0.01, 10.0)
    )
    assert 0 < near < far


@pytest.mark.parametrize(("kernel", "needs"), [("linear", 1), ("thin_plate_spline", 3), ("quintic", 6)])
def test_slices_with_too_few_stations_are_missing_and_count_none(kernel: str, needs: int) -> None:
    places = np.random.default_rng(1).uniform(0, 5000, (8, 2))
    values = np.ones((8, 8))
    values[np.triu_indices(8, k=1)] = np.nan
    found = field(places, values, kernel=kernel)
    present = np.arange(1, 9)
    np.testing.assert_array_equal(found.counts, np.where(present >= needs, present, 0))
    np.testing.assert_array_equal(np.isnan(found.estimate(Targets(places[:2])))[:, 0], present < needs)


def test_slices_on_one_line_are_missing() -> None:
    places = np.array([[0.0, 0.0], [1000.0, 0.0], [2000.0, 0.0], [0.0, 900.0]])
    found = field(places, np.array([[1.0, 2.0, 3.0, np.nan], [1.0, 2.0, 3.0, 4.0]]))
    assert found.counts.tolist() == [0, 4]


@pytest.mark.parametrize(
    ("kernel", "places", "words"),
    [
        ("thin_plate_spline", [[0, 0], [1, 0]], "kernel thin_plate_spline needs at least 3 .* got 2; use"),
        ("cubic", [[0, 0], [1, 1], [2, 2], [5, 5]], "got 4 on one line"),
        ("quintic", [[0, 1], [1, 0], [0, -1], [-1, 0], [0.6, 0.8], [0.8, 0.6]], "got 6 on one conic"),
    ],
)
def test_a_network_that_determines_no_polynomial_is_refused(kernel: str, places: list[list[float]], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        field(np.array(places, dtype=float) * 1000, np.ones((1, len(places))), kernel=kernel)


def test_two_stations_in_one_place_are_refused_unless_smoothed() -> None:
    places = np.array([[0.0, 0.0], [1000.0, 0.0], [0.0, 1000.0], [1000.0, 0.0]])
    with pytest.raises(SingularSystem, match="s1 and s3.*smoothing"):
        field(places, np.ones((1, 4)))
    assert np.isfinite(field(places, np.array([[1.0, 2.0, 3.0, 4.0]]), smoothing=0.1).estimate(Targets(places))).all()


def test_a_kernel_so_wide_that_digits_are_lost_is_refused_with_both_numbers() -> None:
    rng = np.random.default_rng(0)
    places, values = rng.uniform(0, 1000, (60, 2)), rng.normal(size=(1, 60))
    with pytest.raises(SingularSystem, match=r"kernel gaussian is singular .* shorten scale_m"):
        field(places, values, kernel="gaussian", scale_m=1e6)
