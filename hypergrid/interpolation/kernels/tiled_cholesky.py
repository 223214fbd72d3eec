"""Cholesky factor, triangular solves and inverse of a large matrix, in its own memory, tile by tile.

Matrices are in C order, and only their lower triangle counts; right-hand sides are rows. All walks over the tiles are
right-looking (Golub and Van Loan 2013, 4.2.9; Bientinesi, Gunter and van de Geijn 2008 for the inverse): what a step
does to one row of tiles does not depend on what it does to the others, so that threads share them. They take as many
operations as the routines of LAPACK for whole matrices, and no longer.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.blas import one_thread, threads_for
from hypergrid.core.pacing import give_way
from hypergrid.interpolation.kernels import blas_in_place as on_tile
from hypergrid.interpolation.kernels.blas_in_place import add_product

Floats = NDArray[np.float64]


# Large matrices in tiles, so that work on them gives way between two, is shared by threads and ends where it shall.
#
# Each call of BLAS is of a tile and some of its neighbours, `MOST_OPERATIONS` at most: 7 ms of a processor that does 40
# a nanosecond. BLAS has one thread, and threads of ours share the rows of tiles: on a busy machine its own two took two
# to five times the processor time of one.

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


MOST_COLUMNS: Final = 4
"""Columns of an inverse that are looked at for its norm; mostly one or two are."""


def decompose(matrix: Floats) -> None:
    """Put the lower Cholesky factor of a symmetric matrix in the place of its lower triangle.

    Parameters
    ----------
    matrix
        Shape (rows, rows); what is above the diagonal is not looked at.

    Raises
    ------
    numpy.linalg.LinAlgError
        The matrix is not positive definite.
    """
    count = len(matrix)
    with one_thread():
        for tile in tiles(count):
            give_way()
            on_tile.decompose(matrix[tile, tile])
            below = list(tiles(count, tile.stop))
            share_tiles(partial(_divide_rows, matrix, tile), below, count)
            # The longest rows first, so that no thread is left with one.
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
    """Put the inverse of a matrix, its lower triangle, in the place of the matrix's factor.

    Where it ends in between, as a query does that is stopped, neither is there.
    """
    count = len(factor)
    with one_thread():
        for tile in tiles(count):
            give_way()
            share_tiles(partial(_invert_row, factor, tile), list(tiles(count, tile.stop)), count)
            share_tiles(partial(_divide_columns, factor, tile), list(spans(tile.start)), count)
            on_tile.invert(factor[tile, tile])
        # The inverse is the square of the inverted factor.
        for tile in tiles(count):
            give_way()
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
    """Put what solves a factor for right-hand sides in their place, shape (sides, rows of the factor), in C order."""
    _solve_in_parts(partial(_solve_forwards, factor), sides)


def solve(factor: Floats, sides: Floats) -> None:
    """Put what solves a matrix, by its factor, for right-hand sides in their place, as `solve_lower` does."""
    _solve_in_parts(partial(_solve_both_ways, factor), sides)


def _solve_in_parts(work: Callable[[Floats], None], sides: Floats) -> None:
    with one_thread():
        share_tiles(work, [sides[tile] for tile in tiles(len(sides))], sides.shape[1])


def _solve_both_ways(factor: Floats, sides: Floats) -> None:
    _solve_forwards(factor, sides)
    _solve_backwards(factor, sides)


def _solve_forwards(factor: Floats, sides: Floats) -> None:
    for tile in tiles(len(factor)):
        give_way()
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
    """Return an estimate, from below, of the 1-norm of the inverse of a matrix, by its factor.

    It is that of LAPACK's pocon: Higham (1988), ACM Transactions on Mathematical Software 14, algorithm 4.1.
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
    # Where all that was looked at cancels out, this does not.
    alternating = np.linspace(1.0, 2.0, count)
    alternating[1::2] *= -1.0
    return max(norm, 2.0 * float(np.abs(solved(alternating)).sum()) / (3.0 * count))
