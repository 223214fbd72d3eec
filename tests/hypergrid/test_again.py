"""Results that are computed again from what they say of themselves."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
import zarr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.cli.main import main
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.result_names import by_role, index_series
from hypergrid.execution import INCOMPLETE
from hypergrid.formats.results import write
from hypergrid.query import OpenArchive, Query
from tests.support.networks import START_NS, random_archive, random_array

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return random_archive(tmp_path_factory.mktemp("again") / "archive", 1)[0]


def hourly(archive: OpenArchive) -> Query:
    return archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0.1)


def maps(archive: OpenArchive) -> Query:
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5))
    return hourly(archive).interpolate("ordinary_kriging", grid=grid, variogram=MODEL)


def written(dataset: xr.Dataset, path: Path) -> Path:
    write(dataset, path)
    return path


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_what_is_computed_again_is_identical(archive: OpenArchive, tmp_path: Path, ending: str) -> None:
    queries = {
        "maps": maps(archive),
        "variances": maps(archive).with_variance(),
        "series": hourly(archive),
        "readings": archive["air_temperature"].clip(time=("2007-10-01T00:00", "2007-10-01T01:00")),
        "flags": archive["air_temperature"].accept_flags(1, 2, 3).select(station="s1").aggregate("max", time="30min"),
        "merged": hourly(archive).merge("difference", archive["surface_temperature"].aggregate(
            "mean", time="1h", min_coverage=0.1)),
    }  # fmt: skip
    for name, query in queries.items():
        told: list[float] = []
        found = hg.again(written(query.compute(), tmp_path / f"{name}{ending}"), archive, progress=told.append)
        assert found.identical, found.describe()
        assert found.describe() == f"identical\nread: snapshot {archive.snapshot}"
        assert told[-1] == 1.0
        assert hg.again(query.compute(), archive).identical


def test_a_result_is_computed_again_at_its_own_snapshot(tmp_path: Path) -> None:
    opened, _ = random_archive(tmp_path / "archive", 4)
    result = hourly(opened).compute()
    with opened.store.commit(batch="2", message="later", now_ns=START_NS + 1) as writer:
        stored = opened.store.read("air_temperature")
        writer.readings(replace(stored, value=stored.value + 1.0))
    later = opened.latest()
    assert later.snapshot != opened.snapshot
    assert not hourly(later).compute()["value"].equals(result["value"])
    assert hg.again(result, later).identical


def test_what_does_not_fit_in_memory_is_computed_into_a_store(archive: OpenArchive, tmp_path: Path) -> None:
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="0.2arcsec", shape=(300, 300))
    query = hourly(archive).interpolate("ordinary_kriging", grid=grid, variogram=MODEL)
    allowed = 14 * 2**20
    query.to_zarr(tmp_path / "out.zarr", allowed_bytes=allowed)
    assert query.plan().projected_bytes > allowed
    told: list[float] = []
    found = hg.again(tmp_path / "out.zarr", archive, allowed_bytes=allowed, progress=told.append)
    assert found.identical, found.describe()
    whole = hg.again(tmp_path / "out.zarr", archive)
    assert whole.confirmed, whole.describe()


def test_differences_are_told_by_variable(archive: OpenArchive) -> None:
    result = maps(archive).compute()
    value = result["value"].to_numpy().copy()
    at = tuple(np.argwhere(np.isfinite(value))[0])
    value[at] += 0.5
    found = hg.again(result.assign(value=(result["value"].dims, value)), archive)
    assert [one.variable for one in found.differences] == ["value"]
    assert found.differences[0].greatest == pytest.approx(0.5)
    assert found.differences[0].cells == 1
    assert not found.confirmed
    assert found.describe().startswith(f"different\nvalue: 1 of {value.size} differ, by at most 0.5")
    value[at] = np.nan
    lost = hg.again(result.assign(value=(result["value"].dims, value)), archive)
    assert not lost.confirmed
    assert "1 are missing in one of the two" in lost.describe()
    counts = hg.again(result.assign(count=result["count"] + 1), archive)
    assert [(one.variable, one.greatest) for one in counts.differences] == [("count", 1.0)]
    assert not counts.confirmed
    shifted = hg.again(result.assign_coords(time=result["time"] + np.timedelta64(1, "h")), archive)
    assert "time" in [one.variable for one in shifted.differences]
    fewer = hg.again(result.isel(time=slice(1, None)).drop_vars("count"), archive)
    assert {"value", "count"} <= {one.variable for one in fewer.differences}
    assert "count: only in what was computed again" in fewer.describe()


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_a_file_with_the_names_of_before_is_computed_again(archive: OpenArchive, tmp_path: Path, ending: str) -> None:
    result = by_role(maps(archive).with_variance().compute())
    assert {"value", "variance", "count"} <= set(result.data_vars)
    at_stations = index_series(by_role(hourly(archive).compute()))
    assert at_stations["value"].dims == ("time", "series")
    for number, before in enumerate((result, at_stations)):
        path = tmp_path / f"{number}{ending}"
        if ending == ".nc":
            before.to_netcdf(path, engine="h5netcdf")
        else:
            before.to_zarr(path, consolidated=False)
        assert hg.again(path, archive).identical


def test_another_order_of_sums_is_rounding(archive: OpenArchive) -> None:
    result = maps(archive).compute()
    found = hg.again(result.assign(value=result["value"] * (1 + 4e-16)), archive)
    assert not found.identical
    assert found.confirmed
    assert found.describe().startswith("identical but for rounding\nvalue: ")


def test_another_version_is_told(archive: OpenArchive) -> None:
    result = maps(archive).compute()
    old = result.assign_attrs(hypergrid_version="0.0.1", hypergrid_token="0" * 32, hypergrid_functions="mine 1")
    found = hg.again(old, archive)
    assert found.identical
    told = found.describe().splitlines()
    assert told[1] == f"version of HyperGrid: 0.0.1 then, {hg.__version__} now"
    assert "functions: mine 1 then, " in found.describe()
    assert f"token: {'0' * 32} then, {result.attrs['hypergrid_token']} now" in told
    del old.attrs["hypergrid_libraries"]
    assert "libraries: not told then, numpy" in hg.again(old, archive).describe()


def test_a_result_says_what_it_was_computed_from(archive: OpenArchive) -> None:
    attributes = maps(archive).compute().attrs
    assert attributes["hypergrid_archive"] == "made-up"
    assert attributes["hypergrid_version"] == hg.__version__
    assert f"numpy {np.__version__}" in attributes["hypergrid_libraries"]
    assert str(archive.path) not in json.dumps(attributes)


def changed(result: xr.Dataset, **keys: object) -> xr.Dataset:
    document = {**json.loads(result.attrs["hypergrid_query"]), **keys}
    return result.assign_attrs(hypergrid_query=json.dumps(document))


def test_what_cannot_be_computed_again_is_told_before_it_is_tried(archive: OpenArchive, tmp_path: Path) -> None:
    result = hourly(archive).compute()
    array, _ = random_array(3)
    gone = [{"op": "convert", "function": "mine"}]
    cases: list[tuple[Any, type[Exception], str]] = [
        (tmp_path / "nowhere.nc", NotFound, "nowhere.nc does not exist"),
        (written(result, tmp_path / "out.csv"), InvalidQuery, r"only \.nc and \.zarr say how"),
        (written(xr.Dataset({"value": 1.0}), tmp_path / "other.nc"), InvalidQuery, "no result of HyperGrid"),
        (result.assign_attrs(hypergrid_query="{"), InvalidQuery, "no result of HyperGrid"),
        (hg.base(array).compute(), InvalidQuery, "of an array in memory, which cannot be found again"),
        (result.assign_attrs(hypergrid_archive="other"), InvalidQuery, "from the archive 'other'; got .* 'made-up'"),
        (changed(result, snapshot="AAAA"), NotFound, "cannot be computed again .* unknown snapshot 'AAAA'"),
        (changed(result, variable="albedo"), NotFound, "unknown variable 'albedo'"),
        (changed(result, steps=gone), NotFound, "unknown .* 'mine'"),
        (result.assign_attrs({INCOMPLETE: "not ended"}), InvalidQuery, "is an incomplete result"),
    ]
    (tmp_path / "text.nc").write_text("no NetCDF")
    cases.append((tmp_path / "text.nc", InvalidQuery, r"text\.nc cannot be read"))
    for given, kind, message in cases:
        with pytest.raises(kind, match=message):
            hg.again(given, archive)


def command(*words: str | Path) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hypergrid", *map(str, words)])
        try:
            main()
        except SystemExit as leaving:
            return int(leaving.code or 0), out.getvalue(), err.getvalue()
    return 0, out.getvalue(), err.getvalue()


def test_the_command_line_tells_the_lineage_of_a_cell(archive: OpenArchive, tmp_path: Path) -> None:
    result = maps(archive).compute()
    out = written(result, tmp_path / "map.nc")
    at = {"lat": result.lat.item(1), "lon": result.lon.item(2)}
    cell = ["time=2007-10-01T01:30", *(f"{name}={value}" for name, value in at.items())]
    status, text, error = command("lineage", archive.path, out, *cell, "-o", tmp_path / "readings.csv")
    assert (status, text.splitlines()[0].startswith("air_temperature ")) == (0, True)
    table = pd.read_csv(tmp_path / "readings.csv", parse_dates=["time", "arrival"])
    made = hg.lineage(result, {"time": "2007-10-01T01:30", **at}, archive)
    assert table["used"].sum() == len(made.used)
    assert text.rstrip("\n") == made.describe()
    assert f"{len(table):,} readings" in error
    status, text, _ = command("lineage", archive.path, out, *cell, "--json")
    assert json.loads(text)["value"] == made.value
    status, _, error = command("lineage", archive.path, out, "noon")
    assert (status, "as NAME=VALUE, such as time=2007-10-01T12:00" in error) == (2, True)
    status, _, error = command("lineage", archive.path, out, *cell, "-o", "readings.xls")
    assert (status, "a name that ends in .csv" in error) == (2, True)


@pytest.mark.parametrize("ending", [".nc", ".zarr"])
def test_the_command_line_confirms_and_finds_what_was_changed(
    archive: OpenArchive, tmp_path: Path, ending: str
) -> None:
    (tmp_path / "query.json").write_text(json.dumps(maps(archive).to_json()))
    out = tmp_path / f"out{ending}"
    assert command("query", tmp_path / "query.json", "--archive", archive.path, "-o", out)[0] == 0
    assert command("query", "--again", out, "--archive", archive.path)[:2] == (
        0,
        f"identical\nread: snapshot {archive.snapshot}\n",
    )
    found = (xr.open_zarr(out, consolidated=False) if ending == ".zarr" else xr.open_dataset(out)).load()
    found.close()
    assert found.attrs["history"].endswith("Z hypergrid query")
    write(found.assign(air_temperature=found["air_temperature"] + 1.0), out)
    status, text, _ = command("query", "--again", out, "--archive", archive.path, "--json")
    assert status == 1
    assert json.loads(text)["differences"]["value"]["greatest"] == pytest.approx(1.0)


def test_the_command_line_is_used_wrongly(archive: OpenArchive, tmp_path: Path) -> None:
    status, _, error = command("query", "--archive", archive.path)
    assert (status, "and --again RESULT" in error) == (2, True)
    status, _, error = command("query", "q.json", "--again", "out.nc", "--archive", archive.path)
    assert (status, "leave FILE and -o away" in error) == (2, True)
    status, _, error = command("query", "--again", tmp_path / "none.nc", "--archive", archive.path)
    assert (status, "none.nc does not exist" in error) == (2, True)


def test_an_incomplete_store_is_refused(archive: OpenArchive, tmp_path: Path) -> None:
    maps(archive).to_zarr(tmp_path / "out.zarr")
    zarr.open_group(tmp_path / "out.zarr", mode="r+").attrs[INCOMPLETE] = "not ended"
    with pytest.raises(InvalidQuery, match="incomplete"):
        hg.again(tmp_path / "out.zarr", archive)


def test_a_copy_of_the_archive_serves_as_well(archive: OpenArchive) -> None:
    copy = OpenArchive(Archive.open(archive.path, snapshot=archive.snapshot))
    assert hg.again(hourly(archive).compute(), copy).identical
