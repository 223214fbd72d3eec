"""Ground below a map: shaded relief and contours of an elevation layer."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import contourpy
import numpy as np
import scipy  # submodules load on first use: most queries need none
import shapely
from numpy.typing import NDArray

from hypergrid.layers.layer import Layer, interpolate_bilinear

Floats = NDArray[np.float64]
Extent = tuple[float, float, float, float]
"""West, south, east and north of a map [degree or m]."""

METRES_PER_DEGREE: Final = 111_195.0
"""Length of a degree of latitude on the sphere of the earth's mean radius [m]."""
UNKNOWN: Final = 0
"""Shade of cells without an elevation; the others are 1 to 255."""
FLAT: Final = math.sin(math.radians(45.0))
"""Brightness of level ground under a light 45 degree above the horizon [0 to 1]."""
MOST_LEVELS: Final = 12
"""Most contour levels of a map."""
LEAST_INTERVAL_M: Final = 1.0
_ROUND: Final = (1.0, 2.0, 5.0)
"""Leading digits of contour intervals."""
# Between them a plain shows its rises, and mountains do not turn black.
_EXAGGERATION: Final = (0.4, 12.0)
"""Least and greatest factor on the heights of a relief."""
_STEEP: Final = 0.6
"""Slope to which the steepest twentieth of a map is exaggerated or reduced."""
_SAMPLES: Final = 4
"""Cells of a finer layer averaged along each side of a map's cell, at most."""
_SMOOTHEST: Final = 40.0
"""Cells of a map over which a coarser layer is smoothed, at most."""
_SHORTEST: Final = 4.0
"""Contours shorter than this are left out [cells]."""
_APART: Final = 5.5
"""Mean distance of contours at least [cells]: in rugged ground fewer levels are drawn."""
_SIMPLER: Final = 0.4
"""Distance within which contours are simplified [cells]."""


@dataclass(frozen=True, eq=False)
class Contour:
    """One line of equal elevation."""

    level_m: float
    x: Floats
    """Longitudes [degree] or x [m] of its vertices, shape (vertices,)."""
    y: Floats


@dataclass(frozen=True, eq=False)
class Ground:
    """Shaded relief and contours of an extent."""

    extent: Extent
    shade: NDArray[np.uint8]
    """Brightness, 1 (dark) to 255; level ground has 1 + 254 `FLAT`; `UNKNOWN` if missing. Rows from the south, shape
    (rows, columns)."""
    interval_m: float
    """Difference of neighbouring contour levels, 1, 2 or 5 times a power of ten; 0 without contours."""
    contours: tuple[Contour, ...]


def make_ground(layer: Layer, extent: Extent, *, columns: int) -> Ground:
    """Shade the relief of an elevation layer and draw its contours.

    The light is in the north-west (Horn 1981, Proc. IEEE 69, equation 2 and section IV-A).

    Parameters
    ----------
    layer
        Elevations [m].
    extent
        West, south, east and north of the map, in the layer's coordinates [degree or m].
    columns
        Number of columns of the relief; its rows make cells about square on the ground.
    """
    west, south, east, north = extent
    x_m, y_m = _metres_per_unit(layer, extent)
    rows = round(columns * (north - south) * y_m / ((east - west) * x_m))
    rows = min(max(rows, 2), 2 * columns)
    step = (east - west) / columns, (north - south) / rows
    x, y = west + _find_centres(columns) * step[0], south + _find_centres(rows) * step[1]
    heights = _smooth(_sample(layer, x=x, y=y, step=step), layer, step)
    shade = _shade(heights, across_m=step[0] * x_m, along_m=step[1] * y_m)
    interval_m, lines = 0.0, list[tuple[float, shapely.LineString]]()
    for interval_m in _list_intervals(heights):
        lines = list(_trace_contours(heights, interval_m))
        if sum(line.length for _, line in lines) * _APART <= heights.size:
            break
    contours = (
        Contour(level, _to_coordinates(x, cells[:, 0]), _to_coordinates(y, cells[:, 1]))
        for level, line in lines
        for cells in [shapely.get_coordinates(line.simplify(_SIMPLER))]
    )
    return Ground(extent, shade, interval_m, tuple(contours))


def _find_centres(count: int) -> Floats:
    return np.arange(count, dtype=np.float64) + 0.5


def _metres_per_unit(layer: Layer, extent: Extent) -> tuple[float, float]:
    """Return the length of a unit of x and y in the middle of an extent [m]."""
    if layer.system == "metres":
        return 1.0, 1.0
    shrink = math.cos(math.radians((extent[1] + extent[3]) / 2))
    # Bounded, as the cosine vanishes at the poles.
    return METRES_PER_DEGREE * max(shrink, 0.05), METRES_PER_DEGREE


