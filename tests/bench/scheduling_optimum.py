"""How often algorithm 4 as printed falls short of the optimum, and that Horn's rule never does."""

from typing import Any

import numpy as np

from queries.scheduling.job_tree import find_horn_fragments
from tests.bench.kriging_figures import Tell
from tests.bench.scheduling_cases import Sizes
from tests.queries.scheduling.trees import best_by_programme, earned_by, random_tree
from tests.support.scheduling.cuts import find_printed_fragments

MOST_JOBS = 9
ROUNDING = 1e-7


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return how many schedules of random trees earn less than the linear programme with precedence.

    At a random time, and at some time at all, where Horn's rule is the optimum: between the ends of fragments both
    schedules earn evenly, so that these times are enough.
    """
    short: dict[str, list[float]] = {"horn": [], "printed": []}
    sometime = {"horn": 0, "printed": 0}
    for seed in range(sizes.trees):
        if not seed % 100:
            notify("linear programme", seed / sizes.trees)
        rng = np.random.default_rng(seed)
        parents, costs, profits = random_tree(rng, maximum=MOST_JOBS)
        time_s = float(rng.uniform(0, sum(costs)))
        best = best_by_programme(parents, costs, profits, time_s)
        fragments = {
            name: rule(parents, costs, profits)[0]
            for name, rule in (("horn", find_horn_fragments), ("printed", find_printed_fragments))
        }
        ends = np.unique(
            np.concatenate([np.cumsum([sum(costs[job] for job in one) for one in each]) for each in fragments.values()])
        )
        for name, each in fragments.items():
            missing = best - earned_by(each, costs, profits, time_s)
            sometime[name] += any(
                earned_by(fragments["horn"], costs, profits, end) - earned_by(each, costs, profits, end) > ROUNDING
                for end in ends
            )
            if missing > ROUNDING * max(best, 1.0):
                short[name].append(missing / best)
    notify("linear programme", 1.0)
    rows = [
        {
            "rule": name,
            "trees": sizes.trees,
            "falls short": len(missing),
            "share": len(missing) / sizes.trees,
            "share at some time": sometime[name] / sizes.trees,
            "mean loss where short": float(np.mean(missing)) if missing else 0.0,
            "greatest loss": max(missing, default=0.0),
        }
        for name, missing in short.items()
    ]
    return {"rows": rows, "jobs": MOST_JOBS}
