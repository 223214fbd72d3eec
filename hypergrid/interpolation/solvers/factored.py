"""Kriging system of a large network, solved by its Cholesky factor in one matrix.

It serves networks too large to be inverted for every query. Estimates need only the factor, n^3 / 3 operations in one
matrix of n^2 numbers, and so do variances if no station is missing. When the inverse is needed (stations missing from
some slices, variances of means), it replaces the factor, for 2 n^3 / 3 more operations. All of this runs tile by tile
(`tiled_cholesky.py`) and yields to other work between tiles.

With an unknown constant mean any constant may be added to the covariances (`system.py`): a sill, or the semivariance
across the network, makes them positive definite. They are scaled by the largest one. Drift functions are eliminated:
with `W` the solution of the system for them and `S = F' W`, the block of the stations is `inv(K) - W inv(S) W'`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # submodules load on first use: most queries need none

from hypergrid.core.errors import SingularSystem
from hypergrid.core.pacing import give_way, split_work
from hypergrid.interpolation.kernels.covariance import Covariance
from hypergrid.interpolation.kernels.tiled_cholesky import (
    decompose,
    invert,
    multiply,
    norm_of_inverse,
    solve,
    solve_lower,
)
from hypergrid.interpolation.points import Floats
from hypergrid.interpolation.solvers.system import MAX_ROUNDING, KrigingSystem

ROWS_PAIRS: Final = 2**19
"""Numbers in a band of rows that is computed, or moved, at once (4 MiB)."""
MAX_NEAREST: Final = 32
"""Stations whose unexplained variance is inspected: those nearest to another one."""
SIDES_AT_ONCE: Final = 2**22
"""Numbers in right-hand sides that are solved at once (32 MiB)."""
ASKED_S: Final = 0.02
"""Interval at which a thread waiting for the system yields to other work [s]."""


@dataclass(frozen=True)
class Condition:
    """Distance of a system from singularity."""

    number: float
    """Condition number (1-norm) of covariances in units of the largest, or a close upper bound of it."""
    own: float
    """Least share of a station's variance that the others do not explain, in units of the largest covariance."""


