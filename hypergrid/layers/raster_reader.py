"""Read rasters (GeoTIFF and other GDAL formats) as layers in longitude and latitude."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyproj
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidLayer, NotFound, TooLarge
from hypergrid.layers.layer import Layer, interpolate_bilinear

if TYPE_CHECKING:
    from rasterio.crs import CRS
    from rasterio.io import DatasetReader

Floats = NDArray[np.float64]


Bounds = tuple[float, float, float, float]
"""West, south, east, north; or least x and y, greatest x and y."""

AROUND: Final = 1
"""Extra cells around the bounds; they make interpolation in a part equal to that in the whole."""
_MARGIN: Final = 3
"""Extra source cells read around the bounds, as neighbours for the extra target cells."""
_BLOCK_CELLS: Final = 500_000


@dataclass(frozen=True)
class RasterFrame:
    """Affine frame of an image, from its outer corner.

    x = a column + b row + c, y = d column + e row + f
    """

    transform: tuple[float, float, float, float, float, float]
    """a to f [the system's unit]."""
    rows: int
    columns: int

    def places(self, column: Floats, row: Floats) -> tuple[Floats, Floats]:
        """Convert positions in cells from the corner to x and y."""
        a, b, c, d, e, f = self.transform
        return a * column + b * row + c, d * column + e * row + f

    def cells(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Convert x and y to column and row from the corner; NaN unless finite."""
        a, b, c, d, e, f = self.transform
        known = np.isfinite(x) & np.isfinite(y)
        across, along = np.where(known, x, np.nan) - c, np.where(known, y, np.nan) - f
        area = a * e - b * d
        return (e * across - b * along) / area, (a * along - d * across) / area

    def part(self, rows: slice, columns: slice) -> "RasterFrame":
        a, b, c, d, e, f = self.transform
        corner = (a * columns.start + b * rows.start + c, d * columns.start + e * rows.start + f)
        return RasterFrame((a, b, corner[0], d, e, corner[1]), rows.stop - rows.start, columns.stop - columns.start)

    def window(self, bounds: Bounds, *, margin: int) -> tuple[slice, slice]:
        """Return the rows and columns that touch bounds in the frame's coordinates, or none."""
        least_x, least_y, most_x, most_y = bounds
        x = np.array([least_x, least_x, most_x, most_x])
        y = np.array([least_y, most_y, least_y, most_y])
        columns, rows = self.cells(x, y)
        return _find_span(rows, self.rows, margin), _find_span(columns, self.columns, margin)


def _find_span(positions: Floats, count: int, margin: int) -> slice:
    if not np.isfinite(positions).all():
        return slice(0, 0)
    first = min(max(math.floor(positions.min()) - margin, 0), count)
    return slice(first, max(min(math.ceil(positions.max()) + margin, count), first))


@dataclass(frozen=True)
class TargetGrid:
    """Cells in longitude and latitude that a frame is resampled to.

    They begin at multiples of a step, so a part of an image has the same cells as the whole.
    """

    rows: slice
    """Source rows and columns that are needed."""
    columns: slice
    steps: tuple[float, float]
    """Cell size in longitude and latitude [degree], close to that of the source."""
    first: tuple[int, int]
    """Index of the first cell, counted in steps from 0 degree."""
    shape: tuple[int, int]
    """Rows and columns; 0 if the bounds miss the frame."""

    @property
    def lon(self) -> Floats:
        """Centres [degree], shape (columns,)."""
        return (self.first[0] + np.arange(self.shape[1], dtype=np.float64) + 0.5) * self.steps[0]

    @property
    def lat(self) -> Floats:
        """Centres [degree], ascending, shape (rows,)."""
        return (self.first[1] + np.arange(self.shape[0], dtype=np.float64) + 0.5) * self.steps[1]


def make_target_grid(frame: RasterFrame, there: pyproj.Transformer, bounds: Bounds | None) -> TargetGrid:
    """Return the cells that a frame is resampled to.

    Parameters
    ----------
    frame
        Frame of the source.
    there
        Transformer from longitude and latitude to the source's system.
    bounds
        Longitudes and latitudes [degree] to cover, plus `AROUND` cells; None: all.

    Raises
    ------
    pyproj.exceptions.ProjError
        The source has no place on the earth.
    """
    rows, columns = slice(0, frame.rows), slice(0, frame.columns)
    if bounds is not None:
        rows, columns = frame.window(there.transform_bounds(*bounds, densify_pts=21), margin=_MARGIN)
    steps = _find_native_steps(frame, there)
    if rows.start == rows.stop or columns.start == columns.stop:
        return TargetGrid(rows, columns, steps, (0, 0), (0, 0))
    corner_column = np.array([0.0, 0.0, 1.0, 1.0]) * (columns.stop - columns.start) + columns.start
    corner_row = np.array([0.0, 1.0, 0.0, 1.0]) * (rows.stop - rows.start) + rows.start
    x, y = frame.places(corner_column, corner_row)
    edges = float(x.min()), float(y.min()), float(x.max()), float(y.max())
    # Straight edges become curves, so points along them are transformed as well.
    west, south, east, north = there.transform_bounds(*edges, densify_pts=21, direction="INVERSE", errcheck=True)
    east += 360.0 if east < west else 0.0
    if bounds is not None:
        west, east = max(west, bounds[0] - AROUND * steps[0]), min(east, bounds[2] + AROUND * steps[0])
        south, north = max(south, bounds[1] - AROUND * steps[1]), min(north, bounds[3] + AROUND * steps[1])
    first = math.floor(west / steps[0]), math.floor(south / steps[1])
    count = (math.ceil(north / steps[1]) - first[1], math.ceil(east / steps[0]) - first[0])
    return TargetGrid(rows, columns, steps, first, (max(count[0], 0), max(count[1], 0)))


def _find_native_steps(frame: RasterFrame, there: pyproj.Transformer) -> tuple[float, float]:
    """Return the extent of the centre cell in longitude and latitude [degree].

    The image may be rotated.
    """
    column, row = frame.columns / 2 + np.array([0.0, 1.0, 0.0]), frame.rows / 2 + np.array([0.0, 0.0, 1.0])
    lon, lat = there.transform(*frame.places(column, row), direction="INVERSE", errcheck=True)
    across = (lon[1:] - lon[0] + 180.0) % 360.0 - 180.0
    return float(np.hypot(*across)), float(np.hypot(*(lat[1:] - lat[0])))


def resample(values: Floats, frame: RasterFrame, there: pyproj.Transformer, onto: TargetGrid) -> Floats:
    """Resample values to the centres of target cells: bilinear, and nearest neighbour beside holes.

    Parameters
    ----------
    values
        Values in the frame, NaN if unknown, shape (rows, columns), two or more of each.
    frame, there, onto
        Frame of the values, transformer from longitude and latitude to it, and the target cells.

    Returns
    -------
    Values, NaN if unknown, shape `onto.shape`.
    """
    # Every centre is transformed exactly; GDAL's own warping is accurate only to an eighth of a cell.
    resampled, lon, lat = np.empty(onto.shape), onto.lon, onto.lat
    # Blocks of rows bound the memory of the coordinates.
    step = max(1, _BLOCK_CELLS // max(1, len(lon)))
    for begin in range(0, len(lat), step):
        block = slice(begin, begin + step)
        x, y = there.transform(*np.meshgrid(lon, lat[block]))
        column, row = frame.cells(x.ravel(), y.ravel())
        between = interpolate_bilinear(values, row=row - 0.5, column=column - 0.5)
        # Beside a hole, such as the sea, the nearest source cell is used; otherwise coasts would retreat by a cell.
        between = np.where(np.isnan(between), _sample_nearest(values, row, column), between)
        resampled[block] = between.reshape(-1, len(lon))
    return resampled


def _sample_nearest(values: Floats, row: Floats, column: Floats) -> Floats:
    """Return the value of the cell around each position, NaN outside."""
    rows, columns = values.shape
    inside = (row >= 0.0) & (row < rows) & (column >= 0.0) & (column < columns)
    at_row, at_column = (np.where(inside, each, 0.0).astype(np.intp) for each in (row, column))
    return np.where(inside, values[at_row, at_column], np.nan)


MAX_CELLS: Final = 100_000_000
"""Maximum cells of a layer, and of the raster window it is read from: 0.8 GB; reading takes three times as much."""

LONLAT: Final = "EPSG:4326"
_CROP: Final = "crop it with --bounds WEST SOUTH EAST NORTH (bounds=…), for example around the stations"


def read_raster(
    path: str | Path,
    *,
    name: str,
    unit: str | None = None,
    band: int | None = None,
    bounds: Bounds | None = None,
    crs: str | None = None,
) -> Layer:
    """Read a band of a raster as a layer.

    A raster in EPSG:4326 is copied cell by cell; others are interpolated bilinearly onto a grid of about their own
    resolution, with the nearest cell beside holes. The raster's no-data value becomes NaN; its scale and offset are
    applied. Values are treated as quantities: class codes, as of land cover, would be averaged.

    Parameters
    ----------
    path
        Raster file.
    name
        Name of the layer; "elevation" is converted to metres.
    unit
        Unit of the values; None: as stated by the raster.
    band
        Band number from 1; required if there are several.
    bounds
        West, south, east, north [degree]: only the cells that touch them, plus one around; None: all.
    crs
        Coordinate reference system of a raster that states none, such as "EPSG:2056".

    Raises
    ------
    NotFound
        The file or the band does not exist.
    InvalidLayer
        Not a raster, no coordinate reference system, several bands and none given, no cell in the bounds, or no value.
    InvalidUnit
        The unit is unknown, or does not convert.
    TooLarge
        The number of cells exceeds `MAX_CELLS`.
    """
    import rasterio  # noqa: PLC0415 - GDAL takes 0.1 s to load, and only this command needs it
    from rasterio.errors import RasterioError  # noqa: PLC0415

    if not Path(path).exists():
        raise NotFound(f"the raster {path} does not exist; give a file that GDAL reads, such as a GeoTIFF")
    if bounds is not None:
        _check_bounds(bounds)
    try:
        with rasterio.open(path) as raster:
            number = _check_band(raster, band)
            system = _read_system(raster, crs)
            values, x, y, how = _read_cells(raster, number, system, bounds)
            stated = raster.units[number - 1]
    except RasterioError as error:
        raise InvalidLayer(
            f"{path} cannot be read as a raster: {error}; give a file that GDAL reads, such as a GeoTIFF"
        ) from error
    description = f"{Path(path).name}, band {number}, {_describe_system(system)}, {how}"
    return Layer(name, x, y, values, unit or stated or "unknown", description=description)


def _check_bounds(bounds: Bounds) -> None:
    west, south, east, north = bounds
    if not (all(map(math.isfinite, bounds)) and west < east and south < north):
        raise InvalidLayer(f"bounds need west below east and south below north [degree]; got {bounds}; order them so")


def _check_band(raster: "DatasetReader", band: int | None) -> int:
    if band is None:
        if raster.count != 1:
            raise InvalidLayer(
                f"{raster.name} has {raster.count} bands; a layer is one of them; choose it with --band (band=…)"
            )
        return 1
    NotFound.refuse_unknown("band", [band], raster.indexes)
    return band


def _read_system(raster: "DatasetReader", given: str | None) -> "CRS":
    from rasterio.crs import CRS  # noqa: PLC0415 - as above

    if raster.crs:
        return raster.crs
    if given is None:
        raise InvalidLayer(
            f"{raster.name} states no coordinate reference system, so nobody knows where it lies; "
            "give it with --crs (crs=…), for example EPSG:2056"
        )
    try:
        return CRS.from_user_input(given)
    except ValueError as error:  # the base class of CRSError
        raise InvalidLayer(
            f"unknown coordinate reference system {given!r}: {error}; give one that exists, such as EPSG:2056"
        ) from error


def _read_cells(
    raster: "DatasetReader", band: int, system: "CRS", bounds: Bounds | None
) -> tuple[Floats, Floats, Floats, str]:
    """Return values, x and y of the centres, and a description of the resampling."""
    whole = RasterFrame(tuple(raster.transform)[:6], raster.height, raster.width)
    a, b, c, d, e, f = whole.transform
    if system.to_epsg() == 4326 and b == d == 0.0 and a > 0.0:
        rows, columns = slice(0, whole.rows), slice(0, whole.columns)
        if bounds is not None:
            rows, columns = whole.window(bounds, margin=AROUND)
        values = _read_values(raster, band, rows, columns, bounds=bounds)
        x = c + a * (np.arange(columns.start, columns.stop, dtype=np.float64) + 0.5)
        y = f + e * (np.arange(rows.start, rows.stop, dtype=np.float64) + 0.5)
        return values, x, y, "cell by cell"
    try:
        there = pyproj.Transformer.from_crs(LONLAT, system.to_wkt(version="WKT2_2019"), always_xy=True)
        onto = make_target_grid(whole, there, bounds)
    except (pyproj.exceptions.ProjError, OverflowError) as error:
        raise InvalidLayer(
            f"{raster.name} in {_describe_system(system)} cannot be placed on the earth: {error}; reproject it to "
            f"{LONLAT}"
        ) from error
    _check_size(raster, *onto.shape, bounds=bounds)
    source = _read_values(raster, band, onto.rows, onto.columns, bounds=bounds)
    values = resample(source, whole.part(onto.rows, onto.columns), there, onto)
    how = f"bilinear to {LONLAT} at {onto.steps[0]:.3g} x {onto.steps[1]:.3g} degree"
    return values, onto.lon, onto.lat, how


def _describe_system(system: "CRS") -> str:
    code = system.to_epsg()
    return f"EPSG:{code}" if code else "a system of its own"


def _read_values(raster: "DatasetReader", band: int, rows: slice, columns: slice, *, bounds: Bounds | None) -> Floats:
    height, width = rows.stop - rows.start, columns.stop - columns.start
    _check_size(raster, height, width, bounds=bounds)
    masked: Any = raster.read(band, window=((rows.start, rows.stop), (columns.start, columns.stop)), masked=True)
    values = np.asarray(masked.astype(np.float64).filled(np.nan))
    return np.asarray(values * raster.scales[band - 1] + raster.offsets[band - 1])


def _check_size(raster: "DatasetReader", rows: int, columns: int, *, bounds: Bounds | None) -> None:
    if not rows or not columns:
        held = tuple(round(edge, 6) for edge in raster.bounds)
        raise InvalidLayer(
            f"{raster.name} has no cell within the bounds {bounds}; it reaches over {held} in its own coordinates; "
            "give bounds in degrees that it covers"
        )
    if rows * columns > MAX_CELLS:
        label = f"layer from {raster.name}"
        raise TooLarge(label, "cells", rows * columns, MAX_CELLS, _CROP)
