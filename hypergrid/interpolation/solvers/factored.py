"""The kriging system of a network that is too large to be inverted for every query: its Cholesky factor, in one matrix.

An inverse of LU and its check take 4 n^3 operations and three matrices of n^2 numbers; 11,000 stations took 136 s and
4 GB. Estimates need the factor alone, n^3 / 3 operations in one matrix, and so do their variances where no station is
missing. Whoever needs the inverse (stations that are missing from some slices, variances of means) gets it in the place
of the factor, for 2 n^3 / 3 more. All of it goes tile by tile (`tiled_cholesky.py`) and gives way in between.

With an unknown constant mean any constant may be added to the covariances (`system.py`): a sill, or the semivariance
across the network, makes them positive definite. They are taken in its units. Drift functions are eliminated: with `W`
what solves the system for them and `S = F' W`, the block of the stations is `inv(K) - W inv(S) W'`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import SingularSystem
from hypergrid.core.pacing import give_way
from hypergrid.interpolation.kernels.covariance import negative_semivariance
from hypergrid.interpolation.kernels.tiled_cholesky import (
    decompose,
    invert,
    multiply,
    norm_of_inverse,
    solve,
    solve_lower,
)
from hypergrid.interpolation.solvers.system import MAX_ROUNDING, KrigingSystem

Floats = NDArray[np.float64]

ROWS_PAIRS: Final = 2**19
"""Numbers of a band of rows that is made, or moved, at once (4 MiB)."""
MAX_NEAREST: Final = 32
"""Stations whose own share of the variance is looked at: those that are nearest to another one."""
SIDES_AT_ONCE: Final = 2**22
"""Numbers of right-hand sides that are solved at once (32 MiB)."""
ASKED_S: Final = 0.02
"""How often work that waits for the system gives way [s]."""


def shift_of(system: KrigingSystem) -> float:
    """Return what makes the covariances of a system positive definite; an unknown constant mean takes up any shift."""
    model = system.model
    if system.drift.drift.mean is not None:
        return 0.0
    if model.is_bounded:
        return model.sill
    extent = np.ptp(system.isotropic_m, axis=0)
    return float(model.semivariance(np.array([np.linalg.norm(extent)]))[0])


@dataclass(frozen=True)
class Condition:
    """How far a system is from one without a unique solution."""

    number: float
    """Upper bound of the condition number in the 1-norm, of covariances in units of the largest: their number times the
    norm of the inverse, which is estimated as LAPACK's pocon does."""
    own: float
    """Least share of a station's variance, in units of the largest covariance, that the others do not explain, as the
    stations nearest to another one have it."""


