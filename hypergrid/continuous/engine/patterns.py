"""Patterns and polygons in texts, evaluated once for each distinct text.

Expressions are matched by RE2 (in Arrow), whose time grows with the length of the text only: no pattern backtracks.
"""

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.continuous.engine.batch import Integers
from hypergrid.core.errors import InvalidQuery
from hypergrid.topology.wkt import read_region


def match_regex(texts: Sequence[str], pattern: str) -> Integers:
    """Return 1 for texts in which a regular expression matches somewhere, otherwise 0.

    Raises
    ------
    InvalidQuery
        The expression is not valid for RE2.
    """
    try:
        matches = pc.match_substring_regex(pa.array(texts, pa.string()), pattern)
    except pa.ArrowInvalid as error:
        raise InvalidQuery(
            f"regular expression {pattern!r} is not valid: {error}; references back and looks ahead are not supported"
        ) from None
    return np.asarray(matches.to_numpy(zero_copy_only=False), np.int64)


def match_like(texts: Sequence[str], pattern: str) -> Integers:
    """Return 1 for texts that match a pattern of SQL, in which % is any text and _ any character, otherwise 0."""
    steps = {"%": ".*", "_": "."}
    # Signs of any text in a row are one.
    letters = re.sub("%+", "%", pattern)
    return match_regex(texts, "^(?s:" + "".join(steps.get(letter, re.escape(letter)) for letter in letters) + r")\z")


def parse_regions(texts: Sequence[str]) -> NDArray[np.object_]:
    """Return the polygons of well-known texts, None for texts that are none."""
    regions = np.full(len(texts), None, object)
    for index, text in enumerate(texts):
        try:
            regions[index] = read_region(text)
        except InvalidQuery:
            continue
    return regions
