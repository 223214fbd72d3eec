"""Figures 4.6 to 4.13, 5.13 and 5.14 as tables: means over seeds with 95 % intervals."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from queries.scheduling.job_tree import CutRule, cut_into_fragments
from tests.bench.kriging_figures import Tell
from tests.bench.scheduling_cases import (
    DROPPING,
    LATE,
    OURS,
    SWEEPS,
    THESIS,
    Late,
    Point,
    Sizes,
    Sweep,
    inputs,
    quality,
)
from tests.support.scheduling.batching import Batching, FixedInterval, FixedLength, Intelligent, Single
from tests.support.scheduling.cuts import cut_into_jobs
from tests.support.scheduling.graphs import STREAMS
from tests.support.scheduling.handlers import RUNS, fit_overheads, time_handlers
from tests.support.scheduling.quality import Overheads
from tests.support.scheduling.strategies import LastDitch, make_deadline_dominant, make_profit_dominant, make_strategy
from tests.support.scheduling.updates import CLASSES, Profits, random_standing, simulate_updates

Scores = NDArray[np.float64]
"""Of one strategy, shape (values, seeds)."""
DD_US = (1.05, 1.3, 1.6, 2.0, 3.0, 5.0)
PD_US = (0.3, 0.5, 0.65, 0.8, 0.95)
BATCHINGS = ("none", "fixed length", "fixed interval", "intelligent", "intelligent, never early")
OVERHEADS = {"none": 0.0, "a tenth": 0.1, "measured": 1.0, "ten times": 10.0}
"""Of the measured cost of scheduling, how much is taken: figure 4.8 depends on it."""
OVERLOAD = 1.5
"""Of the base's queries in figures 5.13 and 5.14."""


def interval(values: Sequence[float] | NDArray[np.float64]) -> tuple[float, float]:
    """Return the 95 % interval of a mean by Student's t."""
    size = len(values)
    mean = float(np.mean(values))
    if size < 2:
        return mean, mean
    half = float(student.ppf(0.975, size - 1) * np.std(values, ddof=1) / np.sqrt(size))
    return mean - half, mean + half


def sweep_scores(sizes: Sizes, notify: Tell) -> dict[str, dict[Late, dict[str, Scores]]]:
    """Return the QoS of every strategy at every value of figures 4.9 to 4.13 and of the replay, by what is late."""
    found: dict[str, dict[Late, dict[str, Scores]]] = {}
    for done, (name, whole) in enumerate(SWEEPS.items()):
        sweep = whole.cut(sizes.values)
        found[name] = {late: {} for late in LATE}
        for number, strategy in enumerate((*THESIS, *OURS)):
            notify("figures 4.9 to 4.13", (done + number / len((*THESIS, *OURS))) / len(SWEEPS))
            for late in LATE:
                # Those that remove what is late do so in both.
                found[name][late][strategy] = (
                    found[name][LATE[0]][strategy]
                    if late == LATE[1] and strategy in DROPPING
                    else np.array(
                        [
                            [
                                quality(seed, point, strategy, late=late, sizes=sizes).score
                                for seed in range(sizes.seeds)
                            ]
                            for point in sweep.points.values()
                        ]
                    )
                )
    notify("figures 4.9 to 4.13", 1.0)
    return found


def _scores(sweep: Sweep, strategy: str, late: Late, sizes: Sizes) -> Scores:
    """Return the QoS of one strategy at each point and seed."""
    return np.array(
        [
            [quality(seed, point, strategy, late=late, sizes=sizes).score for seed in range(sizes.seeds)]
            for point in sweep.points.values()
        ]
    )


def u_scores(sizes: Sizes, notify: Tell) -> dict[str, dict[str, Scores]]:
    """Return the QoS of figures 4.6 and 4.7 by the coefficient u."""
    found: dict[str, dict[str, Scores]] = {}
    rules: dict[str, CutRule] = {"basic": cut_into_jobs, "opt-profit": cut_into_fragments}
    for done, (figure, us, order) in enumerate(
        (("4.6", DD_US, make_deadline_dominant), ("4.7", PD_US, make_profit_dominant))
    ):
        notify("figures 4.6 and 4.7", done / 2)
        ending = "+dd" if figure == "4.6" else "+pd"
        found[figure] = {
            f"{name}{ending}": np.array(
                [
                    [
                        quality(
                            seed, Point(), LastDitch(f"{name}{ending}", rule, order(u)), late=LATE[0], sizes=sizes
                        ).score
                        for seed in range(sizes.seeds)
                    ]
                    for u in us
                ]
            )
            for name, rule in rules.items()
        }
    notify("figures 4.6 and 4.7", 1.0)
    return found


