"""Parsing of EDR request parameters."""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from fastapi import Request
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.formats.covjson import MEDIA_TYPE
from hypergrid.topology.wkt import Region, box, read_points, read_region
from queries.web.responses.negotiation import form_of

MOST_PARTS: Final = 1000
"""Limit of parts in a list or a repetition."""
_REPEATED: Final = re.compile(r"R([0-9]{1,9})/([^/]+)/([^/]+)")
_PERIOD: Final = re.compile(
    r"P(?:([0-9]{1,9})W)?(?:([0-9]{1,9})D)?(?:T(?:([0-9]{1,9})H)?(?:([0-9]{1,9})M)?(?:([0-9]{1,9})(?:\.([0-9]{1,9}))?S)?)?"
)
_PLUS: Final = re.compile(r" ([0-9]{2}:?[0-9]{2})$")
_REDUCED: Final[tuple[tuple[re.Pattern[str], str, Literal["Y", "M", "D"]], ...]] = (
    (re.compile(r"[0-9]{4}"), "-01-01", "Y"),
    (re.compile(r"[0-9]{4}-[0-9]{2}"), "-01", "M"),
    (re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"), "", "D"),
)
"""Times of reduced precision (ISO 8601-1:2019, 4.3): pattern, completion to their start, and unit."""


@dataclass(frozen=True)
class Ranges:
    """Closed ranges of numbers; a single number is a range of zero length."""

    parts: tuple[tuple[float, float], ...]
    """First and last of each; -inf and inf if open."""

    @property
    def first(self) -> float:
        return min(low for low, _ in self.parts)

    @property
    def last(self) -> float:
        return max(high for _, high in self.parts)

    def meet(
        self, starts: NDArray[np.int64] | NDArray[np.float64], ends: NDArray[np.int64] | NDArray[np.float64]
    ) -> NDArray[np.bool_]:
        """Mask the half-open cells that overlap the ranges; cells may have zero length."""
        mask = np.zeros(len(starts), np.bool_)
        for low, high in self.parts:
            mask |= (starts <= high) & ((ends > low) | ((ends == starts) & (starts >= low)))
        return mask


def read_times(text: str) -> Ranges:
    """Parse `datetime` [ns since 1970 UTC]; a day, a month or a year covers all of it.

    Raises
    ------
    InvalidTime, InvalidQuery
        An instant is malformed, an interval ends before it starts, or there are too many parts.
    """
    return _read("datetime", text, _stretch, _period_ns)


def read_heights(text: str) -> Ranges:
    """Parse `z` [m]; an interval may begin with its upper end, as QGIS writes it.

    Raises
    ------
    InvalidQuery
        A number is malformed, or there are too many parts.
    """
    return _read("z", text, lambda part: (_height(part), _height(part)), _height, turns=True)


def _read(
    name: str,
    text: str,
    number: Callable[[str], tuple[float, float]],
    length: Callable[[str], float],
    *,
    turns: bool = False,
) -> Ranges:
    repeated = _REPEATED.fullmatch(text.strip())
    if repeated is not None:
        times, start, step = int(repeated[1]), number(repeated[2])[0], length(repeated[3])
        if not 0 < times <= MOST_PARTS or step <= 0:
            raise InvalidQuery(f"{name} repeats 1 to {MOST_PARTS} times by steps above zero; got {text[:80]!r}")
        return Ranges(tuple((start + index * step, start + index * step) for index in range(times)))
    listed = text.split(",")
    if len(listed) > MOST_PARTS:
        raise InvalidQuery(f"{name} takes up to {MOST_PARTS} parts; got {len(listed)}")
    return Ranges(tuple(_part(name, part.strip(), number, turns=turns) for part in listed))


def _part(name: str, text: str, number: Callable[[str], tuple[float, float]], *, turns: bool) -> tuple[float, float]:
    """Parse an interval, or an instant as both ends; `turns` allows swapped ends."""
    start, slash, stop = text.partition("/")
    if not slash:
        return number(text)
    low = -math.inf if start in ("", "..") else number(start)[0]
    high = math.inf if stop in ("", "..") else number(stop)[1]
    if low > high and turns:
        return high, low
    if low > high:
        raise InvalidQuery(f"{name} needs an interval that does not end before it starts; got {text[:80]!r}")
    return low, high


def _stretch(text: str) -> tuple[int, int]:
    """Return the first and last nanosecond of a day, month or year; an instant twice."""
    for form, rest, unit in _REDUCED:
        if form.fullmatch(text):
            start = parse_instant(f"{text}{rest}")
            following = np.datetime64(text, unit) + 1
            # Ranges are closed, so the end is the last nanosecond.
            return start, int(following.astype("datetime64[ns]").astype(np.int64)) - 1
    # An unencoded plus in a URL arrives as a blank.
    instant = parse_instant(_PLUS.sub(r"+\1", text))
    return instant, instant


def _period_ns(text: str) -> int:
    match = _PERIOD.fullmatch(text)
    if match is None or not any(match.groups()):
        raise InvalidTime(
            f"datetime repeats by a period of days, hours, minutes and seconds, such as PT10M; got {text[:80]!r}"
        )
    weeks, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(hours or 0) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)) * SECOND_NS
    period_ns = (int(weeks or 0) * 7 + int(days or 0)) * DAY_NS + whole + int((fraction or "0").ljust(9, "0"))
    if period_ns > 500 * 366 * DAY_NS:
        raise InvalidTime(f"datetime repeats by at most 500 years; got {text[:80]!r}")
    return period_ns


def _height(text: str) -> float:
    try:
        height_m = float(text)
    except ValueError:
        height_m = math.nan
    if not math.isfinite(height_m):
        raise InvalidQuery(
            f"z needs heights above sea level in metres, such as 2400, 400/2400 or R5/400/500; got {text[:80]!r}"
        )
    return height_m


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


def read_area(request: Request) -> tuple[Region, None]:
    """Parse the polygon of `coords`, which has no heights; raises `InvalidQuery` if missing or malformed."""
    return read_region(_coords(request)), None


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
