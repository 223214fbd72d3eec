"""Blocks of a streamed surface: as large as fit, made of whole chunks."""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.core.errors import TooLarge
from hypergrid.execution.planning.plan import Plan, free_bytes, make_plan
from hypergrid.perspective import Perspective, Surface
from hypergrid.topology import Grid, Points, ZoneCells

# Few files, and little to read for one map or one series.
CHUNK_BYTES: Final = 4 * 2**20
"""Maximum size of a chunk in a store [bytes]."""
WRITERS: Final = 4
"""Number of chunks that are written at the same time."""
WRITER_BYTES: Final = 2 * 2**20
"""Memory for compressing a chunk, beside the chunk, including the thread [bytes]."""
# The scheduling of the threads changes this by some 5 % of a large run's peak.
KEPT_CHUNKS: Final = 2
"""Chunks that the memory allocator keeps for each thread that has compressed one, as measured."""
# Larger blocks would hide the progress.
BLOCK_BYTES: Final = 256 * 2**20
"""Maximum size of the values of a block, whatever is allowed [bytes]."""
# Below this a store consists of little but file names.
SMALLEST_CHUNK: Final = 64 * 2**10
"""Minimum size of a chunk, if the surface is as large [bytes]."""


@dataclass(frozen=True)
class ChunkLayout:
    """How a surface is cut into blocks to compute and chunks to store."""

    block_cells: int
    """Cells of the space in one block: whole rows of a grid, or part of one row, or zones."""
    shape: tuple[int, ...]
    """Shape of a chunk: time cells, then rows and columns (of one level), or zones, or series."""

    @property
    def bytes(self) -> int:
        """Size of the values of a chunk [bytes]."""
        size = 8
        for length in self.shape:
            size *= length
        return size


def make_streamed_plan(surface: Surface, allowed_bytes: int | None) -> tuple[Plan, ChunkLayout]:
    """Plan a surface in blocks that fit the memory budget, with its chunks.

    Parameters
    ----------
    surface
        The surface to compute.
    allowed_bytes
        Memory budget of the run [bytes]; by default half of the free memory.

    Raises
    ------
    TooLarge
        Steps computed once for all blocks, and the smallest block, need more.
    """
    allowed = free_bytes() // 2 if allowed_bytes is None else allowed_bytes
    final = make_plan(surface, streamed_cells=1).surface

    def planned(cells: int) -> tuple[Plan, ChunkLayout]:
        chunks = _make_chunks(final, cells, allowed)
        plan = make_plan(surface, streamed_cells=chunks.block_cells)
        # A chunk is copied once before compression, and exists in compressed form as well.
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
    """Return the greatest fitting number up to `maximum`, else 1; `fits` must be monotonic."""
    low, high = 1, maximum
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _make_chunks(final: Perspective, cells: int, allowed: int) -> ChunkLayout:
    """Return blocks of at most `cells` cells of the space, and their chunks."""
    max_bytes = max(SMALLEST_CHUNK, min(CHUNK_BYTES, allowed // (16 * WRITERS)))
    times, space = final.topology.time.count, final.topology.space
    if isinstance(space, ZoneCells | Points) and len(space.shape) == 1:
        columns = max(1, min(cells, space.count, max_bytes // 8))
        # Blocks begin where chunks do.
        return ChunkLayout(
            min(cells, space.count) // columns * columns, (_chunk_times(max_bytes, columns, times), columns)
        )
    if not isinstance(space, Grid | Points):
        # Perspectives at stations are computed as a whole.
        columns = max(1, min(space.count, max_bytes // 8))
        return ChunkLayout(space.count, (_chunk_times(max_bytes, columns, times), columns))
    *levels, height, width = space.shape
    level_shape = (1,) * len(levels)
    if cells < width:
        columns = _find_divisor(width, cells)
        return ChunkLayout(columns, (_chunk_times(max_bytes, columns, times), *level_shape, 1, columns))
    rows = min(max(1, max_bytes // (8 * width)), cells // width, height)
    if levels:
        # Each level begins with a new chunk.
        rows = _find_divisor(height, rows)
    # Blocks begin where chunks do.
    block = min(cells // width, space.count // width) // rows * rows
    return ChunkLayout(block * width, (_chunk_times(max_bytes, rows * width, times), *level_shape, rows, width))


def _chunk_times(maximum: int, places: int, times: int) -> int:
    return max(1, min(times, maximum // (8 * places)))


def _find_divisor(width: int, maximum: int) -> int:
    """Return the greatest divisor up to `maximum`, or `maximum` if far greater."""
    # If parts do not divide the whole, some blocks write parts of chunks: correct, but slower.
    greatest = next(part for part in range(maximum, 0, -1) if width % part == 0)
    return greatest if 4 * greatest >= maximum else maximum
