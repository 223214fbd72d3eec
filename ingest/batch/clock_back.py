"""Recognition of local times over the end of summer time: an hour that is there twice."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS, SECOND_NS, format_instant
from ingest.formats import Layout, Parsed
from ingest.formats.file_metadata import usual_interval_s
from ingest.formats.timestamps import changes, zone_of

HOUR_NS: Final = 3600 * SECOND_NS
_MONTHS: Final = (3, 4, 9, 10, 11)
"""Months in which clocks go back, in the north and in the south."""
_BACK_MOST: Final = 10_000
"""Maximum number of rows of a chunk with a time not after that of the row above that are looked at."""


@dataclass(frozen=True)
class ClockBack:
    """Rows whose time is there twice, because the clocks went back an hour."""

    readings: int
    """Number of readings of the hour that have the time of an earlier one."""
    at_ns: int
    """First such time, as it is in the file [ns since 1970]."""

    def describe(self) -> str:
        """Describe it for the user, with what to do."""
        zone = zone_like(self.at_ns)
        such = f"'{zone}' has that hour" if zone else "such as 'America/New_York'"
        return (
            f"{self.readings} readings have a time twice, from {format_instant(self.at_ns)[:-1]} on, where clocks go "
            f"back an hour at the end of summer time: set timezone in the feed ({such}), or one of each pair is "
            "superseded by the other"
        )


def zone_like(at_ns: int) -> str:
    """Return a zone of Europe whose clocks go back at that local time [ns since 1970]; empty if there is none."""
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=at_ns // 1000)
    zone = {1: "Europe/London", 2: "Europe/Berlin", 3: "Europe/Athens"}.get(moment.hour, "")
    # The last Sunday of October; in America, it is the first one of November.
    return zone if moment.month == 10 and moment.day > 24 else ""


def find_clock_back(parsed: Parsed, layout: Layout) -> ClockBack | None:
    """Return the rows of a chunk that repeat an hour in the order of rows of their station; None if there are none.

    Only times without a zone are looked at, neither their own nor a declared one. The clocks of a station go back on a
    Sunday in the night, by an hour less one interval between two rows, and once on that day, and its whole hour is
    there twice: otherwise rows are repeated for another reason.
    """
    zone = layout.options.timezone
    if layout.zoned or "timezone" in layout.options.given or changes(zone) or len(parsed.code) < 2:
        return None
    offset = zone_of(zone).utcoffset(None)
    # Of long rows, each variable of a station has its own order.
    code = parsed.code if parsed.name_code is None else parsed.code * len(parsed.names) + parsed.name_code
    order = np.argsort(code, kind="stable")
    code = code[order]
    time_ns = parsed.time_ns[order] + (round(offset.total_seconds()) * SECOND_NS if offset else 0)
    step = np.diff(time_ns)
    # From one hourly row to the next, the step is nothing.
    back = np.flatnonzero((code[1:] == code[:-1]) & (step <= 0) & (step > -HOUR_NS))
    by_day: dict[tuple[int, int], list[int]] = {}
    for row in back[:_BACK_MOST].tolist():
        by_day.setdefault((int(code[row]), int(time_ns[row]) // DAY_NS), []).append(row)
    rows, at_ns = 0, 0
    for places in by_day.values():
        row = places[0]
        first_ns, last_ns = int(time_ns[row + 1]), int(time_ns[row])
        if len(places) > 1 or not _is_at_night(first_ns) or last_ns // HOUR_NS != first_ns // HOUR_NS:
            continue
        own = time_ns[code == code[row]]
        hour_ns = first_ns // HOUR_NS * HOUR_NS
        hour = own[(own >= hour_ns) & (own < hour_ns + HOUR_NS)]
        if not _is_whole(hour, own):
            continue
        rows += len(hour) - len(np.unique(hour))
        at_ns = min(at_ns or hour_ns, hour_ns)
    width = 1 if layout.long else max(1, len(layout.columns))
    return ClockBack(rows * width, at_ns) if rows else None


def _is_whole(hour_ns: NDArray[np.int64], own_ns: NDArray[np.int64]) -> bool:
    """Return whether a station has an hour twice as a whole, rather than single rows of it."""
    distinct, counts = np.unique(hour_ns, return_counts=True)
    repeated = int((counts > 1).sum())
    return (repeated >= 2 and 2 * repeated >= len(distinct)) or usual_interval_s(own_ns) * SECOND_NS == HOUR_NS


def _is_at_night(local_ns: int) -> bool:
    day = date(1970, 1, 1) + timedelta(days=local_ns // DAY_NS)
    hour = local_ns % DAY_NS // HOUR_NS
    return day.weekday() == 6 and day.month in _MONTHS and hour < 4


def merge_clock_backs(before: ClockBack | None, after: ClockBack | None) -> ClockBack | None:
    """Return the sum of two findings."""
    if before is None or after is None:
        return before or after
    return ClockBack(before.readings + after.readings, min(before.at_ns, after.at_ns))
