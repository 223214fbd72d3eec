"""Figures 5.8 to 5.10: 15 % of the cells of a picture walked, beside all of them: what it shows, and what it takes.

How much of the picture of example 5.3.2 (radiation and rain at one station, by day and hour) a walk shows is judged by
`walk_quality.py`, beside as many cells in other orders. These 672 cells are one pass over the readings: no walk saves
time there, which the plan predicts, and falls back.

The time of figure 5.10 is measured where cells cost something: Q1 on a large map, and a map of wet-bulb temperatures
found by bisection. A walk looks for the first time at what nobody has asked for yet, so kriging weights are cold in
each run; warm ones are timed beside. What the plan predicts from the costs of an earlier run is compared with what is
measured: fixed costs and the walk's own steps are in both. Times are of the processor.
"""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.execution import WalkSettings, Watching, make_plan
from hypergrid.execution.orders.orders import WALKS, make_lattice
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.interpolation.weight_cache import WEIGHTS
from hypergrid.query import Query
from tests.bench.hypergrid_cases import Sample
from tests.bench.hypergrid_strategies import WET_BULB, wet_bulb
from tests.bench.kriging_figures import Figure, Tell, Timings, faster, interleaved
from tests.bench.walk_quality import FRACTION, STATION, judge

GOAL = 0.85
"""Least median correlation of radiation."""
TIME_GOAL = 5.0
"""Least time of the whole over that of the walk, where cells cost something (figure 5.10: less than a fifth)."""
OFF_GOAL = 1.3
"""Greatest ratio of predicted and measured gain, the greater over the smaller."""


def pair(sample: Sample) -> dict[str, Query]:
    """Return the pair of example 5.3.2: radiation [W m-2], and rain of each hour from the counter [mm]."""
    archive, begin = hg.open(sample.archive), np.datetime64(sample.sizes.start)
    period = (str(begin), str(begin + np.timedelta64(sample.sizes.days, "D")))
    station = str(STATION + 1)
    radiation = archive["solar_radiation"].select(station=station).convert("valid_range", low=0.0, high=1500.0)
    rain = archive["rain_meter"].select(station=station)
    return {
        "radiation": radiation.aggregate("mean", time="1h", min_coverage=0.0).clip(time=period),
        "rain": rain.aggregate("rain_accumulation", time="1h", min_coverage=0.0).clip(time=period),
    }


