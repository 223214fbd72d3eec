"""True areas of grid cells and polygons, on the sphere for longitude and latitude."""

from typing import Final

import numpy as np
import shapely
from numpy.typing import NDArray

from hypergrid.core.geodesy import RADIUS_M
from hypergrid.topology.axes import PER_UNIT, Regular
from hypergrid.topology.space import System

Floats = NDArray[np.float64]

_POLYGON: Final = 3
"""GEOS type id of a polygon."""
_SERIES_BELOW: Final = 1e-2
"""Half a latitude difference [radian] below which the Taylor series is more accurate than the sines."""


def cell_areas(rows: Regular, columns: Regular) -> Floats:
    """Return the area of one cell of each row [m2], shape (rows.count,).

    On the sphere of the earth's mean radius: width [radian] times the difference of the sines of the upper and lower
    latitude. The part of a cell beyond a pole has no area.
    """
    if rows.quantum == "mm":
        return np.full(rows.count, rows.length * columns.length / PER_UNIT["mm"] ** 2)
    pole = 90 * PER_UNIT["uas"]
    low, high = np.clip(rows.corners, -pole, pole), np.clip(rows.corners + rows.length, -pole, pole)
    middle, half = (np.radians(part / (2.0 * PER_UNIT["uas"])) for part in (low + high, high - low))
    width = np.radians(columns.length / PER_UNIT["uas"])
    # The difference of sines as 2 cos(middle) sin(half) loses no digits, even for tiny cells.
    return np.asarray(RADIUS_M**2 * width * 2.0 * np.cos(middle) * np.sin(half))


def polygon_areas(shapes: NDArray[np.object_], system: System) -> Floats:
    """Return the areas of polygons [m2], shape (shapes,); line and point parts have no area.

    Edges are straight in the given coordinates. In longitude and latitude, Green's theorem gives the area on the unit
    sphere as the integral of sin(latitude) over longitude along the rings. The mean sine along an edge is
    sin(m) sin(h) / h, with m the mean of its end latitudes and h half their difference; this is exact for any length.
    """
    shapes = np.asarray(shapes, dtype=object)
    if system == "metres":
        return np.asarray(shapely.area(shapes), np.float64)
    # Twice: a geometry collection may contain multipolygons.
    parts, owner = shapely.get_parts(shapes, return_index=True)
    parts, inner = shapely.get_parts(parts, return_index=True)
    owner = owner[inner]
    flat = shapely.get_type_id(parts) == _POLYGON
    rings, polygon = shapely.get_rings(parts[flat], return_index=True)
    if not len(rings):
        return np.zeros(len(shapes))
    areas = np.abs(_ring_integrals(rings))
    # `get_rings` lists the shell of a polygon first, then its holes.
    is_hole = np.append(False, polygon[1:] == polygon[:-1])
    signed = np.where(is_hole, -areas, areas)
    return np.asarray(RADIUS_M**2 * np.bincount(owner[flat][polygon], signed, len(shapes)), np.float64)


def _ring_integrals(rings: NDArray[np.object_]) -> Floats:
    points, ring = shapely.get_coordinates(rings, return_index=True)
    places = np.radians(points)
    first = np.searchsorted(ring, np.arange(len(rings)))
    edges = np.flatnonzero(ring[1:] == ring[:-1])
    of = ring[edges]
    width = places[edges + 1, 0] - places[edges, 0]
    # The integral of a constant along a closed ring is 0. Sines relative to the first vertex keep the digits of
    # small rings.
    start = places[first[of], 1]
    low, high = places[edges, 1], places[edges + 1, 1]
    middle, half = (low + high) / 2, (high - low) / 2
    rise = 2.0 * np.cos((middle + start) / 2) * np.sin((middle - start) / 2)
    sines = rise + np.sin(middle) * _sinc_less_1(half)
    return np.asarray(np.bincount(of, width * sines, len(rings)), np.float64)


def _sinc_less_1(half: Floats) -> Floats:
    square = half**2
    series = -square / 6 * (1 - square / 20 * (1 - square / 42))
    # numpy defines sinc(x) as sin(pi x) / (pi x).
    return np.where(np.abs(half) < _SERIES_BELOW, series, np.sinc(half / np.pi) - 1.0)
