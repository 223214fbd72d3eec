"""Names as people write them: what a name may be, slugs made of titles, and names found by their title."""

import re
import unicodedata
from collections.abc import Mapping
from typing import Final

from hypergrid.core.errors import InvalidQuery

LONGEST_NAME: Final = 63
"""Longest name [characters]."""
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_OTHER = re.compile(r"[^a-z0-9_]+")


def check_name(name: object, what: str) -> None:
    """Reject a name that would not fit an address or a file.

    Raises
    ------
    InvalidQuery
        It is none.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidQuery(
            f"the name of a {what} needs 1 to {LONGEST_NAME} lower-case letters, digits, '-' or '_', the first a "
            f"letter or digit; got {str(name)[:80]!r}"
        )


def make_slug(title: str) -> str:
    """Make a name of lower-case letters, digits, '-' and '_' of a title; empty if nothing of it is left.

    Examples
    --------
    >>> make_slug("Frost in the Vallée, upper part")
    'frost-in-the-vallee-upper-part'
    """
    plain = unicodedata.normalize("NFKD", title.casefold())
    # Combining marks are what NFKD leaves of accents.
    plain = "".join(letter for letter in plain if not unicodedata.combining(letter))
    return _OTHER.sub("-", plain).strip("-_")


def find_name(given: str, titles: Mapping[str, str]) -> str:
    """Return the name that is meant: one that exists, or whose slug or title's slug is that of `given`.

    Parameters
    ----------
    given
        What the user wrote: a name or a title, in upper or lower case, with blanks, '-' or '_' between the words.
    titles
        Title by name; empty if there is none.

    Returns
    -------
    The name; `given` itself if none or several are meant.
    """
    if given in titles:
        return given
    wanted = _make_key(given)
    meant = [name for name, title in titles.items() if wanted and wanted in (_make_key(name), _make_key(title))]
    return meant[0] if len(meant) == 1 else given


def _make_key(name: str) -> str:
    return make_slug(name).replace("_", "-")
