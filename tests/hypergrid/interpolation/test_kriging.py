"""Ordinary kriging against PyKrige, against the textbook, and against what must hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging

from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound, SingularSystem
from hypergrid.interpolation import METHODS, MODELS, Field, Variogram, parse_variogram, variogram
from hypergrid.interpolation.points import Stations, Targets, group_masks
from tests.support.kriging_oracle import estimate

Floats = NDArray[np.float64]
MODEL_NAMES = ["exponential", "gaussian", "spherical"]


def network(seed: int, *, stations: int = 12, slices: int = 5, size_m: float = 1000.0) -> tuple[Floats, Floats, Floats]:
    """Return stations, values with random holes (a slice has at least two), and points."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(0, size_m, (stations, 2))
    values = rng.normal(10.0, 3.0, (slices, stations))
    holes = rng.random((slices, stations)) < 0.3
    holes[:, :2] = False
    return places, np.where(holes, np.nan, values), rng.uniform(0, size_m, (9, 2))


def field(places: Floats, values: Floats, model: Variogram, neighbours: int | None = None) -> Field:
    names = tuple(f"s{i}" for i in range(len(places)))
    return METHODS["ordinary_kriging"].prepare(
        Stations(places, names), values, {"variogram": model, "neighbours": neighbours}
    )


def pykrige(
    places: Floats, values: Floats, points: Floats, model: Variogram, maximum: int | None
) -> tuple[Floats, Floats]:
    present = np.isfinite(values)
    given = {"psill": model.psill, "range": model.range_m, "nugget": model.nugget}
    kriging = OrdinaryKriging(
        *places[present].T, values[present], variogram_model=model.model, variogram_parameters=given, pseudo_inv=False
    )
    near = {"n_closest_points": min(maximum, int(present.sum()))} if maximum else {}
    value, variance = kriging.execute("points", *points.T, backend="loop", **near)
    return np.asarray(value), np.asarray(variance)


