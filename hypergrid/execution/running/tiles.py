"""Boxes of a surface: some time cells of some places, in the order in which they are computed.

Places are the outer loop and time, ascending, the inner one: so the candidate windows shrink along time, and a buffer
of overlapping time cells never holds more than one window of the places at hand.
"""

import numpy as np

from hypergrid.execution.planning.dependencies import Times, first_and_last_boxes
from hypergrid.execution.planning.strategy import Strategy, list_materialised, pulled
from hypergrid.execution.running.buffers import Buffers
from hypergrid.perspective import Perspective
from hypergrid.topology import SeriesAxis


def split_times(count: int, block_times: int | None) -> list[Times]:
    """Return the time cells of each box, in about equal parts; one box where there is no number."""
    if block_times is None or block_times >= count:
        return [np.arange(count)]
    return np.array_split(np.arange(count), -(-count // block_times))


def make_buffers(surface: Perspective, strategy: Strategy, boxes: list[Times], *, blocks: int) -> Buffers | None:
    """Return the buffers of the perspectives of which some cell is asked for more than once; None where none are kept.

    Parameters
    ----------
    surface, strategy
        What is computed, and how.
    boxes
        Time cells of the surface in each box.
    blocks
        How many times all boxes come: for that many blocks of places.
    """
    if not strategy.buffered:
        return None
    first, last = first_and_last_boxes(surface, boxes)
    asked: dict[str, int] = {}
    for item in surface.list_chain():
        for source in item.sources:
            asked[source.token] = asked.get(source.token, 0) + 1
    held = {item.token for item in list_materialised(surface, strategy.k)}
    worth = set()
    for item in pulled(surface, strategy.k):
        for_all_places = isinstance(item.topology.space, SeriesAxis) and blocks > 1
        again = bool((first[item.token] < last[item.token]).any())
        if (again or for_all_places or asked.get(item.token, 0) > 1) and item.token not in held:
            worth.add(item.token)
    return Buffers(surface, last, frozenset(worth))
