"""Which stations local kriging uses: within a radius, by octants, and in networks most of which is silent."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.geodesy import places_m
from hypergrid.interpolation import variogram
from hypergrid.interpolation.local import field as local
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.local.neighbourhood import NeighbourSelection, find_morton_order
from hypergrid.interpolation.points import Stations, Targets, separations
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import WEIGHTS

Floats = NDArray[np.float64]
MODEL = variogram("exponential", psill=1.5, range_m=400.0, nugget=0.1)


@pytest.fixture(autouse=True, params=["numpy", "compiled", "numpy, kept", "compiled, kept"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the ways, whatever the size of the job and the number of slices."""
    WEIGHTS.clear()
    monkeypatch.setattr(local, "WORTH_COMPILED", np.inf if "numpy" in request.param else -1.0)
    monkeypatch.setattr(local, "FEW_SLICES", 10**9 if "kept" in request.param else 0)


def network(seed: int, *, stations: int = 80, slices: int = 5, holes: float = 0.3) -> tuple[Stations, Floats, Targets]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(slices, stations))
    values[rng.random(values.shape) < holes] = np.nan
    places = rng.uniform(0, 1000, (stations, 2))
    return Stations(places, tuple(map(str, range(stations)))), values, Targets(rng.uniform(-100, 1100, (30, 2)))


def expected(stations: Stations, values: Floats, targets: Targets, chosen: NDArray[np.bool_], model: object) -> Floats:
    """Return estimates where each target has a network of its own, `chosen` of shape (slices, targets, stations)."""
    result = np.full((len(values), targets.count), np.nan)
    for s, line in enumerate(values):
        for t in range(targets.count):
            own = np.flatnonzero(chosen[s, t])
            if len(own):
                alone = KrigingField(KrigingSystem.of(stations.take_stations(own), model), line[None, own])  # type: ignore[arg-type]
                result[s, t] = alone.estimate(targets.take_targets(slice(t, t + 1)))[0, 0]
    return result


def choose(
    distance: Floats, sector: NDArray[np.int64], values: Floats, maximum: int, radius_m: float, octants: int
) -> NDArray[np.bool_]:
    """Return who is chosen, one station after another."""
    chosen = np.zeros((len(values), *distance.shape), dtype=bool)
    for s, line in enumerate(values):
        for t, row in enumerate(distance):
            held = [0] * 8
            for station in np.argsort(row, kind="stable"):
                here = np.isfinite(line[station]) and row[station] <= radius_m
                if here and held[sector[t, station]] < octants and sum(held) < maximum:
                    held[sector[t, station]] += 1
                    chosen[s, t, station] = True
    return chosen


@pytest.mark.parametrize(
    ("maximum", "radius_m", "octants"),
    [
        (80, 150.0, None),
        (5, 150.0, None),
        (80, None, 1),
        (80, None, 2),
        (6, None, 2),
        (80, 300.0, 2),
        (9, 1e6, 1),
        (80, 20.0, None),
    ],
)
def test_radius_and_octants_choose_as_one_station_after_another_would(
    maximum: int, radius_m: float | None, octants: int | None
) -> None:
    stations, values, targets = network(1)
    ways = stations.positions_m[None] - targets.positions_m[:, None]
    sector = (np.arctan2(ways[..., 1], ways[..., 0]) // (np.pi / 4)).astype(int) % 8
    distance = np.hypot(ways[..., 0], ways[..., 1])
    chosen = choose(distance, sector, values, maximum, radius_m or np.inf, octants or 999)
    field = LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(maximum, radius_m, octants))
    np.testing.assert_array_equal(field.counts_at(targets), chosen.sum(axis=2))
    np.testing.assert_allclose(field.estimate(targets), expected(stations, values, targets, chosen, MODEL), atol=1e-10)
    missing = chosen.sum(axis=2) == 0
    assert np.isnan(field.estimate(targets)[missing]).all()
    assert np.isnan(field.variance(targets)[missing]).all()


def test_a_radius_is_of_the_plane_also_where_the_variogram_is_an_ellipse() -> None:
    stations, values, targets = network(2)
    ellipse = variogram(
        "exponential", psill=1.5, range_m=400, nugget=0.1, anisotropy={"angle_degree": 60.0, "ratio": 3.0}
    )
    distance = separations(targets.positions_m, stations.positions_m)
    order = separations(ellipse.isotropic(targets.positions_m), ellipse.isotropic(stations.positions_m))
    order[distance > 250.0] = np.inf
    chosen = choose(order, np.zeros(order.shape, dtype=int), values, 6, 1e300, 999)
    field = LocalField(KrigingSystem.of(stations, ellipse), values, NeighbourSelection(6, 250.0))
    np.testing.assert_array_equal(field.counts_at(targets), chosen.sum(axis=2))
    np.testing.assert_allclose(
        field.estimate(targets), expected(stations, values, targets, chosen, ellipse), atol=1e-10
    )


