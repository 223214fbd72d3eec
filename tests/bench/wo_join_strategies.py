"""Figures 3.13 to 3.15: memory and latency where streams are sorted first, wait on disk, or both, and where not.

Beside them the thesis's W-Join, whose window is just large enough for as many results as the join without a strategy.
"""

import inspect
import time
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from hypergrid.wo_join import WoJoin
from tests.bench.kriging_figures import Tell
from tests.bench.wo_join_cases import Number, Sizes, inputs, mean, plain, pushed, query_arrivals, seconds
from tests.bench.wo_join_settings import instants_of, waited_s
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.fixed_window import smallest_window
from tests.support.streams.optimum import count_results

Strategy = Literal["msf", "dbf", "hybrid"]
WINDOW = "window"
STRATEGIES: tuple[Strategy | Literal["window"] | None, ...] = (None, "window", "msf", "dbf", "hybrid")
S3 = 2
"""The stream of query 1 of which figure 3.13 tells."""
NUMBERS: tuple[Number, ...] = (1, 2, 3)
LEAST_SHARE = 0.992
"""The thesis's least accuracy with monitored parameters: a mean over loads, of the join of each that gives least."""


def spills() -> bool:
    """Return whether joins can spill to disk here."""
    return "spill_folder" in inspect.signature(WoJoin).parameters


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return what the joins of each query hold in memory and on disk, and how long results wait, by strategy."""
    rows: list[dict[str, Any]] = []
    courses: dict[str, Any] = {}
    for strategy in STRATEGIES:
        # Loops that are not compiled yet are compiled here, and not where pushes are timed.
        followed(query_arrivals(1, 0, replace(sizes, until_s=2.0)), strategy)
    for done, number in enumerate(NUMBERS):
        notify("strategies", done / len(NUMBERS))
        fed = [inputs(number, query_arrivals(number, seed, sizes)) for seed in range(sizes.seeds)]
        for strategy in STRATEGIES:
            each = [[followed(one, strategy) for one in joins.values()] for joins in fed]
            if number == 1:
                courses[strategy or "none"] = plain(each[0][0]["course"])
            # Memory is that of all joins of a query together, latency that of its last.
            held = [sum(join["held_bytes"] for join in joins) for joins in each]
            spilled = [sum(join["spilled"] for join in joins) for joins in each]
            waited = np.array([joins[-1]["waited_s"] for joins in each])
            shares = [min(join["share"] for join in joins) for joins in each]
            rows.append(
                {
                    "query": number,
                    "strategy": strategy or "none",
                    "held [bytes]": plain(mean(held)),
                    "on disk [tuples]": plain(mean(spilled)),
                    "waited, mean [s]": plain(float(waited[:, 0].mean())),
                    "waited, median [s]": plain(float(waited[:, 1].mean())),
                    "waited, p99 [s]": plain(float(waited[:, 2].mean())),
                    "push [us a tuple]": plain(mean([joins[-1]["push_us"] for joins in each])),
                    "share": mean(shares),
                    "least": min(shares),
                    "goal": LEAST_SHARE,
                    "met": mean(shares) >= LEAST_SHARE,
                }
            )
    notify("strategies", 1.0)
    return {"rows": rows, "courses": {"S3": courses}, "seeds": sizes.seeds}


def made(arrivals: Arrivals, strategy: Strategy | Literal["window"] | None) -> WoJoin:
    """Return the join that is followed."""
    if strategy != WINDOW:
        return WoJoin(arrivals.streams, strategy=strategy)
    share = len(pushed(WoJoin(arrivals.streams), arrivals)) / count_results(arrivals)
    window = int(smallest_window(arrivals, share).sizes.max())
    return WoJoin(arrivals.streams, policy="window", window=window)


def followed(arrivals: Arrivals, strategy: Strategy | Literal["window"] | None) -> dict[str, Any]:
    """Push a load second by second; return means of what is held, how long results waited, and their share.

    The course is that of the tuples of the third stream, or of the last of two, in memory.
    """
    join, shown = made(arrivals, strategy), min(S3, arrivals.streams - 1)
    held, spilled, waited, course, taken_s = [], [], [], [], 0.0
    instants, found = instants_of(arrivals), 0
    for _, part in seconds(arrivals):
        begun = time.perf_counter()
        matches = pushed(join, part)
        taken_s += time.perf_counter() - begun
        told = join.statistics()
        held.append(told.held_bytes)
        spilled.append(sum(one.spilled for one in told.streams))
        course.append(told.streams[shown].held + told.streams[shown].waiting)
        waited.append(waited_s(matches, arrivals, instants))
        found += len(matches)
    # What waits when the streams end waited for nobody.
    at_end = len(join.finish())
    found += at_end
    # Where nothing came before the end, nothing is told of how long it took.
    every = np.concatenate(waited) if found > at_end else np.array([np.nan])
    return {
        "held_bytes": mean(held),
        "spilled": mean(spilled),
        "course": course,
        "waited_s": [float(every.mean()), *np.quantile(every, [0.5, 0.99]).tolist()],
        "push_us": taken_s * 1e6 / len(arrivals),
        "share": found / count_results(arrivals),
    }
