"""What data and questions can have wrong: each refused with a clear message, or answered as is stated."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, SingularSystem
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.interpolation import METHODS

Floats = NDArray[np.float64]

GRID = hg.grid(x=(0, 900), y=(0, 900), step=300)
MODEL = hg.variogram("exponential", psill=1.0, range_m=400.0)
NOISY = hg.variogram("exponential", psill=1.0, range_m=400.0, nugget=0.1)
PARAMETERS: dict[str, dict[str, Any]] = {
    "ordinary_kriging": {"variogram": NOISY},
    "simple_kriging": {"variogram": NOISY, "mean": 10.0},
    "universal_kriging": {"variogram": NOISY},
    "inverse_distance": {},
    "nearest": {},
    "linear": {},
    "radial_basis": {},
}
NEEDS_THREE = ("universal_kriging", "linear", "radial_basis")


def network(places: Floats, values: Floats | None = None, *, names: tuple[str, str] = ("x", "y")) -> xr.DataArray:
    found = np.random.default_rng(1).normal(10, 2, (3, len(places))) if values is None else values
    coords = {
        "time": pd.date_range("2007-10-01", periods=len(found), freq="10min"),
        "station": [f"s{i}" for i in range(len(places))],
        names[0]: ("station", places[:, 0]),
        names[1]: ("station", places[:, 1]),
    }
    return xr.DataArray(found, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"})


def scattered(count: int = 12) -> Floats:
    return np.random.default_rng(3).uniform(0, 900, (count, 2))


def surface(readings: xr.DataArray, method: str = "ordinary_kriging", **given: Any) -> xr.Dataset:  # noqa: ANN401
    parameters = {**PARAMETERS[method], **given}
    return hg.base(readings).interpolate(method, grid=parameters.pop("grid", GRID), **parameters).compute()


class TestSingularSystems:
    def test_two_stations_in_one_place_are_named_with_a_remedy(self) -> None:
        places = scattered()
        places[7] = places[2]
        with pytest.raises(SingularSystem, match=r"without a nugget: s2 and s7; .*coincident='merge'"):
            surface(network(places), variogram=MODEL)

    @pytest.mark.parametrize("method", ["linear", "radial_basis"])
    def test_so_they_are_by_methods_without_a_variogram(self, method: str) -> None:
        places = scattered()
        places[7] = places[2]
        with pytest.raises(SingularSystem, match="s2 and s7"):
            surface(network(places), method)

    @pytest.mark.parametrize("method", list(PARAMETERS))
    def test_merged_they_are_one_station_of_their_mean(self, method: str) -> None:
        places = scattered()
        places[7] = places[2]
        values = np.random.default_rng(5).normal(10, 2, (3, 12))
        values[1, 7] = values[2, 2] = np.nan
        found = surface(network(places, values), method, coincident="merge")
        one = values[:, np.arange(12) != 7]
        one[:, 2] = np.nanmean(values[:, [2, 7]], axis=1)
        wanted = surface(network(places[np.arange(12) != 7], one), method)
        xr.testing.assert_allclose(found["value"], wanted["value"], rtol=1e-9)
        np.testing.assert_array_equal(found["count"], wanted["count"])
        np.testing.assert_array_equal(found["count_possible"], wanted["count_possible"])
        assert "one, of their mean: s2 and s7" in found.attrs["comment"]

    def test_kept_each_has_its_own_error(self) -> None:
        places = scattered()
        places[7] = places[2]
        kept = surface(network(places))
        assert int(kept["count"][0, 0, 0]) == 12
        assert "each with its own error: s2 and s7" in kept.attrs["comment"]
        with pytest.raises(SingularSystem, match="one place: s2 and s7"):
            surface(network(places), coincident="refuse")

    def test_an_ill_conditioned_gaussian_says_by_how_much(self) -> None:
        smooth = hg.variogram("gaussian", psill=1.0, range_m=100_000.0)
        with pytest.raises(
            SingularSystem,
            match=r"off by [0-9.e+-]+ where 1e-06 is allowed, condition number \de\+\d+\).*raise the nugget",
        ):
            surface(network(scattered(40)), variogram=smooth)
        noisy = hg.variogram("gaussian", psill=1.0, range_m=100_000.0, nugget=0.01)
        assert np.isfinite(surface(network(scattered(40)), variogram=noisy)["value"]).all()

    @pytest.mark.parametrize(("range_m", "noted"), [(300.0, False), (6000.0, True)])
    def test_one_that_can_be_solved_says_how_many_digits_are_left(self, range_m: float, *, noted: bool) -> None:
        smooth = hg.variogram("gaussian", psill=1.0, range_m=range_m)
        found = surface(network(scattered(12)), variogram=smooth)
        comment = found.attrs.get("comment", "")
        assert ("ill-conditioned under this gaussian model (condition number" in comment) == noted
        assert np.isfinite(found["value"]).all()

    def test_a_smooth_one_that_enlarges_noise_says_its_condition_number(self) -> None:
        places = scattered(24) * 2 / 3
        selections: tuple[dict[str, Any], ...] = ({}, {"neighbours": 20})
        for given in selections:
            smooth = hg.variogram("gaussian", psill=1.2, range_m=600.0)
            comment = surface(network(places), variogram=smooth, **given).attrs["comment"]
            assert "ill-conditioned under this gaussian model (" in comment
            assert "condition number " in comment
            assert "times as large" in comment


class TestReach:
    @pytest.mark.parametrize("given", [{}, {"neighbours": 3}, {"octants": 2}])
    @pytest.mark.parametrize("method", ["ordinary_kriging", "universal_kriging"])
    def test_a_radius_that_reaches_no_station_leaves_all_missing_with_a_note(
        self, method: str, given: dict[str, int]
    ) -> None:
        query = hg.base(network(scattered())).interpolate(method, grid=GRID, variogram=NOISY, radius_m=0.01, **given)
        found = query.with_variance().compute()
        assert found["value"].isnull().all()
        assert found["variance"].isnull().all()
        assert (found["count"] == 0).all()
        fewer = "1 station that reports" if method == "ordinary_kriging" else "3 stations that report"
        says = f"27 of 27 estimates (9 of 9 cells in some slice) are missing: fewer than {fewer} within radius_m = 0.01"
        assert says in found.attrs["comment"]

    @pytest.mark.parametrize("method", ["ordinary_kriging", "inverse_distance"])
    def test_estimates_out_of_reach_are_counted_but_not_where_no_station_reports(self, method: str) -> None:
        values = np.random.default_rng(1).normal(10, 2, (3, 12))
        values[1] = np.nan
        found = surface(network(scattered(), values), method, radius_m=150.0)
        missing = int(found["value"][[0, 2]].isnull().sum())
        assert 0 < missing < 18
        assert f"{missing} of 27 estimates (" in found.attrs["comment"]
        assert "are missing" not in surface(network(scattered()), method, radius_m=5000.0).attrs.get("comment", "")


class TestNoise:
    @pytest.mark.parametrize(
        ("nugget", "meaning", "says"),
        [(0.1, "micro-scale", "the nugget is micro-scale"), (0.0, "micro-scale", "the variogram has no nugget")],
    )
    def test_noise_free_of_no_noise_says_that_it_changes_nothing(self, nugget: float, meaning: str, says: str) -> None:
        model = {"model": "exponential", "psill": 1.0, "range_m": 400.0, "nugget": nugget, "nugget_is": meaning}
        comment = surface(network(scattered()), variogram=model, variance_of="noise-free").attrs["comment"]
        assert f"variance_of='noise-free' changes nothing: {says}" in comment

    def test_noise_is_left_out_without_a_note(self) -> None:
        model = {"model": "exponential", "psill": 1.0, "range_m": 400.0, "nugget": 0.1}
        noisy = {**model, "nugget_is": "measurement error"}
        found = surface(network(scattered()), variogram=noisy, variance_of="noise-free")
        assert "changes nothing" not in found.attrs.get("comment", "")


class TestFewStations:
    @pytest.mark.parametrize("method", NEEDS_THREE)
    def test_fewer_than_the_method_needs_are_counted(self, method: str) -> None:
        with pytest.raises(InvalidQuery, match="at least 3 stations"):
            surface(network(scattered(2)), method)

    @pytest.mark.parametrize("method", NEEDS_THREE)
    def test_stations_on_a_line_do_not_span_a_plane(self, method: str) -> None:
        along = np.linspace(0, 900, 8)
        with pytest.raises(HyperGridError, match="line"):
            surface(network(np.stack([along, along], axis=1)), method)

    @pytest.mark.parametrize("method", list(PARAMETERS))
    def test_a_slice_with_too_few_is_missing_with_count_0(self, method: str) -> None:
        values = np.random.default_rng(1).normal(10, 2, (4, 12))
        values[1] = np.nan
        values[2, 2:] = np.nan
        found = surface(network(scattered(), values), method)
        few = method in NEEDS_THREE
        assert found["value"][1].isnull().all()
        assert (found["count"][1] == 0).all()
        assert bool(found["value"][2].isnull().all()) == few
        assert bool((found["count"][2] == 0).all()) == few
        full = found.isel(time=[0, 3])
        assert ((full["count"] > 0) == full["value"].notnull()).all()
        assert full["value"].notnull().any()

    @pytest.mark.parametrize("method", [name for name in PARAMETERS if name not in NEEDS_THREE])
    def test_one_station_alone_is_used_and_a_note_says_that_the_field_is_flat(self, method: str) -> None:
        found = surface(network(scattered(1), np.array([[7.0], [np.nan]])), method)
        if method != "simple_kriging":
            np.testing.assert_allclose(found["value"][0], 7.0)
        assert found["value"][1].isnull().all()
        assert "are in one place" in found.attrs["comment"]


class TestOnePlace:
    places = np.full((5, 2), 300.0)

    @pytest.mark.parametrize("method", ["ordinary_kriging", "inverse_distance"])
    def test_their_mean_is_everywhere_and_a_note_says_so(self, method: str) -> None:
        readings = network(self.places)
        for given in ({}, {"coincident": "merge"}):
            found = surface(readings, method, **given)
            wanted = np.broadcast_to(readings.mean("station").to_numpy()[:, None, None], (3, 3, 3))
            np.testing.assert_allclose(found["value"], wanted, rtol=1e-9)
            assert "it is the same everywhere" in found.attrs["comment"]

    @pytest.mark.parametrize("method", NEEDS_THREE)
    def test_methods_that_need_spread_refuse(self, method: str) -> None:
        with pytest.raises(HyperGridError, match=f"{method}.*needs"):
            surface(network(self.places), method)
        with pytest.raises(InvalidQuery, match=f"{method}.* needs at least 3 stations"):
            surface(network(self.places), method, coincident="merge")


class TestPositions:
    @pytest.mark.parametrize("method", list(PARAMETERS))
    def test_a_station_without_one_is_left_out_by_name(self, method: str) -> None:
        places = scattered()
        places[4] = np.nan
        places[9, 1] = np.nan
        readings = network(places)
        found = surface(readings, method)
        wanted = surface(readings.isel(station=[i for i in range(12) if i not in (4, 9)]), method)
        xr.testing.assert_allclose(found["value"], wanted["value"])
        assert "stations without a position are not used: s4, s9" in found.attrs["comment"]

    def test_none_at_all_is_refused(self) -> None:
        with pytest.raises(InvalidQuery, match="none of the 12 stations has a position"):
            surface(network(np.full((12, 2), np.nan)))

    @pytest.mark.parametrize("method", list(PARAMETERS))
    def test_a_station_far_outside_is_ignored_by_name(self, method: str) -> None:
        places = scattered()
        places[3] = [2e6, -1e6]
        readings = network(places)
        found = surface(readings, method)
        xr.testing.assert_allclose(found["value"], surface(readings.drop_isel(station=3), method)["value"])
        assert "s3 (2,235 km)" in found.attrs["comment"]
        used = surface(readings, method, ignore_beyond_m="5000 km")
        assert "s3" not in used.attrs.get("comment", "")
        assert (used["count_possible"] >= found["count_possible"]).all()

    def test_what_is_ignored_does_not_depend_on_the_clip(self) -> None:
        places = scattered()
        # Less than ten diagonals of the whole grid away, and more than ten of the corner's.
        places[3] = [9_000.0, 0.0]
        query = hg.base(network(places)).interpolate("ordinary_kriging", grid=GRID, variogram=NOISY)
        whole, corner = query.compute(), query.clip(x=(0, 300), y=(0, 300)).compute()
        np.testing.assert_allclose(corner["value"], whole["value"][:, :1, :1], rtol=1e-12)
        assert "s3" not in whole.attrs.get("comment", "")

    def test_a_grid_that_misses_all_stations_is_refused(self) -> None:
        with pytest.raises(InvalidQuery, match="the grid misses all 12 stations: the nearest is"):
            surface(network(scattered()), grid=hg.grid(x=(90_000, 90_900), y=(0, 900), step=300))


class TestVariograms:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"psill": -1.0, "range_m": 1.0}, "psill and nugget of zero or more, and one above zero; got psill -1"),
            ({"psill": 1.0, "range_m": 1.0, "nugget": -0.1}, "and nugget -0.1"),
            ({"psill": 0.0, "range_m": 1.0}, "one above zero"),
            ({"psill": 1.0, "range_m": 0.0}, "range above zero metres; got 0"),
        ],
    )
    def test_negative_sills_and_ranges_are_refused(self, given: dict[str, float], says: str) -> None:
        with pytest.raises(InvalidQuery, match=says):
            surface(network(scattered()), variogram={"model": "exponential", **given})


class TestGrids:
    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"x": (0, 0), "y": (0, 900), "step": 300}, "stop after its start"),
            ({"x": (900, 0), "y": (0, 900), "step": 300}, "stop after its start"),
            ({"x": 0, "y": 0, "step": 300, "shape": (0, 3)}, "whole numbers above zero"),
            ({"x": (0, 900), "y": (0, 900), "step": 0}, "step above zero"),
        ],
    )
    def test_a_grid_of_no_cells_is_refused(self, given: dict[str, Any], says: str) -> None:
        with pytest.raises(InvalidQuery, match=says):
            hg.grid(**given)
        with pytest.raises(InvalidQuery, match=says):
            hg.base(network(scattered())).interpolate("nearest", grid=given).compute()


WIDE = np.array([[5.0, 52.0], [30.0, 60.0], [-20.0, 64.0], [15.0, 40.0], [175.0, 65.0], [-170.0, 60.0], [-100.0, 50.0]])
WORLD = hg.grid(lon=(-180, 180), lat=(-60, 80), step=20)


class TestWideNetworks:
    def test_the_result_says_how_distances_were_measured(self) -> None:
        found = surface(network(WIDE, names=("lon", "lat")), "inverse_distance", grid=WORLD)
        assert found.attrs["hypergrid_distance"] == "great circles on a sphere of radius 6371008.8 m"
        narrow = network(WIDE[:1] + 0.01 * np.arange(6)[:, None], names=("lon", "lat"))
        local = hg.grid(lon=(5, 5.1), lat=(52, 52.1), step=0.05)
        assert "plane around 5.025000 E, 52.025000 N" in surface(narrow, grid=local).attrs["hypergrid_distance"]
        asked = surface(narrow, grid=local, distance="great_circle")
        assert "great circles" in asked.attrs["hypergrid_distance"]
        # The two differ by the flattening of the earth.
        xr.testing.assert_allclose(asked["value"], surface(narrow, grid=local)["value"], rtol=0.05)

    def test_kriging_is_that_of_the_sphere_across_the_date_line(self) -> None:
        readings = network(WIDE, names=("lon", "lat"))
        model = hg.variogram("exponential", psill=1.0, range_m=3e6, nugget=0.1)
        found = surface(readings, grid=WORLD, variogram=model)["value"]
        turned = network((WIDE + [40.0, 0.0] + 180.0) % 360.0 - 180.0, names=("lon", "lat"))
        turned = turned.assign_coords(lat=("station", WIDE[:, 1]))
        shifted = surface(turned, grid=WORLD, variogram=model)["value"]
        np.testing.assert_allclose(np.roll(found.to_numpy(), 2, axis=2), shifted, rtol=1e-9)

    def test_a_clip_changes_nothing(self) -> None:
        query = hg.base(network(WIDE, names=("lon", "lat"))).interpolate("inverse_distance", grid=WORLD)
        whole, part = query.compute(), query.clip(lon=(0, 40), lat=(40, 60)).compute()
        np.testing.assert_allclose(part["value"], whole["value"].sel(lon=part["lon"], lat=part["lat"]), rtol=1e-12)
        assert part.attrs["hypergrid_distance"] == whole.attrs["hypergrid_distance"]

    @pytest.mark.parametrize("method", NEEDS_THREE)
    def test_methods_of_a_plane_refuse_and_can_be_asked_for_one(self, method: str) -> None:
        readings = network(WIDE[:4], names=("lon", "lat"))
        europe = hg.grid(lon=(0, 20), lat=(45, 60), step=5)
        given: dict[str, Any] = {"grid": europe}
        if method == "universal_kriging":
            given["variogram"] = hg.variogram("exponential", psill=1.0, range_m=1e6)
        with pytest.raises(InvalidQuery, match="plane"):
            surface(readings, method, **given)
        assert surface(readings, method, distance="plane", **given)["value"].notnull().any()

    def test_a_gaussian_that_is_no_variogram_there_is_refused_by_how_much(self) -> None:
        rng = np.random.default_rng(2)
        places = np.stack([rng.uniform(-180, 180, 60), np.degrees(np.arcsin(rng.uniform(-1, 1, 60)))], axis=1)
        readings = network(places, names=("lon", "lat"))
        smooth = hg.variogram("gaussian", psill=1.0, range_m=np.pi * RADIUS_M)
        with pytest.raises(InvalidQuery, match=r"gaussian model with great-circle.* the variance -[0-9.e-]+ "):
            surface(readings, grid=WORLD, variogram=smooth)
        short = hg.variogram("gaussian", psill=1.0, range_m=1e6, nugget=0.1)
        assert "no valid variogram of great-circle distances" in surface(readings, grid=WORLD, variogram=short).comment

    @pytest.mark.parametrize("by", ["all", "slice"])
    def test_a_fitted_one_is_looked_at_as_well(self, by: str) -> None:
        rng = np.random.default_rng(1)
        latitude = np.degrees(np.arcsin(rng.uniform(-1, 1, 60)))
        places = np.stack([rng.uniform(-180, 180, 60), latitude], axis=1)
        readings = network(places, np.sin(np.radians(latitude))[None] * [[1.0], [2.0]], names=("lon", "lat"))
        with pytest.raises(InvalidQuery, match=r"gaussian model with great-circle.* the variance -[0-9.e-]+ "):
            surface(readings, grid=WORLD, variogram={"fit": "gaussian", "by": by})


def test_every_method_over_space_is_tried_here() -> None:
    spatial = {name for name, row in METHODS.items() if "drift" not in {item.name for item in row.parameters}}
    assert set(PARAMETERS) <= spatial
