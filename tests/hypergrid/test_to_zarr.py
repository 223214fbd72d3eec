"""Surfaces straight to Zarr: equal to what is computed in memory, in little memory, and never half a result unsaid."""

import math
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
import zarr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.result_dataset import restore
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.results.zarr_sink import INCOMPLETE, _split_rectangles, make_streamed_plan, start_store
from hypergrid.query import Query
from tests.support.networks import random_archive

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


def network(slices: int, stations: int = 6, *, heights: bool = False) -> Query:
    rng = np.random.default_rng(slices)
    times = np.datetime64("2007-10-01", "ns") + np.arange(slices) * np.timedelta64(10, "m")
    values = np.where(rng.random((slices, stations)) < 0.2, np.nan, rng.normal(5, 3, (slices, stations)))
    coords = {"time": times, **{name: ("station", rng.uniform(0, 2000, stations)) for name in ("x", "y")}}
    layers = {}
    if heights:
        coords["elevation"] = ("station", rng.uniform(100, 300, stations))
        sides = {"y": np.arange(0.0, 2001.0, 100.0), "x": np.arange(0.0, 2001.0, 100.0)}
        layers["elevation"] = xr.DataArray(rng.uniform(0, 500, (21, 21)), dims=("y", "x"), coords=sides)
    array = xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature")
    return hg.base(array, layers=layers)


def kriged(query: Query, shape: tuple[int, int] = (7, 11), z: object = None, **given: object) -> Query:
    grid = hg.grid(x=0, y=0, step=2000 / max(shape), shape=shape, z=z)
    return query.interpolate("ordinary_kriging", grid=grid, **{"variogram": MODEL, **given})


def zones(count: int = 7) -> dict[str, object]:
    """Rectangles side by side and overlapping, the last of them partly outside the grid."""
    west = np.linspace(-200, 1700, count)
    rings = [[[x, 50], [x + 450, 50], [x + 450, 900], [x, 900], [x, 50]] for x in west.tolist()]
    features = [
        {"type": "Feature", "properties": {"name": f"z{n}"}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
        for n, ring in enumerate(rings)
    ]
    return {"type": "FeatureCollection", "features": features}


QUERIES: dict[str, Callable[[], Query]] = {
    "slices": lambda: kriged(network(50)),
    "variances": lambda: kriged(network(20)).with_variance(),
    "bracketed variances of means": lambda: kriged(network(20)).aggregate("mean", time="1h").with_variance(),
    "nearest": lambda: kriged(network(30), neighbours=3),
    "some cells out of reach": lambda: kriged(network(10), neighbours=3, radius_m=400.0),
    "means": lambda: kriged(network(30)).aggregate("mean", time="1h"),
    "coarser": lambda: kriged(network(30), (12, 16)).aggregate("max", x="500m", y="500m"),
    "marked": lambda: network(10, heights=True).interpolate(
        "external_drift_kriging", grid=hg.grid(x=0, y=0, step=200, shape=(7, 9)), variogram=MODEL),
    "levels": lambda: kriged(network(20, heights=True), (6, 11), trend="lapse_rate", z={"edges": [0, 90, 100, 400]}),
    "levels with variance": lambda: network(10, heights=True).interpolate("external_drift_kriging", variogram=MODEL,
        grid=hg.grid(x=0, y=0, step=200, shape=(5, 9), z={"start": 50, "step": 90, "count": 4})).with_variance(),
    "bands": lambda: network(50, heights=True).aggregate("mean", time="1h", min_coverage=0).aggregate("max", z="60m"),
    "zones": lambda: kriged(network(30)).aggregate("mean", zones=zones()),
    "zones by hour of day": lambda: kriged(network(200)).aggregate("mean", time="hour_of_day", zones=zones()),
    "series": lambda: network(50).aggregate("mean", time="1h", min_coverage=0),
    "clipped": lambda: kriged(network(50)).clip(x=(300, 1500), time=("2007-10-01T01:00", "2007-10-01T03:00")),
}  # fmt: skip


def opened(path: Path) -> xr.Dataset:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return restore(xr.open_zarr(path).load())


@pytest.mark.parametrize("cells", [None, 33, 5, 1])
@pytest.mark.parametrize("name", QUERIES)
def test_a_store_is_what_compute_gives(
    name: str, cells: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = QUERIES[name]()
    if cells is not None:
        # Blocks of three rows, of parts of a row, and of single cells.
        monkeypatch.setattr(
            "hypergrid.execution.results.zarr_sink._find_greatest", lambda _fits, maximum: min(cells, maximum)
        )
    told: list[float] = []
    missing = query.to_zarr(tmp_path / "out.zarr", progress=told.append)
    found, expected = opened(tmp_path / "out.zarr"), query.compute()
    xr.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)
    if cells is None:
        xr.testing.assert_equal(found, expected)
    assert found.attrs == expected.attrs
    assert set(found.coords) == set(expected.coords)
    for variable in expected.variables:
        assert found[variable].dims == expected[variable].dims
        assert set(found[variable].attrs) == set(expected[variable].attrs)
    assert found["value"].attrs == expected["value"].attrs
    assert missing == int(expected["value"].isnull().sum())
    assert told[-1] == 1.0
    assert told == sorted(told)


def test_an_archives_store_is_what_compute_gives(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "archive", 1)
    hourly = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0.1)
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5))
    for query in (hourly, hourly.interpolate("ordinary_kriging", grid=grid, variogram=MODEL)):
        query.to_zarr(tmp_path / "out.zarr")
        found, expected = opened(tmp_path / "out.zarr"), query.compute()
        assert found.attrs == expected.attrs
        for variable in ("value", "count", "count_possible"):
            assert (variable in found) == (variable in expected)
            if variable in expected:
                np.testing.assert_array_equal(found[variable], expected[variable])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=2, max_size=3), st.data())
