"""Vectorised parsing of time stamps by a strptime pattern."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidTime

SECOND_NS: Final = 1_000_000_000
DAY_S: Final = 86_400
PIVOT: Final = 69
"""First two-digit year of the twentieth century; those below are in the next, as in POSIX."""
MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
EPOCHS: Final[Mapping[str, int]] = {"epoch_s": 10**9, "epoch_ms": 10**6, "epoch_us": 10**3, "epoch_ns": 1}
"""Names of the formats that count from 1970 UTC, and their unit [ns]."""
ISO: Final = "iso"

_DIGITS: Final = {
    "Y": (4, 4),
    "y": (2, 2),
    "m": (1, 2),
    "d": (1, 2),
    "j": (1, 3),
    "H": (1, 2),
    "I": (1, 2),
    "M": (1, 2),
}
_DIGITS_S: Final = {**_DIGITS, "S": (1, 2), "f": (1, 9)}
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
    unknown = [part for part in parts if part not in (*_DIGITS_S, *_TEXTS, "%")]
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
            min_digits, max_digits = _DIGITS_S[piece[1]]
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
    return len(piece) == 2 and piece[0] == "%" and piece[1] in _DIGITS_S


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
    numbers = {name: _integers(array) for name, array in parts.items() if name in _DIGITS_S}
    zero = np.zeros(len(text), np.int64)
    year = numbers.get("Y", zero)
    if "y" in numbers:
        year = numbers["y"] + np.where(numbers["y"] >= PIVOT, 1900, 2000)
    days, possible = _days(year, numbers, parts)
    hour = numbers.get("H", zero)
    if "I" in numbers:
        after_noon = pc.match_substring(parts["p"], "p", ignore_case=True).fill_null(fill_value=False)
        possible &= (numbers["I"] >= 1) & (numbers["I"] <= 12)
        hour = numbers["I"] % 12 + 12 * after_noon.to_numpy(zero_copy_only=False)
    minute, second = numbers.get("M", zero), numbers.get("S", zero)
    # 24:00 is the end of a day, as many loggers write it.
    possible &= ((hour <= 23) | ((hour == 24) & (minute == 0) & (second == 0))) & (minute <= 59) & (second <= 59)
    seconds = days * DAY_S + hour * 3600 + minute * 60 + second
    if "z" in parts:
        seconds -= _offsets(parts["z"])
    fraction = zero
    if "f" in parts:
        fraction = _integers(pc.utf8_rpad(parts["f"].fill_null("0"), width=9, padding="0"))
    return seconds, fraction, formed, possible & formed


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
