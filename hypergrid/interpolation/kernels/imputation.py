"""Compiled loop over slices that kriges missing stations from those present."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.cholesky import factorise, solve_lower, solve_upper
from hypergrid.interpolation.kernels.local_task import LANES, Floats
from hypergrid.interpolation.kernels.threads import jit_kernel

# Below this share, iterative refinement need not converge.
MIN_SHARE = 1e-5
"""Least share of a station's variance that the stations before it must not explain."""


@jit_kernel(counted=False, wrapped=False)
def _is_sure(upper: Floats, minimum: float, count: int) -> bool:
    """Check that all pivots of a factor with inverted diagonal exceed `minimum`."""
    for j in range(count):
        if upper[j, j] * upper[j, j] * minimum > 1.0:
            return False
    return True


@jit_kernel(reordered=True)
def impute(
    core: Floats, present: NDArray[np.bool_], filled: Floats, solved: NDArray[np.bool_], start: int, stop: int
) -> None:
    """Replace the missing values of some slices by `-inv(P_MM) P_MA z_A`.

    Parameters
    ----------
    core
        P without its border, shape (stations, stations).
    present
        Which station reports, shape (slices, stations).
    filled
        Values, 0 where missing; modified in place, shape (slices, stations).
    solved
        Set to True for completed slices, False if no station reports or the system needs pivoting; shape (slices,).
    start, stop
        Range of slices.
    """
    stations = core.shape[0]
    max_missing = 0
    for row in range(start, stop):
        lacking = 0
        for station in range(stations):
            lacking += not present[row, station]
        if lacking < stations:
            max_missing = max(max_missing, lacking)
    padded = (max_missing + LANES - 1) & -LANES
    missing = np.empty(max_missing + 1, dtype=np.int64)
    upper, lower = np.zeros((max_missing, padded)), np.zeros((max_missing, padded))
    right = np.zeros(padded)
    for row in range(start, stop):
        # A plain 0 has a type of its own, for which all that is called below would be compiled again.
        count, reporting = int(np.int64(0)), 0
        for station in range(stations):
            reporting += present[row, station]
            if not present[row, station] and count < max_missing:
                missing[count] = station
                count += 1
        solved[row] = not count
        if not count or not reporting:
            continue
        values = filled[row]
        upper[:count] = 0.0
        greatest = 0.0
        for i in range(count):
            for j in range(i, count):
                upper[i, j] = core[missing[i], missing[j]]
            greatest = max(greatest, upper[i, i])
        if not (factorise(upper, lower, count) and _is_sure(upper, MIN_SHARE * greatest, count)):
            continue
        # The second pass refines the first: the factor uses one triangle of P, whose rounding differs from that of its
        # rows, which in a smooth model without a nugget would cost a thousand times more digits.
        for _ in range(2):
            right[:] = 0.0
            for i in range(count):
                of = core[missing[i]]
                total = 0.0
                for station in range(stations):
                    total += of[station] * values[station]
                right[i] = -total
            solve_lower(upper, right, count)
            solve_upper(lower, right, count)
            for i in range(count):
                values[missing[i]] += right[i]
        solved[row] = True
