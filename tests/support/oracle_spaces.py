"""Space as an oracle sees it: cells of a grid one by one, zones by pieces of polygons, estimates point by point."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

from hypergrid.topology import quanta
from tests.support.feeds import Sensor
from tests.support.kriging_oracle import Estimate, Point, around, estimate, nearest, plane
from tests.support.oracle_aggregates import BY_AREA, WEIGHED
from tests.support.oracle_times import Block
from tests.support.own_functions import OWN_METHODS

COINCIDENT_M = 1e-6
"""Nearer than this, a station stands at a point [m]."""
FEWEST_OF_TREND = 4
"""Stations that a lapse rate needs."""
LEAST_SPAN_M = 50.0
"""Elevation that they need to span [m]."""
SLIVER = 1e-9
"""Share of a cell up to which it is the rounding of an edge."""


STRIP_DEGREE = 0.0008
"""Height of a strip whose width is that in its middle, to 1e-11 [degree]."""

Ring = Sequence[Point]
Place = tuple[Block, ...]
"""Cells along the axes that a place of a grid, or of bands, has; slowest first."""


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


def quantum(name: str) -> Any:  # noqa: ANN401 - one of two texts
    """Return the quantum of a dimension in space."""
    return "uas" if name in ("lat", "lon") else "mm"


def axis_cells(name: str, spec: Any, axis: list[Block]) -> list[Block]:  # noqa: ANN401 - a step's cells are JSON
    """Return the cells that a step asks for along an axis of a grid; as they are where it asks for none."""
    if spec is None:
        return axis
    if name == "z":
        return levels(spec, (axis[0][0], axis[-1][1]))
    if spec == "all":
        return [(axis[0][0], axis[-1][1])]
    step = quanta(spec, quantum(name), "cells")
    return [(start, start + step) for start in range(axis[0][0] // step * step, axis[-1][1], step)]


def levels(spec: Any, over: Block = (0, 0)) -> list[Block]:  # noqa: ANN401 - a step's cells are JSON
    """Return levels or bands [mm]: at heights, of edges [m], of a start and a step, or over something in steps."""
    if spec == "all":
        return [over]
    if isinstance(spec, list | tuple):
        gaps = [min((abs(other - high) for other in spec if other != high), default=1) for high in spec]
        return [(high * 1000 - gap * 500, high * 1000 + gap * 500) for high, gap in zip(spec, gaps, strict=True)]
    if isinstance(spec, Mapping) and "edges" in spec:
        return list(pairwise(edge * 1000 for edge in spec["edges"]))
    if isinstance(spec, Mapping):
        start, step = spec["start"] * 1000, spec["step"] * 1000
        return [(start + i * step, start + (i + 1) * step) for i in range(spec["count"])]
    step = spec * 1000
    return [(start, start + step) for start in range(over[0] // step * step, over[1], step)]


def coarser(place: Place, axes: Mapping[str, list[Block]], *, by_size: bool) -> Covered:
    """Return which cells of a grid lie in a coarser one, perhaps weighted: by the slab of a ball, and by height."""
    places = list(product(*axes.values()))
    sources = [i for i, cells in enumerate(places) if all(map(_within, cells, place))]
    weights = [math.prod(map(_size, axes, places[i])) if by_size else 1.0 for i in sources]
    possible = math.prod(map(_possible, axes.values(), place))
    return Covered(sources, weights, possible)


def in_band(band: Block, heights_m: Sequence[float]) -> Covered:
    """Return what lies in a band of elevation, each like the other; what has no known height is in none."""
    sources = [i for i, high in enumerate(heights_m) if math.isfinite(high) and band[0] <= round(high * 1000) < band[1]]
    return Covered(sources, [1.0] * len(sources), len(sources))


def _size(name: str, cell: Block) -> float:
    """Return what a cell along an axis has of its size, up to a factor that is the same for all."""
    if name == "lat":
        return math.sin(math.radians(cell[1] / 3.6e9)) - math.sin(math.radians(cell[0] / 3.6e9))
    return float(cell[1] - cell[0])


def _possible(axis: Sequence[Block], cell: Block) -> int:
    """Return how many cells of an axis a cell could hold.

    An axis goes on for ever where its cells are all alike; given edges, which make them differ, are all that there are.
    """
    lengths = {end - start for start, end in axis}
    return sum(_within(part, cell) for part in axis) if len(lengths) > 1 else (cell[1] - cell[0]) // lengths.pop()


def _within(part: Block, cell: Block) -> bool:
    return cell[0] <= part[0] and part[1] <= cell[1]


def in_zone(geometry: Mapping[str, Any], places: Sequence[Place], function: str, *, is_lonlat: bool) -> Covered:
    """Return what a zone takes of the cells of a grid: for what weighs them every piece, else those of half or more."""
    unit = 3.6e9 if is_lonlat else 1e3
    pieces: dict[int, tuple[float, float]] = {}
    for number, (*_, row, column) in enumerate(places):
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
    weights = [area if function in BY_AREA else share for area, share in pieces.values()]
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
    variances: list[list[float]]
    """NaN where a method has none."""
    counts: list[list[int]]
    most: int
    """Stations that an estimate may be from."""


def interpolated(
    method: str, given: Mapping[str, Any], slices: Sequence[Sequence[float]], sensors: Sequence[Sensor],
    centres: Sequence[Point], heights_m: Sequence[float], ground: Callable[[float, float], float] | None,
    *, is_lonlat: bool,
) -> Estimates:  # fmt: skip
    """Return the estimates at points from the sensors that have a position and a value.

    Where heights matter, a sensor has its own or that of the ground, and one without any is left out.

    Parameters
    ----------
    method, given
        The method and its parameters.
    slices
        Values of the sensors, slice by slice.
    sensors
        Where they are.
    centres, heights_m
        The points, and how high they are [m].
    ground
        Elevation [m] at x and y; None where it is not known.
    """
    located = [i for i, sensor in enumerate(sensors) if math.isfinite(sensor.x) and math.isfinite(sensor.y)]
    # The plane is around all that have a place, also those of which no height is known.
    everyone_m, points_m = plane([(sensors[i].x, sensors[i].y) for i in located], centres, is_lonlat=is_lonlat)
    known = dict.fromkeys(located, 0.0)
    trend, is_drifting = given.get("trend"), method == "external_drift_kriging"
    if trend or is_drifting:
        known = {i: _height(sensors[i], ground) for i in located}
    placed = [i for i in located if math.isfinite(known[i])]
    stations_m, own_m = [everyone_m[located.index(i)] for i in placed], [known[i] for i in placed]
    middle_m = math.fsum(own_m) / len(own_m) if own_m else 0.0
    most = min(1 if method == "nearest" else given.get("neighbours") or len(placed), len(placed))
    found = Estimates([], [], [], most)
    for line in slices:
        rate = _rate(trend, own_m, [line[i] for i in placed])
        heard = [number for number, i in enumerate(placed) if math.isfinite(line[i])]
        present = [(stations_m[n], line[placed[n]] - rate * (own_m[n] - middle_m)) for n in heard]
        estimates = []
        for point, height in zip(points_m, heights_m, strict=True):
            rises = [own_m[n] - height for n in heard] if is_drifting else None
            here = _at(method, given, present, point, most, rises)
            estimates.append(here._replace(value=here.value + (rate * (height - middle_m) if trend else 0.0)))
        found.values.append([each.value for each in estimates])
        found.variances.append([each.variance for each in estimates])
        found.counts.append([each.stations for each in estimates])
    return found


def _height(sensor: Sensor, ground: Callable[[float, float], float] | None) -> float:
    return sensor.elevation_m if math.isfinite(sensor.elevation_m) or ground is None else ground(sensor.x, sensor.y)


def _rate(trend: Any, heights_m: Sequence[float], values: Sequence[float]) -> float:  # noqa: ANN401 - JSON
    """Return how much values grow with height [1/m]: as given, or by least squares where enough report."""
    if isinstance(trend, Mapping):
        return float(trend["lapse_rate"]) / 1000
    known = [(high, value) for high, value in zip(heights_m, values, strict=True) if math.isfinite(value)]
    highs = [high for high, _ in known]
    if not trend or len(known) < FEWEST_OF_TREND or max(highs) - min(highs) < LEAST_SPAN_M:
        return 0.0
    return statistics.linear_regression(highs, [value for _, value in known]).slope


def _at(
    method: str, given: Mapping[str, Any], present: Sequence[tuple[Point, float]], point: Point, maximum: int,
    rises_m: Sequence[float] | None,
) -> Estimate:  # fmt: skip
    radius_m = given.get("radius_m", math.inf)
    if method == "simple_kriging":
        return around(given["mean"], present, point, given["variogram"], maximum, radius_m)
    if method in OWN_METHODS:
        selects, value_of = OWN_METHODS[method]
        offsets = [(value, x - point[0], y - point[1]) for (x, y), value in present]
        used = [each for each in offsets if selects(*each[1:])]
        own = {name: number for name, number in given.items() if name == "tilt"}
        return Estimate(value_of(used, **own) if used else math.nan, math.nan, len(used))
    if "kriging" in method:
        return estimate(present, point, given["variogram"], maximum, radius_m, rises_m)
    near = [(math.dist(present[i][0], point), present[i][1]) for i in nearest(present, point, maximum, radius_m)]
    if not near:
        return Estimate(math.nan, math.nan, 0)
    here = [value for distance, value in near if distance <= COINCIDENT_M]
    if here:
        return Estimate(math.fsum(here) / len(here), math.nan, len(near))
    weights = [distance ** -given.get("power", 2.0) for distance, _ in near]
    total = math.fsum(weights)
    value = math.fsum(weight / total * value for weight, (_, value) in zip(weights, near, strict=True))
    return Estimate(value, math.nan, len(near))
