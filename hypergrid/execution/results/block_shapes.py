"""Blocks for a surface that leaves memory as it is computed: as large as fit, and made of whole chunks of a store."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.core.errors import TooLarge
from hypergrid.execution.planning.plan import Plan, free_bytes, make_plan
from hypergrid.perspective import Perspective, Surface
from hypergrid.topology import Grid, Points, ZoneCells

CHUNK_BYTES: Final = 4 * 2**20
"""What a chunk of a store takes at most [bytes]: few files, and little to read for one map or one series."""
WRITERS: Final = 4
"""Chunks that are written at the same time."""
WRITER_BYTES: Final = 2 * 2**20
"""What compressing a chunk takes beside the chunk, and the thread that does it [bytes]."""
KEPT_CHUNKS: Final = 2
"""Chunks that the memory allocator keeps for each thread that has compressed one, as measured; how the threads take
turns changes it by some 5 % of a large run's peak."""
BLOCK_BYTES: Final = 256 * 2**20
"""What the values of a block take at most, whatever is allowed [bytes], so that progress is seen."""
SMALLEST_CHUNK: Final = 64 * 2**10
"""What a chunk takes at least, where the surface has as much [bytes]: below, a store is nothing but names of files."""


@dataclass(frozen=True)
class Chunks:
    """How a surface is cut: what is computed at once, and what is stored as one."""

    block_cells: int
    """Cells of the space in one block: whole rows of a grid, or a part of one row, or zones."""
    shape: tuple[int, ...]
    """Shape of a chunk: time cells, then rows and columns (of one level), or zones, or series."""

    @property
    def bytes(self) -> int:
        """What the values of a chunk take [bytes]."""
        size = 8
        for length in self.shape:
            size *= length
        return size


def streamed_plan(surface: Surface, allowed_bytes: int | None) -> tuple[Plan, Chunks]:
    """Return a plan whose blocks fit in the memory that is allowed, whatever the surface's size, and its chunks.

    Parameters
    ----------
    surface
        What is asked for.
    allowed_bytes
        Memory that the run may take [bytes]; half of what is free where absent.

    Raises
    ------
    TooLarge
        What is computed once for all blocks, and the smallest block, need more.
    """
    allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
    final = make_plan(surface, streamed_cells=1).surface

    def planned(cells: int) -> tuple[Plan, Chunks]:
        chunks = _chunks(final, cells, allowed)
        plan = make_plan(surface, streamed_cells=chunks.block_cells)
        # A chunk is copied once before it is compressed, and is there compressed as well.
        threads = min(2 * WRITERS, (os.cpu_count() or 1) + 4)
        writing = WRITERS * (2 * chunks.bytes + WRITER_BYTES) + threads * KEPT_CHUNKS * chunks.bytes
        return replace(plan, projected_bytes=plan.projected_bytes + writing), chunks

    def fits(cells: int) -> bool:
        return planned(cells)[0].projected_bytes <= allowed

    most = max(1, BLOCK_BYTES // (8 * final.topology.time.count))
    plan, chunks = planned(_greatest(fits, min(most, final.topology.space.count)))
    if plan.projected_bytes > allowed:
        remedy = "ask for a shorter time or fewer stations, or allow more"
        who, what = "the query, written block by block,", "bytes of memory"
        raise TooLarge(who, what, plan.projected_bytes, allowed, remedy)
    return plan, chunks


def _greatest(fits: Callable[[int], bool], most: int) -> int:
    """Return the greatest number from 1 to `most` that fits, 1 where none does; what is below one that fits does."""
    low, high = 1, most
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _chunks(final: Perspective, cells: int, allowed: int) -> Chunks:
    """Return the blocks of at most so many cells of the space, and the chunks that they are made of."""
    most = max(SMALLEST_CHUNK, min(CHUNK_BYTES, allowed // (16 * WRITERS)))
    times, space = final.topology.time.count, final.topology.space
    if isinstance(space, ZoneCells | Points) and len(space.shape) == 1:
        columns = max(1, min(cells, space.count, most // 8))
        # Blocks begin where chunks do.
        return Chunks(min(cells, space.count) // columns * columns, (_times(most, columns, times), columns))
    if not isinstance(space, Grid | Points):
        # What lies at stations is computed as a whole.
        columns = max(1, min(space.count, most // 8))
        return Chunks(space.count, (_times(most, columns, times), columns))
    *levels, height, width = space.shape
    one = (1,) * len(levels)
    if cells < width:
        columns = _divisor(width, cells)
        return Chunks(columns, (_times(most, columns, times), *one, 1, columns))
    rows = min(max(1, most // (8 * width)), cells // width, height)
    if levels:
        # A level begins with a chunk.
        rows = _divisor(height, rows)
    # Blocks begin where chunks do.
    block = min(cells // width, space.count // width) // rows * rows
    return Chunks(block * width, (_times(most, rows * width, times), *one, rows, width))


def _times(most: int, places: int, times: int) -> int:
    return max(1, min(times, most // (8 * places)))


def _divisor(width: int, most: int) -> int:
    """Return a part of a row (or column): the greatest that divides it, or the most where that is far less.

    Where parts do not divide the whole, some blocks write parts of chunks: right, and slower.
    """
    greatest = next(part for part in range(most, 0, -1) if width % part == 0)
    return greatest if 4 * greatest >= most else most
