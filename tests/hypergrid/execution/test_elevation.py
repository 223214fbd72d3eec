"""Elevation as a third axis: grids with levels, means over them, and bands of elevation."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.core.result_dataset import restore
from hypergrid.formats.results import to_bytes
from hypergrid.perspective import question_from_json
from hypergrid.query import Query
from hypergrid.topology import Grid
from tests.support.networks import random_archive

Floats = NDArray[np.float64]

MODEL = hg.variogram("exponential", psill=1.2, range_m=900.0, nugget=0.05)
STATIONS, SLICES = 12, 8
RANDOM = np.random.default_rng(20)
PLACES = RANDOM.uniform(0.0, 2000.0, (STATIONS, 2))
HEIGHTS = np.round(RANDOM.uniform(400.0, 1900.0, STATIONS), 1)
VALUES = np.where(
    RANDOM.random((SLICES, STATIONS)) < 0.1,
    np.nan,
    12.0 - 0.0065 * HEIGHTS + RANDOM.normal(0.0, 0.4, (SLICES, STATIONS)),
)
EDGES = [300.0, 800.0, 900.0, 1600.0, 2100.0]
"""Of levels that are not alike; the highest reaches beyond every station."""


def network(
    heights: Floats | None = HEIGHTS, *, terrain: object = None, lonlat: bool = False, name: str = "air_temperature"
) -> Query:
    """Readings every 20 minutes; the terrain is a number, or values at 0, 500, … 2000 m along y and x."""
    scale, names = (1e-5, ("lon", "lat")) if lonlat else (1.0, ("x", "y"))
    places = PLACES * scale
    coords: dict[str, Any] = {
        "time": np.datetime64("2007-10-01T12:00", "ns") + np.arange(SLICES) * np.timedelta64(20, "m"),
        "station": [f"s{i}" for i in range(STATIONS)],
        **{axis: ("station", places[:, at]) for at, axis in enumerate(names)},
    }
    if heights is not None:
        coords["elevation"] = ("station", heights)
    array = xr.DataArray(VALUES, dims=("time", "station"), coords=coords, name=name)
    layers = {}
    if terrain is not None:
        sides = np.arange(-500.0, 2501.0, 500.0) * scale
        field = np.broadcast_to(np.asarray(terrain, dtype=float), (len(sides), len(sides)))
        layers["elevation"] = xr.DataArray(field, dims=names[::-1], coords=dict.fromkeys(names, sides))
        layers["elevation"] = layers["elevation"].assign_coords({axis: (axis, sides) for axis in names})
    return hg.base(array, layers=layers)


def grid(*, lonlat: bool = False, z: object = None) -> Grid:
    if lonlat:
        return hg.grid(lon=(0.0, 0.016), lat=(0.004, 0.016), step=0.004, z=z)
    return hg.grid(x=(0, 1600), y=(400, 1600), step=400, z=z)


METHODS: dict[str, dict[str, Any]] = {
    "ordinary_kriging": {"variogram": MODEL, "trend": "lapse_rate"},
    "ordinary_kriging around a profile": {"variogram": MODEL, "trend": "profile"},
    "ordinary_kriging around a given rate": {"variogram": MODEL, "trend": {"lapse_rate": -6.5}},
    "ordinary_kriging nearby": {"variogram": MODEL, "trend": "lapse_rate", "neighbours": 5},
    "external_drift_kriging": {"variogram": MODEL},
    "external_drift_kriging nearby": {"variogram": MODEL, "neighbours": 8},
    "external_drift_kriging within a radius": {"variogram": MODEL, "radius_m": 900.0, "neighbours": 8},
    "external_drift_kriging of blocks": {"variogram": MODEL, "support": "block", "quadrature": 2},
    "external_drift_kriging fitted": {"variogram": "fit"},
    "inverse_distance": {"trend": "lapse_rate"},
    "nearest": {"trend": "profile"},
}


def level_by_level(method: str, *, lonlat: bool = False, variance: bool = False) -> list[xr.Dataset]:
    """The same query on a grid on the ground, over a plain at the height of each level's middle."""
    found = []
    for low, high in zip(EDGES[:-1], EDGES[1:], strict=True):
        base = network(terrain=(low + high) / 2, lonlat=lonlat)
        query = base.interpolate(method.split()[0], grid=grid(lonlat=lonlat), **METHODS[method])
        found.append((query.with_variance() if variance else query).compute())
    return found


