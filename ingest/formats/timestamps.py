"""Parsing of time stamps (epochs, calendar fields, text in any zone) to instants [ns since 1970 UTC]."""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta, timezone, tzinfo
from functools import lru_cache
from itertools import product
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidTime
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from ingest.formats.base import ReadOptions, Unreadable
from ingest.formats.csv_lines import Lines

DAY_S: Final = 86_400
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
EPOCHS: Final[Mapping[str, int]] = {"epoch_s": 10**9, "epoch_ms": 10**6, "epoch_us": 10**3, "epoch_ns": 1}
"""Names of the formats that count from 1970 UTC, and their unit [ns]."""
ISO: Final = "iso"

EARLIEST_NS: Final = parse_instant("1900-01-01")
"""First instant that an archive can store [ns since 1970 UTC]."""
LATEST_NS: Final = parse_instant("2261-01-01")
"""First instant after the range of an archive [ns since 1970 UTC]."""
IMPOSSIBLE: Final = "impossible date"
BAD_TIME: Final = "bad time"
OUT_OF_RANGE: Final = "time out of range: an archive keeps 1900 to 2260"
_DAY_END: Final = r"([T ])24:00(:00(\.0+)?)?"
"""End of a day, as written by ISO 8601 and many loggers."""

WITH_ZONE: Final = r":\d{2}(\.\d+)? ?(Z|[+-]\d{2}:?\d{2})$"
_EPOCH_UNITS: Final = ((10**11, 10**9), (10**14, 10**6), (10**17, 10**3))
_EPOCH: Final = r"^[+]?(?P<whole>-?\d{1,18})(?:\.(?P<part>\d{1,9})\d*)?$"
_OFFSET: Final = re.compile(r"^(?:UTC)?([+-])(\d{2}):?(\d{2})$")

_DIGITS: Final = {
    "Y": (4, 4),
    "y": (2, 2),
    "m": (1, 2),
    "d": (1, 2),
    "j": (1, 3),
    "H": (1, 2),
    "I": (1, 2),
    "M": (1, 2),
    "S": (1, 2),
    "f": (1, 9),
}
_TEXTS: Final = {"b": "[A-Za-z]{3}", "B": "[A-Za-z]{3,9}", "p": "[AaPp]\\.?[Mm]\\.?", "z": "Z|[+-]\\d{2}:?\\d{2}"}
_PIECE: Final = re.compile(r"%.|\s+|.", re.DOTALL)


@lru_cache(maxsize=1024)
def expression_of(pattern: str) -> str:
    """Return the regular expression of a pattern, with a group for each part.

    Adjacent parts have their full width, except hour and minute of loggers that omit leading zeros: "%H%M" reads "5" as
    00:05 and "1205" as 12:05.

    Raises
    ------
    InvalidTime
        The pattern has an unknown part, a repeated one, or too few to define an instant.
    """
    pieces = _PIECE.findall(pattern)
    parts = [piece[1] for piece in pieces if len(piece) == 2 and piece[0] == "%"]
    unknown = [part for part in parts if part not in (*_DIGITS, *_TEXTS, "%")]
    _refuse(pattern, unknown, f"has an unknown part %{unknown[0] if unknown else ''}")
    _refuse(pattern, len(set(parts)) < len(parts), "has a part twice")
    has_day = "j" in parts or ("d" in parts and {"m", "b", "B"} & set(parts))
    _refuse(pattern, not ({"Y", "y"} & set(parts)), "tells no year: %Y or %y")
    _refuse(pattern, not has_day, "tells no day: %m and %d, or %j")
    _refuse(pattern, ("I" in parts) != ("p" in parts), "needs %I and %p together")
    fragments = []
    for index, piece in enumerate(pieces):
        before, after = (pieces[p] if 0 <= p < len(pieces) else "" for p in (index - 1, index + 1))
        if piece.isspace():
            fragments.append(r"\s+")
        elif len(piece) < 2 or piece == "%%":
            fragments.append(re.escape(piece[-1]))
        elif piece[1] in _TEXTS:
            fragments.append(f"(?P<{piece[1]}>{_TEXTS[piece[1]]})")
        else:
            min_digits, max_digits = _DIGITS[piece[1]]
            # Without a separator, a part ends where its full width ends.
            close = _is_digits(before) or _is_digits(after)
            if piece == "%H" and after == "%M" and not _is_digits(before):
                fragments.append(r"(?P<H>\d{0,2}?)")
            elif piece == "%M" and before == "%H" and not _is_digits(after):
                fragments.append(r"(?P<M>\d{1,2})")
            else:
                fragments.append(
                    f"(?P<{piece[1]}>\\d{{{max_digits if close and piece != '%f' else min_digits},{max_digits}}})"
                )
    return rf"^\s*{''.join(fragments)}\s*$"


