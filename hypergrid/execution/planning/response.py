"""Times of hybrid-k before a run: the mean response of its cells (thesis 5.7.2.2) and the total, box by box.

Equation 5.9 assumes boxes of one cell and shares out every pulled perspective evenly. Here the boxes of the plan are
gone through instead, each with the cells that it is the first to compute, so that three things count that 5.9 leaves
out: a box is waited for as a whole; the first box of an interpolation needs every station, and all their time cells
where a variogram or a trend is fitted to them; and cells that overlapping windows share are computed by every block of
places that needs them. Densities are 1: a unit cost is measured over cells with their holes, and no step skips holes.

If time comes in one box, and cells do not overlap in space, k is the number of perspectives at stations, and no cost
can change that. Pulled or materialised, what is at stations is computed once, before the first cell. A map above it has
each of its cells computed once in either case, but materialised before the first cell of the surface, pulled with the
block that needs it: no cell is later for it. So `must_compare` is false, and such plans need no model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.operators.grids import cover_space
from hypergrid.execution.operators.interpolations import is_by_slice
from hypergrid.execution.planning.dependencies import Times, first_and_last_boxes
from hypergrid.execution.planning.strategy import commutes, count_at_stations, list_materialised, path, pulled
from hypergrid.perspective import Aggregate, Interpolate, Perspective
from hypergrid.topology import Grid, Regular, ZoneCells, changes_cells

CALL_S: Final = 3e-4
"""Tabulated cost of computing a perspective in one box, beside that of its cells [s]."""
EQUAL: Final = 1.02
"""Ratio of projected times up to which two plans are taken for equally fast."""


@dataclass(frozen=True)
class ProjectedTimes:
    """Times of a run, from its start."""

    response_s: float
    """Mean time until a cell of the surface is computed (equation 5.6) [s]."""
    total_s: float
    """Time until all are computed [s]."""


def project_times(
    surface: Perspective,
    costs_s: Mapping[str, float],
    k: int,
    *,
    blocks: Sequence[NDArray[np.intp]],
    boxes: Sequence[Times],
    call_s: float = CALL_S,
) -> ProjectedTimes:
    """Project the times of a run, block by block of places and box by box in time.

    Parameters
    ----------
    surface
        The perspective to compute.
    costs_s
        Cost of all cells of each perspective, by token [s].
    k
        Number of perspectives of the path that are materialised.
    blocks
        Cells of the space in each block, in the order of the run.
    boxes
        Time cells in each box of a block, in the order of the run.
    call_s
        Cost of computing a perspective in one box, beside that of its cells [s].
    """
    drawn = pulled(surface, k)
    tokens = {item.token for item in drawn}
    # Readings, and whatever is materialised, come before the first box.
    begun_s = sum(costs_s[item.token] for item in surface.list_chain() if item.token not in tokens)
    rows = _count_new_rows(surface, boxes)
    shares = _share_places(surface, blocks)
    passed = np.zeros((len(blocks), len(boxes)))
    few = {item.source.token: item for item in drawn if commutes(item)}
    for item in drawn:
        # An interpolation below a commuted aggregate runs once per aggregated cell, not once per slice.
        made = few.get(item.token, item)
        seconds = costs_s[item.token] * made.topology.time.count / item.topology.time.count
        by_box = rows[made.token] / made.topology.time.count
        if item.is_at_stations:
            # Later blocks of places take them from buffers.
            passed[0] += call_s + seconds * by_box
        else:
            passed += call_s + seconds * np.outer(shares[item.token], by_box)
    reached = begun_s + np.cumsum(passed).reshape(passed.shape)
    cells = np.outer([len(block) for block in blocks], [len(box) for box in boxes])
    return ProjectedTimes(float((reached * cells).sum() / cells.sum()), float(reached[-1, -1]))


def _count_new_rows(surface: Perspective, boxes: Sequence[Times]) -> dict[str, NDArray[np.intp]]:
    """Count the time cells that each box is the first to need, by token, shape (boxes,)."""
    first, _ = first_and_last_boxes(surface, boxes)
    for item in surface.list_chain():
        if isinstance(item.operator, Interpolate) and not is_by_slice(item.operator):
            for below in item.source.list_chain():
                if not below.holds_readings:
                    first[below.token][:] = 0
    return {token: np.bincount(box[box >= 0], minlength=len(boxes)) for token, box in first.items()}


def _share_places(surface: Perspective, blocks: Sequence[NDArray[np.intp]]) -> dict[str, NDArray[np.float64]]:
    """Find the share of its places that each block needs of each perspective on a grid, by token, shape (blocks,).

    Shares of places that several blocks need sum up to more than 1.
    """
    chain = surface.list_chain()
    shares = {item.token: np.zeros(len(blocks)) for item in chain}
    for number, block in enumerate(blocks):
        needed = {surface.token: block}
        # Consumers precede their sources in this order.
        for item in reversed(chain):
            if item.is_at_stations or item.token not in needed:
                continue
            own, space = needed[item.token], item.topology.space
            shares[item.token][number] = len(own) / space.count
            for source in item.sources:
                below = own
                if isinstance(item.operator, Aggregate) and changes_cells(source.topology.space, space):
                    below = cover_space(source.topology.space, space, own, item.operator.row).needed
                held = needed.get(source.token)
                needed[source.token] = below if held is None else np.union1d(held, below)
    return shares


def must_compare(surface: Perspective, *, blocks: int, boxes: int) -> bool:
    """Return whether costs decide on k: with several boxes in time, or cells that several blocks need."""
    return boxes > 1 or (blocks > 1 and any(_overlap_in_space(item) for item in surface.list_chain()))


def _overlap_in_space(node: Perspective) -> bool:
    """Return whether a place of the source may be in several cells of an aggregate over a grid."""
    space = node.topology.space
    if not isinstance(node.operator, Aggregate) or not isinstance(node.source.topology.space, Grid):
        return False
    if not changes_cells(node.source.topology.space, space):
        return False
    if not isinstance(space, Grid):
        # Zones share the cells along their borders.
        return isinstance(space, ZoneCells)
    return any(isinstance(axis, Regular) and axis.length > axis.step for axis in space.axes)


def sort_candidates(surface: Perspective, seconds: Mapping[int, float]) -> list[int]:
    """Sort candidates by time; those as fast as the fastest by closeness to materialising exactly the stations."""
    usual, fastest_s = count_at_stations(surface), min(seconds.values(), default=0.0)

    # What is at stations is small; a map held as a whole takes memory.
    def rank(k: int) -> tuple[float, int, int]:
        return (0.0, abs(k - usual), k) if seconds[k] <= EQUAL * fastest_s else (seconds[k], abs(k - usual), k)

    return sorted(seconds, key=rank)


def list_candidates(surface: Perspective) -> list[int]:
    """List every k worth comparing: those that do not materialise slices below a commuted aggregate."""
    # An aggregate at the stations never makes those slices. Making them all is ten times the work, which an earlier
    # first block does not outweigh. The surface itself is the result, never cached: N is the same run as N - 1.
    never_made = {item.source.token for item in surface.list_chain() if commutes(item)}
    every = range(max(len(path(surface)), count_at_stations(surface) + 1))
    return [k for k in every if not never_made & {item.token for item in list_materialised(surface, k)}]
