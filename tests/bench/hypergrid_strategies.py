"""Figures 5.6 and 5.7: every hybrid-k, and the chosen one; `hypergrid_buffers.py` has figure 5.5.

Every k that fits in memory is run beside the k that the planner chooses: by tabulated costs, as in a process that has
just begun, and by those measured in a single run, whichever its k. The queries are such that the best k differs: where
time comes in one box it is the perspectives at the stations (Q1, Q5: nothing is left to choose); where whole maps come
in the order of time and the stations' part is dear, none, or only what aligns the readings below it; where zones
overlap, so that later ones ask for the same cells of the map, the map too, and a dear convert above it. Where memory is
short nobody watches, and the total time is compared; a map that is held does not fit.

No aggregate of Q1 and Q5 is taken before its interpolation, as in the thesis's figures, so that every slice of the map
is there to be kept or computed again; the other queries are planned by the usual rules. All times are of the processor.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.execution import Plan, StrategyOption, Watching, make_plan, refine, run
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.perspective import Surface
from hypergrid.perspective.functions.user_functions import forget_function
from hypergrid.rewrite import RULES, Rule
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
SHORT = 50 / 23
"""The same of the map for which memory is short: 100 cells a side would take half a minute a run."""
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
            more, apart[f"{name}, every k"] = hybrids(name, case, pairs, sample.sizes.run_s, notify)
            figures += more
    return {
        "figures": [figure.to_json() for figure in figures],
        "differences": [
            {"name": name, "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT}
            for name, greatest in apart.items()
        ],
    }


def enlarge(interpolation: dict[str, Any], factor: float) -> dict[str, Any]:
    """Return an interpolation onto a grid of more cells a side."""
    grid = interpolation["grid"]
    shape = [math.ceil(factor * cells) for cells in grid["shape"]]
    return {**interpolation, "grid": {**grid, "shape": shape}}


@dataclass(frozen=True)
class Choice:
    """A query of which a k is chosen."""

    surface: Surface
    watching: Watching | None = Watching()
    """None: nobody watches, memory is short, and the total time counts."""
    rules: tuple[Rule, ...] = RULES
    """Rules by which the query is rewritten."""

    def plan(self, strategy: StrategyOption = "auto") -> Plan:
        """Return the plan of a k, or of the one that is chosen."""
        return make_plan(
            self.surface, watched=self.watching, rules=self.rules, strategy=strategy, allowed_bytes=self._allowed
        )

    def list_plans(self) -> dict[int, Plan]:
        """Return the plans that fit in memory, by k; others are refused before they run."""
        plans = {k: self.plan(k) for k in range(self.plan().strategy.perspectives + 1)}
        return {k: plan for k, plan in plans.items() if plan.fits(self._allowed)}

    @cached_property
    def _allowed(self) -> int | None:
        if self.watching is not None:
            return None
        whole, least = (
            make_plan(self.surface, rules=self.rules, allowed_bytes=allowed).projected_bytes for allowed in (None, 0)
        )
        return (whole + 3 * least) // 4


def choices(sample: Sample) -> dict[str, Choice]:
    """Return the queries of which every k is run, by name."""
    archive = hg.open(sample.archive)
    documents = {name: sample.query(name.lower()) for name in ("Q1", "Q5")}
    cases = {
        name: Choice(archive.query(document).surface(), rules=NOT_COMMUTING) for name, document in documents.items()
    }
    cleaning, alignment, interpolation, window = documents["Q5"]["steps"]
    moving = {"length": "24h", "step": "5min"}
    highest = {"op": "aggregate", "function": "quantile", "time": moving, "params": {"q": 0.9}}
    means = {"op": "aggregate", "function": "mean", "time": "1h"}
    wet = {"op": "convert", "function": WET_BULB}
    finer = enlarge(interpolation, LARGER)
    within = {"op": "aggregate", "function": "mean", "zones": zones(finer["grid"])}

    def ask(*steps: dict[str, Any], **more: object) -> Surface:
        return archive.query({**documents["Q5"], "steps": [cleaning, *steps], **more}).surface()

    moved = ask(highest, interpolation, select={"station": REPORTING})
    cases["maps of moving quantiles by time"] = Choice(moved, Watching("by_time"))
    aligned = ask(alignment, highest, interpolation, select={"station": REPORTING})
    cases["maps of moving quantiles of means by time"] = Choice(aligned, Watching("by_time"))
    cases["overlapping zones"] = Choice(ask(means, finer, within))
    cases["overlapping zones of a dear convert"] = Choice(ask(means, finer, wet, within))
    # Unlike Q5's mean, a maximum cannot be taken before the interpolation.
    greatest = [alignment, enlarge(interpolation, SHORT), {**window, "function": "max"}]
    cases["maps of moving maxima, short of memory"] = Choice(ask(*greatest), None)
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


@dataclass(frozen=True)
class Run:
    """What a run of one k gives."""

    value: Floats
    total_s: float
    """Processor time of the whole [s]."""
    response_s: float
    """Mean processor time until a cell of the surface is there [s]."""
    blocks: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]
    """After each block: cells of the surface, and computed cells of each perspective by token."""


def run_plan(plan: Plan) -> Run:
    """Run a plan, and note after each block what is computed so far."""
    clock = time.process_time
    started_s = clock()
    states = run(plan, watched=False, clock=clock)
    steps = states if plan.order is None else (state.progress for state in refine(plan, clock=clock))
    blocks = []
    for last in steps:
        blocks.append((last.cells, tuple(sorted(last.outcome.work.items()))))
    return Run(last.outcome.value, clock() - started_s, last.response_s, tuple(blocks))


@dataclass(frozen=True)
class WarmUp:
    """What a first run of every k gives."""

    same_as: dict[int, int]
    """The least k that is the same run: each block computes the same cells of every perspective; by k."""
    repeats: dict[int, int]
    """How often a run is repeated to be timed, by each k that is the least."""
    chosen: frozenset[int]
    """Every k that is chosen by the costs of one of the runs."""
    greatest: float
    """Greatest difference between values of the surface; infinite where not the same cells are missing."""

    def label(self, k: int) -> str:
        """Return a k, and each that is the same run."""
        return " = ".join(str(j) for j, least in self.same_as.items() if least == k)


def warm_up(case: Choice, plans: Mapping[int, Plan], run_s: float) -> WarmUp:
    """Run every k once, and tell which are the same run."""
    same_as: dict[int, int] = {}
    repeats: dict[int, int] = {}
    chosen: set[int] = set()
    values: list[Floats] = []
    distinct: dict[int, object] = {}
    for k, plan in plans.items():
        MEASUREMENTS.clear()
        made = run_plan(plan)
        chosen.add(case.plan().strategy.k)
        values.append(made.value)
        same_as[k] = next((j for j, blocks in distinct.items() if blocks == made.blocks), k)
        if same_as[k] == k:
            distinct[k] = made.blocks
            repeats[k] = max(1, math.ceil(run_s / made.total_s))
    first = values[0]
    if any((np.isnan(one) != np.isnan(first)).any() for one in values):
        return WarmUp(same_as, repeats, frozenset(chosen), float("inf"))
    greatest = max(float(np.nanmax(np.abs(one - first))) for one in values)
    return WarmUp(same_as, repeats, frozenset(chosen), greatest)


def hybrids(name: str, case: Choice, pairs: int, run_s: float, notify: Tell) -> tuple[list[Figure], float]:
    """Return total and mean response time of every k, of the chosen ones over the best, and the greatest difference.

    A k that is the same run as a smaller one is not timed, and is as good as that.
    """
    MEASUREMENTS.clear()
    tabulated, plans = case.plan().strategy.k, case.list_plans()
    warm = warm_up(case, plans, run_s)
    chosen = set(warm.chosen)
    totals: Timings = {f"hybrid-{k}": [] for k in warm.repeats}
    responses: Timings = {f"hybrid-{k}": [] for k in warm.repeats}

    def work(k: int) -> Callable[[int], None]:
        def compute(_number: int) -> None:
            MEASUREMENTS.clear()
            runs = [run_plan(plans[k]) for _ in range(warm.repeats[k])]
            totals[f"hybrid-{k}"].append(statistics.mean(made.total_s for made in runs))
            responses[f"hybrid-{k}"].append(statistics.mean(made.response_s for made in runs))
            chosen.add(case.plan().strategy.k)

        return compute

    works = {f"hybrid-{k}": work(k) for k in warm.repeats}
    interleaved(works, pairs, notify=notify, stage=f"figures 5.6 and 5.7, {name}")
    what, times = ("total", totals) if case.watching is None else ("mean response", responses)

    def median_s(k: int) -> float:
        return statistics.median(times[f"hybrid-{warm.same_as[k]}"])

    best = f"hybrid-{min(warm.repeats, key=median_s)}"
    figures = [
        slower(
            f"{name}, hybrid-{warm.label(k)}, {kind}", row[f"hybrid-{k}"], row[best],
            what=f"hybrid-{k} / {best}, the best by {what}",
        )
        for kind, row in (("total", totals), ("mean response", responses))
        for k in warm.repeats
    ]  # fmt: skip
    # Of the costs measured in a run of any k in any round, those that lead to the worst choice count.
    figures += [
        slower(
            f"{name}, {how} hybrid-{k}, best {best}", times[f"hybrid-{warm.same_as[k]}"], times[best],
            what=f"{what} of the chosen k / of the best", goal=CHOSEN_GOAL,
        )
        for how, k in (("by tabulated costs", tabulated), ("by measured costs", max(chosen, key=median_s)))
    ]  # fmt: skip
    return figures, warm.greatest
