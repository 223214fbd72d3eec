"""Parsing of `datetime` and `z`: single values, intervals, open intervals, lists and repetitions."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant

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
