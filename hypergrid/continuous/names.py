"""Names of live queries, the same for Python, command line and web; apart from the engine, which takes time to load."""

from typing import Final

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.names import check_name

RESERVED: Final = ("catalogue", "explain", "backtest")
"""Names that no live query may have: the web API uses these paths for its own pages."""


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
