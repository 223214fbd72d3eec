"""Tiled Cholesky factorisation, triangular solves and inverse of a large matrix, in place.

Matrices are in C order and only their lower triangle is used; right-hand sides are rows. All loops over the tiles are
right-looking (Golub and Van Loan 2013, 4.2.9; Bientinesi, Gunter and van de Geijn 2008 for the inverse): the updates of
different rows of tiles are independent, and threads can share them. They need as many operations as LAPACK's routines
for whole matrices, and take no longer.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np

from hypergrid.core.blas import one_thread, threads_for
from hypergrid.core.pacing import give_way, split_work
from hypergrid.interpolation.kernels import blas_in_place as on_tile
from hypergrid.interpolation.kernels.blas_in_place import Floats, add_product

# Large matrices are processed in tiles, so that long work yields to other work between tiles, is shared by threads and
# can be cancelled.
#
# A BLAS call covers one tile and a few of its neighbours, `MOST_OPERATIONS` at most: 7 ms on a processor that does 40
# operations per nanosecond. BLAS runs with one thread, and our own threads share the rows of tiles: on a busy machine
# two BLAS threads took two to five times the processor time of one.

Piece = TypeVar("Piece")

# Larger tiles are hardly faster, and leave less for threads to share.
TILE: Final = 256
"""Rows and columns of a tile (512 KiB)."""
SPAN: Final = 8 * TILE
"""Columns that one call covers in a row of tiles."""
MOST_OPERATIONS: Final = 2 * TILE * TILE * SPAN
"""Multiplications and additions in one call."""
# Loading the module of the threads takes half a second.
WORTH_THREADS: Final = 2048
"""Rows of a matrix from which threads are used."""


def tiles(stop: int, start: int = 0, *, step: int = TILE) -> Iterator[slice]:
    """Yield ranges of `step` rows or columns; the last one may be shorter."""
    for first in range(start, stop, step):
        yield slice(first, min(first + step, stop))


def spans(stop: int, start: int = 0) -> Iterator[slice]:
    """Yield the column ranges of single calls."""
    return tiles(stop, start, step=SPAN)


def share_tiles(work: Callable[[Piece], None], pieces: Sequence[Piece], rows: int) -> None:
    """Run `work` on each piece, on all processors from `WORTH_THREADS` rows."""
    run_pieces(work, pieces, on_threads=rows >= WORTH_THREADS)


def run_pieces(work: Callable[[Piece], None], pieces: Sequence[Piece], *, on_threads: bool) -> None:
    """Run `work` on each piece, on all processors or here; give way before each."""
    if not on_threads:
        for piece in pieces:
            give_way()
            work(piece)
        return
    # Importing this module takes half a second.
    from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

    share(work, pieces)


def multiply(a: Floats, b: Floats) -> Floats:
    """Multiply two matrices, each with its rows or its columns in C order."""
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


MOST_COLUMNS: Final = 4
"""Maximum columns of an inverse inspected to estimate its norm; usually one or two suffice."""


def decompose(matrix: Floats) -> None:
    """Overwrite the lower triangle of a symmetric matrix with its Cholesky factor.

    Parameters
    ----------
    matrix
        Shape (rows, rows); the part above the diagonal is ignored.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite.
    """
    count = len(matrix)
    with one_thread():
        for tile in split_work(count, TILE):
            on_tile.decompose(matrix[tile, tile])
            below = list(tiles(count, tile.stop))
            share_tiles(partial(_divide_rows, matrix, tile), below, count)
            # Longest rows first, so that no thread is left with one at the end.
            share_tiles(partial(_reduce_row, matrix, tile), below[::-1], count)


def _divide_rows(matrix: Floats, span: slice, rows: slice) -> None:
    on_tile.divide_by(matrix[span, span], matrix[rows, span], side="right", transposed=True)


def _reduce_row(matrix: Floats, span: slice, rows: slice) -> None:
    left = matrix[rows, span]
    for columns in spans(rows.start, span.stop):
        on_tile.add_product(matrix[rows, columns], left, matrix[columns, span].T, sign=-1.0)
        give_way()
    on_tile.add_square(matrix[rows, rows], left, sign=-1.0)


def invert(factor: Floats) -> None:
    """Overwrite the Cholesky factor of a matrix with the lower triangle of the matrix's inverse.

    If interrupted, as when a query is cancelled, the array holds neither of the two.
    """
    count = len(factor)
    with one_thread():
        for tile in split_work(count, TILE):
            share_tiles(partial(_invert_row, factor, tile), list(tiles(count, tile.stop)), count)
            share_tiles(partial(_divide_columns, factor, tile), list(spans(tile.start)), count)
            on_tile.invert(factor[tile, tile])
        # The inverse of the matrix is `L' L`, with L the inverted factor.
        for tile in split_work(count, TILE):
            share_tiles(partial(_square_row, factor, tile), list(tiles(tile.start))[::-1], count)
            share_tiles(partial(_multiply_columns, factor, tile), list(spans(tile.start)), count)
            on_tile.square(factor[tile, tile])


def _invert_row(matrix: Floats, span: slice, rows: slice) -> None:
    left = matrix[rows, span]
    on_tile.divide_by(matrix[span, span], left, side="right", sign=-1.0)
    for columns in spans(span.start):
        give_way()
        on_tile.add_product(matrix[rows, columns], left, matrix[span, columns])


def _divide_columns(matrix: Floats, span: slice, columns: slice) -> None:
    on_tile.divide_by(matrix[span, span], matrix[span, columns], side="left")


def _square_row(matrix: Floats, span: slice, rows: slice) -> None:
    right = matrix[span, rows].T
    for columns in spans(rows.start):
        on_tile.add_product(matrix[rows, columns], right, matrix[span, columns])
        give_way()
    on_tile.add_square(matrix[rows, rows], right)


def _multiply_columns(matrix: Floats, span: slice, columns: slice) -> None:
    on_tile.multiply_by(matrix[span, span], matrix[span, columns], side="left", transposed=True)


def solve_lower(factor: Floats, sides: Floats) -> None:
    """Solve `L y = b` in place for right-hand sides of shape (sides, rows of the factor), in C order."""
    _solve_in_parts(partial(_solve_forwards, factor), sides)


def solve(factor: Floats, sides: Floats) -> None:
    """Solve for right-hand sides in place, given the Cholesky factor; shapes as in `solve_lower`."""
    _solve_in_parts(partial(_solve_both_ways, factor), sides)


def _solve_in_parts(work: Callable[[Floats], None], sides: Floats) -> None:
    with one_thread():
        share_tiles(work, [sides[tile] for tile in tiles(len(sides))], sides.shape[1])


def _solve_both_ways(factor: Floats, sides: Floats) -> None:
    _solve_forwards(factor, sides)
    _solve_backwards(factor, sides)


def _solve_forwards(factor: Floats, sides: Floats) -> None:
    for tile in split_work(len(factor), TILE):
        solved = sides[:, tile]
        on_tile.divide_by(factor[tile, tile], solved, side="right", transposed=True)
        for columns in spans(len(factor), tile.stop):
            on_tile.add_product(sides[:, columns], solved, factor[columns, tile].T, sign=-1.0)
            give_way()


def _solve_backwards(factor: Floats, sides: Floats) -> None:
    for tile in list(tiles(len(factor)))[::-1]:
        give_way()
        solved = sides[:, tile]
        on_tile.divide_by(factor[tile, tile], solved, side="right")
        for columns in spans(tile.start):
            on_tile.add_product(sides[:, columns], solved, factor[tile, columns], sign=-1.0)
            give_way()


def norm_of_inverse(factor: Floats) -> float:
    """Estimate a lower bound of the 1-norm of a matrix's inverse from its Cholesky factor.

    Same method as LAPACK's pocon: Higham (1988), ACM Transactions on Mathematical Software 14, algorithm 4.1.
    """
    count = len(factor)

    def solved(side: Floats) -> Floats:
        solve(factor, side[None])
        return side

    column = solved(np.full(count, 1.0 / count))
    norm, signs, last = float(np.abs(column).sum()), np.copysign(1.0, column), -1
    for _ in range(MOST_COLUMNS):
        sizes = np.abs(solved(signs.copy()))
        greatest = int(sizes.argmax())
        if last >= 0 and sizes[greatest] == sizes[last]:
            break
        column, last = np.zeros(count), greatest
        column[greatest] = 1.0
        solved(column)
        before, norm, before_signs = norm, float(np.abs(column).sum()), signs
        signs = np.copysign(1.0, column)
        if norm <= before or (signs == before_signs).all():
            norm = max(norm, before)
            break
    # This vector catches the matrices for which all inspected columns cancel out.
    alternating = np.linspace(1.0, 2.0, count)
    alternating[1::2] *= -1.0
    return max(norm, 2.0 * float(np.abs(solved(alternating)).sum()) / (3.0 * count))