def _refuse(pattern: str, wrong: object, what: str) -> None:
    if wrong:
        raise InvalidTime(
            f"time format {pattern!r} {what}; write 'iso', {', '.join(map(repr, EPOCHS))}, or parts such as "
            "'%Y-%m-%d %H:%M:%S' (%y %m %b %B %d %j %H %I %p %M %S %f %z)"
        )


def _is_digits(piece: str) -> bool:
    return len(piece) == 2 and piece[0] == "%" and piece[1] in _DIGITS


def check_format(time_format: str) -> str:
    """Return a valid format unchanged; errors as in `expression_of`."""
    if time_format != ISO and time_format not in EPOCHS:
        expression_of(time_format)
    return time_format


def seconds_of(
    text: pa.Array, pattern: str
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Parse texts by a pattern.

    Returns
    -------
    seconds, fraction_ns, formed, possible
        Seconds since 1970 of the clock shown, or UTC if the pattern has %z; fraction of a second [ns]; whether the text
        matches the pattern; and whether it is a valid instant. Each of shape (n,).
    """
    groups = pc.extract_regex(text, expression_of(pattern))
    formed = groups.is_valid().to_numpy(zero_copy_only=False)
    parts = {field.name: pc.struct_field(groups, field.name) for field in groups.type}
    numbers = {name: _integers(array) for name, array in parts.items() if name in _DIGITS}
    zero = np.zeros(len(text), np.int64)
    year = numbers.get("Y", zero)
    if "y" in numbers:
        # Two-digit years below 69 are in the next century, as in POSIX.
        year = numbers["y"] + np.where(numbers["y"] >= 69, 1900, 2000)
    days, possible = _days(year, numbers, parts)
    hour = numbers.get("H", zero)
    if "I" in numbers:
        after_noon = pc.match_substring(parts["p"], "p", ignore_case=True).fill_null(fill_value=False)
        possible &= (numbers["I"] >= 1) & (numbers["I"] <= 12)
        hour = numbers["I"] % 12 + 12 * after_noon.to_numpy(zero_copy_only=False)
    minute, second = numbers.get("M", zero), numbers.get("S", zero)
    possible &= _is_clock(hour, minute, second)
    seconds = days * DAY_S + hour * 3600 + minute * 60 + second
    if "z" in parts:
        seconds -= _offsets(parts["z"])
    fraction = zero
    if "f" in parts:
        fraction = _integers(pc.utf8_rpad(parts["f"].fill_null("0"), width=9, padding="0"))
    return seconds, fraction, formed, possible & formed


def _is_clock(hour: NDArray[np.int64], minute: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.bool_]:
    # 24:00 is the end of a day, as many loggers write it.
    last = (hour == 24) & (minute == 0) & (second == 0)
    return (hour >= 0) & (minute >= 0) & (second >= 0) & ((hour <= 23) | last) & (minute <= 59) & (second <= 59)


def _integers(array: pa.Array) -> NDArray[np.int64]:
    # The hour of "%H%M" may be empty.
    filled = pc.if_else(pc.equal(array, ""), "0", array).fill_null("0")
    return filled.cast(pa.int64()).to_numpy(zero_copy_only=False)


def _days(
    year: NDArray[np.int64], numbers: Mapping[str, NDArray[np.int64]], parts: Mapping[str, pa.Array]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return days since 1970, and whether the day exists."""
    start = (year - 1970).astype("datetime64[Y]")
    if "j" in numbers:
        first, stop = start.astype("datetime64[D]"), (start + 1).astype("datetime64[D]")
        number = numbers["j"]
    else:
        month = numbers["m"] if "m" in numbers else _months(parts.get("b", parts.get("B")))
        begin = start.astype("datetime64[M]") + (np.clip(month, 1, 12) - 1)
        first, stop = begin.astype("datetime64[D]"), (begin + 1).astype("datetime64[D]")
        number = np.where((month < 1) | (month > 12), 0, numbers["d"])
    possible = (number >= 1) & (number <= (stop - first).astype(np.int64))
    return first.astype(np.int64) + number - 1, possible


def _months(texts: pa.Array) -> NDArray[np.int64]:
    short = pc.utf8_lower(pc.utf8_slice_codeunits(texts, 0, 3))
    return pc.add(pc.index_in(short, pa.array(MONTHS)).fill_null(-1), 1).to_numpy(zero_copy_only=False).astype(np.int64)


def _offsets(texts: pa.Array) -> NDArray[np.int64]:
    """Return offsets from UTC [s]; 0 for Z."""
    digits = pc.replace_substring(texts, ":", "").fill_null("Z")
    hours, minutes = (_integers(pc.utf8_slice_codeunits(digits, *bounds)) for bounds in ((1, 3), (3, 5)))
    east = pc.starts_with(digits, "-").to_numpy(zero_copy_only=False)
    return np.where(east, -1, 1) * (hours * 3600 + minutes * 60)


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """Return the zone of an IANA name ("Europe/Zurich") or a fixed offset ("+02:00").

    Raises
    ------
    InvalidTime
        The zone is unknown.
    """
    match = _OFFSET.match(name)
    if match and int(match[2]) < 24 and int(match[3]) < 60:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        return timezone(offset if match[1] == "+" else -offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidTime(
            f"unknown time zone {name!r}; write 'UTC', a name such as 'Europe/Zurich', or an offset such as '+02:00'"
        ) from error


def changes(zone: str) -> bool:
    """Return whether the zone has clock changes."""
    return isinstance(zone_of(zone), ZoneInfo) and zone not in ("UTC", "Etc/UTC")


def epoch_unit_ns(number: float) -> int:
    """Return the unit of an epoch in s, ms, us or ns [ns], inferred from its magnitude."""
    return next((unit for limit, unit in _EPOCH_UNITS if number < limit), 1)


def from_epoch(numbers: NDArray[np.int64], column: str, lines: Lines, *, unit_ns: int = SECOND_NS) -> NDArray[np.int64]:
    """Convert epochs [`unit_ns` ns] to instants [ns], shape (n,); refuse lines outside an archive's range."""
    outside = (numbers < EARLIEST_NS // unit_ns) | (numbers >= LATEST_NS // unit_ns)
    lines.refuse(outside, column, OUT_OF_RANGE)
    return np.where(outside, 0, numbers) * unit_ns


def refuse_impossible(fields: dict[str, NDArray[np.int64]], lines: Lines) -> None:
    """Refuse lines whose calendar fields (year, month, day, hour, minute, second; shape (n,)) are invalid."""
    # The calendar repeats itself after 400 years.
    _, possible = _days(2000 + fields["year"] % 400, {"m": fields["month"], "d": fields["day"]}, {})
    possible &= _is_clock(fields["hour"], fields["minute"], fields["second"])
    parts = fields.values()
    lines.refuse(~possible, "day", lambda row: f"{IMPOSSIBLE}: {' '.join(str(int(part[row])) for part in parts)}")


def from_text(
    text: pa.Array, options: ReadOptions, lines: Lines, *, group: NDArray[np.integer[Any]] | None = None
) -> NDArray[np.int64]:
    """Parse texts to instants [ns], shape (n,), in `options.timezone` by default; refuse invalid ones.

    A local time that is skipped by a clock change is refused. A repeated one is resolved by the order of the rows of a
    `group` [shape (n,); one sensor each, a single group if None]: the clock goes back once between the two passes. If
    it does not, or does so twice, the time is ambiguous, and is refused.
    """
    group = np.zeros(len(text), np.int64) if group is None else group
    time_format = options.text.time_format or ISO
    if time_format == ISO:
        times = _parse_fast(text, options, lines, group)
        if times is None:
            times = _parse_carefully(text, options, lines, group)
    elif time_format in EPOCHS:
        return _epochs(text, EPOCHS[time_format], options.time_column, lines)
    else:
        times = _parse_by_pattern(text, time_format, options, lines, group)
    lines.refuse((times < EARLIEST_NS) | (times >= LATEST_NS), options.time_column, OUT_OF_RANGE)
    return times


def _epochs(text: pa.Array, unit_ns: int, column: str, lines: Lines) -> NDArray[np.int64]:
    try:
        whole = text.cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        groups = pc.extract_regex(pc.utf8_trim_whitespace(text), _EPOCH)
        wrong = groups.is_null().to_numpy(zero_copy_only=False)
        lines.refuse(wrong, column, _not_a(text, "a number of seconds since 1970" if unit_ns == 10**9 else ""))
        whole = pc.struct_field(groups, "whole").fill_null("0").cast(pa.int64()).to_numpy(zero_copy_only=False)
        digits = len(str(unit_ns)) - 1
        part = pc.utf8_slice_codeunits(
            pc.utf8_rpad(pc.struct_field(groups, "part").fill_null("0"), width=9, padding="0"), 0, max(1, digits)
        )
        fraction = part.cast(pa.int64()).to_numpy(zero_copy_only=False) if digits else 0
        # The whole part of -0.5 has no sign, but the fraction has.
        below = pc.starts_with(pc.utf8_trim_whitespace(text), "-").to_numpy(zero_copy_only=False)
        times = from_epoch(whole, column, lines, unit_ns=unit_ns)
        return times + np.where(below, -1, 1) * fraction
    return from_epoch(whole, column, lines, unit_ns=unit_ns)


def _not_a(text: pa.Array, what: str) -> Callable[[int], str]:
    return lambda row: f"{BAD_TIME}: {text[row].as_py()[:40]!r} is not {what or 'a number since 1970'}"


def _parse_by_pattern(
    text: pa.Array, pattern: str, options: ReadOptions, lines: Lines, group: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    seconds, fraction_ns, formed, possible = seconds_of(text, pattern)
    lines.refuse(~formed, options.time_column, _not_a(text, repr(pattern)))
    lines.refuse(~possible, options.time_column, lambda row: f"{IMPOSSIBLE}: {text[row].as_py()[:40]!r}")
    outside = possible & ((seconds < EARLIEST_NS // SECOND_NS) | (seconds >= LATEST_NS // SECOND_NS))
    lines.refuse(outside, options.time_column, OUT_OF_RANGE)
    times = np.where(possible & ~outside, seconds, 0) * SECOND_NS + fraction_ns
    if "%z" in pattern:
        return times
    return localise(times, options, lines, group)


def _parse_fast(
    text: pa.Array, options: ReadOptions, lines: Lines, group: NDArray[np.integer[Any]]
) -> NDArray[np.int64] | None:
    # pyarrow accepts this cast only if every text has a zone, and the one below only if none has.
    with suppress(pa.ArrowInvalid):
        return text.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_numpy(zero_copy_only=False)
    try:
        local = text.cast(pa.timestamp("ns")).cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        return None
    return localise(local, options, lines, group)


def _parse_carefully(
    text: pa.Array, options: ReadOptions, lines: Lines, group: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    column = options.time_column
    text = pc.utf8_trim_whitespace(text)
    formed = pc.match_substring_regex(text, ISO_TEXT).to_numpy(zero_copy_only=False)
    lines.refuse(~formed, column, lambda row: f"{BAD_TIME}: {text[row].as_py()[:40]!r} is not ISO 8601")
    zoned = pc.match_substring_regex(text, WITH_ZONE).to_numpy(zero_copy_only=False) & formed
    local = formed & ~zoned
    # Parsed as 00:00 of that day, plus one day.
    end = pc.match_substring_regex(text, f"{_DAY_END}( ?(Z|[+-].*))?$").to_numpy(zero_copy_only=False) & formed
    shown = pd.Series(text.to_pandas())
    texts = pd.Series(pc.replace_substring_regex(text, _DAY_END, r"\100:00").to_pandas()) if end.any() else shown
    times = np.zeros(len(text), np.int64)
    invalid = np.zeros(len(text), bool)

    def reason(row: int) -> str:
        # The pattern only allows digits for the year.
        year = int(shown[row][:4])
        return f"{IMPOSSIBLE}: {shown[row]!r}" if 1678 <= year <= 2261 else OUT_OF_RANGE

    for mask in (zoned, local):
        if mask.any():
            parsed = pd.to_datetime(texts[mask], errors="coerce", format="ISO8601", utc=True)
            instants = parsed.dt.tz_localize(None).fillna(pd.Timestamp(0)).to_numpy("datetime64[ns]")
            times[mask], invalid[mask] = instants.astype(np.int64), parsed.isna().to_numpy()
    times += np.where(end & ~invalid, DAY_NS, 0)
    lines.refuse(invalid, column, reason)
    times[local] = localise(times, options, lines, group, only=local & ~invalid)[local]
    return times


def localise(
    local_ns: NDArray[np.int64],
    options: ReadOptions,
    lines: Lines,
    group: NDArray[np.integer[Any]],
    *,
    only: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Convert local times [ns since 1970 by the clock] to instants [ns], shape (n,).

    Skipped and ambiguous times are refused.

    Times outside the mask `only` [shape (n,)] are returned unchanged.
    """
    zone = zone_of(options.timezone)
    if isinstance(zone, timezone):
        offset_ns = int(zone.utcoffset(None).total_seconds()) * SECOND_NS
        return local_ns - offset_ns if only is None else np.where(only, local_ns - offset_ns, local_ns)
    if not changes(options.timezone):
        return local_ns
    index = pd.DatetimeIndex(local_ns.view("datetime64[ns]"))
    unique = index.tz_localize(zone, ambiguous="NaT", nonexistent="NaT")
    if only is not None:
        unique = unique.where(only, pd.Timestamp(0, tz="UTC").tz_convert(zone))
    times, open_rows = _utc_ns(unique), np.flatnonzero(unique.isna())
    if len(open_rows):
        first, second = (
            index[open_rows].tz_localize(zone, ambiguous=np.full(len(open_rows), summer), nonexistent="NaT")
            for summer in (True, False)
        )
        twice = np.asarray(first.notna())
        skipped = open_rows[~twice]
        rows = open_rows[twice]
        after, is_resolved = _second_pass(local_ns, rows, group)
        times[rows] = np.where(after, _utc_ns(second)[twice], _utc_ns(first)[twice])
        lines.refuse(skipped, options.time_column, f"local time that does not exist: in {options.timezone}")
        lines.refuse(rows[~is_resolved], options.time_column, f"local time that is ambiguous: in {options.timezone}")
        times[skipped] = 0
    return times if only is None else np.where(only, times, local_ns)


def _second_pass(
    local_ns: NDArray[np.int64], rows: NDArray[np.intp], group: NDArray[np.integer[Any]]
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which `rows` of repeated times are in the second pass, and which are resolved."""
    after, is_resolved = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
    if not len(rows):
        return after, is_resolved
    changes_of = np.stack([group[rows].astype(np.int64), local_ns[rows] // DAY_NS])
    _, member = np.unique(changes_of, axis=1, return_inverse=True)
    order = np.argsort(member.ravel(), kind="stable")
    for positions in np.split(order, np.flatnonzero(np.diff(member.ravel()[order])) + 1):
        times = local_ns[rows[positions]]
        whole = local_ns[group == group[rows[positions[0]]]]
        # Rows may be in descending order of time.
        ahead = 1 if whole[-1] >= whole[0] else -1
        steps = np.diff(times) * ahead
        back = np.flatnonzero(steps < 0)
        # Two equal options, one in each pass, give no step back.
        if len(times) == 2 and steps[0] == 0:
            back = np.array([0])
        if len(back) == 1:
            late = np.arange(len(times)) > back[0]
            after[positions], is_resolved[positions] = late if ahead > 0 else ~late, True
    return after, is_resolved


def find_repeated(local_ns: NDArray[np.int64], zone: str) -> NDArray[np.bool_]:
    """Return which local times [ns by the clock] are repeated by a clock change, shape (n,)."""
    if not changes(zone):
        return np.zeros(len(local_ns), bool)
    index = pd.DatetimeIndex(local_ns.view("datetime64[ns]"))
    # Repeated times are those that stay undefined only if the ambiguity is not resolved.
    either = index.tz_localize(zone_of(zone), ambiguous=np.ones(len(index), bool), nonexistent="shift_forward")
    unique = index.tz_localize(zone_of(zone), ambiguous="NaT", nonexistent="shift_forward")
    return np.asarray(unique.isna()) & np.asarray(either.notna())


def _utc_ns(index: pd.DatetimeIndex) -> NDArray[np.int64]:
    return np.array(index.tz_convert("UTC").tz_localize(None).values.view(np.int64))


ISO_TEXT: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|[+-]\d{2}:?\d{2}))?)?$"
SHARE: Final = 0.6
"""Minimum share of a column's texts that must match its form; the others are damage."""

_DATES: Final = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%y-%m-%d", "%d-%m-%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d/%b/%Y"),
    *("%b %d %Y", "%b %d, %Y", "%d %B %Y", "%Y%m%d", "%Y-%j", "%Y %j", "%Y %m %d", "%y %m %d"),
)
_CLOCKS: Final = (
    *("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%H:%M:%S%z", "%H:%M%z", "%I:%M %p", "%I:%M:%S %p", "%H%M", "%H%M%S"),
    *("%H.%M", "%H.%M.%S", "%H %M %S", "%H %M", "%H"),
)
_PATTERNS: Final = (
    *_DATES,
    *(f"{date}{between}{clock}" for date, between, clock in product(_DATES, (" ", "T", ", "), _CLOCKS)),
    *("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%j%H%M"),
)
_EPOCH_DIGITS: Final = {9: "epoch_s", 10: "epoch_s", 12: "epoch_ms", 13: "epoch_ms", 16: "epoch_us", 19: "epoch_ns"}


class AmbiguousDates(Unreadable):
    """Time stamps with several possible formats; the message shows an example."""


_SHAPES: Final = {"b": ("a",), "B": ("a",), "p": ("a", "a.a", "a.a."), "z": ("a", "+d:d", "-d:d", "+d", "-d")}
"""Shapes of the parts that are not digits only."""


def _shape_of(text: str) -> str:
    """Return the shape of a text: runs of digits, letters and blanks as one letter each, the rest as it is.

    Examples
    --------
    >>> _shape_of("2007-10-01T00:00")
    'd-d-dad:d'
    """
    return re.sub(r"\s+", " ", re.sub(r"[A-Za-z]+", "a", re.sub(r"[0-9]+", "d", text.strip())))


@lru_cache(maxsize=1)
def _patterns_by_shape() -> Mapping[str, tuple[str, ...]]:
    """Return the candidate patterns by the shapes of the texts that they can match.

    A text is compared with the few patterns of its shape, because compiling all of them takes seconds.
    """
    by_shape: dict[str, list[str]] = {}
    for pattern in _PATTERNS:
        pieces = [_SHAPES.get(piece[1], ("0",)) if piece[0] == "%" else (piece,) for piece in _PIECE.findall(pattern)]
        for parts in product(*pieces):
            by_shape.setdefault(_shape_of("".join(parts).replace("d", "0")), []).append(pattern)
    return {shape: tuple(dict.fromkeys(patterns)) for shape, patterns in by_shape.items()}


@lru_cache(maxsize=256)
def _detect_form(texts: tuple[str, ...]) -> tuple[str, str] | None:
    min_count = SHARE * len(texts)
    if sum(bool(re.match(ISO_TEXT, text, re.ASCII)) for text in texts) >= min_count:
        return ISO, f"{texts[0]!r} is ISO 8601"
    # Bytes of a binary file were decoded to surrogates, which Arrow cannot hold, and which no time stamp has.
    array = pa.array([text.encode(errors="replace").decode() for text in texts])
    scores: list[tuple[int, str, list[int]]] = []
    # Only patterns that may match one of the first texts are evaluated for all of them.
    shapes = dict.fromkeys(map(_shape_of, texts[:5]))
    for pattern in dict.fromkeys(pattern for shape in shapes for pattern in _patterns_by_shape().get(shape, ())):
        seconds, _, _, possible = seconds_of(array, pattern)
        scores.append((int(possible.sum()), pattern, np.where(possible, seconds, 0).tolist()))
    best = max((score for score, _, _ in scores), default=0)
    ways = [(pattern, seconds) for score, pattern, seconds in scores if score == best]
    if best >= min_count:
        if any(seconds != ways[0][1] for _, seconds in ways):
            listed = " or ".join(repr(pattern) for pattern, _ in ways)
            raise AmbiguousDates(f"ambiguous dates: {texts[0]!r} may be {listed}; set time_format")
        return ways[0][0], f"{texts[0]!r} has the form {ways[0][0]}"
    counts = [_EPOCH_DIGITS.get(len(text.partition(".")[0])) for text in texts if re.match(r"^\d+(\.\d+)?$", text)]
    for name in dict.fromkeys(_EPOCH_DIGITS.values()):
        if counts.count(name) >= min_count:
            return name, f"{texts[0]!r} counts from 1970 ({name})"
    return None


def recognise_form(texts: Sequence[str]) -> tuple[str, str] | None:
    """Return the format of time stamps and the reason; None if they are not time stamps.

    Raises
    ------
    AmbiguousDates
        They are dates whose days and months cannot be distinguished.
    """
    sample = tuple(text.strip() for text in texts if text.strip())[:200]
    return _detect_form(sample) if sample else None


def fits(texts: Sequence[str], time_format: str) -> bool:
    """Return whether most of the texts are time stamps of the format."""
    sample = [text.strip() for text in texts if text.strip()][:200]
    if time_format == ISO or time_format in EPOCHS:
        pattern = ISO_TEXT if time_format == ISO else r"^\d+(\.\d+)?$"
        count = sum(bool(re.match(pattern, text, re.ASCII)) for text in sample)
    else:
        count = int(seconds_of(pa.array(sample, pa.string()), time_format)[3].sum())
    return bool(sample) and count >= SHARE * len(sample)
