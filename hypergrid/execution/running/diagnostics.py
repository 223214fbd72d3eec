"""What a run says beside its values, found without estimating any: for a surface whose values are known already.

What lies at the stations is computed as a whole, since that is where readings are left out and stations are heard; of
a grid only what is said of its cells: those that are extrapolated, or have too few stations near, or no covariates.
"""

import numpy as np

from hypergrid.execution.planning.plan import Plan
from hypergrid.execution.planning.strategy import at_stations
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.materialise import materialise
from hypergrid.execution.running.run import Outcome
from hypergrid.perspective import Interpolate
from hypergrid.perspective.build.uncertainty_spec import averaged
from hypergrid.topology import SeriesAxis


def retold(plan: Plan) -> Outcome:
    """Return what a run of a plan would say, without arrays: notes, marks, readings left out, correlation."""
    evaluator, surface = Evaluator(), plan.surface
    materialise(evaluator, surface, at_stations(surface), block_cells=plan.block_cells)
    if isinstance(surface.topology.space, SeriesAxis):
        evaluator.block(surface, np.arange(surface.topology.space.count))
    for here in surface.chain():
        if not isinstance(here.topology.space, SeriesAxis):
            for cells in _blocks(here.topology.space.count, plan.block_cells):
                evaluator.remark(here, cells)
    below, aggregates = averaged(surface)
    if isinstance(below.operator, Interpolate) and below.operator.variance and aggregates:
        errors = evaluator.mean_errors(below, below.operator, aggregates)
        if errors is not None:
            for cells in _blocks(surface.topology.space.count, plan.block_cells):
                errors.regions(cells)
            evaluator.remark_errors(errors)
    return Outcome(
        np.empty((0, 0)), left_out=evaluator.left_out, notes=evaluator.remarks.notes, correlation=evaluator.correlation,
        extrapolated=evaluator.remarks.extrapolated.get(surface.topology.space.token()),
    )  # fmt: skip


def _blocks(count: int, size: int) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.arange(start, min(start + size, count), dtype=np.intp) for start in range(0, count, size)]
