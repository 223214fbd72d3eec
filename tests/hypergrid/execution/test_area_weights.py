"""Means over a grid weigh cells by their true area, zones by exact shares; variances use the same weights."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.execution.running.mean_errors import find_cells_below, find_space_shares
from hypergrid.formats.results import to_bytes
from hypergrid.perspective import question_from_json
from hypergrid.perspective.build.uncertainty_spec import split_aggregates

Floats = NDArray[np.float64]
MODEL = hg.variogram("exponential", psill=1.0, range_m=40_000.0, nugget=0.1)
DEGREES = hg.grid(lon=(7, 8), lat=(45, 47), step=0.1)


def readings(*, slices: int = 6, holes: float = 0.2, seed: int = 0) -> xr.DataArray:
    rng = np.random.default_rng(seed)
    values = rng.normal(10, 2, (slices, 9))
    values[rng.random(values.shape) < holes] = np.nan
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=slices, freq="10min"),
        "lon": ("station", rng.uniform(7, 8, 9)),
        "lat": ("station", rng.uniform(45, 47, 9)),
    }
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def kriged(data: xr.DataArray | None = None, grid: hg.Grid = DEGREES) -> hg.Query:
    given = readings() if data is None else data
    return hg.base(given).interpolate("ordinary_kriging", grid=grid, variogram=MODEL)


def plane() -> hg.Query:
    """The field 2 x + 3 y [m] on cells of 10 m: four corners of a triangulation say it exactly."""
    x, y = np.array([-100.0, 300.0, 300.0, -100.0]), np.array([-100.0, -100.0, 300.0, 300.0])
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=2, freq="10min"),
        "x": ("station", x),
        "y": ("station", y),
    }
    data = xr.DataArray(np.stack([2 * x + 3 * y, -x]), coords, ("time", "station"), "depth", {"units": "m"})
    return hg.base(data).interpolate("linear", grid=hg.grid(x=0, y=0, step=10, shape=(10, 20)))


def polygon(*rings: list[list[float]]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}


def box(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north]]


SLANTED = polygon([[7.12, 45.07], [7.81, 45.33], [7.44, 46.71]], [[7.4, 45.5], [7.5, 45.5], [7.45, 45.9]])
TALL = polygon(box(7.25, 45.1, 7.55, 46.75))
ZONES = hg.zones({"slanted": SLANTED, "tall": TALL})


def test_a_mean_over_latitude_weighs_rows_by_their_slab_of_the_sphere() -> None:
    cells = kriged().compute()["value"].to_numpy()
    edges = np.sin(np.radians(np.linspace(45, 47, 21)))
    area = np.diff(edges)[:, None] * np.ones(10)
    expected = (cells * area).sum(axis=(1, 2)) / area.sum()
    found = kriged().aggregate("mean", lon="all", lat="all").compute()
    np.testing.assert_allclose(found["value"].to_numpy().ravel(), expected, rtol=1e-12)
    assert np.abs(expected - cells.mean(axis=(1, 2))).max() > 1e-4
    assert (found["count"] == 200).all()
    assert "weighted by the area" in found["value"].attrs["cell_methods"]


@pytest.mark.parametrize(("function", "oracle"), [("sum", np.sum), ("min", np.min), ("max", np.max)])
def test_other_functions_take_each_cell_of_a_grid_alike(function: str, oracle: Any) -> None:  # noqa: ANN401 - of numpy
    cells = kriged().compute()["value"].to_numpy()
    found = kriged().aggregate(function, lat="all", lon="all").compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(found, oracle(cells, axis=(1, 2)), rtol=1e-13)


def test_weights_go_with_what_is_there_in_time_and_space() -> None:
    """Cells go missing in some slices, so a mean over both has other weights than a mean of means."""
    query = kriged().convert("valid_range", low=9.5, high=12.0)
    cells = query.compute()["value"].to_numpy()
    area = np.cos(np.radians(np.linspace(45.05, 46.95, 20)))[:, None] * np.ones(10)
    there = np.isfinite(cells)
    assert not there.all()
    weights = area * there
    expected = np.nansum(cells * weights) / weights.sum()
    found = query.aggregate("mean", time="all", lon="all", lat="all", min_coverage=0).compute()
    assert float(found["value"].item()) == pytest.approx(expected, rel=1e-12)
    assert int(found["count"].item()) == there.sum()


def test_an_exceedance_is_a_share_of_the_area_and_of_the_time() -> None:
    query = kriged().convert("valid_range", low=9.5, high=12.0)
    cells = query.compute()["value"].to_numpy()
    area = np.diff(np.sin(np.radians(np.linspace(45, 47, 21))))[:, None] * np.ones(10)
    there, beyond = np.isfinite(cells), np.nan_to_num(cells) > 10.5
    expected = (beyond * area).sum() / (there * area).sum()
    over = {"time": "all", "lon": "all", "lat": "all", "min_coverage": 0.0}
    found = query.aggregate("exceedance", threshold=10.5, **over).compute()
    assert found["value"].item() == pytest.approx(expected, rel=1e-12)
    assert abs(expected - beyond.sum() / there.sum()) > 1e-4
    assert "weighted by the area" in found["value"].attrs["cell_methods"]
    both = [query.aggregate("exceedance", threshold=t, **over).compute()["value"].item() for t in (0.0, 100.0)]
    assert both == [1.0, 0.0]


def test_an_exceedance_in_a_zone_takes_the_exact_part_of_each_cell() -> None:
    triangle = polygon([[0, 0], [100, 0], [100, 100]])
    found = plane().aggregate("exceedance", zones={"t": triangle}, threshold=250.0).compute()["value"]
    i, j = np.meshgrid(np.arange(10), np.arange(10))
    part = np.where(i > j, 1.0, np.where(i == j, 0.5, 0.0))
    value = 2 * (10 * i + 5) + 3 * (10 * j + 5)
    assert found.to_numpy()[0].tolist() == pytest.approx([(part * (value > 250)).sum() / part.sum()])


@pytest.mark.parametrize("function", ["median", "variance", "standard_deviation", "quantile"])
def test_what_weighs_each_cell_alike_says_so(function: str) -> None:
    given = {"q": 0.9} if function == "quantile" else {}
    attributes = kriged().aggregate(function, lat="all", lon="all", **given).compute()["value"].attrs
    where = "comment" if function == "quantile" else "cell_methods"
    assert "each cell alike, whatever its area" in attributes[where]


def test_a_mean_towards_the_pole_ends_there() -> None:
    data = readings()
    data = data.assign_coords(lat=("station", data["lat"].to_numpy() + 42))
    grid = hg.grid(lon=(7, 8), lat=(87, 90), step=0.5)
    cells = kriged(data, grid).compute()["value"].to_numpy()
    area = np.diff(np.sin(np.radians(np.linspace(87, 90, 7))))[:, None] * np.ones(2)
    found = kriged(data, grid).aggregate("mean", lat="all", lon="all").compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(found, (cells * area).sum(axis=(1, 2)) / area.sum(), rtol=1e-9)
    # The grid holds one row of the five from 85 to 87.5 degrees.
    rows = kriged(data, grid).aggregate("mean", lat=2.5, min_coverage=0)
    assert rows.compute()["count"].to_numpy()[0].tolist() == [[1, 1], [5, 5]]
    assert np.isfinite(rows.aggregate("mean", lat="all").compute()["value"]).all()


def test_projected_cells_weigh_alike() -> None:
    cells = plane().compute()["value"].to_numpy()
    found = plane().aggregate("mean", x="all", y="all").compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(found, cells.mean(axis=(1, 2)), rtol=1e-13)


def test_the_mean_of_a_plane_over_a_zone_is_its_value_at_the_centroid_of_whole_cells() -> None:
    triangle, frame = polygon([[0, 0], [100, 0], [100, 100]]), polygon(box(20, 10, 80, 70), box(40, 30, 60, 60))
    made = plane().aggregate("mean", zones={"triangle": triangle, "frame": frame}).compute()
    # Cells stand for their centres: a triangle over 10 columns takes half of those on its diagonal.
    i, j = np.meshgrid(np.arange(10), np.arange(10))
    part = np.where(i > j, 1.0, np.where(i == j, 0.5, 0.0))
    x, y = ((10 * k + 5) * part for k in (i, j))
    assert made["value"].sel(zone="triangle").to_numpy() == pytest.approx([(2 * x + 3 * y).sum() / 50, -x.sum() / 50])
    area = np.array([3600, -600])
    centre = np.array([[50, 40], [50, 45]])
    x_bar, y_bar = area @ centre / 3000
    assert made["value"].sel(zone="frame").to_numpy() == pytest.approx([2 * x_bar + 3 * y_bar, -x_bar])
    assert made["area"].to_numpy().tolist() == [5000, 3000]
    assert made["count"].to_numpy().tolist() == [[55, 30]] * 2
    assert made["value"].attrs["cell_methods"].endswith("area: mean where zone")


def test_zones_on_the_sphere_agree_with_a_fine_raster() -> None:
    cells = kriged().compute()["value"].to_numpy()
    fine = 60
    x, y = 7 + (np.arange(10 * fine) + 0.5) / (10 * fine), 45 + (np.arange(20 * fine) + 0.5) / (10 * fine)
    small = np.repeat(np.repeat(cells, fine, axis=1), fine, axis=2)
    found = kriged().aggregate("mean", zones=ZONES).compute()["value"].to_numpy()
    for number, corners in enumerate(ZONES.shapes):
        inside = contains(corners, x, y)
        weights = inside * np.cos(np.radians(y))[:, None]
        np.testing.assert_allclose(found[:, number], (small * weights).sum(axis=(1, 2)) / weights.sum(), rtol=3e-4)


def contains(shape: Any, x: Floats, y: Floats) -> NDArray[np.bool_]:  # noqa: ANN401 - a shape of shapely
    """Even-odd rule, ring by ring."""
    inside = np.zeros((len(y), len(x)), dtype=bool)
    for ring in (shape.exterior, *shape.interiors):
        points = np.array(ring.coords)
        for (x0, y0), (x1, y1) in zip(points[:-1], points[1:], strict=True):
            crosses = (y0 > y) != (y1 > y)
            with np.errstate(divide="ignore", invalid="ignore"):
                at = x0 + (y - y0) * (x1 - x0) / (y1 - y0)
            inside ^= crosses[:, None] & (x[None, :] < at[:, None])
    return inside


@settings(max_examples=10, deadline=None)
@given(cut_x=st.floats(7.02, 7.98), cut_y=st.floats(45.02, 46.98))
def test_zones_that_tile_a_grid_add_up_to_it(cut_x: float, cut_y: float) -> None:
    quarters = {
        f"{i}{j}": polygon(box(x0, y0, x1, y1))
        for i, (x0, x1) in enumerate([(7, cut_x), (cut_x, 8)])
        for j, (y0, y1) in enumerate([(45, cut_y), (cut_y, 47)])
    }
    total = kriged().aggregate("sum", zones=quarters).compute()["value"].sum("zone").to_numpy()
    whole = kriged().aggregate("sum", lat="all", lon="all").compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(total, whole, rtol=1e-8)
    mean = kriged().aggregate("mean", zones=quarters).compute()
    together = (mean["value"] * mean["area"]).sum("zone") / mean["area"].sum()
    expected = kriged().aggregate("mean", lat="all", lon="all").compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(together.to_numpy(), expected, rtol=1e-8)


def test_coverage_of_a_zone_is_by_area() -> None:
    document = {"half": polygon(box(7.9, 45.5, 8.1, 45.7)), "out": polygon(box(9, 45.5, 9.1, 45.7)), "in": TALL}
    for least, expected in ((0.0, [1, 0, 1]), (0.5, [1, 0, 1]), (0.501, [0, 0, 1]), (1.0, [0, 0, 1])):
        for function in ("mean", "sum", "max"):
            found = kriged().aggregate(function, zones=document, min_coverage=least).compute()
            assert np.isfinite(found["value"].to_numpy()).tolist() == [[bool(item) for item in expected]] * 6, function
    assert found["area_held"].to_numpy() == pytest.approx([0.5, 0, 1])
    assert found["count"].to_numpy()[0, 1] == 0
    assert "zones outside the grid: out; zones partly outside the grid: half" in found.attrs["comment"]


def test_missing_cells_take_their_area_from_the_coverage() -> None:
    query = kriged().convert("valid_range", low=9.5, high=12.0)
    there = np.isfinite(query.compute()["value"].to_numpy())
    whole = polygon(box(7, 45, 8, 47))
    area = np.diff(np.sin(np.radians(np.linspace(45, 47, 21))))[:, None] * np.ones(10)
    share = (there * area).sum(axis=(1, 2)) / area.sum()
    for least in np.sort(share):
        found = (
            query.aggregate("mean", zones=whole, min_coverage=float(least) - 1e-6).compute()["value"].to_numpy()[:, 0]
        )
        assert np.isfinite(found).tolist() == (share >= least - 1e-6).tolist()
    over_both = query.aggregate("mean", zones=whole, time="all", min_coverage=float(share.mean()) - 1e-6)
    assert np.isfinite(over_both.compute()["value"].item())
    too_much = query.aggregate("mean", zones=whole, time="all", min_coverage=float(share.mean()) + 1e-6)
    assert np.isnan(too_much.compute()["value"].item())


def test_functions_that_do_not_weigh_take_cells_with_half_of_themselves_inside() -> None:
    thin, wide = polygon(box(11, 28, 17, 31)), polygon(box(4, 0, 26, 10))
    found = {
        function: plane().aggregate(function, zones={"wide": wide, "thin": thin}).compute()["value"].to_numpy()[0]
        for function in ("max", "min", "count")
    }
    centres = 2 * np.array([5, 15, 25]) + 15
    assert found["max"] == pytest.approx([centres.max(), 2 * 15 + 3 * 25])
    assert found["min"] == pytest.approx([centres.min(), 2 * 15 + 3 * 25])
    assert found["count"].tolist() == [3, 1]


def brute_variance(query: hg.Query, weights: Floats) -> Floats:
    """Variance of weighted sums of cells from the covariance of all estimates' errors, slice by slice."""
    data = readings(holes=0.0)
    lon, lat = data["lon"].to_numpy(), data["lat"].to_numpy()
    metres = hg.topology.Metres(query.surface().perspective.list_bases()[0].topology.space)  # type: ignore[arg-type]
    stations = metres.project(np.stack([lon, lat], axis=1))
    cells = metres.project(DEGREES.centres(np.arange(DEGREES.count)))

    def gamma(a: Floats, b: Floats) -> Floats:
        away = np.linalg.norm(a[:, None] - b[None], axis=2)
        return np.where(away > 0, MODEL.nugget + MODEL.psill * (1 - np.exp(-3 * away / MODEL.range_m)), 0.0)

    size = len(stations)
    system = np.ones((size + 1, size + 1))
    system[:size, :size], system[size, size] = gamma(stations, stations), 0
    side = np.vstack([gamma(stations, cells), np.ones(len(cells))]) @ weights.T
    # var = 2 sum a b gamma(x_i, c) - sum b b gamma(x, x) - sum a a gamma(c, c), with b the solved weights.
    solved = np.linalg.solve(system, side)
    return np.asarray((side * solved).sum(axis=0) - np.einsum("rc,cd,rd->r", weights, gamma(cells, cells), weights))


