"""Correlation times of the errors of slices, as a query gives them."""

import re
from typing import Literal

from hypergrid.core.errors import InvalidTime
from hypergrid.core.times import SECOND_NS, parse_duration

Memory = float | Literal["estimate"] | None
"""E-folding time of errors between slices [s], "estimate" to infer it from readings, or None if unknown."""

_NOTHING = re.compile(r"\s*\+?0+(\.0+)?\s*[a-z]+\s*")


def parse_memory(value: object) -> Memory:
    """Parse a correlation time: "6h", "0s" (independent slices), "estimate", or None.

    Raises
    ------
    InvalidTime
        Any other value.
    """
    if value is None:
        return None
    if value == "estimate":
        return "estimate"
    if isinstance(value, str) and _NOTHING.fullmatch(value):
        # `parse_duration` refuses zero, but a zero duration still needs a valid unit.
        parse_duration(value.replace("0", "1"))
        return 0.0
    try:
        return parse_duration(value) / SECOND_NS
    except InvalidTime as error:
        raise InvalidTime(
            f"correlation_time needs a duration such as '6h', '0s' for independent slices, or 'estimate'; {error}"
        ) from error
