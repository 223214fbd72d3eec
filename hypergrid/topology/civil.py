"""Clocks and calendars: convert UTC to local days, months and seasons, and back.

A clock is UTC, a civil time zone with its daylight-saving changes, or the mean solar time of a longitude.
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
"""Lead of mean solar time over UTC per degree east [s]."""

LONGEST_MONTH_NS: Final = 31 * DAY_NS

MAX_BLOCKS: Final = 2**24
"""Maximum number of blocks a calendar may produce: 4 minutes of a century, 400 MB of edges."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class LocalClock:
    """Definition of local time; UTC by default."""

    token_name: ClassVar[str] = "Clock"

    zone: str | None = None
    """Civil time zone, such as "Europe/Zurich"."""
    solar_lon: float | None = None
    """Longitude of the mean solar time [degree east], instead of a zone."""
    offset_ns: int = 0
    """Start of the day after midnight [ns]."""

    def stretches(self, start: int, stop: int) -> tuple[tuple[int, int, int], ...]:
        """Return the periods of constant UTC offset between two instants, in order.

        Returns
        -------
        Start, end (exclusive), and the value to add to UTC for local time [ns], one row per period.
        """
        if self.zone is None:
            lon = self.solar_lon or 0.0
            return ((start, stop, round(lon * SOLAR_S_PER_DEGREE) * SECOND_NS - self.offset_ns),)
        # The UTC offset is constant between two changes, so calendar arithmetic is integer arithmetic on local time.
        stretches_s = _find_stretches_s(self.zone, start // DAY_NS, -(-stop // DAY_NS))
        return tuple(
            (max(begin * SECOND_NS, start), min(end * SECOND_NS, stop), shift * SECOND_NS - self.offset_ns)
            for begin, end, shift in stretches_s
            if begin * SECOND_NS < stop and end * SECOND_NS > start
        )

    def describe(self) -> str:
        if self.solar_lon is not None:
            side = "east" if self.solar_lon >= 0 else "west"
            name = f"mean solar time of {abs(self.solar_lon):.6g} degrees {side}"
        else:
            name = self.zone or "UTC"
        return f"{name}, from {format_duration(self.offset_ns)} on" if self.offset_ns else name


def check_zone(name: object) -> str:
    """Return a civil time zone name after validation.

    Raises
    ------
    NotFound
        The name is not in the time zone database.
    """
    if isinstance(name, str):
        try:
            ZoneInfo(name)
        # A directory of the database, such as "Europe", raises OSError.
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        else:
            return name
    raise NotFound.among(kind="time zone", given=name, existing=available_timezones())


# Cached, because it looks up one UTC offset per day.
@lru_cache(maxsize=64)
def _find_stretches_s(zone: str, first_day: int, stop_day: int) -> tuple[tuple[int, int, int], ...]:
    """Return periods of constant UTC offset between two UTC midnights, in whole seconds."""
    # zoneinfo does not list its transitions: compare the offset once a day and bisect each change.
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
    """Calendar unit of a fixed length, or of a number of months.

    Units are counted from 1970-01-01, or from a month of 1970.
    """

    token_name: ClassVar[str] = "Unit"

    length_ns: int = 0
    """Length [ns]; 0 for a unit of months."""
    months: int = 0
    """Length in months; 0 for a fixed length."""
    first_month: int = 1
    """Month of the year with which a unit may begin, 1 to 12."""

    @property
    def longest_ns(self) -> int:
        """Upper bound of the length [ns]."""
        return self.length_ns or self.months * LONGEST_MONTH_NS

    def index(self, local_ns: int) -> int:
        """Return the unit number of a local instant, counted from the first unit of 1970."""
        if self.length_ns:
            return local_ns // self.length_ns
        month = int(np.datetime64(local_ns, "ns").astype("datetime64[M]").astype(np.int64))
        return (month - (self.first_month - 1)) // self.months

    def edges(self, index: Integers) -> Integers:
        """Return the start of units in local time [ns], shape as given."""
        if self.length_ns:
            return index * self.length_ns
        months = index * self.months + (self.first_month - 1)
        return months.astype("datetime64[M]").astype("datetime64[ns]").astype(np.int64)


@dataclass(frozen=True)
class Calendar:
    """Time units by a clock."""

    token_name: ClassVar[str] = "Calendar"

    name: str
    """Name of a unit."""
    unit: Unit
    clock: LocalClock = LocalClock()

    def blocks(self, start: int, stop: int) -> tuple[Integers, Integers, Integers]:
        """Cut the time between two instants into units.

        Returns
        -------
        Starts and ends [ns since 1970 UTC] and unit numbers, in order, shape (blocks,) each. The first and last blocks
        are cut at the two instants, and a block is split at each change of the clock.

        Raises
        ------
        InvalidQuery
            There would be more than `MAX_BLOCKS`.
        """
        if (stop - start) // min(self.unit.longest_ns, DAY_NS * 28) > MAX_BLOCKS:
            raise InvalidQuery(
                f"{self.describe()} cuts this time into more than {MAX_BLOCKS:,} blocks; take a shorter time"
            )
        starts, ends, numbers = zip(*self._split_by_stretch(start, stop), strict=True)
        return np.concatenate(starts), np.concatenate(ends), np.concatenate(numbers)

    def _split_by_stretch(self, start: int, stop: int) -> Iterator[tuple[Integers, Integers, Integers]]:
        for begin, end, shift in self.clock.stretches(start, stop):
            first, last = self.unit.index(begin + shift), self.unit.index(end + shift - 1)
            edges = self.unit.edges(np.arange(first, last + 2, dtype=np.int64)) - shift
            # Both pieces of a unit that is split by a change of the clock have its number.
            edges[0], edges[-1] = begin, end
            yield edges[:-1], edges[1:], np.arange(first, last + 1, dtype=np.int64)

    def describe(self) -> str:
        return self.name if self.clock == LocalClock() else f"{self.name} ({self.clock.describe()})"
