"""Answering one query, block by block, so that it can be followed and stopped between two blocks."""

import threading
from collections.abc import Callable

import xarray as xr

from hypergrid.core.errors import Cancelled, InvalidQuery
from hypergrid.query import Query
from hypergrid.refinement import Refinement
from queries.jobs.records import Order


def answer(
    query: Query,
    stop: threading.Event,
    *,
    order: Order = "coarse_to_fine",
    allowed_bytes: int | None,
    on_refinement: Callable[[Refinement], None],
) -> xr.Dataset:
    """Compute the surface of a query.

    Parameters
    ----------
    query
        What `archive.query` returns.
    stop
        Looked at before each block; once set, no further block is computed.
    order
        Which cells come first.
    allowed_bytes
        Most memory that the run may hold [bytes]; None: half of what is free.
    on_refinement
        Called with each refinement, after its block.

    Raises
    ------
    Cancelled
        `stop` was set.
    HyperGridError
        What the engine raises.
    """
    latest = None
    for latest in query.refine(order=order, allowed_bytes=allowed_bytes):
        if stop.is_set():
            break
        on_refinement(latest)
    if stop.is_set():
        message = "the query was stopped between two blocks"
        raise Cancelled(message)
    if latest is None:
        message = "the surface of the query has no cells; widen its clip or its grid"
        raise InvalidQuery(message)
    return latest.dataset()
