"""What users write of live queries, the same everywhere; apart from the engine, which takes time to load."""

from typing import Final

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.names import check_name
from hypergrid.core.times import parse_wait

RESERVED: Final = ("catalogue", "explain", "backtest")
"""Names that no live query may have: the web API uses these paths for its own pages."""
ALWAYS: Final = "always"
"""What is written in place of a duration for which results are kept."""


def check_live_name(name: object) -> None:
    """Reject a name that would not fit an address or a file, or that a page has.

    Raises
    ------
    InvalidQuery
        It is none.
    """
    check_name(name, "continuous query")
    if name in RESERVED:
        raise InvalidQuery(f"a continuous query cannot have the name {name!r}, which pages have; choose another")


def parse_keep(value: object, label: str) -> float | None:
    """Parse how long results are kept [s]; None for "always", or None. Errors begin with the label.

    Raises
    ------
    InvalidTime
        It is no duration.
    """
    return None if value in (None, ALWAYS) else parse_wait(value, label)
