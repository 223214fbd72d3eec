"""Figures 5.6 and 5.7: every hybrid-k, and the chosen one; `hypergrid_buffers.py` has figure 5.5.

No aggregate is taken before its interpolation, so that every slice of the map is there to be kept or computed again.

Every k of a watched answer is run beside the k that the planner chooses: by tabulated costs, as in a process that has
just begun, and by those measured in earlier runs. The queries are such that the best k differs: where time comes in one
box it is the perspectives at the stations (Q1, Q5: nothing is left to choose); where whole maps come in the order of
time and the stations' part is dear, none; where zones overlap, so that later ones ask for the same cells of the map,
the map too, and a dear convert above it. Where memory is short nobody watches, and the total time is compared. All
times are of the processor.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import Plan, StrategyOption, Watching, make_plan, refine, run
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.perspective import Surface
from hypergrid.perspective.functions.user_functions import forget_function
from hypergrid.rewrite import RULES
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, Timings, interleaved, slower

Floats = NDArray[np.float64]

CHOSEN_GOAL = 1.1
"""Greatest ratio of the time of the chosen k to that of the best."""
ZONES = 48
"""Overlapping zones of which means are taken."""
REACH = 0.25
"""Half the side of a zone, over that of the map."""
LARGER = 100 / 23
"""Cells a side of a larger map, over those of the sample network's maps."""
NOT_COMMUTING = tuple(rule for rule in RULES if rule.__name__ != "commute")
"""Rules that leave an aggregate above its interpolation."""
REPORTING = [str(number) for number in range(1, 25) if number != 7]
"""Stations without the one that is silent in the first hours of Q1: which report must be known before the first map."""
LIMIT = 1e-9
"""Greatest difference between strategies that is allowed [the variable's unit]."""


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the total and mean response time of every hybrid-k, and of the chosen ones over the best."""
    figures: list[Figure] = []
    apart: dict[str, float] = {}
    with wet_bulb():
        for name, case in choices(sample).items():
            more, apart[f"{name}, every k"] = hybrids(name, case, pairs, notify)
            figures += more
    return {
        "figures": [figure.to_json() for figure in figures],
        "differences": [
            {"name": name, "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT}
            for name, greatest in apart.items()
        ],
    }


def larger(document: dict[str, Any]) -> dict[str, Any]:
    """Return Q5 on a map of many more cells."""
    cleaning, alignment, interpolation, window = document["steps"]
    grid = interpolation["grid"]
    shape = [math.ceil(LARGER * side) for side in grid["shape"]]
    return {**document, "steps": [cleaning, alignment, {**interpolation, "grid": {**grid, "shape": shape}}, window]}


@dataclass(frozen=True)
class Choice:
    """A query of which a k is chosen."""

    surface: Surface
    watching: Watching | None = Watching()
    """None: nobody watches, memory is short, and the total time counts."""

    def plan(self, strategy: StrategyOption = "auto") -> Plan:
        """Return the plan of a k, or of the one that is chosen."""
        if self.watching is not None:
            return make_plan(self.surface, watched=self.watching, rules=NOT_COMMUTING, strategy=strategy)
        return make_plan(self.surface, rules=NOT_COMMUTING, strategy=strategy, allowed_bytes=self._short_bytes())

    def _short_bytes(self) -> int:
        whole, least = (
            make_plan(self.surface, rules=NOT_COMMUTING, allowed_bytes=allowed).projected_bytes for allowed in (None, 0)
        )
        return (whole + 3 * least) // 4


def choices(sample: Sample) -> dict[str, Choice]:
    """Return the queries of which every k is run, by name."""
    archive = hg.open(sample.archive)
    documents = {name: sample.query(name.lower()) for name in ("Q1", "Q5")}
    cases = {name: Choice(archive.query(document).surface()) for name, document in documents.items()}
    cleaning, _, interpolation, _ = documents["Q1"]["steps"]
    moving = {"length": "24h", "step": "5min"}
    highest = {"op": "aggregate", "function": "quantile", "time": moving, "params": {"q": 0.9}}
    means = {"op": "aggregate", "function": "mean", "time": "1h"}
    wet = {"op": "convert", "function": WET_BULB}
    finer = larger(documents["Q5"])["steps"][2]
    within = {"op": "aggregate", "function": "mean", "zones": zones(finer["grid"])}

    def case(*steps: dict[str, Any]) -> Choice:
        return Choice(archive.query({**documents["Q1"], "steps": [cleaning, *steps]}).surface())

    moved = {**documents["Q1"], "steps": [cleaning, highest, interpolation], "select": {"station": REPORTING}}
    cases["maps of moving quantiles by time"] = Choice(archive.query(moved).surface(), Watching("by_time"))
    cases["overlapping zones"] = case(means, finer, within)
    cases["overlapping zones of a dear convert"] = case(means, finer, wet, within)
    cases["Q5, larger, short of memory"] = Choice(archive.query(larger(documents["Q5"])).surface(), None)
    return cases


def zones(grid: Mapping[str, Any]) -> dict[str, Any]:
    """Return squares over a grid of which each shares its cells with many others, as GeoJSON."""
    rows, columns = (side / 3600 for side in grid["shape"])
    south, west = (_degrees(grid[name]) for name in ("lat", "lon"))
    centres = np.random.default_rng(0).uniform(REACH, 1 - REACH, (ZONES, 2))
    features = []
    for number, (down, across) in enumerate(centres):
        low, high, left, right = (
            origin + side * (at + sign * REACH)
            for origin, side, at in ((south, rows, down), (west, columns, across))
            for sign in (-1, 1)
        )
        ring = [[left, low], [right, low], [right, high], [left, high], [left, low]]
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"name": f"zone {number}"}, "geometry": geometry})
    return {"type": "FeatureCollection", "features": features}


def _degrees(text: str) -> float:
    degrees, minutes, seconds = map(float, text.split(":"))
    return degrees + minutes / 60 + seconds / 3600


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


WET_BULB = "bench_wet_bulb"


@contextmanager
def wet_bulb() -> Iterator[None]:
    """Add a dear convert for a while: the wet-bulb temperature at half saturation, by bisection of its definition."""

    @hg.convert_function(WET_BULB, takes="degC")
    def compute(values: Any) -> Any:  # noqa: ANN401 - as users write it
        """Return the wet-bulb temperature at a relative humidity of 50 % and 76 kPa."""

        def saturation_kpa(celsius: Any) -> Any:  # noqa: ANN401
            return 0.6108 * np.exp(17.27 * celsius / (celsius + 237.3))

        vapour_kpa = 0.5 * saturation_kpa(values)
        low, high = values - 30.0, values
        for _ in range(40):
            middle = 0.5 * (low + high)
            below = saturation_kpa(middle) - 0.000665 * 76.0 * (values - middle) < vapour_kpa
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return 0.5 * (low + high)

    try:
        yield
    finally:
        forget_function(WET_BULB)


def hybrids(name: str, case: Choice, pairs: int, notify: Tell) -> tuple[list[Figure], float]:
    """Return total and mean response time of every k, and of the chosen one over the best."""
    most = case.plan().strategy.perspectives
    MEASUREMENTS.clear()
    chosen = {"by tabulated costs": case.plan().strategy.k}
    plans = {f"hybrid-{k}": case.plan(k) for k in range(most + 1)}
    totals, responses, greatest = _timed(plans, pairs, notify, f"figures 5.6 and 5.7, {name}")
    chosen["by measured costs"] = case.plan().strategy.k
    what, times = ("total", totals) if case.watching is None else ("mean response", responses)
    best = min(times, key=lambda label: statistics.median(times[label]))
    figures = [
        slower(f"{name}, {label}, {kind}", row[label], row[best], what=f"{label} / {best}, the best by {what}")
        for kind, row in (("total", totals), ("mean response", responses))
        for label in plans
    ]
    figures += [
        slower(
            f"{name}, {how} hybrid-{k}, best {best}", times[f"hybrid-{k}"], times[best],
            what=f"{what} of the chosen k / of the best", goal=CHOSEN_GOAL,
        )
        for how, k in chosen.items()
    ]  # fmt: skip
    return figures, greatest


def _timed(plans: Mapping[str, Plan], pairs: int, notify: Tell, stage: str) -> tuple[Timings, Timings, float]:
    """Return seconds in all, mean response times [s], and the greatest difference of the values from the first plan's.

    The difference is infinite where not the same cells are missing.
    """
    found: dict[str, Floats] = {}
    responses: Timings = {label: [] for label in plans}

    def work(label: str, plan: Plan) -> Callable[[int], None]:
        def compute(number: int) -> None:
            clock = time.process_time
            states = run(plan, watched=False, clock=clock)
            *_, last = states if plan.order is None else (state.progress for state in refine(plan, clock=clock))
            found[label] = last.outcome.value
            if number >= 0:
                responses[label].append(last.response_s)

        return compute

    works = {label: work(label, plan) for label, plan in plans.items()}
    seconds = processor_times(works, pairs, notify, stage)
    first, *others = found.values()
    if any((np.isnan(one) != np.isnan(first)).any() for one in others):
        return seconds, responses, float("inf")
    return seconds, responses, max(float(np.nanmax(np.abs(one - first))) for one in others)