def batching_scores(sizes: Sizes, notify: Tell) -> dict[str, dict[str, Scores]]:
    """Return the QoS of figure 4.8 by `OVERHEADS`, strategy and `BATCHINGS`; fixed batches are as long as ours."""
    found: dict[str, dict[str, Scores]] = {}
    measured, strategies = vars(Overheads()), THESIS[1:]
    for done, (cost, share) in enumerate(OVERHEADS.items()):
        overheads = Overheads(*(share * seconds for seconds in measured.values()))
        found[cost] = {}
        for number, strategy in enumerate(strategies):
            notify("figure 4.8", (done + number / len(strategies)) / len(OVERHEADS))
            scores: dict[str, list[float]] = {name: [] for name in BATCHINGS}
            for seed in range(sizes.seeds):
                run = partial(quality, seed, Point(), strategy, late=LATE[0], sizes=sizes, overheads=overheads)
                ours = run(batching=Intelligent())
                scores["intelligent"].append(ours.score)
                tried: dict[str, Batching] = {
                    "none": Single(),
                    "fixed length": FixedLength(max(1, round(ours.mean_batch))),
                    "fixed interval": FixedInterval(sizes.duration_s * STREAMS / ours.batches),
                    "intelligent, never early": Intelligent(eager=False),
                }
                for name, batching in tried.items():
                    scores[name].append(run(batching=batching).score)
            found[cost][strategy] = np.array([scores[name] for name in BATCHINGS])
    notify("figure 4.8", 1.0)
    return found


def handler_costs(sizes: Sizes, notify: Tell) -> list[dict[str, Any]]:
    """Return what handlers cost on this machine beside what the figures take, and how well that explains the handlers.

    Each strategy of the thesis is timed without batches and with intelligent ones, on one seed of figure 4.8.
    """
    costs = []
    for done, strategy in enumerate(THESIS[1:]):
        notify("cost of handlers", done / len(THESIS[1:]))
        streams, late_runs = inputs(0, Point(), sizes), strategy not in DROPPING
        for batching in (Single(), Intelligent()):
            made = [make_strategy(strategy) for _ in range(RUNS)]
            costs.append(time_handlers(streams, made, batching, late_runs=late_runs))
    notify("cost of handlers", 1.0)
    fitted, taken = fit_overheads(costs), Overheads()
    rows: list[dict[str, Any]] = [
        {"what": f"{name.removesuffix('_s')} [us]", "here": 1e6 * seconds, "in the figures": 1e6 * vars(taken)[name]}
        for name, seconds in vars(fitted).items()
    ]
    return rows + [
        {
            "what": f"{cost.strategy}, batching {cost.batching}: handlers [ms]", "here": 1e3 * cost.seconds,
            "in the figures": 1e3 * cost.predicted_s(taken),
        }
        for cost in costs
    ]  # fmt: skip


def update_scores(sizes: Sizes, notify: Tell, *, profits: Profits = "tokens") -> dict[str, Scores]:
    """Return update frequencies by class, their weighted sum, the token score and the longest wait, by seed."""
    found: dict[str, Scores] = {}
    names = ("round-robin", "basic", "opt-profit", "hybrid")
    for done, name in enumerate(names):
        notify("figures 5.13 and 5.14", done / len(names))
        rows = []
        for seed in range(sizes.seeds):
            standing = random_standing(np.random.default_rng([seed, 5]))
            updates = simulate_updates(
                standing, make_strategy(name), overload=OVERLOAD, slices=sizes.slices, profits=profits
            )
            frequencies = (updates.frequency[kind] for kind in CLASSES)
            rows.append([*frequencies, updates.weighted, updates.score, updates.longest])
        found[name] = np.array(rows).T
    notify("figures 5.13 and 5.14", 1.0)
    return found


def table(scores: Mapping[str, Scores], values: Sequence[object], what: str) -> list[dict[str, Any]]:
    """Return one row a strategy and value: mean and 95 % interval over seeds."""
    rows = []
    for name, found in scores.items():
        for value, each in zip(values, found, strict=True):
            low, high = interval(each)
            rows.append(
                {
                    "strategy": name,
                    what: round(value, 4) if isinstance(value, float) else value,
                    "mean": round(float(np.mean(each)), 5),
                    "low": round(low, 5),
                    "high": round(high, 5),
                }
            )
    return rows
