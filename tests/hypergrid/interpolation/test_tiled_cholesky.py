"""Large matrices in tiles: what LAPACK and numpy give, in calls of bounded work between which other work goes first."""

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.linalg import lapack

from hypergrid.core.errors import Cancelled
from hypergrid.core.pacing import pace_work
from hypergrid.interpolation.kernels import blas_in_place, tiled_cholesky
from hypergrid.interpolation.kernels.tiled_cholesky import (
    MOST_OPERATIONS,
    SPAN,
    TILE,
    WORTH_THREADS,
    decompose,
    invert,
    multiply,
    norm_of_inverse,
    solve,
    solve_lower,
)

Floats = NDArray[np.float64]

SIZES = [1, 2, TILE - 1, TILE, TILE + 1, 2 * TILE, 3 * TILE - 17]
"""Rows: one, a tile, one more and one less, several."""
LARGE = SPAN + TILE + 5
"""More columns than one call is of, by threads."""


def definite(size: int) -> Floats:
    random = np.random.default_rng(size)
    some = random.normal(size=(size, size))
    return np.asarray(some @ some.T / size + np.eye(size))


def factor_of(matrix: Floats) -> Floats:
    """Return the factor; what is above the diagonal is no number, so that whatever looks at it gives none."""
    factor = np.where(np.tri(len(matrix), dtype=bool), matrix, np.nan)
    decompose(factor)
    return factor


@pytest.mark.parametrize("size", [*SIZES, LARGE])
def test_factor_solutions_and_inverse_are_those_of_numpy(size: int) -> None:
    assert LARGE > WORTH_THREADS
    matrix, sides = definite(size), np.random.default_rng(1).normal(size=(5, size))
    factor = factor_of(matrix)
    assert np.allclose(np.tril(factor), np.linalg.cholesky(matrix), rtol=0, atol=1e-12)
    solved, half = sides.copy(), sides.copy()
    solve(factor, solved)
    assert np.allclose(solved @ matrix, sides, rtol=0, atol=1e-10)
    solve_lower(factor, half)
    assert np.allclose((half**2).sum(axis=1), np.einsum("ps,ps->p", solved, sides), rtol=1e-11)
    invert(factor)
    inverse = np.tril(factor) + np.tril(factor, -1).T
    assert np.allclose(sides @ inverse, solved, rtol=0, atol=1e-11)


def test_more_right_hand_sides_than_one_call_is_of() -> None:
    matrix, sides = definite(300), np.random.default_rng(1).normal(size=(2 * TILE + 1, 300))
    solved = sides.copy()
    solve(factor_of(matrix), solved)
    assert np.allclose(solved @ matrix, sides, rtol=0, atol=1e-11)


@pytest.mark.parametrize("size", SIZES)
def test_the_norm_of_an_inverse_is_that_of_lapack(size: int) -> None:
    random = np.random.default_rng(size)
    for matrix in (
        definite(size),
        np.exp(-np.abs(np.subtract.outer(*[random.uniform(0, 9, size)] * 2))) + np.eye(size),
    ):
        factor = factor_of(matrix)
        reciprocal, _ = lapack.dpocon(np.asfortranarray(np.tril(factor).T), 1.0, uplo="U")
        assert norm_of_inverse(factor) == pytest.approx(1.0 / reciprocal, rel=1e-9)
        assert norm_of_inverse(factor) <= np.linalg.norm(np.linalg.inv(matrix), 1) * (1.0 + 1e-9)


@pytest.mark.parametrize("row", [0, TILE, 2 * TILE + 3])
def test_what_is_not_positive_definite_has_no_factor(row: int) -> None:
    matrix = definite(2 * TILE + 9)
    matrix[row, row] = -1e-3
    with pytest.raises(np.linalg.LinAlgError, match="positive definite"):
        decompose(matrix)


