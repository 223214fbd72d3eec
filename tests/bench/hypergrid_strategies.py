"""Figures 5.6 and 5.7: every hybrid-k, and the planned one; `hypergrid_buffers.py` has figure 5.5.

What is watched is planned with k = the perspectives at the stations, before any cost is looked at. So the figures of
hybrid-k say how near that fixed k comes to the best; they do not test the cost model (equations 5.8 and 5.9).
"""

import statistics
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import Plan, make_plan, run
from hypergrid.execution.planning.plan import path
from hypergrid.perspective import Surface
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, Timings, interleaved, slower

Floats = NDArray[np.float64]

PLANNED_GOAL = 1.25
LIMIT = 1e-9
"""Greatest difference between strategies that is allowed [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the total and mean response time of every hybrid-k of Q1 and Q5."""
    archive = hg.open(sample.archive)
    asked = {"Q1": sample.query("q1"), "Q5": sample.query("q5")}
    surfaces = {name: archive.query(document).surface() for name, document in asked.items()}
    figures: list[Figure] = []
    apart: dict[str, float] = {}
    for name in asked:
        more, apart[f"{name}, every k"] = hybrids(name, surfaces[name], pairs, notify)
        figures += more
    return {
        "figures": [figure.to_json() for figure in figures],
        "differences": [
            {"name": name, "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT}
            for name, greatest in apart.items()
        ],
    }


def hybrids(name: str, surface: Surface, pairs: int, notify: Tell) -> tuple[list[Figure], float]:
    """Return total and mean response time of every k, in the blocks of a watched answer, and of the planned k."""
    most = len(path(make_plan(surface).surface))
    plans = {f"hybrid-{k}": make_plan(surface, refining=True, strategy=k) for k in range(most + 1)}
    totals, responses, greatest = _timed(plans, pairs, notify, f"figures 5.6 and 5.7, {name}")
    # The same whatever costs are.
    planned = f"hybrid-{make_plan(surface, refining=True).strategy.k}"
    best = min(responses, key=lambda label: statistics.median(responses[label]))
    figures = [
        slower(f"{name}, {label}, {what}", row[label], row[planned], what=f"{label} / the planned {planned}")
        for what, row in (("total", totals), ("mean response", responses))
        for label in plans
    ]
    figures.append(
        slower(
            f"{name}, planned {planned}, best {best}", responses[planned], responses[best],
            what="mean response of the planned k / of the best", goal=PLANNED_GOAL,
        )
    )  # fmt: skip
    return figures, greatest


def _timed(plans: Mapping[str, Plan], pairs: int, notify: Tell, stage: str) -> tuple[Timings, Timings, float]:
    """Return seconds in all, mean response times [s], and the greatest difference of the values from the first plan's.

    The difference is infinite where not the same cells are missing.
    """
    found: dict[str, Floats] = {}
    responses: Timings = {label: [] for label in plans}

    def work(label: str, plan: Plan) -> Callable[[int], None]:
        def compute(number: int) -> None:
            *_, last = run(plan, watched=False)
            found[label] = last.outcome.value
            if number >= 0:
                responses[label].append(last.response_s)

        return compute

    works = {label: work(label, plan) for label, plan in plans.items()}
    seconds = interleaved(works, pairs, notify=notify, stage=stage, warm_up=True)
    first, *others = found.values()
    if any((np.isnan(one) != np.isnan(first)).any() for one in others):
        return seconds, responses, float("inf")
    return seconds, responses, max(float(np.nanmax(np.abs(one - first))) for one in others)
