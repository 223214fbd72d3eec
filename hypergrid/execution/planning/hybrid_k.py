"""Mean response times of hybrid-k, as far as they are known before a run (thesis 5.7.2.2, equations 5.8 and 5.9).

What is materialised is waited for by every cell: its cost, times its density where holes are skipped. What is pulled
comes with the boxes: a cell waits for half of it, with boxes of one cell (n + 1) / 2n of it. Two things that the thesis
leaves out are counted: boxes of many cells (one box is waited for as a whole), and perspectives below an interpolation,
of which the first places need every station: all is done after the first pass over time.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hypergrid.execution.planning.strategy import commutes, count_at_stations, list_materialised, path, pulled
from hypergrid.perspective import Perspective
from hypergrid.topology import SeriesAxis


@dataclass(frozen=True)
class StepCost:
    """Of one perspective."""

    seconds: float
    """Of all its cells [s]."""
    density: float = 1.0
    """Share of its cells that hold a value."""


def mean_response_s(surface: Perspective, costs: Mapping[str, StepCost], k: int, *, blocks: int, boxes: int) -> float:
    """Return the mean time until a cell of the surface is there [s].

    Parameters
    ----------
    surface
        What is computed.
    costs
        By token.
    k
        Perspectives of the path that are materialised.
    blocks, boxes
        Blocks of places, and boxes in time of each.
    """
    whole = sum(costs[item.token].density * costs[item.token].seconds for item in list_materialised(surface, k))
    drawn = pulled(surface, k)
    few = {item.source.token: item for item in drawn if commutes(item)}
    total = blocks * boxes
    spread = 0.0
    for item in drawn:
        seconds = costs[item.token].seconds
        if item.token in few:
            # Interpolated once an aggregated cell, and not once a slice.
            seconds *= few[item.token].topology.time.count / item.topology.time.count
        if isinstance(item.topology.space, SeriesAxis):
            share = ((boxes + 1) / 2 + (blocks - 1) * boxes) / total
        else:
            share = (total + 1) / (2 * total)
        spread += seconds * share
    return whole + spread


def sort_candidates(surface: Perspective, response_s: Mapping[int, float]) -> list[int]:
    """Return the candidates, the least response first; alike ones as near as may be to all that lies at stations.

    What is at stations is small and every block of places needs it; a map held as a whole only takes memory.
    """
    usual = count_at_stations(surface)
    return sorted(response_s, key=lambda k: (float(f"{response_s[k]:.9g}"), abs(k - usual), k))


def list_candidates(surface: Perspective) -> list[int]:
    """Return every k that is worth a comparison.

    Where an aggregate is taken at the stations, the slices below it are never made; to materialise them would be to
    make them all, ten times the work, which an earlier first block does not outweigh.
    """
    never_made = {item.source.token for item in surface.list_chain() if commutes(item)}
    every = range(len(path(surface)) + 1)
    return [k for k in every if not never_made & {item.token for item in list_materialised(surface, k)}]
