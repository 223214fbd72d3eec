"""Rasters (GeoTIFF and whatever else GDAL reads) as layers in longitude and latitude."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyproj
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidLayer, NotFound, TooLarge
from hypergrid.layers.layer import Layer, make_layer
from hypergrid.layers.regrid import AROUND, Bounds, RasterFrame, make_target_grid, resample

if TYPE_CHECKING:
    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

MAX_CELLS: Final = 100_000_000
"""Cells of a layer, and of the part of a raster that one is read from: 0.8 GB, of which reading takes three times."""

LONLAT: Final = "EPSG:4326"
_CROP: Final = "crop it with --bounds WEST SOUTH EAST NORTH (bounds=…), for example around the stations"
Floats = NDArray[np.float64]


def read_raster(
    path: str | Path,
    *,
    name: str,
    unit: str | None = None,
    band: int | None = None,
    bounds: Bounds | None = None,
    crs: str | None = None,
    most_cells: int = MAX_CELLS,
) -> Layer:
    """Return a band of a raster as a layer.

    A raster in EPSG:4326 is taken cell by cell; another is interpolated bilinearly onto a grid of about its own
    resolution, beside holes by the nearest cell. What the raster marks as no data is NaN; a scale and an offset that it
    states are applied. The values are taken as quantities: codes, as of land cover, would be averaged.

    Parameters
    ----------
    path
        The raster.
    name
        Name of the layer; "elevation" is converted to metres.
    unit
        Unit of the values; None: what the raster states.
    band
        Which band, from 1; needed where there are several.
    bounds
        West, south, east, north [degree]: only the cells that touch them, and one more around; None: all.
    crs
        Coordinate reference system of a raster that states none, such as "EPSG:2056".
    most_cells
        Cells above which it is refused.

    Raises
    ------
    NotFound
        There is no such file, or no such band.
    InvalidLayer
        No raster, no coordinate reference system, several bands and none chosen, no cell within the bounds, no value.
    InvalidUnit
        The unit is unknown, or does not convert.
    TooLarge
        It has too many cells.
    """
    import rasterio  # noqa: PLC0415 - GDAL takes a tenth of a second to load, and only this command needs it
    from rasterio.errors import RasterioError  # noqa: PLC0415

    if not Path(path).exists():
        message = f"the raster {path} does not exist; give a file that GDAL reads, such as a GeoTIFF"
        raise NotFound(message)
    if bounds is not None:
        _check_bounds(bounds)
    try:
        with rasterio.open(path) as raster:
            number = _check_band(raster, band)
            system = _read_system(raster, crs)
            values, x, y, how = _read_cells(raster, number, system, bounds, most_cells)
            stated = raster.units[number - 1]
    except RasterioError as error:
        message = f"{path} cannot be read as a raster: {error}; give a file that GDAL reads, such as a GeoTIFF"
        raise InvalidLayer(message) from error
    description = f"{Path(path).name}, band {number}, {_describe_system(system)}, {how}"
    return make_layer(name, x=x, y=y, values=values, unit=unit or stated, description=description)


def _check_bounds(bounds: Bounds) -> None:
    west, south, east, north = bounds
    if not (all(map(math.isfinite, bounds)) and west < east and south < north):
        message = f"bounds need west below east and south below north [degree]; got {bounds}; order them so"
        raise InvalidLayer(message)


def _check_band(raster: "DatasetReader", band: int | None) -> int:
    if band is None:
        if raster.count != 1:
            message = f"{raster.name} has {raster.count} bands; a layer is one of them; choose it with --band (band=…)"
            raise InvalidLayer(message)
        return 1
    if band not in raster.indexes:
        raise NotFound.among(kind="band", given=band, existing=raster.indexes)
    return band


def _read_system(raster: "DatasetReader", given: str | None) -> "CRS":
    from rasterio.crs import CRS  # noqa: PLC0415 - as above

    if raster.crs:
        return raster.crs
    if given is None:
        message = (
            f"{raster.name} states no coordinate reference system, so nobody knows where it lies; "
            "give it with --crs (crs=…), for example EPSG:2056"
        )
        raise InvalidLayer(message)
    try:
        return CRS.from_user_input(given)
    except ValueError as error:  # CRSError is one
        message = f"unknown coordinate reference system {given!r}: {error}; give one that exists, such as EPSG:2056"
        raise InvalidLayer(message) from error


def _read_cells(
    raster: "DatasetReader", band: int, system: "CRS", bounds: Bounds | None, most_cells: int
) -> tuple[Floats, Floats, Floats, str]:
    """Return values, x and y of the centres, and how they came to be."""
    whole = RasterFrame(tuple(raster.transform)[:6], raster.height, raster.width)
    a, b, c, d, e, f = whole.transform
    if system.to_epsg() == 4326 and b == d == 0.0 and a > 0.0:
        rows, columns = slice(0, whole.rows), slice(0, whole.columns)
        if bounds is not None:
            rows, columns = whole.window(bounds, margin=AROUND)
        values = _read_values(raster, band, rows, columns, most_cells=most_cells, bounds=bounds)
        x = c + a * (np.arange(columns.start, columns.stop, dtype=np.float64) + 0.5)
        y = f + e * (np.arange(rows.start, rows.stop, dtype=np.float64) + 0.5)
        return values, x, y, "cell by cell"
    try:
        there = pyproj.Transformer.from_crs(LONLAT, system.to_wkt(version="WKT2_2019"), always_xy=True)
        onto = make_target_grid(whole, there, bounds)
    except (pyproj.exceptions.ProjError, OverflowError) as error:
        message = (
            f"{raster.name} in {_describe_system(system)} cannot be placed on the earth: {error}; reproject it to "
            f"{LONLAT}"
        )
        raise InvalidLayer(message) from error
    _check_size(raster, *onto.shape, most_cells=most_cells, bounds=bounds)
    source = _read_values(raster, band, onto.rows, onto.columns, most_cells=most_cells, bounds=bounds)
    values = resample(source, whole.part(onto.rows, onto.columns), there, onto)
    how = f"bilinear to {LONLAT} at {onto.steps[0]:.3g} x {onto.steps[1]:.3g} degree"
    return values, onto.lon, onto.lat, how


def _describe_system(system: "CRS") -> str:
    code = system.to_epsg()
    return f"EPSG:{code}" if code else "a system of its own"


def _read_values(
    raster: "DatasetReader", band: int, rows: slice, columns: slice, *, most_cells: int, bounds: Bounds | None
) -> Floats:
    height, width = rows.stop - rows.start, columns.stop - columns.start
    _check_size(raster, height, width, most_cells=most_cells, bounds=bounds)
    masked: Any = raster.read(band, window=((rows.start, rows.stop), (columns.start, columns.stop)), masked=True)
    values = np.asarray(masked.astype(np.float64).filled(np.nan))
    scaled: Floats = values * raster.scales[band - 1] + raster.offsets[band - 1]
    return scaled


def _check_size(raster: "DatasetReader", rows: int, columns: int, *, most_cells: int, bounds: Bounds | None) -> None:
    if not rows or not columns:
        held = tuple(round(edge, 6) for edge in raster.bounds)
        message = (
            f"{raster.name} has no cell within the bounds {bounds}; it reaches over {held} in its own coordinates; "
            "give bounds in degrees that it covers"
        )
        raise InvalidLayer(message)
    if rows * columns > most_cells:
        label = f"layer from {raster.name}"
        raise TooLarge(label, "cells", rows * columns, most_cells, _CROP)
