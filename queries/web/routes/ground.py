"""`ground`: relief and contours below a map, from the archive's elevation layer."""

from typing import Annotated, Any, Final

import anyio
from anyio import to_thread
from fastapi import APIRouter, Query
from pydantic import BaseModel

from hypergrid.core.encoded_arrays import encode
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lru_cache import LruCache
from hypergrid.layers.ground import Extent, Ground, make_ground
from hypergrid.layers.layer import Layer
from hypergrid.query import OpenArchive
from queries.web.schemas import answer_of

LAYER: Final = "elevation"
"""Name of the layer that is drawn."""
LEAST_EXTENT: Final = 1e-6
"""Least width and height of a map [degree or m]."""
KEPT_BYTES: Final = 16 << 20
"""Size limit of the cached answers [bytes]."""
_NUMBER_BYTES: Final = 24
"""Approximate size of a coordinate in an answer [bytes]."""

Body = dict[str, Any]


class GroundRequest(BaseModel, frozen=True):
    """Extent and resolution of a map."""

    west: Annotated[float, Query(ge=-1e8, le=1e8, description="edge of the map [degree, or m of a projected layer]")]
    east: Annotated[float, Query(ge=-1e8, le=1e8, description="above west")]
    south: Annotated[float, Query(ge=-1e8, le=1e8, description="edge of the map [degree or m]")]
    north: Annotated[float, Query(ge=-1e8, le=1e8, description="above south")]
    width: Annotated[int, Query(ge=16, le=800, description="columns of the relief")] = 320


def router(archive: OpenArchive) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["catalogue"])
    cache = _GroundCache(archive)
    # One at a time: a map's ground must not delay the values on it.
    turns = anyio.CapacityLimiter(1)

    @routes.get("/ground", response_model=None, responses=answer_of("Ground"))
    async def ground(map_request: Annotated[GroundRequest, Query()]) -> Body:
        """Return shaded relief and contours of an extent, from the layer `elevation`; nulls if there is no such layer.

        `shade` is the brightness under a light in the north-west, as base64 of bytes in rows from the south: 0 where no
        elevation is known, else 1 (dark) to 255, level ground 181. `contours` are lines at multiples of `interval` [m].
        """
        if min(map_request.east - map_request.west, map_request.north - map_request.south) < LEAST_EXTENT:
            edges = f"{map_request.west:g}, {map_request.east:g}, {map_request.south:g}, {map_request.north:g}"
            raise InvalidQuery(
                f"a map needs west below east and south below north, by {LEAST_EXTENT:g} at least; got {edges}"
            )
        return await to_thread.run_sync(cache.get_body, map_request, limiter=turns)

    return routes


class _GroundCache:
    """Answers by layer and extent: new readings change neither."""

    def __init__(self, archive: OpenArchive) -> None:
        self._archive = archive
        self._layer: tuple[str, Layer] | None = None
        self._bodies: LruCache[tuple[str, GroundRequest], Body] = LruCache(KEPT_BYTES)

    def get_body(self, map_request: GroundRequest) -> Body:
        layers = self._archive.latest().layers
        entry = layers.entries.get(LAYER)
        if entry is None:
            return {"layer": None, "unit": None, "shape": None, "shade": None, "interval": None, "contours": []}
        key = entry.token, map_request
        body = self._bodies.peek(key)
        if body is None:
            # Each snapshot reads its layers from disk; this one is kept while its content stays.
            if self._layer is None or self._layer[0] != entry.token:
                self._layer = entry.token, layers[LAYER]
            extent: Extent = (map_request.west, map_request.south, map_request.east, map_request.north)
            drawn = make_ground(self._layer[1], extent, columns=map_request.width)
            body = ground_body(drawn, entry.unit)
            vertices = sum(len(contour.x) for contour in drawn.contours)
            self._bodies.put(key, body, 2 * drawn.shade.size + 2 * _NUMBER_BYTES * vertices)
        return body


def ground_body(ground: Ground, unit: str) -> Body:
    """Convert a ground to JSON."""
    return {
        "layer": LAYER,
        "unit": unit,
        "shape": list(ground.shade.shape),
        "shade": encode(ground.shade, "u1"),
        "interval": ground.interval_m or None,
        "contours": [
            {"level": contour.level_m, "x": contour.x.tolist(), "y": contour.y.tolist()} for contour in ground.contours
        ],
    }
