"""Rasters become layers: in place, with what they know of themselves, or refused with what to do."""

from pathlib import Path
from typing import Any

import numpy as np
import pyproj
import pytest
import rasterio
from rasterio.transform import Affine, from_origin

from hypergrid.core.errors import InvalidLayer, InvalidUnit, NotFound, TooLarge
from hypergrid.layers import raster_reader
from hypergrid.layers.raster_reader import read_raster

WEST, NORTH, STEP = 7.0, 46.0, 1.0 / 1200.0
UTM = "EPSG:32632"


def write(path: Path, values: Any, **profile: Any) -> Path:  # noqa: ANN401
    """Write bands of shape (rows, columns), or one; in EPSG:4326 from (7, 46) where nothing else is said."""
    given = np.asarray(values)
    bands = given if given.ndim == 3 else given[None]
    options = {
        "driver": "GTiff", "crs": "EPSG:4326", "dtype": bands.dtype, "transform": from_origin(WEST, NORTH, STEP, STEP),
        "count": bands.shape[0], "height": bands.shape[1], "width": bands.shape[2], **profile,
    }  # fmt: skip
    unit, scale, offset = (options.pop(name, None) for name in ("unit", "scale", "offset"))
    with rasterio.open(path, "w", **options) as raster:
        raster.write(bands)
        if unit:
            raster.set_band_unit(1, unit)
        if scale:
            raster.scales, raster.offsets = (scale,), (offset,)
    return path


@pytest.fixture
def steps() -> np.ndarray:
    return np.arange(20.0, dtype=np.float32).reshape(4, 5)


def test_longitudes_and_latitudes_are_taken_cell_by_cell(tmp_path: Path, steps: np.ndarray) -> None:
    layer = read_raster(write(tmp_path / "dem.tif", steps), name="elevation")
    np.testing.assert_array_equal(layer.values, steps[::-1])
    np.testing.assert_allclose(layer.x, WEST + (np.arange(5) + 0.5) * STEP, rtol=1e-14)
    np.testing.assert_allclose(layer.y, NORTH - (np.arange(4)[::-1] + 0.5) * STEP, rtol=1e-14)
    assert (layer.unit, layer.system, layer.name) == ("m", "lonlat", "elevation")
    assert layer.description == "dem.tif, band 1, EPSG:4326, cell by cell"


def test_a_raster_from_the_south_is_the_same_layer(tmp_path: Path, steps: np.ndarray) -> None:
    upright = read_raster(write(tmp_path / "a.tif", steps), name="slope")
    from_south = Affine(STEP, 0, WEST, 0, STEP, NORTH - 4 * STEP)
    turned = read_raster(write(tmp_path / "b.tif", steps[::-1], transform=from_south), name="slope")
    np.testing.assert_allclose(turned.y, upright.y, rtol=1e-14)
    np.testing.assert_array_equal(turned.values, upright.values)


def test_no_data_scale_and_offset_are_applied(tmp_path: Path) -> None:
    whole = np.array([[10, -999, 30], [40, 50, 60]], np.int16)
    layer = read_raster(write(tmp_path / "a.tif", whole, nodata=-999, scale=0.1, offset=100.0), name="slope")
    np.testing.assert_allclose(layer.values, [[104.0, 105.0, 106.0], [101.0, np.nan, 103.0]])


def test_the_unit_is_the_rasters_unless_it_is_given(tmp_path: Path, steps: np.ndarray) -> None:
    feet = write(tmp_path / "feet.tif", steps, unit="ft")
    np.testing.assert_allclose(read_raster(feet, name="elevation").values, steps[::-1] * 0.3048)
    assert read_raster(feet, name="slope").unit == "ft"
    assert read_raster(feet, name="slope", unit="degree").unit == "degree"
    with pytest.raises(InvalidUnit, match="unknown unit 'blorp'"):
        read_raster(feet, name="slope", unit="blorp")


