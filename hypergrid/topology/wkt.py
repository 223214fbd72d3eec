"""Parse well-known text (OGC 06-103r4) and boxes into points and polygons, in longitude and latitude."""

import re
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import shapely
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery

MAX_LETTERS: Final = 100_000
"""Maximum length of accepted text."""
_TEXT: Final = re.compile(
    r"\s*(POINT|MULTIPOINT|POLYGON|MULTIPOLYGON)\s*(?:Z\s*)?\(([0-9eE+\-.,() \t]*)\)\s*", re.IGNORECASE
)
_MAX_DEPTH: Final = 3
_HALF: Final = 180.0


@dataclass(frozen=True, eq=False)
class Region:
    """Valid polygons in longitude and latitude; edges are straight in these coordinates."""

    shape: Any
    """Shapely polygon or multipolygon [degree]."""

    @property
    def boxes(self) -> list[tuple[float, float, float, float]]:
        """West, south, east and north of each part [degree]."""
        return [tuple(part) for part in shapely.bounds(shapely.get_parts(self.shape)).tolist()]

    def holds(self, lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return whether points lie inside or on the edge; longitudes are equal modulo 360."""
        turns = [shapely.intersects_xy(self.shape, lon + turn, lat) for turn in (-360.0, 0.0, 360.0)]
        return np.asarray(np.any(turns, axis=0))

    def touches(self, west: float, south: float, east: float, north: float) -> bool:
        """Return whether a box [degree] intersects the region."""
        return any(
            bool(shapely.intersects(self.shape, shapely.box(west + turn, south, east + turn, north)))
            for turn in (-360.0, 0.0, 360.0)
        )


def read_points(text: str) -> list[tuple[float, float, float | None]]:
    """Parse a POINT or MULTIPOINT into (longitude, latitude [degree], height or None).

    Raises
    ------
    InvalidQuery
        Another geometry, malformed numbers, or coordinates off the globe.
    """
    shape = _geometry(text, ("POINT", "MULTIPOINT"))
    places = shapely.get_coordinates(shape, include_z=True)
    if not len(places):
        raise InvalidQuery(f"coords need a point; {text[:80]!r} is empty")
    _check(places[:, :2], text)
    return [(lon, lat, None if np.isnan(z) else z) for lon, lat, z in places.tolist()]


def read_region(text: str) -> Region:
    """Parse a POLYGON or MULTIPOLYGON.

    Raises
    ------
    InvalidQuery
        Another geometry, malformed numbers, coordinates off the globe, a polygon that crosses itself or may cross the
        antimeridian.
    """
    shape = _geometry(text, ("POLYGON", "MULTIPOLYGON"))
    if shapely.is_empty(shape):
        raise InvalidQuery(f"coords need a polygon; {text[:80]!r} is empty")
    _check(shapely.get_coordinates(shape), text)
    if not shapely.is_valid(shape):
        raise InvalidQuery(
            f"coords are no valid polygon: {shapely.is_valid_reason(shape)}; give rings that do not cross themselves"
        )
    for ring in shapely.get_rings(shapely.get_parts(shape)):
        across = np.abs(np.diff(shapely.get_coordinates(ring)[:, 0]))
        if ((across > _HALF) & (across < 2 * _HALF)).any():
            raise InvalidQuery(
                "coords have an edge of more than 180 degrees of longitude, which may cross the antimeridian instead; "
                "cut the polygon there into a MULTIPOLYGON, or give the edge a point in its middle"
            )
    return Region(shape)


def box(west: float, south: float, east: float, north: float) -> Region:
    """Return a box [degree]; if west is above east, it crosses the antimeridian.

    Raises
    ------
    InvalidQuery
        South above north, or coordinates off the globe.
    """
    _check(np.array([[west, south], [east, north]]), f"{west},{south},{east},{north}")
    if south > north:
        raise InvalidQuery(f"bbox needs south below north; got {south:g} and {north:g}")
    if west <= east:
        return Region(shapely.box(west, south, east, north))
    parts = [shapely.box(west, south, _HALF, north), shapely.box(-_HALF, south, east, north)]
    return Region(shapely.multipolygons(parts))


def _geometry(text: str, kinds: tuple[str, ...]) -> Any:  # noqa: ANN401 - shapely has no types
    # Only expected characters and nesting depths reach GEOS.
    match = _TEXT.fullmatch(text) if len(text) <= MAX_LETTERS else None
    wanted = " or ".join(kinds)
    if match is None or match[1].upper() not in kinds or _depth(text) > _MAX_DEPTH:
        wanted = f"{wanted}, such as {kinds[0]}(…), of up to {MAX_LETTERS:,} letters"
        raise InvalidQuery(f"coords need well-known text of a {wanted}; got {text[:80]!r}")
    try:
        return shapely.from_wkt(text)
    except (shapely.errors.GEOSException, ValueError) as error:
        raise InvalidQuery(
            f"coords are no well-known text of a {wanted}: {str(error)[:200]}; got {text[:80]!r}"
        ) from error


def _depth(text: str) -> int:
    steps = np.array([(letter == "(") - (letter == ")") for letter in text])
    return int(np.cumsum(steps).max(initial=0))


def _check(places: NDArray[np.float64], text: str) -> None:
    lon, lat = places.T
    if not (np.isfinite(places).all() and (np.abs(lon) <= 2 * _HALF).all() and (np.abs(lat) <= _HALF / 2).all()):
        raise InvalidQuery(
            f"longitudes lie within -180 to 180 (or 0 to 360), latitudes within -90 to 90; got {text[:80]!r}"
        )