@pytest.mark.parametrize("lonlat", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_each_level_is_the_map_over_a_plain_of_its_height(method: str, lonlat: bool) -> None:  # noqa: FBT001 - pytest
    expected = level_by_level(method, lonlat=lonlat)
    query = network(lonlat=lonlat).interpolate(
        method.split()[0], grid=grid(lonlat=lonlat, z={"edges": EDGES}), **METHODS[method]
    )
    found = query.compute()
    assert found["value"].dims == ("time", "z", *expected[0]["value"].dims[1:])
    for level, plain in enumerate(expected):
        np.testing.assert_allclose(found["value"][:, level], plain["value"], rtol=1e-10, atol=1e-10)
        for name in ("count", "count_possible", "extrapolated"):
            np.testing.assert_array_equal(found[name].isel(z=level), plain[name])
    # Estimates do differ by level, or nothing would be shown.
    assert float(abs(found["value"].diff("z")).min()) > 1e-3
    assert found["extrapolated"].values[-1].all()
    assert not found["extrapolated"].values[1].any()


@pytest.mark.parametrize("name", ["air_temperature", "solar_radiation"])
def test_recipes_know_the_height_of_a_level(name: str) -> None:
    # That of radiation multiplies with the clear sky's irradiance at the height of the cell.
    def recipe(cells: Grid, terrain: object = None, **given: object) -> xr.Dataset:
        aligned = network(terrain=terrain, lonlat=True, name=name).aggregate("mean", time="20min", min_coverage=0)
        return aligned.interpolate("recipe", grid=cells, variogram=MODEL, **given).compute()

    found = recipe(grid(lonlat=True, z={"edges": EDGES}))
    for level, (low, high) in enumerate(zip(EDGES[:-1], EDGES[1:], strict=True)):
        # On levels the trend is a profile; on the ground it is chosen.
        plain = recipe(grid(lonlat=True), terrain=(low + high) / 2, trend="profile")
        np.testing.assert_allclose(found["value"][:, level], plain["value"], rtol=1e-9, atol=1e-9)
    assert np.isfinite(found["value"]).all()


@pytest.mark.parametrize("method", [name for name in METHODS if name.startswith("external")])
def test_variances_of_levels_are_those_of_the_maps(method: str) -> None:
    expected = level_by_level(method, variance=True)
    query = network().interpolate(method.split()[0], grid=grid(z={"edges": EDGES}), **METHODS[method])
    found = query.with_variance().compute()
    for level, plain in enumerate(expected):
        np.testing.assert_allclose(found["variance"][:, level], plain["variance"], rtol=1e-9, atol=1e-12)


def levelled(z: object = None, **given: Any) -> Query:  # noqa: ANN401 - parameters of methods
    z = {"edges": EDGES} if z is None else z
    return network().interpolate("ordinary_kriging", grid=grid(z=z), **{**METHODS["ordinary_kriging"], **given})


def test_a_mean_over_levels_weighs_them_by_their_height() -> None:
    fine, heights = levelled().compute()["value"].values, np.diff(EDGES)
    for z, groups in (("all", [[0, 1, 2, 3]]), ({"edges": [300, 900, 2100]}, [[0, 1], [2, 3]])):
        for given, wide in (({}, fine), ({"x": 800}, fine.reshape(SLICES, 4, 3, 2, 2).mean(axis=-1))):
            coarse = levelled().aggregate("mean", z=z, **given).compute()["value"]
            for band, group in enumerate(groups):
                expected = np.average(wide[:, group], axis=1, weights=heights[group])
                np.testing.assert_allclose(coarse.values[:, band], expected, rtol=1e-12)
            assert coarse.attrs["cell_methods"].endswith("(comment: weighted by the height of the cells)")
    for function, plain in (("max", np.max), ("median", np.median), ("sum", np.sum), ("count", np.size)):
        found = levelled().aggregate(function, z={"edges": [300, 900, 2100]}).compute()["value"].values
        expected = [[plain(fine[t, pair, i, j]) for pair in ([0, 1], [2, 3])]
                    for t in range(SLICES) for i in range(3) for j in range(4)]  # fmt: skip
        np.testing.assert_allclose(found.transpose(0, 2, 3, 1).reshape(-1, 2), expected, rtol=1e-12)


def test_equal_levels_weigh_alike_and_areas_weigh_as_on_the_ground() -> None:
    query = network(lonlat=True).interpolate(
        "external_drift_kriging", grid=grid(lonlat=True, z={"start": 300, "step": 300, "count": 4}), variogram=MODEL
    )
    whole = query.aggregate("mean", z="all", lat="all", lon="all").compute()
    by_step = query.aggregate("mean", lat="all", lon="all").aggregate("mean", z="all").compute()
    np.testing.assert_allclose(whole["value"], by_step["value"], rtol=1e-12)
    np.testing.assert_allclose(
        whole["value"][:, 0, 0, 0], query.compute()["value"].mean(["z", "lat", "lon"]), rtol=1e-6
    )


def test_partly_filled_levels_are_known_by_their_counts() -> None:
    levels = levelled({"start": 300, "step": 100, "count": 5})
    coarse = levels.aggregate("mean", z=200, min_coverage=0.6).compute()
    np.testing.assert_array_equal(coarse["z_bounds"], [[200, 400], [400, 600], [600, 800]])
    np.testing.assert_array_equal(coarse["count"][0, :, 0, 0], [1, 2, 2])
    assert (coarse["count_possible"] == 2).all()
    fine = levels.compute()["value"].values
    assert coarse["value"][:, 0].isnull().all()
    np.testing.assert_allclose(coarse["value"][:, 1], fine[:, 1:3].mean(axis=1), rtol=1e-12)
    # Edges that are given are all there, also where the levels end before, and count what they could hold.
    given = levels.aggregate("count", z={"edges": [0, 300, 500, 2000]}).compute()
    np.testing.assert_array_equal(given["value"][0, :, 0, 0], [0, 2, 3])
    np.testing.assert_array_equal(given["count_possible"][0, :, 0, 0], [3, 2, 15])


def test_a_clip_in_height_keeps_levels_by_their_lower_edge() -> None:
    whole = levelled().compute()
    for bounds, said, kept in (
        ((800, 1600), "800 to 1600", slice(1, 3)),
        (("0.7km", 901), "700 to 901", slice(1, 3)),
        ((300, 300.001), "300 to 300.001", slice(0, 1)),
    ):
        query = levelled().clip(z=bounds, x=(400, 1200))
        assert f"clip z {said} m, x 400 to 1200 m" in query.explain()
        assert "push_clip" in query.explain()
        expected = whole.isel(z=kept, x=slice(1, 3))
        xr.testing.assert_allclose(query.compute(), expected, rtol=1e-12)
    # Pushed below a mean it leaves what the mean needs.
    coarse = levelled().aggregate("mean", z={"edges": [300, 900, 2100]}).aggregate("max", time="1h")
    xr.testing.assert_allclose(coarse.clip(z=(900, 901)).compute(), coarse.compute().isel(z=[1]), rtol=1e-12)
    with pytest.raises(InvalidQuery, match="'z' selects no cell"):
        levelled().clip(z=(0, 200)).compute()


def test_a_clip_leaves_every_station_whose_height_a_mark_looks_at() -> None:
    given, heights = METHODS["external_drift_kriging within a radius"], HEIGHTS.copy()
    # Out of the radius of the corner that is kept, and above all others.
    heights[np.argmax(np.hypot(*(PLACES - [200.0, 600.0]).T))] = 3000.0
    levels = grid(z={"edges": [400, 450, 2000, 2800]})
    query = network(heights).interpolate("external_drift_kriging", grid=levels, **given)
    clip = {"x": (0, 400), "y": (400, 800)}
    expected = query.compute().sel({name: slice(*bounds) for name, bounds in clip.items()})
    assert not expected["extrapolated"][-1].any()
    xr.testing.assert_allclose(query.clip(**clip).compute(), expected, rtol=1e-10)


@pytest.mark.parametrize("order", ["raster", "coarse_to_fine", "walk"])
def test_levels_refine_to_what_is_computed(order: str) -> None:
    query = levelled()
    *_, last = query.refine(order=order)
    assert last.complete
    xr.testing.assert_allclose(last.dataset(), query.compute(), rtol=1e-12)
    frame = last.frame(2, level=3)
    np.testing.assert_array_equal(frame.values, last.dataset()["value"].values[2, 3])
    assert frame.computed.all()
    with pytest.raises(HyperGridError, match="level 4 does not exist; there are 4"):
        last.frame(0, level=4)


def test_a_result_says_what_its_levels_are_and_files_keep_it() -> None:
    result = levelled().compute()
    assert result["z"].attrs == {
        "standard_name": "altitude", "long_name": "height above sea level", "units": "m", "axis": "Z", "positive": "up",
        "bounds": "z_bounds",
    }  # fmt: skip
    np.testing.assert_array_equal(result["z_bounds"], np.stack([EDGES[:-1], EDGES[1:]], axis=1))
    assert "z: area: point" in result["value"].attrs["cell_methods"]
    read = xr.open_dataset(io.BytesIO(to_bytes(result, "netcdf")), engine="h5netcdf")
    xr.testing.assert_equal(restore(read), result)
    assert read["z"].attrs == result["z"].attrs
    rows = to_bytes(result, "csv").decode().splitlines()
    assert len(rows) == 1 + result["value"].size
    assert {"z", "y", "x", "value"} <= set(rows[0].split(","))
    assert to_bytes(result, "png").startswith(b"\x89PNG")


def test_a_query_with_levels_is_the_same_after_json() -> None:
    query = levelled().aggregate("mean", z={"edges": [300, 900, 2100]}).clip(z=(900, 901))
    document = json.loads(json.dumps(query.to_json()))
    assert document["steps"][0]["grid"]["z"] == {"edges": EDGES}
    assert question_from_json(document).to_json() == query.to_json()
    again = Query(question_from_json(document), query.lookup)
    assert again.token == query.token
    same = levelled({"start": 300, "stop": 1300, "step": "500m"})
    assert levelled({"start": 300, "step": 500, "count": 2}).token == same.token
    assert levelled({"start": 301, "step": 500, "count": 2}).token != same.token


def test_stations_need_no_terrain_but_may_have_their_height_from_it() -> None:
    heights = HEIGHTS.copy()
    heights[[2, 5]] = np.nan
    z = {"edges": EDGES}
    given = {"grid": grid(z=z), **METHODS["ordinary_kriging"]}
    left_out = network(heights).interpolate("ordinary_kriging", **given).compute()
    assert "stations without elevation are not used: s2, s5" in left_out.attrs["comment"]
    without = network(heights).select(station=[f"s{i}" for i in range(STATIONS) if i not in (2, 5)])
    np.testing.assert_allclose(left_out["value"], without.interpolate("ordinary_kriging", **given).compute()["value"])
    # The ground at a station is as high as the station.
    filled = HEIGHTS.copy()
    filled[[2, 5]] = 777.0
    np.testing.assert_allclose(
        network(heights, terrain=777.0).interpolate("ordinary_kriging", **given).compute()["value"],
        network(filled).interpolate("ordinary_kriging", **given).compute()["value"],
        rtol=1e-10,
    )
    # Where every station knows its height, no terrain has a say, not even in the token.
    assert network(terrain=5.0).interpolate("ordinary_kriging", **given).surface().perspective.operator.layers == ()


def test_means_over_levels_have_the_variance_of_the_mean() -> None:
    query = network().interpolate("external_drift_kriging", grid=grid(z={"edges": EDGES}), variogram=MODEL)
    found = query.aggregate("mean", z="all", x="all", y="all").with_variance().compute()
    # One weight a cell: errors of cells at one place of two levels are not independent, so the mean over levels of an
    # estimate that is linear in height is the estimate at the mean height.
    middle = (EDGES[0] + EDGES[-1]) / 2
    plain = network(terrain=middle).interpolate("external_drift_kriging", grid=grid(), variogram=MODEL)
    plain = plain.aggregate("mean", x="all", y="all").with_variance().compute()
    np.testing.assert_allclose(found["value"].values.ravel(), plain["value"].values.ravel(), rtol=1e-10)
    structured = MODEL.nugget
    assert (np.abs(found["variance"].values.ravel() - plain["variance"].values.ravel()) < structured).all()


def bands(z: object, function: str = "mean", heights: Floats = HEIGHTS, **given: Any) -> xr.Dataset:  # noqa: ANN401
    return network(heights).aggregate(function, z=z, **given).compute()


PLAIN = {"mean": np.mean, "max": np.max, "sum": np.sum, "count": len, "median": np.median}


@pytest.mark.parametrize("function", PLAIN)
@pytest.mark.parametrize("z", [500, {"edges": [400, 1000, 1001, 1900]}, {"start": 0, "step": 700, "count": 4}, "all"])
def test_bands_hold_the_stations_at_their_heights(function: str, z: object) -> None:
    heights = HEIGHTS.copy()
    heights[3], heights[7] = np.nan, 1000.0
    found = bands(z, function, heights, min_coverage=0.0)
    assert found["value"].dims == ("time", "z")
    for t in range(SLICES):
        for band, (low, high) in enumerate(found["z_bounds"].values):
            held = [i for i in range(STATIONS) if low <= heights[i] < high]
            known = [VALUES[t, i] for i in held if math.isfinite(VALUES[t, i])]
            expected = PLAIN[function](known) if known or function == "count" else math.nan
            np.testing.assert_allclose(found["value"].values[t, band], expected, rtol=1e-12)
            assert found["count"].values[t, band] == len(known)
            assert found["count_possible"].values[t, band] == len(held)
    assert "stations without a known elevation are in no band: s3" in found.attrs["comment"]
    outside = [f"s{i}" for i, h in enumerate(heights) if h < found["z_bounds"].min() or h >= found["z_bounds"].max()]
    said = f"stations with an elevation outside all bands are in no band: {', '.join(outside)}"
    assert (said in found.attrs.get("comment", "")) == bool(outside)
    held = [any(low <= h < high for h in heights) for low, high in found["z_bounds"].values]
    empty = [f"{low:.7g} to {high:.7g} m" for low, high in found["z_bounds"].values[~np.array(held)]]
    assert (f"bands that hold no station: {', '.join(empty)}" in found.attrs.get("comment", "")) == bool(empty)


def test_one_who_looks_for_a_map_of_bands_is_told_what_they_are() -> None:
    last = list(network().aggregate("mean", z=500).refine())[-1]
    with pytest.raises(InvalidQuery, match="gives bands of elevation, not a map"):
        last.frame(0)


def test_bands_over_time_at_once_and_in_steps() -> None:
    aligned = network().aggregate("mean", time="20min", min_coverage=0)
    once = aligned.aggregate("max", time="1h", z=500).compute()
    in_steps = aligned.aggregate("max", z=500).aggregate("max", time="1h", min_coverage=0).compute()
    np.testing.assert_array_equal(once["value"], in_steps["value"])
    clipped = aligned.aggregate("max", z=500).aggregate("max", time="1h").clip(z=(1000, 1500)).compute()
    np.testing.assert_array_equal(clipped["value"], in_steps["value"].sel(z=[1250.0]))
    half = aligned.aggregate("mean", z=500, min_coverage=0.8).compute()
    enough = half["count"] >= 0.8 * half["count_possible"]
    np.testing.assert_array_equal(half["value"].notnull(), enough & (half["count"] > 0))
    assert not enough.all()
    difference = aligned.aggregate("max", z=500).merge("difference", aligned.aggregate("min", z=500)).compute()
    assert (difference["value"] >= 0).any()


def test_notes_on_bands_are_the_same_whichever_bands_are_clipped() -> None:
    asked = network().aggregate("mean", z={"edges": [600, 1000, 1500]})
    outside = [f"s{i}" for i, high in enumerate(HEIGHTS) if not 600 <= high < 1500]
    assert outside
    said = f"stations with an elevation outside all bands are in no band: {', '.join(outside)}"
    assert said in asked.compute().attrs["comment"]
    assert said in asked.clip(z=(1000, 1500)).compute().attrs["comment"]
    inside = network().aggregate("mean", z=500).clip(z=(1000, 1500)).compute()
    assert "in no band" not in inside.attrs.get("comment", "")


def test_bands_of_different_stations_are_merged_with_a_note() -> None:
    low, high = HEIGHTS.copy(), HEIGHTS.copy()
    low[2], high[5] = np.nan, np.nan
    levels = {"edges": [0, 3000]}
    first, other = (network(heights).aggregate("mean", z=levels, min_coverage=0) for heights in (low, high))
    said = "made of different stations: s5 in the first source alone, s2 in the other source alone"
    assert said in first.merge("difference", other).compute().attrs["comment"]
    assert "different" not in first.merge("difference", first).compute().attrs.get("comment", "")


@pytest.mark.parametrize("lonlat", [False, True])
def test_bands_of_a_map_hold_the_cells_of_the_terrain_at_their_heights(lonlat: bool) -> None:  # noqa: FBT001 - pytest
    # At 0, 500, … m from -500 m on, linear between.
    terrain = np.add.outer(np.arange(7.0) * 150.0, np.arange(7.0) * 90.0)
    base = network(terrain=terrain, lonlat=lonlat)
    surface = base.interpolate("ordinary_kriging", grid=grid(lonlat=lonlat), variogram=MODEL)
    fine = surface.compute()
    found = surface.aggregate("mean", z={"edges": [0, 450, 700, 701, 2000]}).compute()
    y, x = (fine[name].values for name in fine["value"].dims[1:])
    metres = 1e5 if lonlat else 1.0
    heights = [[(v * metres + 500) * 0.3 + (u * metres + 500) * 0.18 for u in x] for v in y]
    sizes = []
    for band, (low, high) in enumerate(found["z_bounds"].values):
        cells = [(i, j) for i in range(3) for j in range(4) if low <= heights[i][j] < high]
        area = [math.cos(math.radians(y[i])) if lonlat else 1.0 for i, _ in cells]
        for t in range(SLICES):
            values = [fine["value"].values[t, i, j] for i, j in cells]
            expected = np.average(values, weights=area) if cells else math.nan
            np.testing.assert_allclose(found["value"].values[t, band], expected, rtol=1e-9)
        assert (found["count"][:, band] == len(cells)).all()
        sizes.append(len(cells))
    assert sum(sizes) == 12
    assert 0 in sizes
    assert ("area" in found["value"].attrs["cell_methods"].split("z: mean")[1]) == lonlat


def refused(words: str, query: Query) -> None:
    with pytest.raises(HyperGridError, match=words):
        query.surface()


def test_what_cannot_be_on_levels_is_refused_before_it_runs() -> None:
    levels = grid(z={"edges": EDGES})
    for method in ("ordinary_kriging", "inverse_distance", "nearest", "linear"):
        given = {"variogram": MODEL} if "kriging" in method else {}
        refused(f"{method} does not look at heights", network().interpolate(method, grid=levels, **given))
    trend = METHODS["ordinary_kriging"]
    refused("none of the 12 has an elevation", network(None).interpolate("ordinary_kriging", grid=levels, **trend))
    refused("none of the 12 has an elevation", network(None).aggregate("mean", z=500))
    refused("step of at least 1 mm", network().aggregate("mean", z=0))
    refused("step of at least 1 mm", network().aggregate("mean", z={"step": -5}))
    refused("no band holds any of the stations", network().aggregate("mean", z={"edges": [-200, -100]}))
    refused(
        "no band holds any of the cells",
        network(terrain=50.0)
        .interpolate("ordinary_kriging", grid=grid(), variogram=MODEL)
        .aggregate("mean", z={"edges": [-200, -100]}),
    )
    for heights, words in (([500, 40_000], r"1 of 2 levels \(40000 m\)"), ([-9_000], r"1 of 1 levels \(-9000 m\)")):
        far = network().interpolate("ordinary_kriging", grid=grid(z=heights), **trend)
        refused(f"{words} are more than 5 km above or below all stations, which lie from", far)
    refused("need to ascend", network().aggregate("mean", z={"edges": [0, 500, 400]}))
    refused("cells in place of x", network().aggregate("mean", z=500, x=100))
    refused("needs a grid", network().aggregate("mean", x=100))
    refused("cut the grid's cells", levelled().aggregate("mean", z=500))
    refused("dimension of this surface to clip", network().clip(z=(0, 100)))
    refused("bands of a grid on the ground", levelled_ground().aggregate("mean", z=500))
    banded = network().aggregate("mean", z=500)
    refused("made of bands already", banded.interpolate("ordinary_kriging", grid=levels, **trend))
    refused("made of bands; interpolate in time first", banded.interpolate("linear", time="5min", max_gap="1h"))
    refused("made of bands already", banded.aggregate("mean", z="all"))
    refused("chooses a value in time", network().aggregate("last", z=500))
    square = {"type": "Polygon", "coordinates": [[[0, 400], [800, 400], [800, 800], [0, 800], [0, 400]]]}
    refused("zones lie on one level, this grid has 4 levels", levelled().aggregate("mean", zones={"a": square}))
    other = levelled({"start": 300, "step": 500, "count": 4})
    refused("3 x 4 cells .* on 4 levels from 300 to 2100 m", levelled().merge("difference", other))
    refused("different cells in space", levelled().merge("difference", levelled_ground()))


def levelled_ground() -> Query:
    return network().interpolate("ordinary_kriging", grid=grid(), variogram=MODEL)


def test_zones_of_one_level_are_those_of_its_map() -> None:
    square = {"type": "Polygon", "coordinates": [[[0, 400], [900, 400], [900, 800], [0, 800], [0, 400]]]}
    found = levelled().aggregate("mean", z="all").aggregate("mean", zones={"a": square}).compute()
    column = levelled().aggregate("mean", z="all").compute()["value"].values[:, 0, 0]
    np.testing.assert_allclose(found["value"][:, 0], column[:, :3] @ [4 / 9, 4 / 9, 1 / 9], rtol=1e-9)


def test_stations_of_an_archive_have_bands(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "archive", 1)
    found = (
        archive["air_temperature"]
        .aggregate("mean", time="1h", min_coverage=0)
        .aggregate("mean", z="all", min_coverage=0)
    )
    flat = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()
    known = flat["elevation"].notnull()
    assert 1 < known.sum() < known.size
    expected = flat["value"][:, known].mean("station")
    np.testing.assert_allclose(found.compute()["value"][:, 0], expected, rtol=1e-12)


@pytest.mark.parametrize("trend", ["profile", "lapse_rate", {"lapse_rate": -6.5}])
def test_what_is_made_of_a_slice_does_not_depend_on_who_reports_in_others(trend: object) -> None:
    # The lowest and the highest station report in the last slice alone.
    values = VALUES.copy()
    values[:-1, [np.argmin(HEIGHTS), np.argmax(HEIGHTS)]] = np.nan
    times = np.datetime64("2007-10-01T12:00", "ns") + np.arange(SLICES) * np.timedelta64(20, "m")
    coords = {"time": times, **{name: ("station", PLACES[:, at]) for at, name in enumerate("xy")}}
    array = xr.DataArray(
        values, dims=("time", "station"), coords={**coords, "elevation": ("station", HEIGHTS)}, name="air_temperature"
    )
    given = {"grid": grid(z={"edges": EDGES}), "variogram": MODEL, "mean": 5.0, "trend": trend}
    query = hg.base(array).interpolate("simple_kriging", **given)
    clipped = query.clip(time=("2007-10-01T12:00", "2007-10-01T14:00")).compute()["value"]
    assert clipped.sizes["time"] == 6
    np.testing.assert_allclose(clipped, query.compute()["value"][:6], rtol=1e-10)
