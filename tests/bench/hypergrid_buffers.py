"""Figure 5.5: what a plan that is short of memory keeps from box to box, each thing beside a run that does not keep it.

The plan is the planner's own under a part of the memory of the plan without a limit: boxes of some time cells of some
places. It keeps cells that a later box needs again, in buffers; kriging weights, which do not depend on values; and, of
a user's interpolation, what was selected ahead (thesis 5.7.2.1). Q1 has one time cell, never cut: it keeps nothing.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import Plan, make_plan, run
from hypergrid.interpolation.weight_cache import WEIGHTS
from hypergrid.perspective import Interpolate, Surface
from hypergrid.perspective.functions import user_interpolation
from hypergrid.perspective.functions.user_interpolation import UserInterpolation
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, faster, interleaved
from tests.support.own_functions import forgotten_functions

Floats = NDArray[np.float64]

PARTS_OF_MEMORY = (2, 3, 4, 6, 8)
"""What the memory of a plan without a limit is divided by, until time is cut."""
LIMIT = 1e-9
"""Greatest difference that keeping may make [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return what it is worth to keep cells, weights, both, and selections, and the greatest differences."""
    archive, asked = hg.open(sample.archive), sample.query("q5")
    plan = plan_short(archive.query(asked).surface())
    figures, differences = kriged("Q5", plan, pairs, notify)
    with forgotten_functions():
        add_quarters()
        cleaning, alignment, interpolation, window = asked["steps"]
        quarters = {"op": "interpolate", "method": "bench_quarters", "grid": interpolation["grid"]}
        document = {**asked, "steps": [cleaning, alignment, quarters, window]}
        more, row = selected("Q5 by quarters", plan_short(archive.query(document).surface()), notify)
    return {"figures": [figure.to_json() for figure in (*figures, *more)], "differences": [*differences, row]}


def plan_short(surface: Surface) -> Plan:
    """Return the plan under the largest part of the memory with which the planner makes boxes in time.

    Raises
    ------
    ValueError
        There is none, so nothing could be kept.
    """
    whole = make_plan(surface).projected_bytes
    for part in PARTS_OF_MEMORY:
        plan = make_plan(surface, allowed_bytes=whole // part)
        if plan.block_times is not None:
            return plan
    message = "no part of the memory gives boxes in time"
    raise ValueError(message)


def describe(plan: Plan) -> str:
    """Return what is compared, and the boxes of a plan in words."""
    share = plan.projected_bytes / make_plan(plan.original).projected_bytes
    return f"not kept / kept; {plan.block_cells} places x {plan.block_times} time cells, {share:.2f} of the memory"


def kriged(name: str, plan: Plan, pairs: int, notify: Tell) -> tuple[list[Figure], list[dict[str, Any]]]:
    """Return how many times faster a plan is than without its buffers, its weights, and both; and the differences."""
    without = {
        "cells": {"buffered": False}, "kriging weights": {"weights_bytes": 0},
        "cells and kriging weights": {"buffered": False, "weights_bytes": 0},
    }  # fmt: skip
    plans = {"kept": plan}
    plans |= {what: replace(plan, strategy=replace(plan.strategy, **less)) for what, less in without.items()}
    held: dict[str, Floats] = {}
    cells: dict[str, int] = {}
    maps = [item.token for item in plan.surface.list_chain() if isinstance(item.operator, Interpolate)]

    def work(label: str, chosen: Plan) -> Callable[[int], None]:
        def compute(_number: int) -> None:
            # Weights of earlier queries would serve a run that keeps none of its own.
            WEIGHTS.clear()
            *_, last = run(chosen, watched=False)
            held[label], cells[label] = last.outcome.value, sum(last.outcome.work[token] for token in maps)

        return compute

    works = {label: work(label, chosen) for label, chosen in plans.items()}
    seconds = interleaved(works, pairs, notify=notify, stage=f"figure 5.5, {name}")
    figures = [faster(f"{name}, {what} kept", seconds["kept"], seconds[what], what=describe(plan)) for what in without]
    share = cells["cells"] / cells["kept"]
    figures.append(Figure(f"{name}, cells interpolated", None, None, share, (share, share), "unbuffered / buffered"))
    return figures, [_difference(f"{name}, {what}", held[what], held["kept"]) for what in without]


def selected(name: str, plan: Plan, notify: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Return how many times fewer selections a plan makes that keeps those made ahead, and the difference."""
    calls: dict[str, int] = {}
    held: dict[str, Floats] = {}

    def work(label: str, budget: int) -> Callable[[int], None]:
        def compute(_number: int) -> None:
            with selections_within(budget) as made:
                *_, last = run(plan, watched=False)
            held[label], calls[label] = last.outcome.value, len(made)

        return compute

    works = {"kept": work("kept", user_interpolation.SELECTION_BYTES), "not": work("not", 0)}
    seconds = interleaved(works, 1, notify=notify, stage=f"figure 5.5, {name}")
    figure = faster(f"{name}, selections kept", seconds["kept"], seconds["not"], what=describe(plan))
    share = calls["not"] / calls["kept"]
    what = f"not kept / kept; {calls['kept']:,} calls"
    return [figure, Figure(f"{name}, calls of select", None, None, share, (share, share), what)], _difference(
        f"{name}, selections", held["not"], held["kept"]
    )


def add_quarters() -> None:
    """Add the interpolation of the guide on own functions: the nearest station in each quarter of the sky."""

    def one_in_each_quarter(east_m: Floats, north_m: Floats) -> list[int]:
        distance_m, quarter = np.hypot(east_m, north_m), 2 * (east_m >= 0) + (north_m >= 0)
        members = [np.flatnonzero(quarter == each) for each in range(4)]
        return [each[distance_m[each].argmin()] for each in members if len(each)]

    def by_quarters(values: Floats, east_m: Floats, north_m: Floats) -> Floats:
        weights = (1.0 + np.hypot(east_m, north_m)) ** -2.0
        mean: Floats = weights @ values / weights.sum()
        return mean

    hg.interpolation_function("bench_quarters", select=one_in_each_quarter, compute=by_quarters, vectorised=True)


@contextmanager
def selections_within(budget: int) -> Iterator[list[int]]:
    """Let look-aheads keep selections of at most `budget` bytes, and list the stations given to each call."""
    usual, select = user_interpolation.SELECTION_BYTES, UserInterpolation.select_stations
    made: list[int] = []

    def counted(self: UserInterpolation, offsets_m: Floats, given: Mapping[str, Any], at: int) -> NDArray[np.intp]:
        made.append(len(offsets_m))
        return select(self, offsets_m, given, at)

    # Not in the user's function: its content would change from call to call, and so would the identity of the step.
    user_interpolation.SELECTION_BYTES = budget  # type: ignore[misc]
    UserInterpolation.select_stations = counted  # type: ignore[method-assign]
    try:
        yield made
    finally:
        user_interpolation.SELECTION_BYTES = usual  # type: ignore[misc]
        UserInterpolation.select_stations = select  # type: ignore[method-assign]


def _difference(name: str, values: Floats, expected: Floats) -> dict[str, Any]:
    greatest = float(np.nanmax(np.abs(values - expected)))
    same_gaps = bool((np.isnan(values) == np.isnan(expected)).all())
    return {"name": name, "greatest": greatest, "goal": LIMIT, "met": same_gaps and greatest <= LIMIT}
