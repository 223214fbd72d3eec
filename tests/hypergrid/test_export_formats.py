"""CoverageJSON, GeoTIFF and Parquet: the judges' own readers find what was computed."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rasterio
import xarray as xr
from covjson_pydantic.coverage import Coverage, CoverageCollection
from rasterio.io import MemoryFile

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.formats.covjson import to_ucum
from hypergrid.formats.results import to_bytes, write
from tests.judges import judge_cf
from tests.support.networks import random_archive, random_array

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
ZONE = {"type": "Polygon", "coordinates": [[[7.177, 45.867], [7.181, 45.867], [7.181, 45.87], [7.177, 45.867]]]}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, xr.Dataset]:
    archive, _ = random_archive(tmp_path_factory.mktemp("export") / "archive", 1)
    base = archive["air_temperature"]
    hourly = base.aggregate("mean", time="1h", min_coverage=0.1)
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5))
    levels = hg.grid(lon="7:10:37", lat="45:52:01", step="3arcsec", shape=(4, 5), z=[2400, 2450])
    array, _ = random_array(3, instants=6)
    plane = hg.grid(x=(0, 500), y=(0, 300), step=100)
    kriged = hourly.interpolate("ordinary_kriging", grid=grid, variogram=MODEL)
    return {
        "map": kriged.with_variance().compute(),
        "levels": hourly.interpolate("ordinary_kriging", grid=levels, trend="lapse_rate", variogram=MODEL).compute(),
        "plane": hg.base(array).interpolate("ordinary_kriging", grid=plane, variogram=MODEL).compute(),
        "series": hourly.compute(),
        "readings": base.clip(time=("2007-10-01T00:00", "2007-10-01T01:00")).compute(),
        "hours": base.aggregate("mean", time="hour_of_day", min_coverage=0.1).compute(),
        "zones": kriged.aggregate("mean", zones={"slope": ZONE}, min_coverage=0.0).compute(),
    }


def coverages(dataset: xr.Dataset) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the document, which the model of CoverageJSON accepts, and its coverages."""
    text = to_bytes(dataset, "covjson")
    document = json.loads(text)
    if document["type"] == "Coverage":
        Coverage.model_validate_json(text)
        return document, [document]
    CoverageCollection.model_validate_json(text)
    return document, document["coverages"]


def numbers(coverage: dict[str, Any], key: str) -> np.ndarray:
    held = coverage["ranges"][key]
    return np.array([np.nan if one is None else one for one in held["values"]]).reshape(held["shape"])


@pytest.mark.parametrize(("kind", "axes"), [("map", "tyx"), ("levels", "tzyx"), ("plane", "tyx")])
def test_a_map_is_a_grid_of_all_its_values(results: dict[str, xr.Dataset], kind: str, axes: str) -> None:
    dataset = results[kind]
    _, (coverage,) = coverages(dataset)
    assert coverage["domain"]["domainType"] == "Grid"
    key = min(coverage["ranges"], key=len)
    assert coverage["ranges"][key]["axisNames"] == list(axes)
    np.testing.assert_array_equal(numbers(coverage, key), dataset["value"].to_numpy())
    x = "lon" if kind != "plane" else "x"
    assert coverage["domain"]["axes"]["x"]["values"] == dataset[x].to_numpy().tolist()
    assert coverage["domain"]["axes"]["x"]["bounds"] == dataset[f"{x}_bounds"].to_numpy().ravel().tolist()
    assert (coverage["domain"]["referencing"][0]["system"]["type"] == "ProjectedCRS") == (kind == "plane")


def test_time_has_the_bounds_of_its_cells_and_variance_stands_in_a_group(results: dict[str, xr.Dataset]) -> None:
    document, _ = coverages(results["map"])
    time = document["domain"]["axes"]["t"]
    assert time["values"][:2] == ["2007-09-30T23:00:00Z", "2007-10-01T00:00:00Z"]
    assert time["bounds"][:3] == ["2007-09-30T23:00:00Z", "2007-10-01T00:00:00Z", "2007-10-01T00:00:00Z"]
    (group,) = document["parameterGroups"]
    assert group["members"] == ["air_temperature", "air_temperature_variance"]
    assert document["parameters"]["air_temperature"]["unit"]["symbol"]["value"] == "Cel"
    assert document["parameters"]["air_temperature"]["observedProperty"]["id"].endswith("/air_temperature/")
    assert document["hypergrid:provenance"]["hypergrid_snapshot"] == results["map"].attrs["hypergrid_snapshot"]


