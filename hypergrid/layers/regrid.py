"""Cells of any coordinate reference system, turned or not, interpolated onto regular longitudes and latitudes."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyproj
from numpy.typing import NDArray

from hypergrid.layers.layer import interpolate_bilinear

Floats = NDArray[np.float64]
Bounds = tuple[float, float, float, float]
"""West, south, east, north, or the least x and y, then the greatest."""

AROUND: Final = 1
"""Cells that a part has beyond its bounds, so that between its centres it is there what the whole would be."""
_MARGIN: Final = 3
"""Cells of the source that are read beyond the bounds, so that these have their neighbours in turn."""
_BLOCK_CELLS: Final = 500_000


@dataclass(frozen=True)
class RasterFrame:
    """Where the cells of an image lie: x = a column + b row + c and y = d column + e row + f, from the outer corner."""

    transform: tuple[float, float, float, float, float, float]
    """a to f [the system's unit]."""
    rows: int
    columns: int

    def places(self, column: Floats, row: Floats) -> tuple[Floats, Floats]:
        """Return x and y of places that are counted in cells from the corner."""
        a, b, c, d, e, f = self.transform
        return a * column + b * row + c, d * column + e * row + f

    def cells(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Return column and row of places, counted in cells from the corner; NaN where a place is not finite."""
        a, b, c, d, e, f = self.transform
        known = np.isfinite(x) & np.isfinite(y)
        across, along = np.where(known, x, np.nan) - c, np.where(known, y, np.nan) - f
        area = a * e - b * d
        return (e * across - b * along) / area, (a * along - d * across) / area

    def part(self, rows: slice, columns: slice) -> "RasterFrame":
        """Return the frame of a window."""
        a, b, c, d, e, f = self.transform
        corner = (a * columns.start + b * rows.start + c, d * columns.start + e * rows.start + f)
        return RasterFrame((a, b, corner[0], d, e, corner[1]), rows.stop - rows.start, columns.stop - columns.start)

    def window(self, bounds: Bounds, *, margin: int) -> tuple[slice, slice]:
        """Return rows and columns that touch bounds in the frame's own coordinates; empty where none does."""
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
    """Cells in longitude and latitude for the cells of a frame; they begin at multiples of a step.

    So a part of an image has the same cells as the whole.
    """

    rows: slice
    """Rows and columns of the frame that are needed."""
    columns: slice
    steps: tuple[float, float]
    """Sides of a cell along longitude and latitude [degree]: about those of the source."""
    first: tuple[int, int]
    """Steps from 0 to the first cell."""
    shape: tuple[int, int]
    """Rows and columns; 0 where the bounds miss the frame."""

    @property
    def lon(self) -> Floats:
        """Centres [degree], shape (columns,)."""
        return (self.first[0] + np.arange(self.shape[1], dtype=np.float64) + 0.5) * self.steps[0]

    @property
    def lat(self) -> Floats:
        """Centres [degree], ascending, shape (rows,)."""
        return (self.first[1] + np.arange(self.shape[0], dtype=np.float64) + 0.5) * self.steps[1]


def make_target_grid(frame: RasterFrame, there: pyproj.Transformer, bounds: Bounds | None) -> TargetGrid:
    """Return the cells that a frame is interpolated onto.

    Parameters
    ----------
    frame
        Where the source lies.
    there
        From longitude and latitude into the source's system.
    bounds
        Longitudes and latitudes [degree] whose cells are wanted, with `AROUND` more; None: all.

    Raises
    ------
    pyproj.exceptions.ProjError
        The source cannot be placed on the earth.
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
    west, south, east, north = there.transform_bounds(*edges, densify_pts=21, direction="INVERSE", errcheck=True)
    east += 360.0 if east < west else 0.0
    if bounds is not None:
        west, east = max(west, bounds[0] - AROUND * steps[0]), min(east, bounds[2] + AROUND * steps[0])
        south, north = max(south, bounds[1] - AROUND * steps[1]), min(north, bounds[3] + AROUND * steps[1])
    first = math.floor(west / steps[0]), math.floor(south / steps[1])
    count = (math.ceil(north / steps[1]) - first[1], math.ceil(east / steps[0]) - first[0])
    return TargetGrid(rows, columns, steps, first, (max(count[0], 0), max(count[1], 0)))


def _find_native_steps(frame: RasterFrame, there: pyproj.Transformer) -> tuple[float, float]:
    """Return the extent of the middle cell in longitude and latitude [degree], however the image is turned."""
    column, row = frame.columns / 2 + np.array([0.0, 1.0, 0.0]), frame.rows / 2 + np.array([0.0, 0.0, 1.0])
    lon, lat = there.transform(*frame.places(column, row), direction="INVERSE", errcheck=True)
    across = (lon[1:] - lon[0] + 180.0) % 360.0 - 180.0
    return float(np.hypot(*across)), float(np.hypot(*(lat[1:] - lat[0])))


def resample(values: Floats, frame: RasterFrame, there: pyproj.Transformer, onto: TargetGrid) -> Floats:
    """Return values at the centres of a target's cells: bilinear, beside holes those of the nearest cell.

    Every centre is placed exactly: GDAL's own warping places them to an eighth of a cell.

    Parameters
    ----------
    values
        Of the frame, NaN where unknown, shape (rows, columns), two or more of each.
    frame, there, onto
        Where `values` lie, the way from longitude and latitude there, and the cells that are wanted.

    Returns
    -------
    Values, NaN where unknown, shape `onto.shape`.
    """
    resampled, lon, lat = np.empty(onto.shape), onto.lon, onto.lat
    step = max(1, _BLOCK_CELLS // max(1, len(lon)))
    for begin in range(0, len(lat), step):
        block = slice(begin, begin + step)
        x, y = there.transform(*np.meshgrid(lon, lat[block]))
        column, row = frame.cells(x.ravel(), y.ravel())
        between = interpolate_bilinear(values, row=row - 0.5, column=column - 0.5)
        # Beside a hole, such as the sea, a cell keeps what the source has there; else a coast would retreat by a cell.
        between = np.where(np.isnan(between), _sample_nearest(values, row, column), between)
        resampled[block] = between.reshape(-1, len(lon))
    return resampled


def _sample_nearest(values: Floats, row: Floats, column: Floats) -> Floats:
    """Return what the cell around each place holds, NaN outside all."""
    rows, columns = values.shape
    inside = (row >= 0.0) & (row < rows) & (column >= 0.0) & (column < columns)
    at_row, at_column = (np.where(inside, each, 0.0).astype(np.intp) for each in (row, column))
    return np.where(inside, values[at_row, at_column], np.nan)
