"""Results as files: what is read back equals what was computed; a file is whole or not there."""

import io
import json
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.result_dataset import restore
from hypergrid.formats import results as export
from hypergrid.formats.results import FORMATS, check_path, to_bytes, write
from tests.judges import judge_file
from tests.support.networks import random_archive, random_array

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
COUNTS = ("_count", "_count_possible")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, xr.Dataset]:
    archive, _ = random_archive(tmp_path_factory.mktemp("export") / "archive", 1)
    hourly = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0.1)
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5))
    array, _ = random_array(3, instants=6)
    return {
        "map": hourly.interpolate("ordinary_kriging", grid=grid, variogram=MODEL).with_variance().compute(),
        "series": hourly.compute(),
        "readings": archive["air_temperature"].clip(time=("2007-10-01T00:00", "2007-10-01T01:00")).compute(),
        "instants": hg.base(array).compute(),
        "plane": hg.base(array).interpolate(
            "ordinary_kriging", grid=hg.grid(x=(0, 500), y=(0, 300), step=100), variogram=MODEL
        ).compute(),
    }  # fmt: skip


KINDS = ["map", "series", "readings", "instants", "plane"]


@pytest.mark.parametrize("kind", KINDS)
def test_netcdf_is_read_back_equal_with_bounds_and_attributes(
    results: dict[str, xr.Dataset], kind: str, tmp_path: Path
) -> None:
    dataset = results[kind]
    write(dataset, tmp_path / "result.nc")
    with xr.open_dataset(tmp_path / "result.nc", engine="h5netcdf") as found:
        found = restore(found.load())
    same(found, dataset)
    assert found.attrs == dataset.attrs
    assert found["value"].attrs == dataset["value"].attrs
    assert found["value"].attrs["units"] == "degC"
    assert found.attrs["Conventions"] == "CF-1.11, ACDD-1.3"
    if kind != "instants" and kind != "plane":
        bounds = found["time_bounds"].to_numpy()
        assert (bounds[:, 0] == found["time"].to_numpy()).all()
        assert (bounds[:, 1] > bounds[:, 0]).all()
    assert [p.name for p in tmp_path.iterdir()] == ["result.nc"]


def test_netcdf_of_a_map_has_its_grid_and_standard_errors(results: dict[str, xr.Dataset], tmp_path: Path) -> None:
    write(results["map"], tmp_path / "map.nc")
    with xr.open_dataset(tmp_path / "map.nc", engine="h5netcdf") as found:
        assert found["crs"].attrs["grid_mapping_name"] == "latitude_longitude"
        own = {name for name in found.data_vars if name != "crs"}
        assert own == {f"air_temperature{suffix}" for suffix in ("", "_variance", "_standard_error", *COUNTS)}
        assert {found[name].attrs["grid_mapping"] for name in own} == {"crs"}
        assert set(found["air_temperature"].attrs["ancillary_variables"].split()) == own - {"air_temperature"}
        error = found["air_temperature_standard_error"]
        np.testing.assert_array_equal(error, np.sqrt(found["air_temperature_variance"]))
        assert (error.attrs["units"], error.attrs["standard_name"]) == ("degC", "air_temperature standard_error")
    assert "crs" not in results["map"]
    assert "grid_mapping" not in results["map"]["air_temperature"].attrs
    # A file that was read is written as it was.
    with xr.open_dataset(tmp_path / "map.nc", engine="h5netcdf") as found:
        write(found, tmp_path / "again.nc")
        with xr.open_dataset(tmp_path / "again.nc", engine="h5netcdf") as again:
            assert again.identical(found)


@pytest.mark.parametrize("kind", ["map", "series"])
def test_netcdf_keeps_the_conventions(results: dict[str, xr.Dataset], kind: str, tmp_path: Path) -> None:
    path = tmp_path / "result.nc"
    write(results[kind], path)
    lacks = [*judge_file(path, "cf"), *judge_file(path, "acdd")]
    # CF has no standard name for either.
    assert [lack for lack in lacks if "_variance" not in lack and "_count_possible" not in lack] == []