@pytest.mark.parametrize("kind", ["series", "readings", "hours", "zones"])
def test_places_are_a_collection_of_series(results: dict[str, xr.Dataset], kind: str) -> None:
    dataset = results[kind]
    _, parts = coverages(dataset)
    joint = "zone" if kind == "zones" else "station"
    names = dataset[joint].to_numpy().tolist()
    assert [part["id"] for part in parts] == names
    order = np.argsort(dataset["time"].to_numpy(), kind="stable")
    for place, part in enumerate(parts):
        values = dataset["value"].isel({joint: place}).to_numpy()[order]
        np.testing.assert_array_equal(numbers(part, "air_temperature"), values)
        texts = part["domain"]["axes"]["t"]["values"]
        assert texts == sorted(texts)
        where = dataset.isel({joint: place})
        if np.isfinite(where["lon"]):
            assert part["domain"]["axes"]["x"]["values"] == [float(where["lon"])]
        else:
            assert "x" not in part["domain"]["axes"]


@pytest.mark.parametrize(
    ("unit", "code"),
    [
        ("degC", "Cel"),
        ("W m-2", "W.m-2"),
        ("m s-1", "m.s-1"),
        ("%", "%"),
        ("degree", "deg"),
        ("unknown", "1"),
        ("K2", "K2"),
    ],
)
def test_units_are_written_as_ucum_has_them(unit: str, code: str) -> None:
    assert to_ucum(unit) == code


@pytest.mark.parametrize(("kind", "bands"), [("map", 10), ("levels", 10)])
def test_a_geotiff_has_its_values_at_the_right_place(
    results: dict[str, xr.Dataset], kind: str, bands: int, tmp_path: Path
) -> None:
    dataset = results[kind]
    write(dataset, tmp_path / "map.tif")
    with rasterio.open(tmp_path / "map.tif") as raster:
        assert raster.crs.to_epsg() == 4326
        assert raster.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert raster.count == bands
        cells = raster.read()
        flat = dataset["value"].to_numpy().reshape(-1, 4, 5)
        for band, slice_of_it in enumerate(flat):
            for row, lat in enumerate(dataset["lat"].to_numpy()):
                for column, lon in enumerate(dataset["lon"].to_numpy()):
                    at = raster.index(lon, lat)
                    np.testing.assert_equal(cells[band][at], slice_of_it[row, column])
        first = dataset["time"].to_numpy()[0].astype("datetime64[s]")
        assert f"{first}Z" in raster.descriptions[0]
        assert set(raster.units) <= {"degC", "(degC)2"}
        assert raster.tags()["hypergrid_token"] == dataset.attrs["hypergrid_token"]


def test_a_plane_has_no_coordinate_system_that_is_known(results: dict[str, xr.Dataset]) -> None:
    with MemoryFile(to_bytes(results["plane"], "geotiff")) as held, held.open() as raster:
        assert raster.crs is None
        assert raster.bounds == (0.0, 0.0, 500.0, 300.0)


def test_series_are_no_geotiff(results: dict[str, xr.Dataset]) -> None:
    with pytest.raises(InvalidQuery, match="interpolate"):
        to_bytes(results["series"], "geotiff")


@pytest.mark.parametrize("kind", ["map", "series", "hours", "zones"])
def test_parquet_has_the_rows_of_the_csv(results: dict[str, xr.Dataset], kind: str) -> None:
    dataset = results[kind]
    found = pd.read_parquet(io.BytesIO(to_bytes(dataset, "parquet")))
    listed = pd.read_csv(io.BytesIO(to_bytes(dataset, "csv")))
    assert list(found.columns) == list(listed.columns)
    np.testing.assert_array_equal(found["value"], dataset["value"].to_numpy().ravel())
    assert str(found["time"].dt.tz) == "UTC"
    assert found.attrs["hypergrid_snapshot"] == dataset.attrs["hypergrid_snapshot"]


@pytest.mark.parametrize("kind", ["map", "levels", "plane", "series", "readings", "hours", "zones"])
def test_the_judge_of_cf_finds_no_error_in_a_result(results: dict[str, xr.Dataset], kind: str, tmp_path: Path) -> None:
    write(results[kind], tmp_path / "result.nc")
    assert judge_cf(tmp_path / "result.nc") == []
