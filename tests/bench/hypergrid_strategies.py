"""Figures 5.5 to 5.7: buffers where cells overlap and where they do not; every hybrid-k, and the planned one.

No aggregate is taken before its interpolation: Q1 and Q5 krige from the 20 nearest stations, and where they krige from
all, the rule is left out. So every slice of the map is there to be kept or computed again.

What is watched is planned with k = the perspectives at the stations, before any cost is looked at. So the figures of
hybrid-k say how near that fixed k comes to the best; they do not test the cost model (equations 5.8 and 5.9).
"""

import math
import statistics
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import Plan, Strategy, make_plan, run
from hypergrid.execution.planning.plan import path
from hypergrid.perspective import Interpolate, Surface
from hypergrid.rewrite import RULES
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, Timings, faster, interleaved, slower

Floats = NDArray[np.float64]

BUFFERS_GOAL = 2.0
PLANNED_GOAL = 1.25
LARGER = 100 / 23
"""Cells a side of a larger map, over those of the sample network's maps."""
NOT_COMMUTING = tuple(rule for rule in RULES if rule.__name__ != "commute")
"""Rules that leave an aggregate above its interpolation."""
LIMIT = 1e-9
"""Greatest difference between strategies that is allowed [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return what buffers are worth, and the total and mean response time of every hybrid-k of Q1 and Q5."""
    archive = hg.open(sample.archive)
    asked = {"Q1": sample.query("q1"), "Q5": sample.query("q5")}
    surfaces = {name: archive.query(document).surface() for name, document in asked.items()}
    variants = {"Q5, all stations": all_stations(asked["Q5"]), "Q5, larger": larger(asked["Q5"])}
    variants["Q5, larger, all stations"] = all_stations(variants["Q5, larger"])
    surfaces |= {name: archive.query(document).surface() for name, document in variants.items()}
    figures: list[Figure] = []
    apart: dict[str, float] = {}
    for name, surface in surfaces.items():
        more, apart[f"{name}, buffered"] = buffers(name, surface, pairs, notify)
        figures += more
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


def all_stations(document: dict[str, Any]) -> dict[str, Any]:
    """Return Q5 kriged from all stations."""
    cleaning, alignment, interpolation, window = document["steps"]
    everybody = {**interpolation, "params": {**interpolation["params"], "neighbours": None}}
    return {**document, "steps": [cleaning, alignment, everybody, window]}


def larger(document: dict[str, Any]) -> dict[str, Any]:
    """Return Q5 on a map of many more cells."""
    cleaning, alignment, interpolation, window = document["steps"]
    grid = interpolation["grid"]
    shape = [math.ceil(LARGER * side) for side in grid["shape"]]
    return {**document, "steps": [cleaning, alignment, {**interpolation, "grid": {**grid, "shape": shape}}, window]}


def buffers(name: str, surface: Surface, pairs: int, notify: Tell) -> tuple[list[Figure], float]:
    """Return how many times faster bottom-up is with what it keeps, in boxes of one time cell, and what that changes.

    Two things are kept from box to box: cells that a later box asks for again, in buffers, and the neighbours and
    weights of places, which do not depend on values. The goal is for both, beside a run that keeps nothing of what it
    computed. With weights kept in either run, buffers save but a product a slice, which costs less than what is done
    once a box until a map is large: that is a figure of its own, as is the number of cells that are interpolated.
    """
    plans = {
        "kept": bottom_up(surface, buffered=True),
        "weights": bottom_up(surface, buffered=False),
        "nothing": bottom_up(surface, buffered=False, keeps_weights=False),
    }
    seconds, _, greatest = _timed(plans, pairs, notify, f"figure 5.5, {name}")
    overlaps = plans["kept"].surface.topology.time.count > 1
    figures = [
        faster(
            f"{name}, bottom-up with buffers", seconds["kept"], seconds["nothing"], what="nothing kept / buffered",
            goal=BUFFERS_GOAL if overlaps and "all stations" not in name else None,
        ),
        faster(
            f"{name}, buffers alone", seconds["kept"], seconds["weights"], what="weights kept, no buffers / buffered"
        ),
    ]  # fmt: skip
    cells = {label: interpolated(plan) for label, plan in plans.items()}
    share = cells["nothing"] / cells["kept"]
    what = "cells interpolated, unbuffered / buffered"
    return [*figures, Figure(f"{name}, cells interpolated", None, None, share, (share, share), what)], greatest


def interpolated(plan: Plan) -> int:
    """Return how many cells a run interpolates, those that it does again included."""
    *_, last = run(plan, watched=False)
    maps = [item for item in plan.surface.list_chain() if isinstance(item.operator, Interpolate)]
    return sum(last.outcome.work[item.token] for item in maps)


def bottom_up(surface: Surface, *, buffered: bool, keeps_weights: bool = True) -> Plan:
    """Return the plan that pulls every perspective, in boxes of one time cell of all places."""
    plan = make_plan(surface, strategy="bottom_up", rules=NOT_COMMUTING)
    here = plan.surface
    chosen = Strategy(0, len(path(here)), "bottom_up", buffered=buffered, keeps_weights=keeps_weights)
    return replace(plan, block_cells=here.topology.space.count, block_times=1, strategy=chosen)


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
