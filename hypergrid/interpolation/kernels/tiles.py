"""Large matrices in tiles, so that work on them gives way between two, is shared by threads and ends where it shall.

Each call of BLAS is of a tile and some of its neighbours, `MOST_OPERATIONS` at most: 7 ms of a processor that does 40 a
nanosecond. BLAS has one thread, and threads of ours share the rows of tiles: on a busy machine its own two took two
to five times the processor time of one.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.blas import one_thread, threads_for
from hypergrid.core.pacing import give_way
from hypergrid.interpolation.kernels.blas_in_place import add_product

Floats = NDArray[np.float64]
Piece = TypeVar("Piece")

TILE: Final = 256
"""Rows and columns of a tile (512 KiB): larger ones are hardly faster, and leave threads less to share."""
SPAN: Final = 8 * TILE
"""Columns of a row of tiles that one call is of."""
MOST_OPERATIONS: Final = 2 * TILE * TILE * SPAN
"""Multiplications and additions of one call."""
WORTH_THREADS: Final = 2048
"""Rows of a matrix from which threads share it: their module takes half a second to load."""


def tiles(stop: int, start: int = 0, *, step: int = TILE) -> Iterator[slice]:
    """Yield ranges of rows or columns, the last one shorter."""
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def spans(stop: int, start: int = 0) -> Iterator[slice]:
    """Yield ranges of columns of one call each."""
    return tiles(stop, start, step=SPAN)


def share_tiles(work: Callable[[Piece], None], pieces: Sequence[Piece], rows: int) -> None:
    """Do the work of each piece, on all processors where the matrix that it is of has enough rows."""
    if rows < WORTH_THREADS:
        for piece in pieces:
            give_way()
            work(piece)
        return
    from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

    share(work, pieces)


def multiply(a: Floats, b: Floats) -> Floats:
    """Return the product of two matrices; the rows, or the columns, of each are in C order."""
    rows, inner, columns = *a.shape, b.shape[1]
    operations = 2.0 * rows * inner * columns
    if operations <= MOST_OPERATIONS:
        with threads_for(operations / 2.0):
            return np.asarray(a @ b)
    result = np.zeros((rows, columns))

    def row(span: slice) -> None:
        for within in tiles(inner):
            for subset in spans(columns):
                give_way()
                add_product(result[span, subset], a[span, within], b[within, subset])

    with one_thread():
        share_tiles(row, list(tiles(rows)), max(rows, inner, columns))
    return result