def test_the_variance_of_a_regional_mean_uses_the_same_weights() -> None:
    query = kriged(readings(holes=0.0))
    area = np.diff(np.sin(np.radians(np.linspace(45, 47, 21))))[:, None] * np.ones(10)
    whole = (area / area.sum()).ravel()[None]
    found = query.aggregate("mean", lat="all", lon="all").with_variance().compute()["variance"].to_numpy()[0]
    np.testing.assert_allclose(found.ravel(), brute_variance(query, whole), rtol=1e-9)
    over = hg.topology.ZoneCells(ZONES, DEGREES).overlap
    by_area, by_share = np.zeros((2, 200)), np.zeros((2, 200))
    by_area[over.zone, over.cell], by_share[over.zone, over.cell] = over.area_m2, over.share
    by_area /= by_area.sum(axis=1, keepdims=True)
    for function, weights in (("mean", by_area), ("sum", by_share)):
        found = query.aggregate(function, zones=ZONES).with_variance().compute()["variance"].to_numpy()
        np.testing.assert_allclose(found, np.tile(brute_variance(query, weights), (6, 1)), rtol=1e-8)


@pytest.mark.parametrize("function", ["mean", "sum"])
@pytest.mark.parametrize("cells", [{"zones": ZONES}, {"lat": "0.2deg", "lon": "all"}, {"lat": "all", "time": "30min"}])
def test_shares_in_space_are_the_aggregates_weights(function: str, cells: dict[str, Any]) -> None:
    query = kriged(readings(holes=0.0)).aggregate(function, **cells, min_coverage=0)
    values = kriged(readings(holes=0.0)).compute()["value"].to_numpy().reshape(6, -1)
    surface = query.plan().surface
    _, aggregates = split_aggregates(surface)
    below, covers = find_cells_below(aggregates, np.arange(surface.topology.space.count))
    known = np.random.default_rng(0).random(len(below)) < 0.7
    weights = find_space_shares(aggregates, covers, np.ones(len(below), bool)).weights
    found = values[:, below] @ weights.T.toarray()
    if "time" in cells:
        found = found.reshape(2, 3, -1).mean(axis=1) if function == "mean" else found.reshape(2, 3, -1).sum(axis=1)
    np.testing.assert_allclose(found, query.compute()["value"].to_numpy().reshape(found.shape), rtol=1e-11)
    partly = find_space_shares(aggregates, covers, known).weights
    if function == "mean":
        np.testing.assert_allclose(partly.sum(axis=1), 1, rtol=1e-12)
        scaled = weights.toarray()[:, known]
        np.testing.assert_allclose(partly.toarray(), scaled / scaled.sum(axis=1, keepdims=True), rtol=1e-11)
    else:
        assert partly.nnz <= known.sum() * len(covers[0].first)  # type: ignore[union-attr]