# An inverse by LU and its check take 4 n^3 operations and three matrices of n^2 numbers: 11,000 stations took 136 s and
# 4 GB.
class FactoredSystem:
    """Kriging system solved by its factor, and inverted on demand in the same memory."""

    def __init__(self, system: KrigingSystem) -> None:
        """Factorise the system of a method.

        Raises
        ------
        SingularSystem
            The system has no unique solution to working precision.
        """
        self._system = system
        self._lock = threading.Lock()
        count, size = system.stations.count, system.size
        self._shift = system.shift
        self._unit = system.origin + self._shift
        """Largest covariance, by which all are divided."""
        if not self._unit > 0 or not np.isfinite(self._unit):
            raise self._singular_error(np.inf)
        # Sized for the bordered matrix, so that the inverse needs no second one.
        self._workspace = np.empty(size * size)
        self._factor = self._workspace[: count * count].reshape(count, count)
        self._inverse: Floats | None = None
        self._is_torn = False
        """Whether an interrupted inversion left neither the factor nor the inverse."""
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
        # The number of covariances times the norm of the inverse, estimated as LAPACK's pocon does, is an upper bound.
        self.condition = Condition(count * of_inverse, self._find_own_share())
        self._functions = np.asarray(system.drift.columns(system.stations), dtype=np.float64).reshape(count, -1)
        """Drift functions at the stations, shape (stations, functions)."""
        self._solved_functions = self._solve(self._functions)
        self._reduced = self._invert_reduced()

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Lock the memory for one thread, restoring the factor if necessary: the inverse overwrites it."""
        # The holder yields between tiles, so the waiter must yield too: if it held the only turn of the block queue,
        # the two would deadlock.
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
        """Multiply the inverse by values of the stations, shape (stations + functions, slices).

        Parameters
        ----------
        values
            Shape (slices, stations); each row is NaN throughout or nowhere.
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
        """Compute how much kriging reduces each target's variance: `sides inv(matrix) sides'`, shape (targets,).

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
            for span in split_work(len(sides), SIDES_AT_ONCE // count):
                batch = sides[span]
                right = (batch[:, :count] + self._shift) / self._unit
                missed = right @ self._solved_functions - batch[:, count:]
                solve_lower(self._factor, right)
                explained = np.einsum("ps,ps->p", right, right)
                explained -= np.einsum("pf,fg,pg->p", missed, self._reduced, missed)
                result[span] = explained * self._unit - self._shift
        return result

    @property
    def inverse(self) -> Floats:
        """Inverse of the bordered matrix, shape (size, size); replaces the factor at the first access."""
        with self._held():
            if self._inverse is None:
                self._is_torn = True
                self._inverse = self._invert()
                self._is_torn = False
            return self._inverse

    def _fill_covariances(self) -> float:
        """Write covariances into the lower triangle; return the 1-norm of the whole matrix."""
        system, count = self._system, len(self._factor)
        sums = np.zeros(count)
        step = max(1, ROWS_PAIRS // count)
        room = np.empty((min(step, count), count))
        covariance = Covariance(system.model, self._unit)
        for rows in split_work(count, step):
            # In place: allocating memory costs more than the arithmetic.
            band = covariance.evaluate(
                system.isotropic_m[rows],
                system.isotropic_m[: rows.stop],
                job_pairs=count * count // 2,
                out=self._factor[rows, : rows.stop],
            )
            band /= self._unit
            within = np.arange(rows.stop - rows.start)
            band[within, rows.start + within] = 1.0
            size = np.abs(band, out=room[: len(band), : rows.stop])
            sums[rows] += size.sum(axis=1)
            # By symmetry, column sums of the lower triangle are row sums of the upper one.
            sums[: rows.start] += size[:, : rows.start].sum(axis=0)
        return float(sums.max(initial=0.0))

    def _solve(self, right: Floats) -> Floats:
        """Solve the scaled covariances for columns, shape (stations, columns)."""
        sides = np.array(right.T, order="C")
        solve(self._factor, sides)
        return sides.T

    def _invert_reduced(self) -> Floats:
        functions = self._functions.shape[1]
        if not functions:
            return np.empty((0, 0))
        reduced = self._functions.T @ self._solved_functions
        # Coordinates are large and the constant is one: scaling makes the functions comparable.
        scale = np.sqrt(np.diagonal(reduced))
        if not (scale > 0).all():
            raise self._singular_error(np.inf)
        scaled = reduced / scale / scale[:, None]
        number = float(np.linalg.cond(scaled))
        if not number * np.finfo(np.float64).eps <= MAX_ROUNDING:
            raise self._singular_error(number)
        return np.asarray(np.linalg.inv(scaled) / scale / scale[:, None])

    def _find_own_share(self) -> float:
        """Find the least unexplained share of variance among the stations nearest to another one."""
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
        for rows in split_work(count, ROWS_PAIRS // count):
            band = self._factor[rows, : rows.stop]
            band -= right[rows] @ self._solved_functions[: rows.stop].T
            band /= self._unit
            self._factor[: rows.start, rows] = band[:, : rows.start].T
            square = band[:, rows.start :]
            upper = np.triu_indices(len(square), 1)
            square[upper] = square.T[upper]
        whole = self._workspace.reshape(size, size)
        if size > count:
            # From the last row backwards, so that no row is overwritten before it is moved.
            for row in range(count - 1, -1, -1):
                give_way()
                whole[row, :count] = self._workspace[row * count : (row + 1) * count].copy()
            whole[:count, count:] = right
            whole[count:, :count] = right.T
            whole[count:, count:] = -self._unit * self._reduced
            # Part of the covariances' shift: the first function is the constant, as the mean is not known.
            whole[count, count] += self._shift
        whole.setflags(write=False)
        return whole

    def _singular_error(self, number: float) -> SingularSystem:
        shown = "too large to be computed" if not np.isfinite(number) else f"{number:.0e}"
        message = (
            f"{self._system.label} needs a variogram under which the {self._system.stations.count:,} stations differ; "
            f"the system is singular to working precision (condition number {shown}); raise the nugget, shorten the "
            "range, or use the exponential or spherical model, or krige from the nearest stations (neighbours=…)"
        )
        return SingularSystem(message)