def mapped(sample: Sample) -> dict[str, Query]:
    """Return the maps that are walked: Q1 with many cells, and means of an hour's wet-bulb temperatures."""
    archive, document = hg.open(sample.archive), sample.query("q1")
    cleaning, alignment, interpolation, mean = document["steps"]

    def on(side: int) -> dict[str, Any]:
        # The same area in finer cells, in steps of a millionth of an arc second.
        step = round(sample.sizes.side / side * 1e6) / 1e6
        return {**interpolation, "grid": {**interpolation["grid"], "step": f"{step}arcsec", "shape": [side, side]}}

    wet = {"op": "convert", "function": WET_BULB}
    steps = {
        f"Q1, {sample.sizes.walked_side} x {sample.sizes.walked_side}": [
            cleaning, alignment, on(sample.sizes.walked_side), mean
        ],
        f"wet bulb, {sample.sizes.dear_side} x {sample.sizes.dear_side}": [
            cleaning, {**alignment, "time": "1h"}, on(sample.sizes.dear_side), wet
        ],
    }  # fmt: skip
    return {name: archive.query({**document, "steps": listed}) for name, listed in steps.items()}


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the time of the walk beside that of the whole, and the correlations of the pictures by order."""
    figures: list[Figure] = []
    differences = []
    correlations = []
    for name, query in pair(sample).items():
        stage = f"figures 5.8 to 5.10, {name}"
        notify(stage, 0.0)
        for order, found in judge(query, sample.sizes.seeds).items():
            goal = GOAL if (name, order) == ("radiation", "walk") else None
            met = None if goal is None else found["median"] >= goal
            correlations.append({"name": name, "order": order, **found, "goal": goal, "met": met})
        figures += _time(name, query, pairs, notify)
        differences.append(_completed(name, query))
    with wet_bulb():
        for name, query in mapped(sample).items():
            figures += _time(name, query, pairs, notify, gain=TIME_GOAL)
            differences.append(_completed(name, query))
    return {
        "figures": [figure.to_json() for figure in figures],
        "differences": differences,
        "correlation": correlations,
        "seeds": sample.sizes.seeds,
    }


def _time(name: str, query: Query, pairs: int, notify: Tell, *, gain: float | None = None) -> list[Figure]:
    """Return times of the whole over those of its share in each order, and how well the plan predicted the walk's.

    `gain` is the goal of the walk with cold weights; without one the plan is expected to fall back.
    """
    works = _works(query)
    MEASUREMENTS.clear()
    predicted: list[float] = []

    def noted(number: int) -> None:
        # From the costs of the round before.
        if number >= 0:
            predicted.append(_predict(query))
        works["whole"](number)

    def cold(work: Callable[[int], object]) -> Callable[[int], object]:
        def clear_first(number: int) -> object:
            WEIGHTS.clear()
            return work(number)

        return clear_first

    stage = f"figure 5.10, {name}"
    all_works = {order: cold(work) for order, work in {**works, "whole": noted}.items()}
    seconds = processor_times(all_works, pairs, notify, stage)
    warm = processor_times({order: works[order] for order in ("walk", "whole")}, pairs, notify, stage)
    figures = [
        faster(
            f"{name}, 15 % by {order}", seconds[order], seconds["whole"], what="whole / its share",
            goal=gain if order == "walk" else None,
        )
        for order in works if order != "whole"
    ]  # fmt: skip
    figures.append(faster(f"{name}, 15 % by walk, warm weights", warm["walk"], warm["whole"], what="whole / its share"))
    measured = [whole / walk for whole, walk in zip(seconds["whole"], seconds["walk"], strict=True)]
    off = [max(one / other, other / one) for one, other in zip(predicted, measured, strict=True)]
    what = f"predicted gain {np.median(predicted):.2g} over the measured, or the reverse"
    figures.append(
        Figure(
            f"{name}, predicted gain", None, None, float(np.median(off)), (min(off), max(off)), what,
            None if gain is None else OFF_GOAL, "at most",
        )
    )  # fmt: skip
    chosen = query.refine(order="walk", fraction=FRACTION)
    falls_back = float(next(iter(chosen)).order != "walk")
    figures.append(
        Figure(
            f"{name}, falls back", None, None, falls_back, (falls_back, falls_back), "1: to coarse to fine",
            1.0 if gain is None else 0.0, "at least" if gain is None else "at most",
        )
    )  # fmt: skip
    return figures


def _predict(query: Query) -> float:
    plan = make_plan(query.surface(), watched=Watching("walk", WalkSettings(FRACTION, min_gain=0.0)))
    if plan.order is None or plan.order.walk_gain is None:
        raise TypeError("a walk has a predicted gain")
    return plan.order.walk_gain


def processor_times(works: Mapping[str, Callable[[int], object]], pairs: int, notify: Tell, stage: str) -> Timings:
    """Return the processor time of each work by round [s], interleaved after a round to warm up.

    What else the machine does is left out: nothing here waits for anything but processors.
    """
    seconds: Timings = {name: [] for name in works}

    def timed(name: str, work: Callable[[int], object]) -> Callable[[int], None]:
        def compute(number: int) -> None:
            started_s = time.process_time()
            work(number)
            if number >= 0:
                seconds[name].append(time.process_time() - started_s)

        return compute

    interleaved(
        {name: timed(name, work) for name, work in works.items()}, pairs, notify=notify, stage=stage, warm_up=True
    )
    return seconds


def _works(query: Query) -> dict[str, Callable[[int], object]]:
    lattice = make_lattice(query.plan().surface)
    cells = round(FRACTION * lattice.cells)

    def share(order: str) -> Callable[[int], object]:
        def compute(number: int) -> object:
            steps = query.refine(order=order, seed=number + 1, fraction=FRACTION, min_gain=0.0)
            return next(step for step in steps if step.picture.count >= cells)

        return compute

    return {order: share(order) for order in (*WALKS, "coarse_to_fine")} | {"whole": lambda _: query.compute()}


def _completed(name: str, query: Query) -> dict[str, Any]:
    """Compare the surface that a walk ends with, all cells computed, with the one computed at once."""
    *_, last = query.refine(order="walk", fraction=FRACTION, min_gain=0.0)
    apart = np.abs(value_of(last.dataset()).to_numpy() - value_of(query.compute()).to_numpy())
    greatest = float(np.nanmax(apart))
    return {"name": f"{name}, completed after the walk", "greatest": greatest, "goal": 1e-9, "met": greatest <= 1e-9}
