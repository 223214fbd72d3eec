"""Space as an oracle sees it: cells of a grid one by one, zones by pieces of polygons, estimates point by point."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from hypergrid.testing.feeds import Sensor
from hypergrid.testing.kriging_oracle import Point, krige, krige_around, plane
from hypergrid.testing.oracle_aggregates import WEIGHED
from hypergrid.testing.oracle_times import Block
from hypergrid.topology import quanta

COINCIDENT_M = 1e-6
"""Nearer than this, a station stands at a point [m]."""
SLIVER = 1e-9
"""Share of a cell up to which it is the rounding of an edge."""


STRIP_DEGREE = 0.0008
"""Height of a strip whose width is that in its middle, to 1e-11 [degree]."""

Ring = Sequence[Point]


@dataclass(frozen=True)
class Covered:
    """What a target cell takes of the places of its source."""

    sources: list[int]
    weights: list[float]
    """What each weighs in a mean or a sum."""
    possible: int
    """Places that a whole target cell would have."""
    held: float | None = None
    """Share of a zone's area that the grid holds; None where coverage counts places."""
    areas: tuple[float, ...] = ()
    """What each counts for in the coverage of a zone."""


def axis_cells(spec: Any, axis: list[Block]) -> list[Block]:  # noqa: ANN401 - a step's cells are JSON
    """Return the cells that a step asks for along an axis of a grid; as they are where it asks for none."""
    if spec is None or not axis:
        return axis
    if spec == "all":
        return [(axis[0][0], axis[-1][1])]
    step = quanta(spec, "uas" if isinstance(spec, str) else "mm", "cells")
    return [(start, start + step) for start in range(axis[0][0] // step * step, axis[-1][1], step)]


def coarser(place: tuple[Block, Block], places: Sequence[tuple[Block, Block]], *, by_area: bool) -> Covered:
    """Return which cells of a grid lie in a coarser one; in longitude and latitude by area each is a slab of a ball."""
    sources = [i for i, (row, column) in enumerate(places) if _within(row, place[0]) and _within(column, place[1])]
    weights = [1.0] * len(sources)
    if by_area:
        weights = [
            math.sin(math.radians(row[1] / 3.6e9)) - math.sin(math.radians(row[0] / 3.6e9))
            for row, _ in (places[i] for i in sources)
        ]
    possible = 1
    for axis in (0, 1):
        (start, stop), (first, end) = place[axis], places[0][axis]
        possible *= (stop - start) // (end - first)
    return Covered(sources, weights, possible)


def _within(part: Block, cell: Block) -> bool:
    return cell[0] <= part[0] and part[1] <= cell[1]


def in_zone(
    geometry: Mapping[str, Any], places: Sequence[tuple[Block, Block]], function: str, *, is_lonlat: bool
) -> Covered:
    """Return what a zone takes of the cells of a grid: for a mean or a sum every piece, else those of half or more."""
    unit = 3.6e9 if is_lonlat else 1e3
    pieces: dict[int, tuple[float, float]] = {}
    for number, (row, column) in enumerate(places):
        west, south, east, north = column[0] / unit, row[0] / unit, column[1] / unit, row[1] / unit
        cell = [(west, south), (east, south), (east, north), (west, north)]
        whole = _area([cell], (west, south, east, north), is_lonlat=is_lonlat)
        piece = _area(geometry["coordinates"], (west, south, east, north), is_lonlat=is_lonlat)
        if piece > SLIVER * whole:
            pieces[number] = piece, piece / whole
    held = math.fsum(area for area, _ in pieces.values()) / _whole_area(geometry["coordinates"], is_lonlat=is_lonlat)
    if function not in WEIGHED:
        most = max(pieces, key=lambda number: pieces[number][1], default=None)
        chosen = [number for number, (_, share) in pieces.items() if share >= 0.5]
        chosen = chosen or ([] if most is None else [most])
        return Covered(chosen, [1.0] * len(chosen), len(chosen), held, (1.0,) * len(chosen))
    weights = [area if function == "mean" else share for area, share in pieces.values()]
    return Covered(list(pieces), weights, len(pieces), held, tuple(area for area, _ in pieces.values()))


def _whole_area(rings: Sequence[Ring], *, is_lonlat: bool) -> float:
    """Return the area of a polygon up to a factor: in longitude and latitude strip by strip."""
    (west, east), (south, north) = ((min(along), max(along)) for along in zip(*rings[0], strict=True))
    strips = max(math.ceil((north - south) / STRIP_DEGREE), 1) if is_lonlat else 1
    high = (north - south) / strips
    return math.fsum(
        _area(rings, (west, south + i * high, east, south + (i + 1) * high), is_lonlat=is_lonlat) for i in range(strips)
    )


def _area(rings: Sequence[Ring], box: tuple[float, float, float, float], *, is_lonlat: bool) -> float:
    """Return the area of the part of a polygon inside a box, up to a factor; the rings after the first are holes.

    On a ball the box is so low that the latitude of a part's middle tells how wide its degrees are.
    """
    west, south, east, north = box
    found = 0.0
    for number, ring in enumerate(rings):
        # From the corner of the box, so that small areas keep their digits.
        part = [(x - west, y - south) for x, y in (ring[:-1] if ring[0] == ring[-1] else ring)]
        for axis, bound, side in ((0, 0.0, 1), (0, east - west, -1), (1, 0.0, 1), (1, north - south, -1)):
            part = _cut(part, axis, bound, side)
        pairs = list(zip(part, [*part[1:], *part[:1]], strict=True))
        twice = math.fsum(x * v - u * y for (x, y), (u, v) in pairs)
        if twice == 0:
            continue
        middle = south + math.fsum((y + v) * (x * v - u * y) for (x, y), (u, v) in pairs) / (3 * twice)
        width = math.cos(math.radians(middle)) if is_lonlat else 1.0
        found += abs(twice) / 2 * width * (-1 if number else 1)
    return found


def _cut(ring: list[Point], axis: int, bound: float, side: int) -> list[Point]:
    """Return the part of a ring on one side of a line (Sutherland and Hodgman, 1974)."""
    kept: list[Point] = []
    for before, here in zip([*ring[-1:], *ring[:-1]], ring, strict=True):
        far, near = (side * (point[axis] - bound) for point in (before, here))
        if (far < 0) != (near < 0):
            share = far / (far - near)
            x, y = (a + share * (b - a) for a, b in zip(before, here, strict=True))
            kept.append((bound, y) if axis == 0 else (x, bound))
        if near >= 0:
            kept.append(here)
    return kept


@dataclass(frozen=True)
class Estimates:
    """Estimates of an interpolation in space, slice by slice, and from how many stations each is."""

    values: list[list[float]]
    counts: list[list[int]]
    most: int
    """Stations that an estimate may be from."""


def interpolated(
    method: str, given: Mapping[str, Any], slices: Sequence[Sequence[float]], sensors: Sequence[Sensor],
    centres: Sequence[Point], *, is_lonlat: bool,
) -> Estimates:  # fmt: skip
    """Return the estimates at points from the sensors that have a position and a value."""
    placed = [i for i, sensor in enumerate(sensors) if math.isfinite(sensor.x) and math.isfinite(sensor.y)]
    stations_m, points_m = plane([(sensors[i].x, sensors[i].y) for i in placed], centres, is_lonlat=is_lonlat)
    most = min(1 if method == "nearest" else given.get("neighbours") or len(placed), len(placed))
    found = Estimates([], [], most)
    for line in slices:
        values = [line[i] for i in placed]
        if "kriging" in method:
            present = sum(map(math.isfinite, values))
            how = krige if method == "ordinary_kriging" else partial(krige_around, given["mean"])
            found.values.append(how(stations_m, values, points_m, given["variogram"], most))
            found.counts.append([min(present, most)] * len(centres))
        else:
            pairs = [_by_distance(stations_m, values, point, most, given) for point in points_m]
            found.values.append([value for value, _ in pairs])
            found.counts.append([count for _, count in pairs])
    return found


def _by_distance(
    stations_m: Sequence[Point], values: Sequence[float], point: Point, most: int, given: Mapping[str, Any]
) -> tuple[float, int]:
    """Return the mean of the nearest stations with a value weighted by inverse distance, and how many these are."""
    near = sorted((math.dist(station, point), value) for station, value in zip(stations_m, values, strict=True)
                  if math.isfinite(value))[:most]  # fmt: skip
    near = [(distance, value) for distance, value in near if distance <= given.get("radius_m", math.inf)]
    if not near:
        return math.nan, 0
    here = [value for distance, value in near if distance <= COINCIDENT_M]
    if here:
        return math.fsum(here) / len(here), len(near)
    weights = [distance ** -given.get("power", 2.0) for distance, _ in near]
    total = math.fsum(weights)
    return math.fsum(weight / total * value for weight, (_, value) in zip(weights, near, strict=True)), len(near)
