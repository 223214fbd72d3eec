"""Distances on the plane and over the sphere, and kriging on them against PyKrige."""

import sys

import numpy as np
import pytest
from numpy.typing import NDArray
from pykrige.core import great_circle_distance
from pykrige.ok import OrdinaryKriging

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.interpolation import METHODS, Stations, Targets, points, variogram
from hypergrid.interpolation.points import number_places, refuse_sphere, separations, straight_radius

Floats = NDArray[np.float64]
DEGREE_M = RADIUS_M * np.pi / 180.0


def anywhere(seed: int, count: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    return rng.uniform(-180, 180, count), np.degrees(np.arcsin(rng.uniform(-1, 1, count)))


def haversine(lon: Floats, lat: Floats, other_lon: Floats, other_lat: Floats) -> Floats:
    lon, lat, other_lon, other_lat = map(np.radians, (lon, lat, other_lon, other_lat))
    half = np.sin((lat - other_lat) / 2) ** 2 + np.cos(lat) * np.cos(other_lat) * np.sin((lon - other_lon) / 2) ** 2
    return np.asarray(2 * RADIUS_M * np.arcsin(np.sqrt(np.minimum(half, 1.0))))


def test_on_a_plane_it_is_pythagoras() -> None:
    np.testing.assert_array_equal(
        separations(np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[3.0, 4.0], [1.0, 1.0]])), [[5, 2**0.5], [13**0.5, 0]]
    )