def test_on_the_sphere_distances_are_along_it_and_octants_start_in_the_east() -> None:
    rng = np.random.default_rng(3)
    lon, lat = rng.uniform(160, 200, 60), rng.uniform(-75, 75, 60)
    where = rng.uniform(165, 195, 20), rng.uniform(-70, 70, 20)
    stations, targets = Stations(places_m(lon, lat), tuple(map(str, range(60)))), Targets(places_m(*where))
    values = rng.normal(size=(3, 60))
    values[rng.random(values.shape) < 0.3] = np.nan
    model = variogram("exponential", psill=1.5, range_m=3e6, nugget=0.1)
    # The azimuth of the straight way, seen on the tangent plane: that of the great circle.
    east, north = np.radians(lon[None] - where[0][:, None]), np.radians(lat)[None]
    there = np.radians(where[1])[:, None]
    along = np.cos(north) * np.sin(east)
    across = np.cos(there) * np.sin(north) - np.sin(there) * np.cos(north) * np.cos(east)
    sector = (np.arctan2(across, along) // (np.pi / 4)).astype(int) % 8
    distance = separations(targets.positions_m, stations.positions_m)
    for most, radius_m, octants in ((5, None, None), (60, 2.0e6, None), (60, 4.0e6, 1)):
        chosen = choose(distance, sector, values, most, radius_m or np.inf, octants or 999)
        field = LocalField(KrigingSystem.of(stations, model), values, NeighbourSelection(most, radius_m, octants))
        np.testing.assert_array_equal(field.counts_at(targets), chosen.sum(axis=2))
        np.testing.assert_allclose(
            field.estimate(targets), expected(stations, values, targets, chosen, model), atol=1e-10
        )


def test_slices_of_which_little_is_left_and_whole_regions_that_are_silent() -> None:
    stations, values, targets = network(4, stations=300, slices=12, holes=0.1)
    values[:3, stations.positions_m[:, 0] > 200] = np.nan
    values[3:5, 9:] = np.nan
    values[5, 2:] = np.nan
    values[:, 17] = np.nan
    distance = separations(targets.positions_m, stations.positions_m)
    chosen = choose(distance, np.zeros(distance.shape, dtype=int), values, 7, np.inf, 999)
    field = LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(7))
    np.testing.assert_array_equal(field.counts_at(targets), chosen.sum(axis=2))
    np.testing.assert_array_equal(field.counts, chosen.sum(axis=2).max(axis=1))
    np.testing.assert_allclose(field.estimate(targets), expected(stations, values, targets, chosen, MODEL), atol=1e-10)


def test_of_stations_equally_far_the_first_is_taken() -> None:
    # A target amid the four corners of a square, in each order.
    corners = np.array([[0.0, 0.0], [100.0, 0.0], [0.0, 100.0], [100.0, 100.0]])
    for order in (np.arange(4), np.array([3, 1, 0, 2])):
        stations = Stations(corners[order], tuple("abcd"))
        values = np.array([[1.0, 2.0, 3.0, 4.0], [np.nan, 2.0, 3.0, 4.0]])
        field = LocalField(KrigingSystem.of(stations, MODEL), values, NeighbourSelection(1))
        np.testing.assert_allclose(field.estimate(Targets(np.array([[50.0, 50.0]])))[:, 0], [1.0, 2.0])


def test_simple_kriging_far_from_every_station_is_its_mean() -> None:
    stations, values, _ = network(5)
    field = LocalField(KrigingSystem.of(stations, MODEL, Drift(mean=3.0)), values, NeighbourSelection(6))
    np.testing.assert_allclose(field.estimate(Targets(np.array([[1e7, 1e7]]))), 3.0)


@pytest.mark.parametrize("dimensions", [2, 3])
def test_places_side_by_side_are_each_there_once_and_near_one_another(dimensions: int) -> None:
    places = np.random.default_rng(6).uniform(-5e5, 5e5, (4096, dimensions))
    order = find_morton_order(places)
    assert sorted(order.tolist()) == list(range(4096))
    steps = np.linalg.norm(np.diff(places[order], axis=0), axis=1)
    assert np.median(steps) < 0.15 * np.median(np.linalg.norm(np.diff(places, axis=0), axis=1))


def test_a_radius_that_reaches_no_station_leaves_every_target_missing() -> None:
    rng = np.random.default_rng(2)
    stations = Stations(rng.uniform(0, 1000, (20, 2)), tuple(map(str, range(20))))
    targets = Targets(rng.uniform(0, 1000, (50, 2)))
    ellipse = {"angle_degree": 30.0, "ratio": 2.5}
    for anisotropy in (None, ellipse):
        model = variogram("exponential", psill=1.0, range_m=300.0, anisotropy=anisotropy)
        found = LocalField(KrigingSystem.of(stations, model), rng.normal(0, 1, (3, 20)), NeighbourSelection(5, 0.01))
        assert np.isnan(found.estimate(targets)).all()
        assert np.isnan(found.variance(targets)).all()
        assert (found.counts_at(targets) == 0).all()