def test_a_range_of_cells_is_cut_into_rectangles(sizes: list[int], data: st.DataObject) -> None:
    shape = tuple(sizes)
    written = np.full(shape, -1)
    first = data.draw(st.integers(0, written.size - 1))
    stop = data.draw(st.integers(first + 1, written.size))
    parts = list(_split_rectangles(first, stop, shape))
    for rectangle, part in parts:
        written[rectangle] = np.arange(first, stop)[part].reshape(written[rectangle].shape)
    expected = np.full(written.size, -1)
    expected[first:stop] = np.arange(first, stop)
    np.testing.assert_array_equal(written.ravel(), expected)
    assert len(parts) <= 3 * math.prod(shape[:-2])


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 400), st.integers(1, 3000), st.integers(1, 3000), st.integers(20, 34))
def test_blocks_are_whole_chunks_and_fit(slices: int, rows: int, columns: int, power: int) -> None:
    query = kriged(network(slices), (rows, columns))
    try:
        plan, chunks = make_streamed_plan(query.surface(), 2**power)
    except TooLarge:
        # The smallest block has the stations' readings beside it, and chunks.
        assert power < 26, "refused although there is room"
        return
    assert plan.projected_bytes <= 2**power
    assert plan.block_cells == chunks.block_cells
    assert all(1 <= part <= whole for part, whole in zip(chunks.shape, (slices, rows, columns), strict=True))
    if chunks.block_cells >= columns:
        assert chunks.shape[2] == columns
        assert chunks.block_cells % (chunks.shape[1] * columns) == 0
    else:
        assert chunks.shape[1:] == (1, chunks.block_cells)


def test_what_is_larger_than_what_is_allowed_is_written_in_parts(tmp_path: Path) -> None:
    query = kriged(network(400), (64, 64))
    allowed = 12 * 2**20
    with pytest.raises(TooLarge):
        query.compute(allowed_bytes=allowed)
    told: list[float] = []
    query.to_zarr(tmp_path / "out.zarr", allowed_bytes=allowed, progress=told.append)
    assert len(told) > 3
    np.testing.assert_allclose(opened(tmp_path / "out.zarr")["value"], query.compute()["value"], rtol=1e-11)


def test_a_run_that_is_stopped_leaves_a_store_that_says_so_and_is_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query, target = kriged(network(50)), tmp_path / "out.zarr"
    monkeypatch.setattr("hypergrid.execution.results.zarr_sink._find_greatest", lambda _fits, maximum: min(11, maximum))

    def stop(fraction: float) -> None:
        if fraction > 0.5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        query.to_zarr(target, progress=stop)
    attributes = zarr.open_group(target, mode="r").attrs
    assert "compute it anew" in str(attributes[INCOMPLETE])
    assert "hypergrid_query" not in attributes
    half = xr.open_zarr(target, consolidated=False)["air_temperature"].load()
    assert half.isnull().any()
    query.to_zarr(target)
    found = opened(target)
    assert INCOMPLETE not in found.attrs
    np.testing.assert_allclose(found["value"], query.compute()["value"], rtol=1e-11)
    assert [path.name for path in tmp_path.iterdir()] == ["out.zarr"]


def test_what_is_no_result_is_refused_and_stays(tmp_path: Path) -> None:
    query = kriged(network(5))
    (tmp_path / "work.zarr").mkdir()
    (tmp_path / "work.zarr" / "thesis.tex").write_text("precious")
    (tmp_path / "file.zarr").write_text("precious too")
    xr.Dataset({"mine": ("x", [1.0])}).to_zarr(tmp_path / "mine.zarr", consolidated=False)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for name in ("work.zarr", "file.zarr", "mine.zarr"):
        with pytest.raises(InvalidQuery, match=f"{name} would replace something that is no Zarr store of HyperGrid"):
            query.to_zarr(tmp_path / name)
    with pytest.raises(NotFound, match="nowhere of the result"):
        query.to_zarr(tmp_path / "nowhere" / "out.zarr")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_plan_that_does_not_fit_leaves_what_is_there(tmp_path: Path) -> None:
    query, target = kriged(network(50)), tmp_path / "out.zarr"
    query.to_zarr(target)
    with pytest.raises(TooLarge, match=r"written block by block, projects [0-9,]+ bytes of memory, above the 1,000"):
        query.to_zarr(target, allowed_bytes=1000)
    assert opened(target)["value"].notnull().any()


def test_blocks_of_some_time_cells_come_to_their_place(tmp_path: Path) -> None:
    query = kriged(network(10))
    plan, chunks = make_streamed_plan(query.surface(), None)
    outcome = start_store(tmp_path / "out.zarr", query.question, plan, chunks)
    everything, places = np.arange(10 * 77, dtype=float).reshape(10, 77), np.arange(77)
    for times in (np.arange(4), np.arange(4, 10)):
        for part in (slice(0, 30), slice(30, 77)):
            block = Cells(everything[times][:, places[part]], np.ones((1, 1), np.int64), np.zeros((1, 1), np.int64))
            outcome.put_times(part, times, block)
    outcome.finish({"history": "now"})
    found = opened(tmp_path / "out.zarr")
    np.testing.assert_array_equal(found["value"].to_numpy().reshape(10, 77), everything)
    assert (found["count"] == 1).all()
    assert found.attrs["history"] == "now"
