"""Instants, durations and windows: integer nanoseconds since 1970-01-01T00:00Z, half-open intervals."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import ClassVar, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidTime

SECOND_NS: Final = 1_000_000_000
"""One second [ns]."""
DAY_NS: Final = 86_400 * SECOND_NS
"""One day [ns]."""
MICROSECOND_NS: Final = 1_000
"""One microsecond [ns]."""

FIRST_YEAR: Final = 1678
LAST_YEAR: Final = 2261
"""First and last year whose instants all fit into 64-bit nanoseconds."""
_LONGEST_NS: Final = 500 * 366 * DAY_NS

_UNITS_NS: Final = {
    "ns": 1, "us": 1_000, "ms": 1_000_000, "s": SECOND_NS, "sec": SECOND_NS, "second": SECOND_NS, "seconds": SECOND_NS,
    "min": 60 * SECOND_NS, "minute": 60 * SECOND_NS, "minutes": 60 * SECOND_NS, "h": 3600 * SECOND_NS,
    "hour": 3600 * SECOND_NS, "hours": 3600 * SECOND_NS, "d": DAY_NS, "day": DAY_NS, "days": DAY_NS,
    "week": 7 * DAY_NS, "weeks": 7 * DAY_NS,
}  # fmt: skip
_DURATION: Final = re.compile(r"\s*([+-]?[0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+)\s*")
_CALENDAR_UNITS: Final = {
    **dict.fromkeys("month months mon mons mo mos M ME MS".split(), "month"),
    **dict.fromkeys("quarter quarters season seasons Q QE QS".split(), "season"),
    **dict.fromkeys("year years yr yrs y a Y YE YS A".split(), "year"),
}
"""Units of the calendar that have no fixed length; the capitals are pandas' aliases."""
_DAYS_OF: Final = {"month": "30day", "season": "90day", "year": "365day"}
_DAY_END: Final = re.compile(r"(?<=[T ])24(?=(?::?00(?::?00(?:\.0+)?)?)?(?![0-9:.]))")
"""Hour 24 of an instant, which ISO 8601 allows only at the exact end of a day."""
_INSTANT: Final = re.compile(
    r"(?P<body>(?P<year>[0-9]{4})-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?)?)?)"
    r"(?:Z|(?P<sign>[+-])(?P<hours>[01][0-9]|2[0-3]):?(?P<minutes>[0-5][0-9]))?"
)


Instants = TypeVar("Instants", int, NDArray[np.int64])


def floor_to_microsecond(instant_ns: Instants) -> Instants:
    """Round instants, such as those of a machine's clock, down to whole microseconds [ns].

    Its finer digits carry no information, and readers of NetCDF keep microseconds.
    """
    return instant_ns // MICROSECOND_NS * MICROSECOND_NS


def parse_instant(value: object) -> int:
    """Parse an instant into nanoseconds since 1970 UTC [ns].

    Parameters
    ----------
    value
        ISO 8601 text (a date, or a date and time; UTC if it has no zone; 24:00 is 00:00 of the next day), a
        `datetime` (UTC if it has no zone), or a `datetime64`.

    Raises
    ------
    InvalidTime
        The text is not an instant, or lies outside 1678 to 2261.

    Examples
    --------
    >>> parse_instant("1970-01-02")
    86400000000000
    >>> parse_instant("1970-01-01T24:00Z")
    86400000000000
    """
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        # A pandas Timestamp is a datetime with nanoseconds, which its ISO text keeps.
        return parse_instant(aware.replace(tzinfo=None).isoformat()) - _offset_ns(aware)
    if isinstance(value, np.datetime64):
        text = str(value)
    elif isinstance(value, str):
        text = value.strip()
    else:
        raise InvalidTime(
            f"an instant needs ISO 8601 text or a datetime; got {value!r}; write for example '2007-10-01T00:00Z'"
        )
    # ISO 8601's 24:00 is 00:00 of the next day.
    text_of_day, ends_day = _DAY_END.subn("00", text, count=1)
    match = _INSTANT.fullmatch(text_of_day)
    if match is None:
        raise InvalidTime(f"an instant needs ISO 8601 text; got {text!r}; write for example '2007-10-01T00:00Z'")
    body = match["body"]
    try:
        whole = np.datetime64(body, "s")
        exact = np.datetime64(body, "ns")
    except ValueError as error:
        raise InvalidTime(f"{text!r} is no instant of the calendar; write for example '2007-10-01T00:00Z'") from error
    # An overflow of 64-bit nanoseconds changes the instant.
    if not FIRST_YEAR <= int(match["year"]) <= LAST_YEAR or exact.astype("datetime64[s]") != whole:
        raise InvalidTime(f"an instant must lie between {FIRST_YEAR} and {LAST_YEAR}; got {text!r}")
    offset_ns = (int(match["hours"] or 0) * 60 + int(match["minutes"] or 0)) * 60 * SECOND_NS
    day_ns = DAY_NS if ends_day else 0
    return int(exact.astype(np.int64)) + day_ns + (offset_ns if match["sign"] == "-" else -offset_ns)


