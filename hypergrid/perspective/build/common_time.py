"""Which time cells two sources of a merge have in common, where these are not evenly spaced."""

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_instant
from hypergrid.core.tokens import token
from hypergrid.topology import Bins, Periodic


def find_common_bins(first: Bins, second: Bins) -> Bins:
    """Return the cells that both have.

    Raises
    ------
    InvalidQuery
        There is none, or where both have cells these are not the same.
    """
    start, stop = max(first.origin, second.origin), min(first.stop, second.stop)
    if start >= stop:
        message = "its sources have no time cell in common"
        raise InvalidQuery(message)
    first_part, other = (axis.part(*np.searchsorted(axis.starts, (start, stop)).tolist()) for axis in (first, second))
    if not np.array_equal(first_part.starts, other.starts) or not np.array_equal(first_part.ends, other.ends):
        message = (
            f"its sources have different time cells: {first.describe()} and {second.describe()}; aggregate both to the "
            "same first"
        )
        raise InvalidQuery(message)
    return first_part


def find_common_cycle(first: Periodic, second: Periodic) -> Periodic:
    """Return cells that come again, which must be of the same blocks.

    Raises
    ------
    InvalidQuery
        They are over different times.
    """
    if token(first) == token(second):
        return first
    spans = [f"{format_instant(axis.origin)} to {format_instant(axis.stop)}" for axis in (first, second)]
    message = (
        f"its sources are by {first.describe()} over different times, {spans[0]} and {spans[1]}; clip the time so that "
        "both are over the same"
    )
    raise InvalidQuery(message)
