"""Figure 5.4: the queries as they are, fused and unfused; and others as they are written, rewritten by the rules.

The thesis coalesces convert and align, and 341 s of Q1 become 245 s: one call of a function for each cell less. Here a
function is called once for an array, so what a fusion can save is an array less: copies of readings, or of a map.
"""

import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import make_plan, run
from hypergrid.perspective import Surface
from hypergrid.perspective.build.build import select_ranges
from hypergrid.rewrite import RULES, RULES_FOR_MEMORY, Rule, rewrite
from hypergrid.rewrite.rules import commute
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, faster, interleaved

Floats = NDArray[np.float64]
RATIO = "as written / rewritten"
FUSION = "unfused / fused"
LIMIT = 1e-9
"""Greatest difference that rewriting may make [the variable's unit]."""
EXACT = 0.0
"""Greatest difference that a fusion may make: none."""
SHORT = 5
"""Rounds of works of a few milliseconds, over those of the others."""
PARTS_OF_MEMORY = (2, 3, 4)
"""What the memory of a plan without a limit is divided by where plans are compared."""
KELVIN = {"op": "convert", "function": "scale", "params": {"factor": 1.0, "offset": 273.15, "unit": "K"}}


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the figures of fused queries, and of others by the rules that fire, with the differences they make."""
    figures: list[Figure] = []
    differences: list[dict[str, Any]] = []
    archive = hg.open(sample.archive)
    for name, document in fusible(sample):
        surface = archive.query(document).surface()
        # Seconds of a query are its kriging's; convert and align alone take some milliseconds.
        rounds = pairs if any(step["op"] == "interpolate" for step in document["steps"]) else SHORT * pairs
        more, row = fused(name, surface, rounds, notify)
        figures += more
        differences.append(row)
    figures += boxes("Q5", archive.query(sample.query("q5")).surface())
    for name, document in rewritten(sample).items():
        surface = archive.query(document).surface()
        choices = chosen(surface)
        works, found = _works(surface, choices)
        seconds = interleaved(works, pairs, notify=notify, stage=f"figure 5.4, {name}", warm_up=True)
        figures += [
            faster(f"{name}, {label}", seconds[label], seconds["as written"], what=RATIO)
            for label in choices
            if label != "as written"
        ]
        differences += [
            _difference(f"{name}, {label}", found[label], found["as written"], goal=LIMIT) for label in choices
        ]
    return {"figures": [figure.to_json() for figure in figures], "differences": differences}


def fusible(sample: Sample) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the queries that are fused: Q1 to Q5 as they are, the first two steps of each, and converts of maps."""
    asked = {name.upper(): sample.query(name) for name in ("q1", "q2", "q3", "q4", "q5")}
    yield from asked.items()
    for name, document in asked.items():
        yield f"{name}, convert and align alone", {**document, "steps": document["steps"][:2]}
    for name in ("Q1", "Q5"):
        cleaning, alignment, interpolation, window = asked[name]["steps"]
        document = {**asked[name], "steps": [alignment, interpolation, cleaning, window]}
        yield f"{name}, cleaned on the map", document
    # Kriging is left out as far as it can be: the nearest station is the cheapest map.
    cleaning, alignment, interpolation, window = asked["Q5"]["steps"]
    cheap = {"op": "interpolate", "method": "nearest", "grid": interpolation["grid"]}
    yield (
        "Q5 of the nearest station, cleaned on the map",
        {**asked["Q5"], "steps": [alignment, cheap, cleaning, window]},
    )


def fused(name: str, surface: Surface, rounds: int, notify: Tell) -> tuple[list[Figure], dict[str, Any]]:
    """Return time and peak memory of a query unfused over fused, and the difference of their values."""
    choices = {"fused": RULES_FOR_MEMORY, "unfused": RULES}
    fires = {one.rule for one in rewrite(surface, RULES_FOR_MEMORY).fired}
    if "fuse" not in fires:
        message = f"{name} has nothing to fuse"
        raise ValueError(message)
    works, found = _works(surface, choices)
    seconds = interleaved(works, rounds, notify=notify, stage=f"figure 5.4, {name}", warm_up=True)
    peaks = {label: peak_bytes(lambda rules=rules: evaluated(surface, rules)) for label, rules in choices.items()}
    share = peaks["unfused"] / peaks["fused"]
    figures = [
        faster(name, seconds["fused"], seconds["unfused"], what=FUSION),
        Figure(f"{name}, peak memory", None, None, share, (share, share), f"{FUSION} {peaks['fused']:,} bytes"),
    ]
    return figures, _difference(f"{name}, fused", found["fused"], found["unfused"], goal=EXACT)


