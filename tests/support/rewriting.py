"""Surfaces computed after some of the rewrite rules alone, or after none."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution import make_plan, run
from hypergrid.perspective import Surface
from hypergrid.perspective.build.build import select_ranges
from hypergrid.rewrite import Rule
from hypergrid.rewrite.rules import push_clip


def after_rules(
    surface: Surface, rules: tuple[Rule, ...], *, block_cells: int | None = None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the values and counts of a surface, shape (time, places), after some rules alone.

    Without the one that pushes the clip every cell is computed, and then those are taken that the clip selects.
    """
    is_clipped = push_clip in rules
    plan = make_plan(surface if is_clipped else Surface(surface.perspective), rules=rules)
    outcome = list(run(plan if block_cells is None else replace(plan, block_cells=block_cells)))[-1].outcome
    arrays = outcome.value, np.broadcast_to(0 if outcome.count is None else outcome.count, outcome.value.shape)
    if is_clipped:
        return arrays
    topology = surface.perspective.topology
    times, space = select_ranges(topology, surface.clip)

    def clipped(array: NDArray[Any]) -> NDArray[Any]:
        taken = array.reshape(topology.shape)[times, *space]
        return taken.reshape(len(taken), -1)

    return clipped(arrays[0]), clipped(arrays[1])