@pytest.mark.parametrize("dimensions", [2, 3])
def test_few_places_have_the_distances_and_labels_of_many(monkeypatch: pytest.MonkeyPatch, dimensions: int) -> None:
    rng = np.random.default_rng(3)
    places, targets = rng.uniform(0, 1e5, (30, dimensions)), rng.uniform(0, 1e5, (40, dimensions))
    # Chains of places that lie close together, in any order.
    places = rng.permutation(np.concatenate([places, places[:9] + 40.0, places[:4] + 80.0, places[:1]]))
    with monkeypatch.context() as changed:
        changed.setattr(points, "_FEW_DISTANCES", 0)
        many = separations(places, targets), number_places(places), number_places(places, 100.0)
    # Where it is loaded anyway, scipy's are taken.
    with monkeypatch.context() as changed:
        changed.delitem(sys.modules, "scipy.spatial")
        few = separations(places, targets), number_places(places), number_places(places, 100.0)
    assert len(np.unique(few[1])) == 43
    assert len(np.unique(few[2])) == 30
    for found, wanted in zip(few, many, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_over_the_sphere_it_is_the_great_circle() -> None:
    (lon, lat), (other_lon, other_lat) = anywhere(1, 40), anywhere(2, 30)
    found = separations(places_m(lon, lat), places_m(other_lon, other_lat))
    wanted = haversine(lon[:, None], lat[:, None], other_lon, other_lat)
    np.testing.assert_allclose(found, wanted, rtol=1e-10)
    theirs = great_circle_distance(lon[:, None], lat[:, None], other_lon[None], other_lat[None]) * DEGREE_M
    np.testing.assert_allclose(found, theirs, rtol=1e-10)


@pytest.mark.parametrize("short_m", [1e-2, 1.0, 1e3, 1e5])
def test_near_a_place_and_near_its_antipode_no_digits_are_lost(short_m: float) -> None:
    here = places_m(np.array([20.0]), np.array([0.0]))
    near = places_m(np.array([20.0 + short_m / DEGREE_M]), np.array([0.0]))
    assert separations(here, near)[0, 0] == pytest.approx(short_m, abs=1e-8)
    assert separations(here, -near)[0, 0] == pytest.approx(np.pi * RADIUS_M - short_m, rel=1e-14)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_many_systems_at_once_are_each_by_itself(dimensions: int) -> None:
    rng = np.random.default_rng(3)
    first, second = (rng.normal(size=(4, 5, count, 3)) for count in (6, 7))
    first, second = (RADIUS_M * a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (first, second))
    first, second = first[..., :dimensions], second[..., :dimensions]
    found = separations(first, second)
    assert found.shape == (4, 5, 6, 7)
    for place in np.ndindex(4, 5):
        np.testing.assert_allclose(found[place], separations(first[place], second[place]), rtol=1e-13)


def test_a_radius_over_the_sphere_is_a_shorter_chord() -> None:
    places = places_m(*anywhere(5, 500))
    radius = 3e6
    within = separations(places, places) <= radius
    straight = np.linalg.norm(places[:, None] - places, axis=-1) <= straight_radius(radius, places)
    np.testing.assert_array_equal(within, straight)
    assert straight_radius(radius, np.zeros((1, 2))) == radius


def test_what_needs_a_plane_says_so() -> None:
    refuse_sphere("linear", np.zeros((3, 2)))
    with pytest.raises(InvalidQuery, match=r"linear needs places on a plane.*distance='plane'"):
        refuse_sphere("linear", np.zeros((3, 3)))


def krige(
    method: str, stations: Floats, values: Floats, points: Floats, **given: object
) -> tuple[Floats, Floats | None]:
    row = METHODS[method]
    parsed = row.parse({item.name: given.get(item.name, item.default) for item in row.parameters})
    names = tuple(map(str, range(len(stations))))
    field = row.prepare(Stations(places_m(*stations.T), names), values, parsed)
    targets = Targets(places_m(*points.T))
    return field.estimate(targets), field.variance(targets) if row.has_variance else None


@pytest.mark.parametrize("model", ["exponential", "spherical"])
@pytest.mark.parametrize("neighbours", [None, 7])
@pytest.mark.parametrize(
    "middle", [(10.0, 50.0), (180.0, -17.0), (0.0, 89.0)], ids=["Europe", "date line", "pole"]
)  # fmt: skip
def test_agrees_with_pykrige_in_geographic_coordinates(
    model: str, neighbours: int | None, middle: tuple[float, float]
) -> None:
    rng = np.random.default_rng(7)
    lon = (middle[0] + rng.uniform(-60, 60, 20)) % 360.0
    lat = np.clip(middle[1] + rng.uniform(-30, 30, 20), -89.9, 89.9)
    stations, points = np.stack([lon, lat], axis=1)[:14], np.stack([lon, lat], axis=1)[14:]
    values = rng.normal(10, 3, 14)
    theirs = OrdinaryKriging(
        *stations.T,
        values,
        variogram_model=model,
        variogram_parameters={"psill": 1.5, "range": 30.0, "nugget": 0.2},
        coordinates_type="geographic",
    )
    near = {"n_closest_points": neighbours} if neighbours else {}
    value, variance = theirs.execute("points", *points.T, backend="loop", **near)
    ours = variogram(model, psill=1.5, range_m=30.0 * DEGREE_M, nugget=0.2)
    found, spread = krige("ordinary_kriging", stations, values[None], points, variogram=ours, neighbours=neighbours)
    np.testing.assert_allclose(found[0], value, atol=1e-10)
    assert spread is not None
    np.testing.assert_allclose(spread[0], variance, atol=1e-10)


@pytest.mark.parametrize("neighbours", [None, 5])
def test_inverse_distance_and_nearest_go_over_the_sphere(neighbours: int | None) -> None:
    stations, points = (np.stack(anywhere(seed, count), axis=1) for seed, count in ((8, 25), (9, 12)))
    values = np.random.default_rng(8).normal(size=25)
    apart = haversine(*points.T[:, :, None], *stations.T[:, None])
    order = np.argsort(apart, axis=1)[:, :neighbours]
    near = np.take_along_axis(apart, order, axis=1)
    wanted = (values[order] / near**2).sum(axis=1) / (1 / near**2).sum(axis=1)
    found, _ = krige("inverse_distance", stations, values[None], points, power=2.0, neighbours=neighbours)
    np.testing.assert_allclose(found[0], wanted, rtol=1e-10)
    nearest, _ = krige("nearest", stations, values[None], points)
    np.testing.assert_allclose(nearest[0], values[apart.argmin(axis=1)])


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("linear", {}),
        ("radial_basis", {}),
        ("universal_kriging", {"variogram": variogram("exponential", psill=1, range_m=1e6)}),
        (
            "ordinary_kriging",
            {"variogram": variogram("exponential", psill=1, range_m=1e6, anisotropy={"angle_degree": 0, "ratio": 2})},
        ),
    ],
)
def test_methods_that_need_a_plane_refuse_the_sphere(method: str, given: dict[str, object]) -> None:
    stations = np.stack(anywhere(1, 20), axis=1)
    with pytest.raises(InvalidQuery, match="plane"):
        krige(method, stations, np.ones((1, 20)), stations, **given)
