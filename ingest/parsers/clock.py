"""Time stamps to instants [ns since 1970 UTC]: epochs, calendar fields, and ISO 8601 text in any zone."""

import re
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.errors import InvalidTime
from hypergrid.times import SECOND_NS, parse_instant
from ingest.parsers.lines import Lines

EARLIEST_NS: Final = parse_instant("1900-01-01")
"""The first instant that an archive can keep [ns since 1970 UTC]."""
LATEST_NS: Final = parse_instant("2261-01-01")
"""The first instant that it cannot keep any more."""
IMPOSSIBLE: Final = "impossible date"
BAD_TIME: Final = "bad time"
OUT_OF_RANGE: Final = "time out of range: an archive keeps 1900 to 2260"
SKIPPED: Final = "local time that does not exist"
AMBIGUOUS: Final = "local time that is ambiguous"

_ISO: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|[+-]\d{2}:?\d{2}))?)?$"
_WITH_ZONE: Final = r":\d{2}(\.\d+)? ?(Z|[+-]\d{2}:?\d{2})$"
_OFFSET: Final = re.compile(r"^(?:UTC)?([+-])(\d{2}):?(\d{2})$")
_DAYS: Final = np.array([0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name ("Europe/Zurich") or of a fixed offset ("+02:00").

    Raises
    ------
    InvalidTime
        There is no such zone.
    """
    match = _OFFSET.match(name)
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        message = (
            f"unknown time zone {name!r}; write 'UTC', a name such as 'Europe/Zurich', or an offset such as '+02:00'"
        )
        raise InvalidTime(message) from error


def from_epoch(seconds: NDArray[np.int64], column: str, lines: Lines) -> NDArray[np.int64]:
    """Return epochs [s] as instants [ns], shape (n,); refuse lines outside what an archive keeps."""
    outside = (seconds < EARLIEST_NS // SECOND_NS) | (seconds >= LATEST_NS // SECOND_NS)
    lines.refuse(outside, column, OUT_OF_RANGE)
    return np.where(outside, 0, seconds) * SECOND_NS


def refuse_impossible(fields: dict[str, NDArray[np.int64]], lines: Lines) -> None:
    """Refuse lines whose calendar fields (year, month, day, hour, minute, second; shape (n,) each) name no instant."""
    year, month, day = fields["year"], fields["month"], fields["day"]
    leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    longest = _DAYS[np.clip(month, 0, 12)] + (leap & (month == 2))
    wrong = (month < 1) | (month > 12) | (day < 1) | (day > longest)
    for name, most in (("hour", 23), ("minute", 59), ("second", 59)):
        wrong |= (fields[name] < 0) | (fields[name] > most)
    texts = [fields[name] for name in ("year", "month", "day", "hour", "minute", "second")]

    def reason(row: int) -> str:
        return f"{IMPOSSIBLE}: {' '.join(str(int(part[row])) for part in texts)}"

    lines.refuse(wrong, "day", reason)


def from_text(text: pa.Array, zone: str, column: str, lines: Lines) -> NDArray[np.int64]:
    """Return ISO 8601 texts as instants [ns], shape (n,); those without a zone are in `zone`; refuse what is none.

    A local time that a change of the clock skips, or that it repeats, names no one instant, and is refused.
    """
    times = _fast(text, zone)
    if times is None:
        times = _careful(text, zone, column, lines)
    lines.refuse((times < EARLIEST_NS) | (times >= LATEST_NS), column, OUT_OF_RANGE)
    return times


def _fast(text: pa.Array, zone: str) -> NDArray[np.int64] | None:
    for kind in [pa.timestamp("ns", "UTC")] + ([pa.timestamp("ns")] if zone == "UTC" else []):
        try:
            return text.cast(kind).cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            continue
    return None


def _careful(text: pa.Array, zone: str, column: str, lines: Lines) -> NDArray[np.int64]:
    text = pc.utf8_trim_whitespace(text)
    formed = pc.match_substring_regex(text, _ISO).to_numpy(zero_copy_only=False)
    lines.refuse(~formed, column, lambda row: f"{BAD_TIME}: {text[row].as_py()[:40]!r} is not ISO 8601")
    zoned = pc.match_substring_regex(text, _WITH_ZONE).to_numpy(zero_copy_only=False) & formed
    local = formed & ~zoned
    texts = pd.Series(text.to_pandas())
    times = np.zeros(len(text), np.int64)
    invalid = np.zeros(len(text), bool)

    def reason(row: int) -> str:
        # The pattern leaves digits alone in place of the year.
        year = int(texts[row][:4])
        return f"{IMPOSSIBLE}: {texts[row]!r}" if 1678 <= year <= 2261 else OUT_OF_RANGE

    if zoned.any():
        parsed = pd.to_datetime(texts[zoned], errors="coerce", format="ISO8601", utc=True)
        times[zoned], invalid[zoned] = _instants(parsed.dt.tz_localize(None)), parsed.isna().to_numpy()
    if local.any():
        parsed = pd.to_datetime(texts[local], errors="coerce", format="ISO8601")
        invalid[local] = parsed.isna().to_numpy()
        times[local] = _localised(parsed, zone, column, lines, np.flatnonzero(local))
    lines.refuse(invalid, column, reason)
    return times


def _localised(parsed: pd.Series, zone: str, column: str, lines: Lines, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return local times as instants [ns], and refuse the `rows` of those that are none or two."""
    as_if_first = np.ones(len(parsed), bool)
    defined = parsed.dt.tz_localize(zone_of(zone), ambiguous=as_if_first, nonexistent="NaT")
    unique = parsed.dt.tz_localize(zone_of(zone), ambiguous="NaT", nonexistent="NaT")
    skipped = (parsed.notna() & defined.isna()).to_numpy()
    doubled = (defined.notna() & unique.isna()).to_numpy()
    for mask, reason in ((skipped, SKIPPED), (doubled, AMBIGUOUS)):
        whole = np.zeros(len(lines.number), bool)
        whole[rows[mask]] = True
        lines.refuse(whole, column, f"{reason}: in {zone}")
    return _instants(unique.dt.tz_convert("UTC").dt.tz_localize(None))


def _instants(parsed: pd.Series) -> NDArray[np.int64]:
    return parsed.fillna(pd.Timestamp(0)).to_numpy("datetime64[ns]").astype(np.int64)
