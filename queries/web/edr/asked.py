"""Parsing of EDR request parameters."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request

from hypergrid.core.errors import InvalidQuery
from hypergrid.formats.covjson import MEDIA_TYPE
from hypergrid.topology.wkt import Region, box, read_points, read_region
from queries.web.edr.ranges import Ranges, read_heights, read_times
from queries.web.responses.negotiation import form_of

FORMATS: Final = ("CoverageJSON", "GeoJSON", "NetCDF", "CSV")
"""Output formats; the first is the default."""
MEDIA_TYPES: Final = {
    "CoverageJSON": MEDIA_TYPE, "GeoJSON": "application/geo+json", "NetCDF": "application/x-netcdf", "CSV": "text/csv",
}  # fmt: skip
ITEM_FORMATS: Final = ("GeoJSON", *(form for form in FORMATS if form != "GeoJSON"))
"""Output formats of an item, likewise."""
# Many clients request it for every page.
JSON: Final = "json"
"""Format name that means the default for data, and the only format elsewhere."""
CRS: Final = "CRS84"
CRS_NAMES: Final = frozenset(
    {"CRS84", "CRS:84", "OGC:CRS84", "http://www.opengis.net/def/crs/OGC/1.3/CRS84", "urn:ogc:def:crs:OGC:1.3:CRS84"}
)
_TURNED: Final = frozenset({"EPSG:4326", "http://www.opengis.net/def/crs/EPSG/0/4326", "urn:ogc:def:crs:EPSG::4326"})
"""Names of WGS 84 with latitude before longitude."""
# One popular client uses underscores.
_ALIASES: Final = ("parameter_names", "parameter_name")
"""Other accepted spellings of parameter-name."""
_OF_STANDARD: Final = frozenset(
    {
        "within", "within-units", "width", "width-units", "height", "height-units", "corridor-width", "corridor-height",
        "resolution-x", "resolution-y", "resolution-z", "cube-z", "limit",
    }
)  # fmt: skip
"""Parameters of the standard's queries that most queries here do not support."""
MOST_POINTS: Final = 100
"""Limit of points in a MULTIPOINT."""


@dataclass(frozen=True, eq=False)
class EdrParams:
    """Parsed parameters common to all queries."""

    times: Ranges | None
    """[ns since 1970 UTC]; None: all."""
    heights: Ranges | None
    """[m above sea level]; None: all."""
    names: tuple[str, ...] | None
    """Parameters, all of which the collection has; None: all."""
    form: str
    """One of `FORMATS`."""


def refuse_unknown(request: Request, parameters: Sequence[Mapping[str, Any]]) -> None:
    """Reject query parameters that the description lacks, and undeclared formats.

    Raises
    ------
    InvalidQuery
        The message names the parameter and the most similar known one.
    """
    # Recommended by OGC API - Common 1.0, 7.10: a misspelt parameter must not be answered as if it were absent.
    known = {parameter["name"]: parameter["schema"] for parameter in parameters if parameter["in"] == "query"}
    taken = [*known, *(_ALIASES if "parameter-name" in known else ())]
    for name in request.query_params:
        if name not in taken:
            close = difflib.get_close_matches(_hyphenate(name), known, n=1)
            why = " of OGC API-EDR is not supported here" if name in _OF_STANDARD else " is not known here"
            hint = f"did you mean {close[0]!r}? It" if close and name not in _OF_STANDARD else "this address"
            raise InvalidQuery(f"the parameter {name[:80]!r}{why}; {hint} takes {', '.join(known)}")
    forms, given = known["f"]["enum"], request.query_params.get("f")
    if given is not None and given.lower() not in [form.lower() for form in forms]:
        raise InvalidQuery(f"f needs one of {', '.join(forms)}; got {given[:80]!r}")


def _hyphenate(name: str) -> str:
    """Convert a name to the standard's spelling: "parameterName" becomes "parameter-name"."""
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name[:80]).replace("_", "-")


@dataclass(frozen=True, eq=False)
class ExtentFilter:
    """Filter on the extents of collections; None: no restriction."""

    region: Region | None
    heights: Ranges | None
    """[m above sea level]"""
    times: Ranges | None
    """[ns since 1970 UTC]"""


