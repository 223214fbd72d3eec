"""Compiled factorisation of a small kriging system, and its solution for single targets.

With C the covariances within a set of stations, F its drift functions, c and f those of a target: `L L' = C`, `Q R =
inv(L) F`, `y = inv(L) c`, `g = inv(R') f`, `h = Q' y - g`. Then the weights are `inv(L') (y - Q h)`, and the variance
is `c(0) - y'y + h'h` (Lawson and Hanson 1974, chapters 22 and 25). This module is independent of the variogram.

Rows are padded with zeros to a multiple of `LANES` numbers.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.local_task import INDEPENDENT, LANES, VARIANCES, Factors, Floats
from hypergrid.interpolation.kernels.threads import jit_kernel

Numbers = NDArray[np.int32]

# Below it, too many digits are lost.
MIN_PIVOT = 1e-10
"""Least share of a station's variance not explained by those before it."""
FINE, UNDETERMINED, SINGULAR = 0, 1, 2
"""Outcome of factorising a set."""


# Loops run over blocks of eight numbers, which the compiler turns into one or two instructions; its own code for rows
# of unknown length was five times slower at 20 stations.
@jit_kernel(reordered=True, counted=False, wrapped=False)
def dot(a: Floats, b: Floats, count: int) -> float:
    """Compute the dot product of two padded rows."""
    total = 0.0
    for start in range(0, count, LANES):
        for lane in range(LANES):
            total += a[start + lane] * b[start + lane]
    return total


@jit_kernel(counted=False, wrapped=False)
def axpy(a: Floats, b: Floats, factor: float, start: int, count: int) -> None:
    """Subtract `factor` times padded row `b` from row `a`, starting with the block that contains `start`."""
    for first in range(start & -LANES, count, LANES):
        for lane in range(LANES):
            a[first + lane] -= factor * b[first + lane]


@jit_kernel(counted=False, wrapped=False)
def solve_lower(upper: Floats, right: Floats, count: int) -> None:
    """Solve `L y = right` in place; `upper` is L' with inverted diagonal, zero below."""
    for j in range(count):
        solved = right[j] * upper[j, j]
        axpy(right, upper[j], solved, j, count)
        right[j] = solved


@jit_kernel(counted=False, wrapped=False)
def solve_upper(lower: Floats, right: Floats, count: int) -> None:
    """Solve `L' x = right` in place; `lower` is L with inverted diagonal, zero above."""
    for j in range(count - 1, -1, -1):
        solved = right[j] * lower[j, j]
        axpy(right, lower[j], solved, 0, j)
        right[j] = solved


@jit_kernel(counted=False, wrapped=False)
def factorise(upper: Floats, lower: Floats, count: int) -> bool:
    """Factorise C in `upper` into L' and `lower` = L, diagonals inverted; False if C needs pivoting."""
    min_pivot = MIN_PIVOT * upper[0, 0]
    for j in range(count):
        if not upper[j, j] > min_pivot:
            return False
        root = 1.0 / math.sqrt(upper[j, j])
        for first in range(j & -LANES, count, LANES):
            for lane in range(LANES):
                upper[j, first + lane] *= root
        for i in range(j + 1, count):
            axpy(upper[i], upper[j], upper[j, i], i, count)
        upper[j, j] = root
    for i in range(count):
        upper[i, :i] = 0.0
        for s in range(i, count):
            lower[s, i] = upper[i, s]
    return True


@jit_kernel(counted=False, wrapped=False)
def orthogonalise(rows: Floats, triangle: Floats, count: int) -> bool:
    """Orthonormalise rows of functions, writing R' with inverted diagonal; False if they are dependent."""
    for f in range(rows.shape[0]):
        whole = dot(rows[f], rows[f], count)
        size = whole
        triangle[f, :f] = 0.0
        # Two passes are enough (Giraud and others 2005).
        for repeat in range(2):
            for g in range(f):
                product = dot(rows[g], rows[f], count)
                triangle[f, g] += product
                axpy(rows[f], rows[g], product, 0, count)
                # The first function is a constant: the size of the others is measured by their variation about it.
                if g == 0 and repeat == 0:
                    size = dot(rows[f], rows[f], count)
        left = dot(rows[f], rows[f], count)
        if not (left > INDEPENDENT * INDEPENDENT * size and left > 1e-20 * whole):
            return False
        triangle[f, f] = 1.0 / math.sqrt(left)
        for s in range(count):
            rows[f, s] *= triangle[f, f]
    return True


@jit_kernel(counted=False, wrapped=False)
def prepare(covariances: Floats, station_functions: Floats, factors: Factors, slot: int, shift: float) -> int:
    """Factorise the system of a set in the table; return `FINE`, `UNDETERMINED` or `SINGULAR`."""
    count, upper = factors.sizes[slot], factors.uppers[slot]
    members, rows, triangle = factors.members[slot, :count], factors.rows[slot], factors.triangles[slot]
    functions = rows.shape[0]
    # Any station determines a constant.
    if functions > 1:
        if count < functions:
            return UNDETERMINED
        _gather_functions(station_functions, members, rows)
        if not orthogonalise(rows, triangle, count):
            return UNDETERMINED
    upper[:] = 0.0
    for i in range(count):
        for s in range(i, count):
            upper[i, s] = shift + covariances[members[i], members[s]]
    if not factorise(upper, factors.lowers[slot], count):
        return SINGULAR
    _gather_functions(station_functions, members, rows)
    for f in range(functions):
        solve_lower(upper, rows[f], count)
    return FINE if orthogonalise(rows, triangle, count) else SINGULAR


@jit_kernel(counted=False, wrapped=False)
def _gather_functions(station_functions: Floats, members: Numbers, rows: Floats) -> None:
    rows[:] = 0.0
    for f in range(rows.shape[0]):
        for s in range(members.size):
            rows[f, s] = station_functions[f, members[s]]


@jit_kernel(counted=False, wrapped=False)
def solve(factors: Factors, slot: int, functions: Floats, right: Floats, scratch: Floats, what: int) -> float:
    """Turn a target's covariances with a set into weights, if requested; return the change of its variance."""
    count, rows, triangle = factors.sizes[slot], factors.rows[slot], factors.triangles[slot]
    lead, excess = scratch[0], scratch[1]
    solve_lower(factors.uppers[slot], right, count)
    gained = -dot(right, right, count)
    for f in range(rows.shape[0]):
        lead[f] = functions[f]
        for g in range(f):
            lead[f] -= triangle[f, g] * lead[g]
        lead[f] *= triangle[f, f]
        excess[f] = dot(rows[f], right, count) - lead[f]
        gained += excess[f] * excess[f]
    if what != VARIANCES:
        for f in range(rows.shape[0]):
            axpy(right, rows[f], excess[f], 0, count)
        solve_upper(factors.lowers[slot], right, count)
    return gained
