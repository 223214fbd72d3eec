"""Top-down evaluation: compute the first k perspectives as a whole, in blocks of places."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.strategy import list_materialised
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.perspective import Perspective
from hypergrid.topology import SeriesAxis


def materialise(evaluator: Evaluator, surface: Perspective, k: int, *, block_cells: int) -> None:
    """Compute and cache what hybrid-k materialises below the surface; evict what is not needed later.

    The surface itself is the result of a run and is not cached.
    """
    steps = [item for item in list_materialised(surface, k) if item.token != surface.token]
    later = [item for item in surface.list_chain() if item.token not in {step.token for step in steps}]
    for number, node in enumerate(steps):
        if isinstance(node.topology.space, SeriesAxis):
            evaluator.materialise_stations(node)
        else:
            for _ in hold_blocks(evaluator, node, block_cells):
                pass
        wanted = {source.token for item in (*steps[number + 1 :], *later) for source in item.sources}
        for item in steps[: number + 1]:
            if item.token not in wanted:
                evaluator.drop(item)


def hold_blocks(evaluator: Evaluator, node: Perspective, block_cells: int) -> Iterator[None]:
    """Compute and cache a perspective on a grid; yield after each block of places."""
    shape = (node.topology.time.count, node.topology.space.count)
    value = np.empty(shape)
    count: NDArray[np.int64] | None = None
    possible: NDArray[np.int64] | None = None
    for start in range(0, shape[1], block_cells):
        places = slice(start, min(start + block_cells, shape[1]))
        block = evaluator.block(node, np.arange(places.start, places.stop))
        value[:, places] = block.value
        count = _put_counts(count, block.count, places, shape)
        possible = _put_counts(possible, block.possible, places, shape)
        yield
    if count is None or possible is None:
        raise TypeError("a perspective has at least one place")
    evaluator.hold(node, Cells(value, count, possible))


def _put_counts(
    whole: NDArray[np.int64] | None, block: NDArray[np.int64], places: slice, shape: tuple[int, int]
) -> NDArray[np.int64]:
    """Store the counts of a block; one column serves while all blocks are equal."""
    if whole is None and block.shape[1] == 1:
        return block
    if whole is not None and whole.shape[1] == 1 == block.shape[1] and np.array_equal(whole, block):
        return whole
    if whole is None or whole.shape != shape:
        whole = np.broadcast_to(0 if whole is None else whole, shape).copy()
    whole[:, places] = block
    return whole