def test_a_map_in_metres_has_no_known_grid(results: dict[str, xr.Dataset], tmp_path: Path) -> None:
    write(results["plane"], tmp_path / "plane.nc")
    with xr.open_dataset(tmp_path / "plane.nc", engine="h5netcdf") as found:
        assert set(found.data_vars) == set(results["plane"].data_vars)


@pytest.mark.parametrize("kind", KINDS)
def test_zarr_is_read_back_equal_as_a_folder_and_zipped(
    results: dict[str, xr.Dataset], kind: str, tmp_path: Path
) -> None:
    dataset = results[kind]
    write(dataset, tmp_path / "result.zarr")
    same(opened(tmp_path / "result.zarr"), dataset)
    with zipfile.ZipFile(io.BytesIO(to_bytes(dataset, "zarr"))) as archive:
        archive.extractall(tmp_path / "unzipped")
    same(opened(tmp_path / "unzipped"), dataset)


def opened(store: Path) -> xr.Dataset:
    """Open a store as people do: nothing is to be warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return restore(xr.open_zarr(store).load())


@pytest.mark.parametrize("kind", KINDS)
def test_csv_has_a_row_a_cell_with_exact_numbers(results: dict[str, xr.Dataset], kind: str, tmp_path: Path) -> None:
    dataset = results[kind]
    write(dataset, tmp_path / "result.csv")
    frame = pd.read_csv(tmp_path / "result.csv", float_precision="round_trip")
    assert len(frame) == dataset["value"].size
    np.testing.assert_array_equal(frame["value"], dataset["value"].to_numpy().ravel())
    np.testing.assert_array_equal(frame["count"], dataset["count"].to_numpy().ravel())
    times = pd.to_datetime(frame["time"]).dt.tz_localize(None).to_numpy("datetime64[ns]")
    first = dataset["value"].size // dataset.sizes["time"]
    np.testing.assert_array_equal(times[::first], dataset["time"].to_numpy())
    assert set(frame["unit"]) == {"degC"}


def test_no_station_s_name_is_a_formula_in_csv() -> None:
    names = ["=cmd|' /C calc'!A0", "@SUM(A1)", "-7", "A"]
    data = xr.Dataset(
        {"value": (("time", "series"), np.ones((1, 4)), {"units": "degC"})},
        {"time": pd.to_datetime(["2007-10-01"]), "station": ("series", names)},
    )
    stations = pd.read_csv(io.BytesIO(to_bytes(data, "csv")), dtype=str)["station"].tolist()
    assert stations == ["'=cmd|' /C calc'!A0", "'@SUM(A1)", "-7", "A"]


def test_csv_keeps_fractions_of_seconds() -> None:
    array, _ = random_array(3, instants=3)
    array["time"] = array["time"] + np.timedelta64(250, "ms")
    text = to_bytes(hg.base(array).compute(), "csv").decode()
    assert ".250000Z" in text


@pytest.mark.parametrize("kind", KINDS)
def test_png_is_a_picture(results: dict[str, xr.Dataset], kind: str, tmp_path: Path) -> None:
    write(results[kind], tmp_path / "result.png")
    assert (tmp_path / "result.png").read_bytes().startswith(PNG)


def same(found: xr.Dataset, expected: xr.Dataset) -> None:
    assert set(found.variables) == set(expected.variables)
    for name in expected.variables:
        left, right = found[name].to_numpy(), expected[name].to_numpy()
        if right.dtype.kind in "fiM":
            np.testing.assert_array_equal(left.astype(right.dtype), right)
        else:
            assert left.astype(str).tolist() == right.astype(str).tolist()
    assert found["value"].dims == expected["value"].dims


@pytest.mark.parametrize("ending", [".nc", ".csv", ".png", ".zarr", ".zarr.zip"])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    results: dict[str, xr.Dataset], ending: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / f"result{ending}"
    write(results["map"], target)
    before = content(target)

    def fail(*_: object, **__: object) -> None:
        message = "disk full"
        raise OSError(message)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="disk full"):
        write(results["series"], target)
    monkeypatch.undo()
    assert content(target) == before
    assert [p.name for p in tmp_path.iterdir()] == [target.name]
    write(results["series"], target)
    assert content(target) != before
    assert [p.name for p in tmp_path.iterdir()] == [target.name]


def test_a_failing_second_rename_brings_the_old_folder_back(
    results: dict[str, xr.Dataset], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "result.zarr"
    write(results["map"], target)
    before, rename, calls = content(target), Path.rename, []

    def second_fails(self: Path, other: Path) -> Path:
        calls.append(self)
        if len(calls) == 2:
            message = "disk full"
            raise OSError(message)
        return rename(self, other)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises(OSError, match="disk full"):
        write(results["series"], target)
    assert content(target) == before
    assert [p.name for p in tmp_path.iterdir()] == [target.name]


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else [p for p in path.rglob("*") if p.is_file()]
    return {str(file.relative_to(path)): file.read_bytes() for file in files}


@pytest.mark.parametrize("name", ["result.xlsx", "result", "result.nc.gz", "result.rar"])
def test_unknown_endings_are_refused_before_anything_is_written(
    results: dict[str, xr.Dataset], name: str, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match=r"unknown ending of a result file .*There are: \.covjson, \.csv, \.nc, "):
        write(results["map"], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", [".nc", ".csv", ".png", ".zarr.zip"])
def test_a_folder_in_the_place_of_a_file_is_refused_and_stays(
    results: dict[str, xr.Dataset], ending: str, tmp_path: Path
) -> None:
    target = tmp_path / f"mine{ending}"
    target.mkdir()
    for attempt in (check_path, lambda path: write(results["map"], path)):
        with pytest.raises(InvalidQuery, match="a folder is there"):
            attempt(target)
    assert list(tmp_path.rglob("*")) == [target]


def test_only_a_zarr_store_is_replaced_by_one(results: dict[str, xr.Dataset], tmp_path: Path) -> None:
    (tmp_path / "work.zarr").mkdir()
    (tmp_path / "work.zarr" / "thesis.tex").write_text("precious")
    (tmp_path / "file.zarr").write_text("precious too")
    before = content(tmp_path)
    for name in ("work.zarr", "file.zarr"):
        with pytest.raises(InvalidQuery, match="no Zarr store"):
            write(results["map"], tmp_path / name)
    assert content(tmp_path) == before
    (tmp_path / "empty.zarr").mkdir()
    write(results["map"], tmp_path / "empty.zarr")
    assert check_path(tmp_path / "empty.zarr") == "zarr"


def test_a_folder_that_does_not_exist_is_told_before_computing(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r"nowhere of the result a\.nc does not exist"):
        check_path(tmp_path / "nowhere" / "a.nc")


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_has_values_picture_query_and_words(
    results: dict[str, xr.Dataset], kind: str, tmp_path: Path
) -> None:
    dataset = results[kind]
    write(dataset, tmp_path / "answer.zip")
    with zipfile.ZipFile(tmp_path / "answer.zip") as package:
        assert package.testzip() is None
        package.extractall(tmp_path)
        assert package.namelist() == ["README.txt", "values.nc", "picture.png", "query.json"]
    with xr.open_dataset(tmp_path / "values.nc", engine="h5netcdf") as found:
        same(restore(found.load()), dataset)
    assert (tmp_path / "picture.png").read_bytes().startswith(PNG)
    assert json.loads((tmp_path / "query.json").read_text()) == json.loads(dataset.attrs["hypergrid_query"])
    words = (tmp_path / "README.txt").read_text()
    assert words.startswith(dataset.attrs["title"])
    assert f"hypergrid_snapshot: {dataset.attrs['hypergrid_snapshot']}" in words
    assert to_bytes(dataset, "package") == (tmp_path / "answer.zip").read_bytes(), "equal results are equal files"


def test_formats_are_found_by_name_and_ending() -> None:
    assert {check_path(Path(f"a{row.suffix}")) for row in FORMATS.values()} == set(FORMATS)
    assert check_path(Path("a.zarr")) == "zarr"
    with pytest.raises(NotFound, match="unknown result format 'xls'"):
        to_bytes(xr.Dataset(), "xls")
    assert export.FORMATS["netcdf"].media_type == "application/x-netcdf"