@pytest.mark.parametrize("turn_deg", [0.0, 30.0])
def test_projected_rasters_are_interpolated_into_place(tmp_path: Path, turn_deg: float) -> None:
    """A smooth field on a plane in UTM keeps its value at each place, to the rounding of two interpolations."""
    cosine, sine = 50.0 * np.cos(np.radians(turn_deg)), 50.0 * np.sin(np.radians(turn_deg))
    transform = Affine(cosine, sine, 360_000, sine, -cosine, 5_085_000)

    def place(column: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 360_000 + cosine * column + sine * row, 5_085_000 + sine * column - cosine * row

    easting, northing = place(*np.meshgrid(np.arange(80) + 0.5, np.arange(60) + 0.5))

    def field(e: np.ndarray, n: np.ndarray) -> np.ndarray:
        return 2000.0 + 0.1 * (e - 360_000) - 0.07 * (n - 5_085_000) + 30.0 * np.sin((e - 360_000) / 1500.0)

    path = write(tmp_path / "utm.tif", field(easting, northing).astype(np.float32), transform=transform, crs=UTM)
    layer = read_raster(path, name="elevation")
    rng = np.random.default_rng(5)
    inner = place(rng.uniform(3, 77, 400), rng.uniform(3, 57, 400))
    lon, lat = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True).transform(*inner)
    assert np.abs(layer.sample(np.stack([lon, lat], axis=1)) - field(*inner)).max() < 0.05
    across, along = layer.step
    assert along * 111_150 == pytest.approx(50.0, rel=0.01)
    assert across * 111_320 * np.cos(np.radians(45.9)) == pytest.approx(50.0, rel=0.01)
    assert "EPSG:32632, bilinear to EPSG:4326" in layer.description