def test_time_goes_before_or_with_or_after_zones() -> None:
    query = kriged(readings(holes=0.0))
    both = query.aggregate("mean", time="all", zones=ZONES).compute()["value"].to_numpy()
    before = query.aggregate("mean", time="all").aggregate("mean", zones=ZONES).compute()["value"].to_numpy()
    after = query.aggregate("mean", zones=ZONES).aggregate("mean", time="all").compute()
    np.testing.assert_allclose(before, both, rtol=1e-12)
    np.testing.assert_allclose(after["value"].to_numpy(), both, rtol=1e-12)
    assert after["value"].dims == ("time", "zone")


def test_blocks_and_merges_and_clips_of_zones() -> None:
    query = kriged().aggregate("mean", zones=ZONES)
    whole = query.compute()["value"].to_numpy()
    *_, last = query.refine()
    np.testing.assert_allclose(last.dataset()["value"].to_numpy(), whole, rtol=1e-12)
    clipped = query.clip(time=("2007-10-01T00:10", "2007-10-01T00:30")).compute()["value"].to_numpy()
    np.testing.assert_allclose(clipped, whole[1:3], rtol=1e-12)
    warm = kriged().convert("scale", factor=1.0, offset=2.0).aggregate("mean", zones=ZONES)
    np.testing.assert_allclose(warm.merge("difference", query).compute()["value"], 2.0, rtol=1e-12)
    assert "2 zones" in query.explain()
    with pytest.raises(HyperGridError, match="dimension of this surface to clip 'lon'"):
        query.clip(lon=(7, 8)).compute()


