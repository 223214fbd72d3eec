"""Which form time stamps have, told by some of them."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import product
from typing import Final

import numpy as np
import pyarrow as pa

from ingest.formats.base import Unreadable
from ingest.formats.strptime import EPOCHS, ISO, expression_of, seconds_of

ISO_TEXT: Final = r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{1,9})?)?( ?(Z|[+-]\d{2}:?\d{2}))?)?$"
SHARE: Final = 0.6
"""Of the texts of a column so many have its form; the others are damage."""

_DATES: Final = (
    *("%Y/%m/%d", "%Y.%m.%d", "%Y-%m-%d", "%d.%m.%Y", "%d.%m.%y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d/%m/%y", "%m/%d/%y", "%y/%m/%d", "%y-%m-%d", "%d-%m-%y", "%d-%b-%Y", "%d-%b-%y", "%d %b %Y", "%d/%b/%Y"),
    *("%b %d %Y", "%b %d, %Y", "%d %B %Y", "%Y%m%d", "%Y-%j", "%Y %j", "%Y %m %d", "%y %m %d"),
)
_CLOCKS: Final = (
    *("%H:%M:%S", "%H:%M", "%H:%M:%S.%f", "%H:%M:%S%z", "%H:%M%z", "%I:%M %p", "%I:%M:%S %p", "%H%M", "%H%M%S"),
    *("%H.%M", "%H.%M.%S", "%H %M %S", "%H %M", "%H"),
)
_COMPACT: Final = ("%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%j%H%M")
_PATTERNS: Final = (
    *_DATES,
    *(f"{date}{between}{clock}" for date, between, clock in product(_DATES, (" ", "T", ", "), _CLOCKS)),
    *_COMPACT,
)
_EPOCH_DIGITS: Final = {9: "epoch_s", 10: "epoch_s", 12: "epoch_ms", 13: "epoch_ms", 16: "epoch_us", 19: "epoch_ns"}


class AmbiguousDates(Unreadable):
    """Time stamps that can be read in several ways; the message shows one."""


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> "re.Pattern[str]":
    return re.compile(expression_of(pattern), re.ASCII)


@lru_cache(maxsize=256)
def _detect_form(texts: tuple[str, ...]) -> tuple[str, str] | None:
    min_count = SHARE * len(texts)
    if sum(bool(re.match(ISO_TEXT, text, re.ASCII)) for text in texts) >= min_count:
        return ISO, f"{texts[0]!r} is ISO 8601"
    array = pa.array(texts)
    scores: list[tuple[int, str, list[int]]] = []
    for pattern in _PATTERNS:
        if any(_compiled(pattern).match(text) for text in texts[:5]):
            seconds, _, _, possible = seconds_of(array, pattern)
            scores.append((int(possible.sum()), pattern, np.where(possible, seconds, 0).tolist()))
    best = max((score for score, _, _ in scores), default=0)
    ways = [(pattern, seconds) for score, pattern, seconds in scores if score == best]
    if best >= min_count:
        if any(seconds != ways[0][1] for _, seconds in ways):
            listed = " or ".join(repr(pattern) for pattern, _ in ways)
            message = f"ambiguous dates: {texts[0]!r} may be {listed}; set time_format"
            raise AmbiguousDates(message)
        return ways[0][0], f"{texts[0]!r} has the form {ways[0][0]}"
    counts = [_EPOCH_DIGITS.get(len(text.partition(".")[0])) for text in texts if re.match(r"^\d+(\.\d+)?$", text)]
    for name in dict.fromkeys(_EPOCH_DIGITS.values()):
        if counts.count(name) >= min_count:
            return name, f"{texts[0]!r} counts from 1970 ({name})"
    return None


def recognise_form(texts: Sequence[str]) -> tuple[str, str] | None:
    """Return the form of time stamps and by what it was told; None where they are none.

    Raises
    ------
    AmbiguousDates
        They are dates, and nothing tells their days from their months.
    """
    sample = tuple(text.strip() for text in texts if text.strip())[:200]
    return _detect_form(sample) if sample else None


def fits(texts: Sequence[str], time_format: str) -> bool:
    """Return whether most of some texts are time stamps of a form."""
    sample = [text.strip() for text in texts if text.strip()][:200]
    if time_format == ISO or time_format in EPOCHS:
        pattern = ISO_TEXT if time_format == ISO else r"^\d+(\.\d+)?$"
        count = sum(bool(re.match(pattern, text, re.ASCII)) for text in sample)
    else:
        count = int(seconds_of(pa.array(sample, pa.string()), time_format)[3].sum())
    return bool(sample) and count >= SHARE * len(sample)
