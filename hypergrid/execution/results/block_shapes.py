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
"""ChunkLayout that are written at the same time."""
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
class ChunkLayout:
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


def make_streamed_plan(surface: Surface, allowed_bytes: int | None) -> tuple[Plan, ChunkLayout]:
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

    def planned(cells: int) -> tuple[Plan, ChunkLayout]:
        chunks = _make_chunks(final, cells, allowed)
        plan = make_plan(surface, streamed_cells=chunks.block_cells)
        # A chunk is copied once before it is compressed, and is there compressed as well.
        threads = min(2 * WRITERS, (os.cpu_count() or 1) + 4)
        writing = WRITERS * (2 * chunks.bytes + WRITER_BYTES) + threads * KEPT_CHUNKS * chunks.bytes
        return replace(plan, projected_bytes=plan.projected_bytes + writing), chunks

    def fits(cells: int) -> bool:
        return planned(cells)[0].projected_bytes <= allowed

    max_cells = max(1, BLOCK_BYTES // (8 * final.topology.time.count))
    plan, chunks = planned(_find_greatest(fits, min(max_cells, final.topology.space.count)))
    if plan.projected_bytes > allowed:
        remedy = "ask for a shorter time or fewer stations, or allow more"
        subject, what = "the query, written block by block,", "bytes of memory"
        raise TooLarge(subject, what, plan.projected_bytes, allowed, remedy)
    return plan, chunks


def _find_greatest(fits: Callable[[int], bool], maximum: int) -> int:
    """Return the greatest number from 1 to `most` that fits, 1 where none does; what is below one that fits does."""
    low, high = 1, maximum
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _make_chunks(final: Perspective, cells: int, allowed: int) -> ChunkLayout:
    """Return the blocks of at most so many cells of the space, and the chunks that they are made of."""
    max_bytes = max(SMALLEST_CHUNK, min(CHUNK_BYTES, allowed // (16 * WRITERS)))
    times, space = final.topology.time.count, final.topology.space
    if isinstance(space, ZoneCells | Points) and len(space.shape) == 1:
        columns = max(1, min(cells, space.count, max_bytes // 8))
        # Blocks begin where chunks do.
        return ChunkLayout(
            min(cells, space.count) // columns * columns, (_chunk_times(max_bytes, columns, times), columns)
        )
    if not isinstance(space, Grid | Points):
        # What lies at stations is computed as a whole.
        columns = max(1, min(space.count, max_bytes // 8))
        return ChunkLayout(space.count, (_chunk_times(max_bytes, columns, times), columns))
    *levels, height, width = space.shape
    level_shape = (1,) * len(levels)
    if cells < width:
        columns = _find_divisor(width, cells)
        return ChunkLayout(columns, (_chunk_times(max_bytes, columns, times), *level_shape, 1, columns))
    rows = min(max(1, max_bytes // (8 * width)), cells // width, height)
    if levels:
        # A level begins with a chunk.
        rows = _find_divisor(height, rows)
    # Blocks begin where chunks do.
    block = min(cells // width, space.count // width) // rows * rows
    return ChunkLayout(block * width, (_chunk_times(max_bytes, rows * width, times), *level_shape, rows, width))


def _chunk_times(maximum: int, places: int, times: int) -> int:
    return max(1, min(times, maximum // (8 * places)))


def _find_divisor(width: int, maximum: int) -> int:
    """Return a part of a row (or column): the greatest that divides it, or the most where that is far less.

    Where parts do not divide the whole, some blocks write parts of chunks: right, and slower.
    """
    greatest = next(part for part in range(maximum, 0, -1) if width % part == 0)
    return greatest if 4 * greatest >= maximum else maximum
