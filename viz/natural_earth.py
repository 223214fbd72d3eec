"""Coast, borders and land of Natural Earth, clipped to the extent of a map."""

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.affinity import translate

from hypergrid.layers.ground import METRES_PER_DEGREE, Extent

FOLDER: Final = Path(__file__).parent / "atlas"
"""Files of npm's `world-atlas`, which `make atlas` fetches; without them maps have neither coast nor borders."""
LEAST_M: Final = 50_000.0
"""Width of a map from which coast and borders are drawn [m]: they are not more exact."""
SCALES: Final = ((60.0, "110m"), (8.0, "50m"), (0.0, "10m"))
"""Least width of a map [degree] and the scale of its lines, one to as many millions."""
_KEPT: Final = 64
"""Number of cached extents."""
_LEAST_RING: Final = 4
"""Number of vertices from which a closed ring has an area."""
_TURN: Final = 360.0
# Countries are cut there; that is no coast.
_SEAM: Final = 179.99
"""Longitude of the antimeridian, less the rounding of the files [degree]."""

Columns = dict[str, list[Any]]
"""Coordinates by `xs` and `ys`, an entry for each line or polygon."""


@dataclass(frozen=True, eq=False)
class Atlas:
    """Lines and areas of one scale, as arrays of geometries [degree]."""

    coast: NDArray[np.object_]
    borders: NDArray[np.object_]
    land: NDArray[np.object_]


@lru_cache(_KEPT)
def clip_atlas(extent: Extent, *, pixels: int) -> dict[str, Any]:
    """Return coast, borders and land within an extent as columns of Bokeh's glyphs.

    Parameters
    ----------
    extent
        West, south, east and north [degree]; it may cross the antimeridian.
    pixels
        Width of the map [px]: lines are as exact as these show.

    Returns
    -------
    `scale`, such as "50m", None if the map is narrower than `LEAST_M` or the files are missing; and `coast`, `borders`
    (lines) and `land` (polygons with holes).
    """
    west, south, east, north = extent
    width_m = (east - west) * METRES_PER_DEGREE * math.cos(math.radians((south + north) / 2))
    scale = _choose_scale(east - west) if width_m >= LEAST_M else None
    if scale is None:
        return {"scale": None, "coast": _write_lines(()), "borders": _write_lines(()), "land": _write_areas(())}
    atlas, tolerance = read_atlas(FOLDER / f"countries-{scale}.json"), (east - west) / pixels / 2
    parts: dict[str, list[Any]] = {"coast": [], "borders": [], "land": []}
    for turn in (-_TURN, 0.0, _TURN):
        for name, kept in parts.items():
            geometries = getattr(atlas, name)
            box = (west - turn, south, east - turn, north)
            kept += [translate(part, turn) for part in _clip(geometries, box, tolerance)]
    lines = {name: _write_lines(parts[name]) for name in ("coast", "borders")}
    return {"scale": scale, **lines, "land": _write_areas(parts["land"])}


def _choose_scale(width: float) -> str | None:
    """Return the scale for a width [degree] among the files that are there, or the next best."""
    present = [(narrowest, scale) for narrowest, scale in SCALES if (FOLDER / f"countries-{scale}.json").is_file()]
    return next((scale for narrowest, scale in present if width >= narrowest), present[-1][1] if present else None)


def _clip(geometries: NDArray[np.object_], box: Extent, tolerance: float) -> Iterator[Any]:
    """Yield the simplified parts of geometries in a box."""
    bounds = shapely.bounds(geometries)
    west, south, east, north = box
    near = (bounds[:, 0] <= east) & (bounds[:, 2] >= west) & (bounds[:, 1] <= north) & (bounds[:, 3] >= south)
    for part in shapely.get_parts(shapely.clip_by_rect(geometries[near], *box)):
        simple = part.simplify(tolerance)
        if not simple.is_empty:
            yield from shapely.get_parts([simple])


def _write_lines(lines: Iterable[Any]) -> Columns:
    coordinates = [_round(line) for line in lines if line.geom_type == "LineString"]
    return {"xs": [at[:, 0].tolist() for at in coordinates], "ys": [at[:, 1].tolist() for at in coordinates]}


def _write_areas(areas: Iterable[Any]) -> Columns:
    """Return one entry for each polygon: a list of one polygon, which is a list of rings, the outer one first."""
    rings = [
        [_round(ring) for ring in (area.exterior, *area.interiors)] for area in areas if area.geom_type == "Polygon"
    ]
    return {
        axis: [[[ring[:, column].tolist() for ring in polygon]] for polygon in rings]
        for column, axis in enumerate(("xs", "ys"))
    }


def _round(line: Any) -> NDArray[np.float64]:  # noqa: ANN401 - shapely has no types
    return np.round(shapely.get_coordinates(line), 4)


@cache
def read_atlas(path: Path) -> Atlas:
    """Read countries from TopoJSON (Bostock 2012, specification 1.0): lines of several countries are borders."""
    topology = json.loads(path.read_text("utf-8"))
    scale, shift = (np.array(topology["transform"][name]) for name in ("scale", "translate"))
    # Each arc is stored as differences from vertex to vertex.
    arcs = [np.cumsum(arc, axis=0) * scale + shift for arc in topology["arcs"]]
    countries = [ring for polygon in _list_polygons(topology["objects"]["countries"]) for ring in polygon]
    uses = Counter(number if number >= 0 else ~number for ring in countries for number in ring)
    coast = [line for number, count in uses.items() if count == 1 for line in _cut_seam(arcs[number])]
    borders = [arcs[number] for number, count in uses.items() if count > 1]
    polygons = [[_join(arcs, ring) for ring in polygon] for polygon in _list_polygons(topology["objects"]["land"])]
    # Islets of the finest scale that quantization has shrunk to a point or a line have no area.
    land = [
        shapely.Polygon(outer, [hole for hole in holes if len(hole) >= _LEAST_RING])
        for outer, *holes in polygons
        if len(outer) >= _LEAST_RING
    ]
    return Atlas(
        np.array([shapely.LineString(line) for line in coast], np.object_),
        np.array([shapely.LineString(line) for line in borders], np.object_),
        np.array(land, np.object_),
    )


def _list_polygons(geometry: dict[str, Any]) -> list[list[list[int]]]:
    """List the polygons of a geometry and those in it, as rings of arc numbers; a reversed arc n is -1 - n."""
    match geometry.get("type"):
        case "GeometryCollection":
            return [polygon for inner in geometry["geometries"] for polygon in _list_polygons(inner)]
        case "Polygon":
            return [geometry["arcs"]]
        case "MultiPolygon":
            return list(geometry["arcs"])
    return []


def _join(arcs: list[NDArray[np.float64]], ring: list[int]) -> NDArray[np.float64]:
    return np.concatenate([arcs[number] if number >= 0 else arcs[~number][::-1] for number in ring])


def _cut_seam(line: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Cut what runs along the antimeridian or the pole out of a line."""
    at_seam = (np.abs(line[:, 0]) > _SEAM) | (line[:, 1] < -_SEAM / 2)
    cuts = np.flatnonzero(at_seam[1:] & at_seam[:-1]) + 1
    return [part for part in np.split(line, cuts) if len(part) > 1]