class FactoredSystem:
    """A kriging system that is solved by its factor, and inverted in the same memory where the inverse is needed."""

    def __init__(self, system: KrigingSystem, *, label: str) -> None:
        """Factor the system of a method; `who` is its name, for messages.

        Raises
        ------
        SingularSystem
            It has no unique solution to working precision.
        """
        self._system, self._label = system, label
        self._lock = threading.Lock()
        count, size = system.stations.count, system.size
        self._shift = shift_of(system)
        self._unit = system.origin + self._shift
        """Largest covariance: what all are divided by."""
        if not self._unit > 0 or not np.isfinite(self._unit):
            raise self._singular_error(np.inf)
        # Room for the bordered matrix, so that the inverse needs no second one.
        self._workspace = np.empty(size * size)
        self._factor = self._workspace[: count * count].reshape(count, count)
        self._inverse: Floats | None = None
        self._is_torn = False
        """Whether an inversion has ended before its end, and left neither the factor nor the inverse."""
        self._decompose()

    def _decompose(self) -> None:
        system, count = self._system, len(self._factor)
        norm = self._fill_covariances()
        try:
            decompose(self._factor)
        except np.linalg.LinAlgError:
            raise self._singular_error(np.inf) from None
        of_inverse = norm_of_inverse(self._factor)
        if not norm * of_inverse * np.finfo(np.float64).eps <= MAX_ROUNDING:
            raise self._singular_error(norm * of_inverse)
        self.condition = Condition(count * of_inverse, self._find_own_share())
        self._functions = np.asarray(system.drift.columns(system.stations), dtype=np.float64).reshape(count, -1)
        """Drift functions at the stations, shape (stations, functions)."""
        self._solved_functions = self._solve(self._functions)
        self._reduced = self._invert_reduced()

    @property
    def nbytes(self) -> int:
        """What it takes [bytes]."""
        return int(self._workspace.nbytes)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Let one thread at a time use the memory: the inverse is made in the place of the factor.

        The one that holds it gives way between tiles. So does one that waits for it: had that one the only turn of a
        queue, each would wait for the other.
        """
        while not self._lock.acquire(timeout=ASKED_S):
            give_way()
        try:
            if self._is_torn:
                self._decompose()
                self._is_torn = False
            yield
        finally:
            self._lock.release()

    def dual(self, values: Floats) -> Floats:
        """Return the product of the inverse with values of the stations, shape (stations + functions, slices).

        Parameters
        ----------
        values
            Shape (slices, stations); a row NaN as a whole or not at all.
        """
        count = self._system.stations.count
        is_complete = np.asarray(np.isfinite(values).all(axis=1))
        with self._held():
            if self._inverse is not None:
                return multiply(values, self._inverse[:count]).T
            solved = self._solve(np.where(is_complete[:, None], values, 0.0).T)
        coefficients = self._reduced @ (self._functions.T @ solved)
        solved -= self._solved_functions @ coefficients
        result = np.concatenate([solved / self._unit, coefficients])
        result[:, ~is_complete] = np.nan
        return result

    def reduction(self, sides: Floats) -> Floats:
        """Return by how much each target's variance is less than its own: `sides inv(matrix) sides'`, shape (targets,).

        Parameters
        ----------
        sides
            Right-hand sides, shape (targets, stations + functions).
        """
        count = self._system.stations.count
        with self._held():
            if self._inverse is not None:
                return np.asarray(np.einsum("ps,ps->p", multiply(sides, self._inverse), sides))
            result = np.empty(len(sides))
            step = max(1, SIDES_AT_ONCE // count)
            for start in range(0, len(sides), step):
                batch = sides[start : start + step]
                right = (batch[:, :count] + self._shift) / self._unit
                missed = right @ self._solved_functions - batch[:, count:]
                solve_lower(self._factor, right)
                explained = np.einsum("ps,ps->p", right, right)
                explained -= np.einsum("pf,fg,pg->p", missed, self._reduced, missed)
                result[start : start + step] = explained * self._unit - self._shift
        return result

    @property
    def inverse(self) -> Floats:
        """Inverse of the bordered matrix, made at the first call in the place of the factor, shape (size, size)."""
        with self._held():
            if self._inverse is None:
                self._is_torn = True
                self._inverse = self._invert()
                self._is_torn = False
            return self._inverse

    @property
    def is_inverted(self) -> bool:
        """Whether the inverse is there already."""
        return self._inverse is not None

    def _fill_covariances(self) -> float:
        """Put covariances into the lower triangle; return the 1-norm of the whole matrix."""
        system, count = self._system, len(self._factor)
        sums = np.zeros(count)
        step = max(1, ROWS_PAIRS // count)
        room = np.empty((min(step, count), count))
        for start in range(0, count, step):
            give_way()
            rows = slice(start, min(start + step, count))
            # In place: new memory costs more than the arithmetic.
            band = negative_semivariance(
                system.isotropic_m[rows],
                system.isotropic_m[: rows.stop],
                system.model,
                origin=self._unit,
                job_pairs=count * count // 2,
                out=self._factor[rows, : rows.stop],
            )
            band /= self._unit
            within = np.arange(rows.stop - rows.start)
            band[within, start + within] = 1.0
            size = np.abs(band, out=room[: len(band), : rows.stop])
            sums[rows] += size.sum(axis=1)
            # What lies right of the diagonal is what lies below it.
            sums[:start] += size[:, :start].sum(axis=0)
        return float(sums.max(initial=0.0))

    def _solve(self, right: Floats) -> Floats:
        """Return what solves the covariances, in their unit, for columns, shape (stations, columns)."""
        sides = np.array(right.T, order="C")
        solve(self._factor, sides)
        return sides.T

    def _invert_reduced(self) -> Floats:
        functions = self._functions.shape[1]
        if not functions:
            return np.empty((0, 0))
        reduced = self._functions.T @ self._solved_functions
        # Coordinates are large and the constant is one: scaled, the functions are alike.
        scale = np.sqrt(np.diagonal(reduced))
        if not (scale > 0).all():
            raise self._singular_error(np.inf)
        scaled = reduced / scale / scale[:, None]
        number = float(np.linalg.cond(scaled))
        if not number * np.finfo(np.float64).eps <= MAX_ROUNDING:
            raise self._singular_error(number)
        return np.asarray(np.linalg.inv(scaled) / scale / scale[:, None])

    def _find_own_share(self) -> float:
        """Return the least own share of variance of the stations that are nearest to another one."""
        places_m, count = self._system.isotropic_m, len(self._factor)
        distance_m = scipy.spatial.cKDTree(places_m).query(places_m, k=[2])[0][:, 0]
        looked = np.argsort(distance_m, kind="stable")[:MAX_NEAREST]
        columns = np.zeros((len(looked), count))
        columns[np.arange(len(looked)), looked] = 1.0
        # inv(K)[i, i] is the squared length of the i-th column of the inverted factor.
        solve_lower(self._factor, columns)
        return float(1.0 / np.einsum("ps,ps->p", columns, columns).max(initial=1.0))

    def _invert(self) -> Floats:
        count, size = self._system.stations.count, self._system.size
        invert(self._factor)
        right = self._solved_functions @ self._reduced
        step = max(1, ROWS_PAIRS // count)
        for start in range(0, count, step):
            give_way()
            rows = slice(start, min(start + step, count))
            band = self._factor[rows, : rows.stop]
            band -= right[rows] @ self._solved_functions[: rows.stop].T
            band /= self._unit
            self._factor[:start, rows] = band[:, :start].T
            square = band[:, start:]
            upper = np.triu_indices(len(square), 1)
            square[upper] = square.T[upper]
        whole = self._workspace.reshape(size, size)
        if size > count:
            # From the last row on, each goes where no row lies that has not yet gone.
            for row in range(count - 1, -1, -1):
                give_way()
                whole[row, :count] = self._workspace[row * count : (row + 1) * count].copy()
            whole[:count, count:] = right
            whole[count:, :count] = right.T
            whole[count:, count:] = -self._unit * self._reduced
            whole[count:, count:] += self._constant_part()
        whole.setflags(write=False)
        return whole

    def _constant_part(self) -> Floats:
        """Return what the shift of the covariances took from the block of the drift functions."""
        functions = self._functions.shape[1]
        part = np.zeros((functions, functions))
        # The first function is the constant wherever the mean is unknown.
        part[0, 0] = self._shift
        return part

    def _singular_error(self, number: float) -> SingularSystem:
        shown = "too large to be computed" if not np.isfinite(number) else f"{number:.0e}"
        message = (
            f"{self._label} needs a variogram under which the {self._system.stations.count:,} stations differ; the "
            f"system is singular to working precision (condition number {shown}); raise the nugget, shorten the "
            "range, or use the exponential or spherical model, or krige from the nearest stations (neighbours=…)"
        )
        return SingularSystem(message)
