"""Clocks and calendars: instants in UTC to the days, months and seasons that people count, and back.

A clock is UTC, a civil zone with its daylight-saving changes, or the mean solar time of a longitude. Between two
changes its shift from UTC is constant, so that all calendar arithmetic is whole numbers on local time, a stretch at a
time.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import ClassVar, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import DAY_NS, SECOND_NS, format_duration

Integers = NDArray[np.int64]

SOLAR_S_PER_DEGREE: Final = 240
"""Mean solar time runs ahead of UTC by this for each degree to the east [s]."""

LONGEST_MONTH_NS: Final = 31 * DAY_NS

MAX_BLOCKS: Final = 2**24
"""Blocks that a calendar may cut a time into: 4 minutes of a century, 400 MB of edges."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LocalClock:
    """What local time is: UTC where nothing is given."""

    token_name: ClassVar[str] = "Clock"

    zone: str | None = None
    """Name of a civil zone, such as "Europe/Zurich"."""
    solar_lon: float | None = None
    """Longitude whose mean solar time it shows [degree east], in place of a zone."""
    offset_ns: int = 0
    """How much later than at midnight its days begin [ns]."""

    def stretches(self, start: int, stop: int) -> tuple[tuple[int, int, int], ...]:
        """Return the stretches of constant shift between two instants, in order.

        Returns
        -------
        First instant, instant after the last, and what is added to UTC for local time [ns], one row a stretch.
        """
        if self.zone is None:
            lon = self.solar_lon or 0.0
            return ((start, stop, round(lon * SOLAR_S_PER_DEGREE) * SECOND_NS - self.offset_ns),)
        stretches_s = _find_stretches_s(self.zone, start // DAY_NS, -(-stop // DAY_NS))
        return tuple(
            (max(begin * SECOND_NS, start), min(end * SECOND_NS, stop), shift * SECOND_NS - self.offset_ns)
            for begin, end, shift in stretches_s
            if begin * SECOND_NS < stop and end * SECOND_NS > start
        )

    def describe(self) -> str:
        """Return the clock for people."""
        if self.solar_lon is not None:
            side = "east" if self.solar_lon >= 0 else "west"
            name = f"mean solar time of {abs(self.solar_lon):.6g} degrees {side}"
        else:
            name = self.zone or "UTC"
        return f"{name}, from {format_duration(self.offset_ns)} on" if self.offset_ns else name


def check_zone(name: object) -> str:
    """Return the name of a civil zone.

    Raises
    ------
    NotFound
        There is no such zone in the tables of time zones.
    """
    if isinstance(name, str):
        try:
            ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return name
    raise NotFound.among(kind="time zone", given=name, existing=available_timezones())


@lru_cache(maxsize=64)
def _find_stretches_s(zone: str, first_day: int, stop_day: int) -> tuple[tuple[int, int, int], ...]:
    """Return stretches of constant shift between two midnights in UTC, all in whole seconds.

    The tables of a zone cannot be listed, so its shift is asked once a day, and a change is found by halving.
    """
    info = ZoneInfo(zone)

    def shift_at(second: int) -> int:
        shift = (_EPOCH + timedelta(seconds=second)).astimezone(info).utcoffset()
        return 0 if shift is None else round(shift.total_seconds())

    begin, rows = first_day * 86_400, []
    shift = shift_at(begin)
    for day in range(first_day + 1, stop_day + 1):
        later = shift_at(day * 86_400)
        if later != shift:
            low, high = (day - 1) * 86_400, day * 86_400
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if shift_at(middle) == shift else (low, middle)
            rows.append((begin, high, shift))
            begin, shift = high, later
    return (*rows, (begin, stop_day * 86_400, shift))


@dataclass(frozen=True)
class Unit:
    """A unit of a calendar: so many nanoseconds from 1970-01-01 on, or so many months from a month of 1970 on."""

    token_name: ClassVar[str] = "Unit"

    length_ns: int = 0
    """Length [ns]; 0 where it is months."""
    months: int = 0
    """How many months, where it is months."""
    first_month: int = 1
    """Month of the year with which it may begin, 1 to 12."""

    @property
    def longest_ns(self) -> int:
        """No such unit is longer [ns]."""
        return self.length_ns or self.months * LONGEST_MONTH_NS

    def index(self, local_ns: int) -> int:
        """Return in which unit an instant of local time lies, counted from the first of 1970."""
        if self.length_ns:
            return local_ns // self.length_ns
        month = int(np.datetime64(local_ns, "ns").astype("datetime64[M]").astype(np.int64))
        return (month - (self.first_month - 1)) // self.months

    def edges(self, index: Integers) -> Integers:
        """Return where units begin in local time [ns], shape as given."""
        if self.length_ns:
            return index * self.length_ns
        months = index * self.months + (self.first_month - 1)
        return months.astype("datetime64[M]").astype("datetime64[ns]").astype(np.int64)


@dataclass(frozen=True)
class Calendar:
    """Units of time by a clock."""

    token_name: ClassVar[str] = "Calendar"

    name: str
    """What one unit is called."""
    unit: Unit
    clock: LocalClock = LocalClock()

    def blocks(self, start: int, stop: int) -> tuple[Integers, Integers, Integers]:
        """Cut the time between two instants into units.

        Returns
        -------
        Starts and ends [ns since 1970 UTC], and the unit's number, shape (blocks,) each, in order; the first and the
        last are cut at the two instants, and one at each change of the clock.

        Raises
        ------
        InvalidQuery
            There would be more than `MAX_BLOCKS`.
        """
        if (stop - start) // min(self.unit.longest_ns, DAY_NS * 28) > MAX_BLOCKS:
            message = f"{self.describe()} cuts this time into more than {MAX_BLOCKS:,} blocks; take a shorter time"
            raise InvalidQuery(message)
        starts, ends, numbers = zip(*self._split_by_stretch(start, stop), strict=True)
        return np.concatenate(starts), np.concatenate(ends), np.concatenate(numbers)

    def _split_by_stretch(self, start: int, stop: int) -> Iterator[tuple[Integers, Integers, Integers]]:
        for begin, end, shift in self.clock.stretches(start, stop):
            first, last = self.unit.index(begin + shift), self.unit.index(end + shift - 1)
            edges = self.unit.edges(np.arange(first, last + 2, dtype=np.int64)) - shift
            edges[0], edges[-1] = begin, end
            yield edges[:-1], edges[1:], np.arange(first, last + 1, dtype=np.int64)

    def describe(self) -> str:
        """Return the unit and its clock for people."""
        return self.name if self.clock == LocalClock() else f"{self.name} ({self.clock.describe()})"