def test_a_coast_stays_where_it_is(tmp_path: Path) -> None:
    """What is no data is missing, and nothing else: each place near the middle of a cell that is known has a value."""
    rng = np.random.default_rng(9)
    land = np.where(rng.random((30, 40)) < 0.3, -9999.0, 7.0).astype(np.float32)
    path = write(tmp_path / "a.tif", land, nodata=-9999.0, transform=from_origin(360_000, 5_085_000, 50, 50), crs=UTM)
    layer = read_raster(path, name="slope")
    column, row = np.meshgrid(np.arange(40), np.arange(30))
    there = pyproj.Transformer.from_crs(UTM, "EPSG:4326", always_xy=True)
    lon, lat = there.transform(360_000 + 50.0 * (column + 0.5), 5_085_000 - 50.0 * (row + 0.5))
    i, j = (np.rint((where - axis[0]) / step).astype(int) for where, axis, step in (
        (lat, layer.y, layer.step[1]), (lon, layer.x, layer.step[0]),
    ))  # fmt: skip
    x, y = pyproj.Transformer.from_crs("EPSG:4326", UTM, always_xy=True).transform(layer.x[j], layer.y[i])
    around = land[((5_085_000 - y) // 50).astype(int), ((x - 360_000) // 50).astype(int)]
    np.testing.assert_array_equal(np.isnan(layer.values[i, j]), around < 0)
    np.testing.assert_allclose(layer.values[np.isfinite(layer.values)], 7.0, rtol=1e-14)


def test_bounds_take_a_part_with_the_same_values(tmp_path: Path) -> None:
    values = np.random.default_rng(6).normal(size=(60, 80)).astype(np.float32)
    lonlat = write(tmp_path / "a.tif", values)
    whole = read_raster(lonlat, name="slope")
    part = read_raster(lonlat, name="slope", bounds=(7.0201, 45.9601, 7.0402, 45.9802))
    west, south, east, north = part.bounds
    assert 7.0201 - 2 * STEP < west <= 7.0201 - STEP
    assert 45.9601 - 2 * STEP < south <= 45.9601 - STEP
    assert 7.0402 + STEP <= east < 7.0402 + 2 * STEP
    assert 45.9802 + STEP <= north < 45.9802 + 2 * STEP
    places = np.random.default_rng(7).uniform((7.0201, 45.9601), (7.0402, 45.9802), (200, 2))
    np.testing.assert_allclose(part.sample(places), whole.sample(places), rtol=0, atol=1e-9)


def test_bounds_of_a_projected_raster_reach_their_edges(tmp_path: Path) -> None:
    plane = np.add.outer(-np.arange(200.0), 2.0 * np.arange(300.0)).astype(np.float32)
    path = write(tmp_path / "utm.tif", plane, transform=from_origin(360_000, 5_085_000, 50, 50), crs=UTM)
    bounds = (7.24, 45.87, 7.30, 45.89)
    part = read_raster(path, name="slope", bounds=bounds)
    whole = read_raster(path, name="slope")
    assert part.values.size < whole.values.size / 4
    assert np.isfinite(part.values).all()
    places = np.random.default_rng(8).uniform(bounds[:2], bounds[2:], (300, 2))
    np.testing.assert_allclose(part.sample(places), whole.sample(places), rtol=0, atol=1e-9)


def test_a_raster_without_a_system_needs_one(tmp_path: Path) -> None:
    (tmp_path / "dem.asc").write_text("ncols 2\nnrows 2\nxllcorner 7\nyllcorner 45\ncellsize 1\n1 2\n3 4\n")
    with pytest.raises(InvalidLayer, match=r"states no coordinate reference system.*--crs"):
        read_raster(tmp_path / "dem.asc", name="elevation")
    layer = read_raster(tmp_path / "dem.asc", name="elevation", crs="EPSG:4326")
    np.testing.assert_array_equal(layer.values, [[3.0, 4.0], [1.0, 2.0]])
    with pytest.raises(InvalidLayer, match="unknown coordinate reference system 'EPSG:none'"):
        read_raster(tmp_path / "dem.asc", name="elevation", crs="EPSG:none")


def test_one_of_several_bands_is_chosen(tmp_path: Path, steps: np.ndarray) -> None:
    path = write(tmp_path / "two.tif", np.stack([steps, steps + 100.0]))
    with pytest.raises(InvalidLayer, match=r"has 2 bands.*--band"):
        read_raster(path, name="elevation")
    assert read_raster(path, name="elevation", band=2).values[-1, 0] == 100.0
    with pytest.raises(NotFound, match="unknown band '3'"):
        read_raster(path, name="elevation", band=3)


def test_what_is_no_raster_is_refused(tmp_path: Path, steps: np.ndarray) -> None:
    with pytest.raises(NotFound, match="does not exist"):
        read_raster(tmp_path / "none.tif", name="elevation")
    (tmp_path / "text.tif").write_text("not a raster")
    with pytest.raises(InvalidLayer, match="cannot be read as a raster"):
        read_raster(tmp_path / "text.tif", name="elevation")
    cut = write(tmp_path / "cut.tif", np.random.default_rng(0).normal(size=(300, 300)))
    cut.write_bytes(cut.read_bytes()[:100_000])
    with pytest.raises(InvalidLayer, match="cannot be read as a raster"):
        read_raster(cut, name="elevation")
    with pytest.raises(InvalidLayer, match="holds no value"):
        read_raster(write(tmp_path / "empty.tif", np.full((3, 3), -1.0), nodata=-1.0), name="elevation")
    with pytest.raises(InvalidLayer, match="two or more x centres"):
        read_raster(write(tmp_path / "one.tif", steps[:, :1]), name="elevation")


@pytest.mark.parametrize("crs", ["EPSG:4326", UTM])
def test_bounds_that_miss_and_rasters_that_are_too_large_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crs: str
) -> None:
    place = {} if crs == "EPSG:4326" else {"transform": from_origin(360_000, 5_085_000, 90, 90)}
    path = write(tmp_path / "a.tif", np.ones((30, 40)), crs=crs, **place)
    with pytest.raises(InvalidLayer, match="no cell within the bounds"):
        read_raster(path, name="elevation", bounds=(10.0, 50.0, 11.0, 51.0))
    with pytest.raises(InvalidLayer, match="west below east"):
        read_raster(path, name="elevation", bounds=(11.0, 50.0, 10.0, 51.0))
    monkeypatch.setattr(raster_reader, "MAX_CELLS", 1000)
    with pytest.raises(TooLarge, match=r"1,\d\d\d cells, above the 1,000 allowed; crop it with --bounds"):
        read_raster(path, name="elevation")
