"""Memory and time of kriging systems; time grows with the cube of the stations."""

from typing import Final

from hypergrid.execution.planning.cost_trials import operations_a_second, touching_s_a_byte
from hypergrid.interpolation.local.field import TOGETHER
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest
from hypergrid.interpolation.solvers.factored import ROWS_PAIRS, SIDES_AT_ONCE
from hypergrid.interpolation.solvers.field import WORTH_TILES, is_factored
from hypergrid.interpolation.variograms.empirical import PAIRS_AT_ONCE
from hypergrid.perspective import Interpolate, Perspective

TABLED_RATE: Final = 2e10
"""Linear algebra operations per second, for systems too small for a trial."""
WORTH_TRYING: Final = 2e10
"""Operations from which a trial on this machine is worthwhile: about a second of them."""
FACTOR_RATE: Final = 1.25
"""Speed of factoring and inverting a large system, relative to that of a trial."""
FEW_PAIRS: Final = 2**22
"""Pairs of stations up to which fitting and solving are neglected, unless they are worth a trial."""
FIT_NS: Final = 40.0
"""Tabulated cost of fitting a variogram, per pair of stations [ns]."""
PAIR_NS: Final = 4.0
"""Tabulated cost of computing and storing the covariance of a pair of stations [ns]."""
NEAR_NS: Final = 100_000.0
"""Tabulated cost of kriging a target from the nearest of many stations [ns]; slices share most of it."""
FIT_ARRAYS: Final = 10
"""Arrays of pairs in memory at once while a variogram is fitted."""
THREADS: Final = 2
"""Number of threads that each hold the covariances of the stations of a chunk."""


def system_bytes(node: Perspective) -> int:
    """Project the memory of an interpolation's systems, and of fitting its variogram [bytes]."""
    operator, stations = node.operator, node.source.topology.space.count
    if not isinstance(operator, Interpolate):
        return 0
    given = operator.arguments
    by_slice = getattr(given.get("variogram"), "by", "all") == "slice"
    near = not operator.uses_all(stations) and not by_slice and given.get("trend") is None
    if operator.row.has_variance and near and stations > 2 * TOGETHER:
        # A chunk has the stations around its targets, and the candidates beyond.
        square = 2 * (3 * TOGETHER) ** 2 * 8 * THREADS
    elif is_factored(stations + 1) and operator.row.has_variance:
        # The matrix; bands of covariances that are summed and moved; right-hand sides.
        square = 8 * (stations + 1) ** 2 * (node.topology.time.count if by_slice else 1)
        square += 8 * (4 * ROWS_PAIRS + (2 * SIDES_AT_ONCE if operator.variance else 0))
    else:
        # With a variogram by slice, each slice keeps the inverse of its own system.
        square = (stations + 1) ** 2 * 8 * (6 + (node.topology.time.count if by_slice else 0))
    return square + (8 * FIT_ARRAYS * PAIRS_AT_ONCE if _is_fitted(operator) and stations**2 > PAIRS_AT_ONCE else 0)


def estimate_solving_s(node: Perspective) -> tuple[float, bool]:
    """Estimate the time of fitting and solving [s], and whether a trial was used.

    Small systems count as 0.
    """
    operator, stations = node.operator, node.source.topology.space.count
    if not isinstance(operator, Interpolate) or not operator.row.has_variance:
        return 0.0, False
    pairs = float(stations) ** 2 / 2
    slices, cells = node.topology.time.count, node.topology.space.count
    seconds = FIT_NS * pairs * 1e-9 if _is_fitted(operator) else 0.0
    if not operator.is_linear(stations):
        return (seconds + NEAR_NS * cells * 1e-9, False) if pairs > FEW_PAIRS else (0.0, False)
    operations = solving_operations(stations, slices=slices, sides=cells if operator.variance else 0)
    if operations < WORTH_TRYING:
        return (0.0, False) if pairs <= FEW_PAIRS else (seconds + operations / TABLED_RATE, False)
    seconds += PAIR_NS * pairs * 1e-9 + touching_s_a_byte() * system_bytes(node)
    return seconds + operations / (FACTOR_RATE * operations_a_second()), True


def solving_operations(stations: int, *, slices: int, sides: int) -> float:
    """Count the multiplications and additions of solving the system of all stations.

    Parameters
    ----------
    stations, slices
        Numbers of the interpolation; with several slices, some station is assumed to be missing from some of them.
    sides
        Number of targets whose variance is wanted.
    """
    square = float(stations) ** 2
    if stations < WORTH_TILES:
        # The inverse, and its check.
        return square * (4.0 * stations + 2.0 * sides)
    if not is_factored(stations + 1):
        # The inverse from the factor.
        return square * (stations + 2.0 * sides)
    # The factor, and its solutions; if stations are missing, the inverse, and products with it.
    return square * (stations + 2.0 * sides if slices > 1 else stations / 3.0 + sides)


def _is_fitted(operator: Interpolate) -> bool:
    return isinstance(operator.arguments.get("variogram"), VariogramRequest)