def read_filter(request: Request) -> ExtentFilter:
    """Parse `bbox` and `datetime` of a request for collections; raises as `read_box` and `read_times`."""
    region, heights = read_box(request) or (None, None)
    times = request.query_params.get("datetime")
    return ExtentFilter(region, heights, None if times is None else read_times(times))


def read_params(request: Request, known: Mapping[str, object], forms: Sequence[str] = FORMATS) -> EdrParams:
    """Parse the parameters common to all queries; the first of `forms` is the default.

    Raises
    ------
    InvalidQuery, InvalidTime
        A parameter is malformed or unknown.
    """
    given = request.query_params
    crs = given.get("crs")
    if crs is not None and crs not in CRS_NAMES:
        turned = "which has latitude first; " if crs in _TURNED else ""
        raise InvalidQuery(
            f"crs needs {CRS} (OGC:CRS84), the only one that is served: positions are longitude, latitude in degrees "
            f"(WGS 84); got {crs[:80]!r}, {turned}leave crs out, and give longitude before latitude"
        )
    written = given.get("f")
    negotiated = form_of(request, {form: MEDIA_TYPES[form] for form in forms})
    form = (
        negotiated if written is None else next((form for form in forms if form.lower() == written.lower()), forms[0])
    )
    texts = [text for name in ("parameter-name", *_ALIASES) for text in given.getlist(name)]
    names = tuple(dict.fromkeys(name.strip() for text in texts for name in text.split(",") if name.strip()))
    for name in names:
        if name not in known:
            raise InvalidQuery(f"parameter-name {name[:80]!r} is none of this collection; it has {', '.join(known)}")
    times, heights = given.get("datetime"), given.get("z")
    return EdrParams(
        None if times is None else read_times(times),
        None if heights is None else read_heights(heights),
        names or None,
        form,
    )


def read_position(request: Request) -> list[tuple[float, float, float | None]]:
    """Parse the points of `coords`.

    Raises
    ------
    InvalidQuery
        They are missing, malformed, or too many.
    """
    points = read_points(_coords(request))
    if len(points) > MOST_POINTS:
        raise InvalidQuery(
            f"a position takes up to {MOST_POINTS} points; got {len(points)}; ask for fewer at a time, or a cube"
        )
    return points


def read_area(request: Request) -> Region:
    """Parse the polygon of `coords`; raises `InvalidQuery` if missing or malformed."""
    return read_region(_coords(request))


def read_cube(request: Request) -> tuple[Region, Ranges | None]:
    """Parse the required `bbox`; raises `InvalidQuery` if missing or malformed."""
    bounds = read_box(request)
    if bounds is None:
        raise InvalidQuery("a cube needs bbox=west,south,east,north in degrees; it is missing")
    return bounds


def read_box(request: Request) -> tuple[Region, Ranges | None] | None:
    """Parse `bbox`, with heights if it has six numbers; None if absent.

    Raises
    ------
    InvalidQuery
        It is malformed.
    """
    text = request.query_params.get("bbox")
    if text is None:
        return None
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) == 4:
        return box(*numbers), None
    if len(numbers) == 6:
        west, south, low, east, north, high = numbers
        return box(west, south, east, north), read_heights(f"{low!r}/{high!r}")
    raise InvalidQuery(f"bbox needs four numbers, west,south,east,north, or six with heights; got {text[:80]!r}")


def read_page(request: Request) -> tuple[int | None, int]:
    """Parse the page size, None without a limit, and the offset of the first entry.

    Raises
    ------
    InvalidQuery
        `limit` or `offset` is not a number.
    """
    # Without a limit the list is complete: clients of EDR 1.1 do not know limits and would not request a next page.
    limit, offset = (_read_whole(request, name, minimum) for name, minimum in (("limit", 1), ("offset", 0)))
    return limit, offset or 0


def _read_whole(request: Request, name: str, minimum: int) -> int | None:
    text = request.query_params.get(name)
    if text is not None and (not text.isdecimal() or len(text) > 12 or int(text) < minimum):
        raise InvalidQuery(f"{name} needs a whole number of at least {minimum}; got {text[:80]!r}")
    return None if text is None else int(text)


def _coords(request: Request) -> str:
    text = request.query_params.get("coords")
    if text is None:
        raise InvalidQuery("coords are missing; give well-known text, such as coords=POINT(7.18 45.87)")
    return text