@pytest.mark.parametrize("rows", [3, TILE + 1, LARGE])
def test_products_are_those_of_numpy_however_their_rows_lie(rows: int) -> None:
    random = np.random.default_rng(rows)
    a, b = random.normal(size=(rows, 700)), random.normal(size=(700, 400))
    for left in (a, np.asfortranarray(a)):
        for right in (b, np.asfortranarray(b), b[:, :1], b[:, :0]):
            assert np.allclose(multiply(left, right), a @ right, rtol=0, atol=1e-10)
    wide = random.normal(size=(700, 900))
    assert np.allclose(multiply(a, wide[:, 100:500]), a @ wide[:, 100:500], rtol=0, atol=1e-10)


@pytest.mark.parametrize("of", [lambda a: a[:, ::2], lambda a: a[::-1], lambda a: a.astype(np.float32)])
def test_arrays_that_blas_would_misread_are_refused(of: Callable[[Floats], Floats]) -> None:
    with pytest.raises(ValueError, match="rows of float64 in C order"):
        blas_in_place.decompose(of(definite(8))[:4, :4])


class Watch:
    """A pace that counts how much was done between two questions, and may end the work at one of them."""

    waited_s = 0.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, ends_at: int | None = None) -> None:
        self.between, self.asked, self._ends_at = [0.0], 0, ends_at
        self.greatest = 0.0
        for name in ("add_product", "add_square", "divide_by", "multiply_by", "decompose", "invert", "square"):
            monkeypatch.setattr(blas_in_place, name, self._counted(getattr(blas_in_place, name)))
        monkeypatch.setattr(tiled_cholesky, "add_product", blas_in_place.add_product)

    def _counted(self, routine: Callable[..., None]) -> Callable[..., None]:
        def counted(*arrays: Floats, **options: Any) -> None:  # noqa: ANN401
            # Of what is triangular at most: a half of it, or a sixth, is left out.
            product = len(arrays) == 3
            operations = 2.0 * (arrays[0].size * arrays[1].shape[1] if product else arrays[-1].size * len(arrays[0]))
            self.between[-1] += operations
            self.greatest = max(self.greatest, operations)
            routine(*arrays, **options)

        return counted

    def give_way(self) -> None:
        self.asked += 1
        self.between.append(0.0)
        if self.asked == self._ends_at:
            message = "nobody wants it any more"
            raise Cancelled(message)


WORK: dict[str, Callable[[Floats], object]] = {
    "factor": lambda matrix: decompose(matrix),
    "inverse": lambda matrix: invert(matrix),
    "solution": lambda matrix: solve(matrix, np.ones((TILE, len(matrix)))),
    "product": lambda matrix: multiply(matrix, matrix),
}
ROWS = 6 * TILE + 1


@pytest.mark.parametrize("name", WORK)
def test_work_gives_way_between_calls_of_bounded_work(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ROWS < WORTH_THREADS
    watch, matrix = Watch(monkeypatch), definite(ROWS)
    with pace_work(watch):
        WORK[name](matrix)
    assert 0 < watch.greatest <= MOST_OPERATIONS
    assert max(watch.between) <= 2 * MOST_OPERATIONS
    assert sum(watch.between) > ROWS**3 / 3.0


@pytest.mark.parametrize("ends_at", [1, 2, 7])
@pytest.mark.parametrize("name", WORK)
def test_work_that_is_stopped_does_nothing_more(name: str, ends_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watch, matrix = Watch(monkeypatch, ends_at=ends_at), definite(ROWS)
    with pytest.raises(Cancelled), pace_work(watch):
        WORK[name](matrix)
    assert watch.asked == ends_at
    assert watch.between[-1] == 0.0


def test_other_threads_run_during_a_call() -> None:
    """Python's lock would let another thread wake up once, when the call ends."""
    a, c = np.ones((1500, 1500)), np.zeros((1500, 1500))
    woken, is_over = [0], threading.Event()

    def wake() -> None:
        while not is_over.is_set():
            time.sleep(1e-3)
            woken[0] += 1

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        during = 0
        for _ in range(50):
            before = woken[0]
            blas_in_place.add_product(c, a, a)
            during = max(during, woken[0] - before)
            if during > 5:
                break
    finally:
        is_over.set()
        thread.join()
    assert during > 5