@pytest.mark.parametrize("model_name", MODEL_NAMES)
@pytest.mark.parametrize("neighbours", [None, 2, 4, 11, 12, 50])
@pytest.mark.parametrize("nugget", [0.0, 0.2])
def test_agrees_with_pykrige(model_name: str, neighbours: int | None, nugget: float) -> None:
    model = variogram(model_name, psill=1.5, range_m=400.0, nugget=nugget)
    for seed in range(3):
        places, values, points = network(seed)
        found = field(places, values, model, neighbours)
        value, variance = found.estimate(Targets(points)), found.variance(Targets(points))
        for number, line in enumerate(values):
            expected = pykrige(places, line, points, model, neighbours)
            np.testing.assert_allclose(value[number], expected[0], rtol=1e-10, atol=1e-10)
            np.testing.assert_allclose(variance[number], expected[1], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("neighbours", [None, 1, 3])
def test_agrees_with_the_textbook(neighbours: int | None) -> None:
    model = variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
    places, values, points = network(7)
    found = field(places, values, model, neighbours)
    value, variance = found.estimate(Targets(points)), found.variance(Targets(points))
    for i, line in enumerate(values):
        present = [((float(x), float(y)), float(v)) for (x, y), v in zip(places, line, strict=True) if np.isfinite(v)]
        for j, point in enumerate(points):
            wanted = estimate(present, (float(point[0]), float(point[1])), model.to_json(), neighbours or len(present))
            assert value[i, j] == pytest.approx(wanted[0], abs=1e-10)
            assert variance[i, j] == pytest.approx(wanted[1], abs=1e-10)


@pytest.mark.parametrize("model_name", MODEL_NAMES)
@pytest.mark.parametrize("neighbours", [None, 5])
def test_is_exact_at_stations_without_a_nugget_and_with_one(model_name: str, neighbours: int | None) -> None:
    places, values, _ = network(3)
    for nugget in (0.0, 0.3):
        model = variogram(model_name, psill=1.5, range_m=300.0, nugget=nugget)
        found = field(places, values, model, neighbours)
        reporting = np.isfinite(values)
        np.testing.assert_allclose(found.estimate(Targets(places))[reporting], values[reporting], rtol=1e-9)
        assert np.abs(found.variance(Targets(places))[reporting]).max() < 1e-8


@given(st.integers(0, 1000), st.sampled_from(MODEL_NAMES), st.sampled_from([None, 1, 3, 6]), st.floats(-1e4, 1e4))
def test_a_constant_field_is_reproduced_whatever_reports(
    seed: int, model_name: str, neighbours: int | None, constant: float
) -> None:
    places, values, points = network(seed)
    model = variogram(model_name, psill=1.5, range_m=300.0, nugget=0.1)
    found = field(places, np.where(np.isfinite(values), constant, np.nan), model, neighbours)
    np.testing.assert_allclose(found.estimate(Targets(points)), constant, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("neighbours", [None, 3])
def test_coincident_stations_are_refused_by_name_without_a_nugget(neighbours: int | None) -> None:
    places, values, points = network(2)
    places[5] = places[8]
    with pytest.raises(SingularSystem, match="s5 and s8"):
        field(places, values, variogram("exponential", psill=1, range_m=100), neighbours)
    with_nugget = field(places, values, variogram("exponential", psill=1, range_m=100, nugget=0.1), neighbours)
    assert np.isfinite(with_nugget.estimate(Targets(points))).all()


@pytest.mark.parametrize("neighbours", [None, 1, 3])
def test_a_slice_without_stations_is_missing_and_counts_none(neighbours: int | None) -> None:
    places, values, points = network(4)
    values[1] = np.nan
    values[2, 1:] = np.nan
    found = field(places, values, variogram("spherical", psill=1, range_m=500, nugget=0.1), neighbours)
    value, variance = found.estimate(Targets(points)), found.variance(Targets(points))
    assert found.counts[1] == 0
    assert np.isnan(value[1]).all()
    assert np.isnan(variance[1]).all()
    # One station: its value everywhere.
    assert found.counts[2] == 1
    np.testing.assert_allclose(value[2], values[2, 0])


@pytest.mark.parametrize("neighbours", [None, 1])
def test_one_station_and_none(neighbours: int | None) -> None:
    model = variogram("exponential", psill=1, range_m=100)
    points = np.array([[0.0, 0.0], [50.0, 80.0]])
    one = field(np.array([[0.0, 0.0]]), np.array([[3.0], [np.nan]]), model, neighbours)
    np.testing.assert_array_equal(one.estimate(Targets(points)), [[3.0, 3.0], [np.nan, np.nan]])
    # The variance of one station's value elsewhere is twice the semivariance.
    far = 2 * (1 - np.exp(-3 * np.hypot(50, 80) / 100))
    np.testing.assert_allclose(one.variance(Targets(points))[0], [0.0, far], atol=1e-12)
    none = field(np.empty((0, 2)), np.empty((3, 0)), model, neighbours)
    assert np.isnan(none.estimate(Targets(points))).all()
    assert none.estimate(Targets(points)).shape == (3, 2)
    assert none.counts.tolist() == [0, 0, 0]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("sill", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("neighbours", [None, 4])
def test_scales_of_place_and_value_do_not_matter(scale: float, sill: float, neighbours: int | None) -> None:
    places, values, points = network(5)
    plain = field(places, values, variogram("exponential", psill=1, range_m=300, nugget=0.1), neighbours)
    scaled_model = variogram("exponential", psill=sill, range_m=300 * scale, nugget=0.1 * sill)
    scaled = field(places * scale, values * np.sqrt(sill), scaled_model, neighbours)
    np.testing.assert_allclose(
        scaled.estimate(Targets(points * scale)), plain.estimate(Targets(points)) * np.sqrt(sill), rtol=1e-7
    )
    np.testing.assert_allclose(
        scaled.variance(Targets(points * scale)), plain.variance(Targets(points)) * sill, rtol=1e-7
    )


def test_more_points_than_are_solved_at_once() -> None:
    places, values, _ = network(6, slices=2)
    points = np.random.default_rng(0).uniform(0, 1000, (5000, 2))
    found = field(places, values, variogram("exponential", psill=1, range_m=300, nugget=0.1), 4)
    whole = found.estimate(Targets(points))
    np.testing.assert_array_equal(whole[:, 4990:], found.estimate(Targets(points[4990:])))


@pytest.mark.parametrize("model_name", MODEL_NAMES)
def test_a_variogram_reaches_its_sill_at_its_range(model_name: str) -> None:
    model = variogram(model_name, psill=2.0, range_m="0.25 km", nugget=0.5)
    assert model.range_m == 250.0
    at_range = float(model.semivariance(np.array([250.0]))[0])
    assert at_range == pytest.approx(2.5, rel=0.04)
    assert at_range > 0.5 + 0.95 * 2.0 - 1e-3
    assert np.all(np.diff(model.semivariance(np.linspace(0, 240, 50))) > 0)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"model": "cubic", "psill": 1, "range_m": 1}, NotFound),
        ({"model": "exponential", "psill": -1, "range_m": 1}, InvalidQuery),
        ({"model": "exponential", "psill": 0, "range_m": 1}, InvalidQuery),
        ({"model": "exponential", "psill": 1, "range_m": 0}, InvalidQuery),
        ({"model": "exponential", "psill": 1}, InvalidQuery),
        ({"model": "exponential", "psill": 1, "range_m": 1, "sill": 3}, InvalidQuery),
        ({"model": "exponential", "psill": 1, "range_m": "1 degC"}, InvalidUnit),
        ({"model": "exponential", "psill": "nan", "range_m": 1}, InvalidUnit),
        ({"model": "exponential", "psill": True, "range_m": 1}, InvalidUnit),
        ({"model": ["exponential"], "psill": 1, "range_m": 1}, NotFound),
        (3, InvalidQuery),
    ],
)
def test_what_makes_no_variogram_is_refused(given: object, error: type[Exception]) -> None:
    with pytest.raises(error):
        parse_variogram(given)


def test_a_variogram_of_nan_is_refused() -> None:
    with pytest.raises(InvalidQuery):
        Variogram("exponential", float("nan"), 1.0)
    with pytest.raises(InvalidQuery):
        Variogram("exponential", 1.0, float("nan"))


def test_models_are_those_that_are_promised() -> None:
    assert sorted(MODELS) == sorted([*MODEL_NAMES, "matern", "linear", "power", "nugget"])


@given(st.integers(0, 500))
def test_every_slice_is_in_one_group_with_its_own_mask(seed: int) -> None:
    rng = np.random.default_rng(seed)
    present = rng.random((rng.integers(1, 12), rng.integers(1, 20))) < 0.7
    seen = np.zeros(len(present), dtype=int)
    for mask, slices in group_masks(present):
        seen[slices] += 1
        assert (present[slices] == mask).all()
    assert (seen == 1).all()
