"""Simulated surfaces: realisations of an interpolated field, given its readings."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.planning.plan import Plan, free_bytes
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.mean_errors import find_correlation
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.uncertainty.simulate import simulate_given
from hypergrid.perspective import Interpolate
from hypergrid.perspective.build.uncertainty_spec import Memory

Floats = NDArray[np.float64]


def simulate(plan: Plan, *, count: int, generator: np.random.Generator, memory: Memory) -> Floats:
    """Simulate realisations of a surface, shape (count, time, rows, columns), NaN where missing.

    Parameters
    ----------
    plan
        Plan of a query that ends with an interpolation.
    count
        Number of realisations.
    generator
        Random number generator.
    memory
        Correlation between slices; not needed for a single slice.

    Raises
    ------
    InvalidQuery
        The query does not end with kriging from all stations, or has several slices of unknown correlation.
    TooLarge
        Too many places, or realisations that do not fit in half of the free memory.
    """
    surface = plan.surface
    operator, topology = surface.operator, surface.topology
    if not isinstance(operator, Interpolate):
        raise InvalidQuery(
            "simulate needs a query whose last step is interpolate; aggregate its realisations afterwards"
        )
    # Values exist twice: as simulated, and in the result.
    needed, allowed = 2 * 8 * max(count, 1) * topology.count, free_bytes() // 2
    if needed > allowed:
        subject, what = "simulate", "bytes of memory"
        raise TooLarge(subject, what, needed, allowed, "ask for fewer realisations, slices or cells")
    field, targets, known = Evaluator().get_interpolation(surface, operator, np.arange(topology.space.count))
    if not isinstance(field, KrigingField):
        raise InvalidQuery(
            f"simulate needs kriging from all stations, of which some report; {operator.method} with these parameters "
            "is not that: leave neighbours, radius_m, octants and trend out"
        )
    if field.is_assumed:
        raise InvalidQuery(
            "simulate needs a variogram; none can be fitted to these values (too few stations, or all values of each "
            "slice are equal): give one, variogram={…}, or a longer time"
        )
    corners = topology.time.corners
    times_s = (corners - corners[0]) / SECOND_NS
    correlation = find_correlation(field, times_s, memory=memory)
    if len(times_s) > 1 and len(correlation.between) > 1:
        why = "; ".join(correlation.notes) or "none was given"
        raise InvalidQuery(
            f"simulate needs correlation_time for a surface of {len(times_s)} time cells ({why}): a duration such as "
            "'6h', or '0s' where only single time cells will be looked at"
        )
    made = simulate_given(field, targets, times_s, count=count, generator=generator, correlation=correlation.between[0])
    result = np.full((count, topology.time.count, len(known)), np.nan)
    result[:, :, known] = made
    return result.reshape(count, *topology.shape)
