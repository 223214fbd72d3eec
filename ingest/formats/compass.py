"""Directions as words of the compass, in several languages."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ingest.formats.file_metadata import normalise_name
from ingest.formats.timestamps import SHARE

_POINTS: Final = "N NNE NE ENE E ESE SE SSE S SSW SW WSW W WNW NW NNW".lower().split()
_ENGLISH: Final = {word: f"{22.5 * point:g}" for point, word in enumerate(_POINTS)}
_GERMAN: Final = {word.replace("e", "o"): number for word, number in _ENGLISH.items()}
_ROMANCE: Final = {word.replace("w", "o"): number for word, number in _ENGLISH.items()}
"""In French, Italian and Spanish, O is west; in German, it is east."""


_DIRECTION: Final = re.compile(r"wd|dw|.*(dir|richtung|rose|rumbo|direzione|secteur|compass).*")


def is_direction(name: str) -> bool:
    """Return whether a column is one of directions, by its name."""
    return bool(_DIRECTION.fullmatch(normalise_name(name)))


def compass_words(cells: Sequence[str]) -> Mapping[str, str]:
    """Return the degrees of the words of a column of directions, as texts; empty if it is none.

    A column whose words do not reveal whether O is east or west is none.

    Examples
    --------
    >>> compass_words(["N", "NNO", "W"])["nno"], compass_words(["N", "NNO", "E"])["nno"]
    ('22.5', '337.5')
    >>> compass_words(["N", "NNO"]), compass_words(["12", "N"])
    ({}, {})
    """
    words = [cell.lower() for cell in cells if cell.lower() in {*_ENGLISH, *_GERMAN, *_ROMANCE}]
    given = [cell for cell in cells if cell]
    if not words or len(words) < SHARE * len(given):
        return {}
    letters = set("".join(words))
    if "o" not in letters:
        return _ENGLISH
    if ("w" in letters) == ("e" in letters):
        return {}
    return _GERMAN if "w" in letters else _ROMANCE