def boxes(name: str, surface: Surface) -> list[Figure]:
    """Return how many times fewer boxes a plan has that is fused because it is short of memory."""
    whole, figures = make_plan(surface).projected_bytes, []
    # Nothing commutes here, and other rules than the usual are applied as they are given.
    unfused = tuple(rule for rule in RULES if rule is not commute)
    for part in PARTS_OF_MEMORY:
        plans = [make_plan(surface, rules=rules, allowed_bytes=whole // part) for rules in (RULES, unfused)]
        if any(plan.projected_bytes > whole // part for plan in plans):
            continue
        fewer, more = (
            -(-plan.surface.topology.space.count // plan.block_cells)
            * -(-plan.surface.topology.time.count // (plan.block_times or plan.surface.topology.time.count))
            for plan in plans
        )
        label, share = f"{name}, boxes in 1/{part} of its memory", more / fewer
        figures.append(Figure(label, None, None, share, (share, share), f"{FUSION} {fewer:,}"))
    return figures


def peak_bytes(work: Callable[[], object]) -> int:
    """Return the most memory that a work allocates at once, of arrays and objects of Python [bytes]."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def rewritten(sample: Sample) -> dict[str, dict[str, Any]]:
    """Return queries that give the other rules something to do.

    Q1 to Q5 krige from the 20 nearest of 24 stations, which is no linear map of all of them. Kriged from all stations,
    the mean commutes; Q5's clip selects cells.
    """
    asked = {name.upper(): everybody(sample.query(name)) for name in ("q1", "q5")}
    idle = {"op": "convert", "function": "scale", "params": {"factor": 1.0}}
    long = asked["Q1"]
    return {
        "Q1 from all stations": long,
        "Q5 from all stations": asked["Q5"],
        "Q1 with three converts": {**long, "steps": [long["steps"][0], idle, KELVIN, *long["steps"][1:]]},
    }


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
    fired = rewrite(surface).fired
    alone = {f"{rule.__name__} alone": (rule,) for rule in RULES if rewrite(surface, (rule,)).fired}
    every = f"all rules ({len(fired)} fire)" if fired else "all rules (none fires)"
    return {"as written": (), every: RULES, **alone}


def _difference(name: str, values: Floats, expected: Floats, *, goal: float) -> dict[str, Any]:
    greatest = float(np.nanmax(np.abs(values - expected)))
    same_gaps = bool((np.isnan(values) == np.isnan(expected)).all())
    return {"name": name, "greatest": greatest, "goal": goal, "met": same_gaps and greatest <= goal}


def _works(
    surface: Surface, choices: Mapping[str, tuple[Rule, ...]]
) -> tuple[dict[str, Callable[[int], None]], dict[str, Floats]]:
    """Return what is timed, and where it leaves the values."""
    found: dict[str, Floats] = {}

    def work(label: str, rules: tuple[Rule, ...]) -> Callable[[int], None]:
        def compute(_number: int) -> None:
            found[label] = evaluated(surface, rules)

        return compute

    return {label: work(label, rules) for label, rules in choices.items()}, found


def evaluated(surface: Surface, rules: tuple[Rule, ...]) -> Floats:
    """Return the cells of a surface that its clip selects, by time and place, computed by some rules."""
    plan = make_plan(surface, rules=rules)
    *_, last = run(plan, watched=False)
    topology = plan.surface.topology
    values = last.outcome.value.reshape(topology.shape)
    # A clip that no rule pushed down is cut out of the whole surface in the end.
    clip = plan.rewritten.surface.clip
    if clip.is_open:
        return values
    times, within = select_ranges(topology, clip)
    return values[times, *within]
