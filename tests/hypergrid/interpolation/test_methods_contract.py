"""What every method of interpolation keeps, whichever it is."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.parameters import bind
from hypergrid.interpolation import METHODS, NO_VARIOGRAM, Field, variogram
from hypergrid.interpolation.points import Stations, Targets

Floats = NDArray[np.float64]

# Parameters beyond the defaults, and whether the estimate at a station that reports is its value.
CASES: list[tuple[str, dict[str, Any], bool]] = [
    ("inverse_distance", {}, True),
    ("inverse_distance", {"power": 0.5}, True),
    ("inverse_distance", {"power": 16.0}, True),
    ("inverse_distance", {"neighbours": 4}, True),
    ("inverse_distance", {"radius_m": "0.9 km"}, True),
    ("inverse_distance", {"neighbours": 3, "radius_m": 900.0}, True),
    ("nearest", {}, True),
    ("linear", {}, True),
    ("radial_basis", {}, True),
    ("radial_basis", {"kernel": "linear"}, True),
    ("radial_basis", {"kernel": "cubic"}, True),
    ("radial_basis", {"kernel": "quintic"}, True),
    ("radial_basis", {"kernel": "multiquadric", "scale_m": 100.0}, True),
    ("radial_basis", {"kernel": "inverse_multiquadric", "scale_m": 300.0}, True),
    ("radial_basis", {"kernel": "inverse_quadratic", "scale_m": 300.0}, True),
    ("radial_basis", {"kernel": "gaussian", "scale_m": 100.0}, True),
    ("radial_basis", {"smoothing": 0.1}, False),
    ("ordinary_kriging", {"neighbours": 5}, True),
    ("simple_kriging", {"mean": 273.15}, True),
    ("simple_kriging", {"mean": 273.15, "neighbours": 5}, True),
    ("universal_kriging", {}, True),
    ("universal_kriging", {"degree": 2}, True),
    ("universal_kriging", {"neighbours": 12}, True),
    ("external_drift_kriging", {}, True),
    ("external_drift_kriging", {"degree": 1, "neighbours": 12}, True),
]
# A method that is not named is tried with what it needs at least; where that is more than a variogram, name it above.
OVER_SPACE = [name for name, row in METHODS.items() if row.over == "space"]
CASES += [(name, {}, False) for name in OVER_SPACE if name not in {case[0] for case in CASES}]
CASES += [("ordinary_kriging", {}, True)]
every = pytest.mark.parametrize(("method", "params"), [case[:2] for case in CASES])


def prepare(method: str, params: dict[str, Any], places: Floats, values: Floats) -> Field:
    row = METHODS[method]
    model = {"variogram": variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)}
    given = {**(model if any(item.name == "variogram" for item in row.parameters) else {}), **params}
    parsed = row.parse(bind(method, row.parameters, given, variable_unit="degC"))
    return row.prepare(
        Stations(places, tuple(f"s{i}" for i in range(len(places))), {"elevation": elevation(places)}), values, parsed
    )


def elevation(places: Floats) -> Floats:
    """Return the elevation that belongs to places, also where all of them are moved by whole megametres."""
    return 1500.0 + 400.0 * np.sin(0.01 * (places[:, 0] % 1e5)) + 0.5 * (places[:, 1] % 1e5)


def to(points: Floats) -> Targets:
    """Return points as targets."""
    return Targets(points, {"elevation": elevation(points)})


def network(seed: int = 1, *, stations: int = 20, slices: int = 8) -> tuple[Floats, Floats, Floats]:
    """Return stations whose hull holds the points, values with holes, and points; the frame always reports."""
    rng = np.random.default_rng(seed)
    frame = np.array([[0, 0], [1000, 0], [0, 1000], [1000, 1000], [500, 40], [30, 450]], dtype=float)
    places = np.concatenate([frame, rng.uniform(50, 950, (stations - len(frame), 2))])
    values = rng.normal(10.0, 3.0, (slices, stations))
    holes = rng.random(values.shape) < 0.3
    holes[:, : len(frame)] = False
    return places, np.where(holes, np.nan, values), rng.uniform(100, 900, (60, 2))


@every
def test_a_constant_field_is_reproduced(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    constant = np.where(np.isfinite(values), 273.15, np.nan)
    np.testing.assert_allclose(prepare(method, params, places, constant).estimate(to(points)), 273.15, rtol=1e-8)


@pytest.mark.parametrize(("method", "params"), [case[:2] for case in CASES if case[2]])
def test_exact_methods_are_exact_at_stations_that_report(method: str, params: dict[str, Any]) -> None:
    places, values, _ = network()
    found, reporting = prepare(method, params, places, values).estimate(to(places)), np.isfinite(values)
    np.testing.assert_allclose(found[reporting], values[reporting], rtol=1e-7)
    assert np.isfinite(found).all(), "also a station that does not report has an estimate"


@every
def test_blocks_of_points_give_what_all_at_once_give(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    field = prepare(method, params, places, values)
    parts = [field.estimate(to(part)) for part in np.split(points, [1, 20, 20, 45])]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), field.estimate(to(points)), rtol=1e-9)


# The method auto learns from all slices together.
@pytest.mark.parametrize(("method", "params"), [case[:2] for case in CASES if case[0] != "auto"])
def test_slices_do_not_touch_each_other(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    whole = prepare(method, params, places, values).estimate(to(points))
    for number in range(len(values)):
        alone = prepare(method, params, places, values[[number]]).estimate(to(points))
        np.testing.assert_allclose(whole[[number]], alone, rtol=1e-7, atol=1e-9)


@every
def test_a_missing_station_is_as_if_it_were_not_there(method: str, params: dict[str, Any]) -> None:
    places, values, points = network(slices=1)
    present = np.isfinite(values[0])
    assert not present.all()
    without = prepare(method, params, places[present], values[:, present])
    found = prepare(method, params, places, values)
    np.testing.assert_allclose(found.estimate(to(points)), without.estimate(to(points)), rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(found.counts, without.counts)


@every
def test_a_slice_without_stations_is_missing_and_counts_none(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    values[3] = np.nan
    field = prepare(method, params, places, values)
    value = field.estimate(to(points))
    assert np.isnan(value[3]).all()
    assert field.counts[3] == 0
    assert np.isfinite(np.delete(value, 3, axis=0)).all()
    assert (np.delete(field.counts, 3) > 0).all()
    assert field.counts.dtype == np.int32


@every
def test_no_station_at_all_is_a_surface_without_values(method: str, params: dict[str, Any]) -> None:
    field = prepare(method, params, np.empty((0, 2)), np.empty((3, 0)))
    points = np.array([[0.0, 0.0], [50.0, 80.0]])
    assert field.estimate(to(points)).shape == (3, 2)
    assert np.isnan(field.estimate(to(points))).all()
    assert field.counts.tolist() == [0, 0, 0]


@every
def test_no_points_and_no_slices(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    assert prepare(method, params, places, values).estimate(to(np.empty((0, 2)))).shape == (8, 0)
    assert prepare(method, params, places, values[:0]).estimate(to(points)).shape == (0, 60)


@every
def test_what_says_that_it_is_linear_is(method: str, params: dict[str, Any]) -> None:
    places, first, points = network(3)
    second = np.where(np.isfinite(first), np.random.default_rng(0).normal(size=first.shape), np.nan)
    if METHODS[method].linear:
        together = prepare(method, params, places, 2.0 * first - 3.0 * second).estimate(to(points))
        apart = 2.0 * prepare(method, params, places, first).estimate(to(points))
        apart -= 3.0 * prepare(method, params, places, second).estimate(to(points))
        np.testing.assert_allclose(together, apart, rtol=1e-7, atol=1e-7)


@every
def test_what_has_no_variance_says_so(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    field = prepare(method, params, places, values)
    if METHODS[method].has_variance:
        assert (field.variance(to(points)) > -1e-9).all()
    else:
        with pytest.raises(InvalidQuery, match=f"{method} has no variance"):
            field.variance(to(points))


@every
def test_places_far_from_zero_change_nothing(method: str, params: dict[str, Any]) -> None:
    places, values, points = network()
    near = prepare(method, params, places, values).estimate(to(points))
    far = np.array([600_000.0, 5_800_000.0])
    np.testing.assert_allclose(
        prepare(method, params, places + far, values).estimate(to(points + far)), near, rtol=1e-5
    )


@pytest.mark.parametrize("method", NO_VARIOGRAM)
def test_counts_at_points_are_of_what_has_an_estimate(method: str) -> None:
    places, values, points = network()
    values[2] = np.nan
    field: Any = prepare(method, {}, places, values)
    wide = np.concatenate([points, [[-5000.0, -5000.0]]])
    counts = field.counts_at(to(wide))
    np.testing.assert_array_equal(counts > 0, np.isfinite(field.estimate(to(wide))))
    assert (counts <= field.counts[:, None]).all()


@pytest.mark.parametrize(
    ("method", "params", "error", "words"),
    [
        ("inverse_distance", {"power": 0}, InvalidQuery, "above zero and up to 16; got 0"),
        ("inverse_distance", {"power": 17}, InvalidQuery, "got 17"),
        ("inverse_distance", {"radius_m": -1}, InvalidQuery, "'radius_m' above zero; got -1"),
        ("inverse_distance", {"radius_m": "3 degC"}, InvalidUnit, "radius_m"),
        ("inverse_distance", {"neighbours": 0}, InvalidQuery, "neighbours"),
        ("nearest", {"radius_m": 0}, InvalidQuery, "nearest needs 'radius_m'"),
        ("nearest", {"power": 2}, NotFound, "parameter of nearest"),
        ("linear", {"neighbours": 2}, NotFound, "parameter of linear"),
        ("radial_basis", {"kernel": "gauss"}, NotFound, "did you mean 'gaussian'"),
        ("radial_basis", {"kernel": 3}, InvalidQuery, "needs text"),
        ("radial_basis", {"smoothing": -0.1}, InvalidQuery, "zero or more"),
        ("radial_basis", {"kernel": "gaussian"}, InvalidQuery, "needs 'scale_m'"),
        ("radial_basis", {"kernel": "gaussian", "scale_m": 0}, InvalidQuery, "above zero"),
        ("radial_basis", {"kernel": "cubic", "scale_m": 5}, InvalidQuery, "has no 'scale_m'"),
    ],
)
def test_parameters_that_do_not_fit_are_refused(
    method: str, params: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        prepare(method, params, *network()[:2])
