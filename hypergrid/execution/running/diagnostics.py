"""Diagnostics of a run without estimating values, for a surface whose values are already known.

Perspectives at the stations are computed as a whole, since readings are left out and stations report there; on a grid
only notes on its cells are collected: those extrapolated, or with too few stations near, or without covariates.
"""

import numpy as np

from hypergrid.execution.planning.plan import Plan
from hypergrid.execution.planning.strategy import count_at_stations
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.materialise import materialise
from hypergrid.execution.running.run import Outcome
from hypergrid.perspective import Interpolate
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.topology import SeriesAxis


def collect_diagnostics(plan: Plan) -> Outcome:
    """Collect the diagnostics of a plan without arrays: notes, marks, unused readings, correlation."""
    evaluator, surface = Evaluator(), plan.surface
    materialise(evaluator, surface, count_at_stations(surface), block_cells=plan.block_cells)
    if isinstance(surface.topology.space, SeriesAxis):
        evaluator.block(surface, np.arange(surface.topology.space.count))
    for node in surface.list_chain():
        if not isinstance(node.topology.space, SeriesAxis):
            for cells in _split_blocks(node.topology.space.count, plan.block_cells):
                evaluator.collect_notes(node, cells)
    below, aggregates = split_aggregates(surface)
    if isinstance(below.operator, Interpolate) and below.operator.variance and aggregates:
        errors = evaluator.get_mean_errors(below, below.operator, aggregates)
        if errors is not None:
            for cells in _split_blocks(surface.topology.space.count, plan.block_cells):
                errors.make_regions(cells)
            evaluator.note_errors(errors)
    return Outcome(
        np.empty((0, 0)), left_out=evaluator.left_out, notes=evaluator.diagnostics.notes,
        correlation=evaluator.correlation,
        extrapolated=evaluator.diagnostics.extrapolated.get(surface.topology.space.token()),
    )  # fmt: skip


def _split_blocks(count: int, size: int) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.arange(start, min(start + size, count), dtype=np.intp) for start in range(0, count, size)]