def test_json_holds_the_zones_themselves_and_gives_the_same_query() -> None:
    query = kriged().aggregate("mean", zones=ZONES, time="all")
    document = json.loads(json.dumps(query.to_json()))
    assert question_from_json(document).to_json() == document
    again = hg.Query(question_from_json(document), query.lookup)
    assert again.token == query.token
    assert document["steps"][-1]["zones"]["features"][1]["properties"] == {"name": "tall"}
    result = again.compute()
    assert json.loads(result.attrs["hypergrid_query"]) == document


def test_results_go_to_files_with_names_places_and_areas(tmp_path: Path) -> None:
    ring = [[7.5 + 0.3 * math.cos(t), 46 + 0.3 * math.sin(t)] for t in np.linspace(0, 2 * np.pi, 8000, endpoint=False)]
    many = kriged().aggregate("mean", zones={"round": polygon(ring), "tall": TALL}).compute()
    path = tmp_path / "zones.nc"
    path.write_bytes(to_bytes(many, "netcdf"))
    read = xr.open_dataset(path)
    assert read["zone"].to_numpy().tolist() == ["round", "tall"]
    np.testing.assert_array_equal(read["area"], many["area"])
    assert json.loads(read.attrs["hypergrid_query"]) == json.loads(many.attrs["hypergrid_query"])
    lines = to_bytes(many, "csv").decode().splitlines()
    assert lines[0].split(",")[:6] == ["time", "zone", "value", "count", "count_possible", "lon"]
    assert to_bytes(many, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda q: q.aggregate("mean", zones=ZONES, lat="all"), "zones are cells in place of lat"),
        (lambda q: q.aggregate("first", zones=ZONES), "first chooses a value in time; over zones use mean"),
        (lambda q: q.aggregate("mean", zones=ZONES).aggregate("mean", lat="all"), "over lat needs a grid"),
        (lambda q: q.aggregate("mean", zones={"a": polygon(box(70, 460, 71, 461))}), "the zones lie within 70 to 71"),
        (lambda q: q.aggregate("mean", zones=ZONES).convert("clear_sky_index"), "a zone has many"),
    ],
)  # fmt: skip
def test_what_zones_cannot_do_is_refused_before_running(ask: Any, message: str) -> None:  # noqa: ANN401 - a query to a query
    with pytest.raises(HyperGridError, match=message):
        ask(kriged()).surface()


def test_zones_over_stations_ask_for_an_interpolation() -> None:
    with pytest.raises(
        InvalidQuery, match="step 1 .aggregate 'mean'.: an aggregate over zones needs a grid; interpolate before it"
    ):
        hg.base(readings()).aggregate("mean", zones=ZONES).surface()