def _sample(layer: Layer, *, x: Floats, y: Floats, step: tuple[float, float]) -> Floats:
    """Return mean elevations of cells around centres, shape (rows, columns); NaN outside the layer."""
    turn = 0.0
    if layer.system == "lonlat":
        turn = 360.0 * round(((x[0] + x[-1]) - (layer.x[0] + layer.x[-1])) / 720.0)
    columns, x_blocks = _average_axis(layer.x, x - turn, step[0])
    rows, y_blocks = _average_axis(layer.y, y, step[1])
    if len(x_blocks) < 2 or len(y_blocks) < 2:
        return np.full((len(y), len(x)), np.nan)
    cells = layer.values[np.ix_(rows, columns)].reshape(len(y_blocks), -1, len(x_blocks), len(columns) // len(x_blocks))
    known = np.isfinite(cells)
    sums, counts = cells.sum(axis=(1, 3), where=known), known.sum(axis=(1, 3))
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    column, row = np.meshgrid(_find_places(x_blocks, x - turn), _find_places(y_blocks, y))
    return interpolate_bilinear(means, row=row.ravel(), column=column.ravel()).reshape(len(y), len(x))


def _average_axis(centres: Floats, wanted: Floats, step: float) -> tuple[NDArray[np.intp], Floats]:
    """Choose the cells of a layer along one axis, in blocks about as long as a step of the map.

    Returns
    -------
    Indices of the cells, and the centre of each block; the blocks are equally long.
    """
    own = float(centres[1] - centres[0])
    ratio = max(1, int(step / own))
    stride = math.ceil(ratio / _SAMPLES)
    length = max(1, round(ratio / stride))
    around = 2 * stride * length
    first = max(math.floor((wanted[0] - centres[0]) / own) - around, 0)
    last = min(math.ceil((wanted[-1] - centres[0]) / own) + around, len(centres) - 1)
    cells = np.arange(first, last + 1, stride)
    cells = cells[: len(cells) // length * length]
    return cells, centres[cells].reshape(-1, length).mean(axis=1)


def _find_places(blocks: Floats, wanted: Floats) -> Floats:
    """Return positions in cells from the centre of the first block."""
    return np.asarray((wanted - blocks[0]) / (blocks[1] - blocks[0]))


def _smooth(heights: Floats, layer: Layer, step: tuple[float, float]) -> Floats:
    """Smooth elevations, so that a coarse layer shows no facets; missing ones have no weight and stay missing."""
    sigma = [
        0.6 * min(max(own / cell, 1.0), _SMOOTHEST) for own, cell in zip(layer.step[::-1], step[::-1], strict=True)
    ]
    known = np.isfinite(heights)
    weights = scipy.ndimage.gaussian_filter(known.astype(np.float64), sigma, mode="nearest")
    sums = scipy.ndimage.gaussian_filter(np.where(known, heights, 0.0), sigma, mode="nearest")
    return np.asarray(np.divide(sums, weights, out=np.full(heights.shape, np.nan), where=known))


def _shade(heights: Floats, *, across_m: float, along_m: float) -> NDArray[np.uint8]:
    """Return the brightness of each cell under a light from the north-west."""
    along, across = np.gradient(heights, along_m, across_m)
    slopes = np.hypot(across, along)
    known = np.isfinite(slopes)
    if not known.any():
        return np.full(heights.shape, UNKNOWN, np.uint8)
    steep = float(np.quantile(slopes[known], 0.95))
    factor = min(max(_STEEP / steep, _EXAGGERATION[0]), _EXAGGERATION[1]) if steep > 0.0 else 1.0
    facing = factor * (across - along) / math.sqrt(2.0)
    bright = np.clip(FLAT * (1.0 + facing) / np.hypot(1.0, factor * slopes), 0.0, 1.0)
    return np.where(known, 1.0 + np.rint(254.0 * np.where(known, bright, 0.0)), UNKNOWN).astype(np.uint8)


def _list_intervals(heights: Floats) -> list[float]:
    """Return the round intervals that give at most `MOST_LEVELS` levels, and one at least [m]; the least first."""
    known = heights[np.isfinite(heights)]
    span = float(np.ptp(known)) if len(known) else 0.0
    if span < LEAST_INTERVAL_M:
        return []
    power = math.floor(math.log10(span / MOST_LEVELS))
    steps = (digit * 10.0**exponent for exponent in range(power, power + 3) for digit in _ROUND)
    wanted = (max(step, LEAST_INTERVAL_M) for step in steps if span / MOST_LEVELS <= step <= span)
    return list(dict.fromkeys(wanted)) or [LEAST_INTERVAL_M]


def _trace_contours(heights: Floats, interval_m: float) -> Iterator[tuple[float, shapely.LineString]]:
    """Yield level [m] and line, in cells, of the contours at multiples of an interval, from the lowest level."""
    # In cells: distances are equal in both directions.
    generator = contourpy.contour_generator(z=heights, line_type=contourpy.LineType.Separate)
    first, last = (math.floor(float(edge) / interval_m) for edge in (np.nanmin(heights), np.nanmax(heights)))
    for number in range(first + 1, last + 1):
        for vertices in generator.lines(number * interval_m):
            line = shapely.LineString(vertices)
            if line.length >= _SHORTEST:
                yield number * interval_m, line


def _to_coordinates(centres: Floats, cells: Floats) -> Floats:
    """Convert positions in cells to coordinates, as exact as a tenth of a cell needs."""
    step = float(centres[1] - centres[0])
    return np.asarray(np.round(centres[0] + step * cells, max(0, 1 - math.floor(math.log10(step)))))