def _offset_ns(aware: datetime) -> int:
    offset = aware.utcoffset() or timedelta(0)
    return round(offset / timedelta(microseconds=1)) * 1000


def calendar_unit_of(value: object) -> str | None:
    """Return the calendar unit (month, season, year) of a length such as "1month", or None."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    return _CALENDAR_UNITS.get(match[2]) if match is not None else None


def parse_duration(value: object, *, may_be_zero: bool = False) -> int:
    """Parse a duration above zero [ns], or from zero on, from text such as "10min", "1h", "1day", "250ms".

    Raises
    ------
    InvalidTime
        The text is not a duration, is one of calendar months or years, or is too short.
    """
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if unit := calendar_unit_of(value):
        raise InvalidTime(
            f"a duration needs a fixed length, which a {unit} of the calendar has not; got {value!r}; write days, such "
            f"as {_DAYS_OF[unit]!r}"
        )
    if match is None or match[2] not in _UNITS_NS:
        raise InvalidTime(f"a duration needs a number and a unit such as '10min', '1h' or '1day'; got {value!r}")
    # Decimal is exact for fractions such as 0.1 s.
    length = round(Decimal(match[1]) * _UNITS_NS[match[2]])
    if not (0 if may_be_zero else 1) <= length <= _LONGEST_NS:
        bound = "from zero on" if may_be_zero else "above zero"
        raise InvalidTime(f"a duration must be {bound} and at most 500 years; got {value!r}")
    return length


def parse_wait(value: object, label: str, *, may_be_zero: bool = False) -> float:
    """Parse how long to wait [s] as `parse_duration` does; errors begin with the label of the option.

    Raises
    ------
    InvalidTime
        It is no such duration.
    """
    try:
        return parse_duration(value, may_be_zero=may_be_zero) / SECOND_NS
    except InvalidTime as error:
        raise InvalidTime(f"{label}: {error}") from error


def format_instant(time_ns: int) -> str:
    """Format an instant as the shortest exact ISO 8601 text, in UTC."""
    text = str(np.datetime64(int(time_ns), "ns"))
    for ending in (".000000000", "000000", "000"):
        text = text.removesuffix(ending)
        if not text[-4:].isdigit():
            break
    return (text[:16] if text.endswith(":00") and len(text) == 19 else text) + "Z"


def format_timestamp(time_ns: int) -> str:
    """Format an instant as an RFC 3339 timestamp in UTC, with the fewest decimals.

    Use it for other programs: their parsers reject times without seconds, or lists that mix both forms.
    """
    text = format_instant(time_ns)
    return text if len(text) > len("2007-10-01T00:00Z") else f"{text[:-1]}:00Z"


def format_timedelta(length: np.timedelta64) -> str:
    """Format a `timedelta64` as the text of a duration.

    Raises
    ------
    InvalidTime
        The value is not above zero, or is in months or years, which have no fixed length.
    """
    kind = np.datetime_data(length.dtype)[0]
    if kind in ("Y", "M", "generic") or np.isnat(length) or not length > np.timedelta64(0, "s"):
        raise InvalidTime(
            f"a duration must be above zero, in days, hours, minutes or seconds; got {length!r}; write '10min'"
        )
    return format_duration(int(length.astype("timedelta64[ns]").astype(np.int64)))


def format_duration(length_ns: int) -> str:
    """Format a duration in the largest unit that divides it."""
    for unit in ("day", "h", "min", "s", "ms", "us"):
        if length_ns % _UNITS_NS[unit] == 0:
            return f"{length_ns // _UNITS_NS[unit]}{unit}"
    return f"{length_ns}ns"


@dataclass(frozen=True)
class Window:
    """A half-open time interval: start included, stop excluded.

    Raises
    ------
    InvalidTime
        The stop is not after the start.
    """

    token_name: ClassVar[str] = "Window"

    start_ns: int
    """First instant inside [ns since 1970 UTC]."""
    stop_ns: int
    """First instant after the window [ns since 1970 UTC]."""

    def __post_init__(self) -> None:
        if self.stop_ns <= self.start_ns:
            start, stop = format_instant(self.start_ns), format_instant(self.stop_ns)
            raise InvalidTime(f"a time range needs a stop after its start; got {start} to {stop}; swap or widen them")

    @classmethod
    def parse(cls, start: object, stop: object) -> "Window":
        return cls(parse_instant(start), parse_instant(stop))

    def holds(self, time_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mark the instants [ns since 1970 UTC] inside the window, shape (n,)."""
        return np.asarray((time_ns >= self.start_ns) & (time_ns < self.stop_ns))

    def intersect(self, other: "Window") -> "Window | None":
        """Return the overlap of two windows, or None."""
        start, stop = max(self.start_ns, other.start_ns), min(self.stop_ns, other.stop_ns)
        return Window(start, stop) if start < stop else None
