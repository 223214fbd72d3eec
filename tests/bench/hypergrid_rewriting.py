"""Figure 5.4: the queries as they are written, rewritten by all rules, and by each rule alone."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import make_plan, run
from hypergrid.perspective import Surface
from hypergrid.perspective.build.build import select_ranges
from hypergrid.rewrite import RULES, Rule, rewrite
from hypergrid.topology import Grid
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, faster, interleaved

Floats = NDArray[np.float64]
RATIO = "as written / rewritten"
LIMIT = 1e-9
"""Greatest difference that rewriting may make [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the figures of each query by the rules that fire, and the greatest difference that they make."""
    figures: list[Figure] = []
    differences = []
    archive = hg.open(sample.archive)
    for name, document in queries(sample).items():
        surface = archive.query(document).surface()
        choices = chosen(surface)
        works, found = _works(surface, choices)
        seconds = interleaved(works, pairs, notify=notify, stage=f"figure 5.4, {name}", warm_up=True)
        figures += [
            faster(f"{name}, {label}", seconds[label], seconds["as written"], what=RATIO)
            for label in choices
            if label != "as written"
        ]
        for label in choices:
            greatest = float(np.nanmax(np.abs(found[label] - found["as written"])))
            same_gaps = bool((np.isnan(found[label]) == np.isnan(found["as written"])).all())
            row = {"name": f"{name}, {label}", "greatest": greatest, "goal": LIMIT}
            differences.append({**row, "met": same_gaps and greatest <= LIMIT})
    return {"figures": [figure.to_json() for figure in figures], "differences": differences}


def queries(sample: Sample) -> dict[str, dict[str, Any]]:
    """Return the queries: Q1 to Q4 as they are, and such that give the rules something to do.

    Q1 to Q4 krige from the 20 nearest of 24 stations, which is no linear map of all of them, and their clip bounds the
    readings by itself: no rule fires. Kriged from all stations, the mean commutes; Q5's clip selects cells.
    """
    asked = {name.upper(): sample.query(name) for name in ("q1", "q2", "q3", "q4")}
    asked["Q1 from all stations"] = everybody(asked["Q1"])
    asked["Q5 from all stations"] = everybody(sample.query("q5"))
    long = everybody(asked["Q1"])
    idle = {"op": "convert", "function": "scale", "params": {"factor": 1.0}}
    kelvin = {"op": "convert", "function": "scale", "params": {"factor": 1.0, "offset": 273.15, "unit": "K"}}
    asked["Q1 with three converts"] = {**long, "steps": [long["steps"][0], idle, kelvin, *long["steps"][1:]]}
    return asked


def everybody(document: dict[str, Any]) -> dict[str, Any]:
    """Return a query that kriges from all stations."""
    steps = []
    for step in document["steps"]:
        if step["op"] == "interpolate":
            step = {**step, "params": {**step["params"], "neighbours": None}}
        steps.append(step)
    return {**document, "steps": steps}


def chosen(surface: Surface) -> dict[str, tuple[Rule, ...]]:
    """Return which rules to try, by name: none, all, and each of those that fire by itself."""
    fired = {one.rule for one in rewrite(surface).fired}
    alone = {f"{rule.__name__} alone": (rule,) for rule in RULES if rule.__name__ in fired}
    every = f"all rules ({len(fired)} fire)" if fired else "all rules (none fires)"
    return {"as written": (), every: RULES, **alone}


def _works(
    surface: Surface, choices: dict[str, tuple[Rule, ...]]
) -> tuple[dict[str, Callable[[int], None]], dict[str, Floats]]:
    """Return what is timed, and where it leaves the values."""
    found: dict[str, Floats] = {}

    def work(label: str, rules: tuple[Rule, ...]) -> Callable[[int], None]:
        def compute(_number: int) -> None:
            found[label] = evaluated(surface, rules)

        return compute

    return {label: work(label, rules) for label, rules in choices.items()}, found


def evaluated(surface: Surface, rules: tuple[Rule, ...]) -> Floats:
    """Return the cells of a surface that its clip selects, shape (times, rows, columns), computed by some rules."""
    plan = make_plan(surface, rules=rules)
    *_, last = run(plan, watched=False)
    space = plan.surface.topology.space
    if not isinstance(space, Grid):
        message = "these queries end on a grid"
        raise TypeError(message)
    values = last.outcome.value.reshape(-1, *space.shape)
    # A clip that no rule pushed down is cut out of the whole surface in the end.
    clip = plan.rewritten.surface.clip
    if clip.is_open:
        return values
    times, within = select_ranges(plan.surface.topology, clip)
    return values[times, *within]
