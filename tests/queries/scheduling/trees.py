"""Random trees of jobs, and slow obvious answers to what can be earned of them in a given time."""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from scipy.optimize import linprog

Tree = tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]
"""Parents, costs, profits."""


def random_tree(rng: np.random.Generator, *, maximum: int) -> Tree:
    """Return a forest of up to so many jobs; leaves earn something, and one inner job in four."""
    size = int(rng.integers(1, maximum + 1))
    parents = [-1 if job == 0 or rng.random() < 0.1 else int(rng.integers(0, job)) for job in range(size)]
    inner = set(parents)
    earns = [job not in inner or rng.random() < 0.25 for job in range(size)]
    profits = [float(rng.integers(1, 11)) if one else 0.0 for one in earns]
    return tuple(parents), tuple(float(cost) for cost in rng.integers(1, 8, size)), tuple(profits)


def earned_by(
    fragments: Sequence[Sequence[int]], costs: Sequence[float], profits: Sequence[float], time_s: float
) -> float:
    """Return what a schedule earns in a time, of the last fragment for as many tuples as fit (algorithm 3, line 18)."""
    earned = 0.0
    for jobs in fragments:
        cost = sum(costs[job] for job in jobs)
        share = min(1.0, time_s / cost)
        earned += share * sum(profits[job] for job in jobs)
        time_s -= share * cost
        if time_s <= 0:
            break
    return earned


def best_by_programme(parents: Sequence[int], costs: Sequence[float], profits: Sequence[float], time_s: float) -> float:
    """Return the optimum of the linear programme: of how many tuples each job runs, never more than its parent."""
    rows = []
    for job, parent in enumerate(parents):
        if parent >= 0:
            row = np.zeros(len(parents))
            row[job], row[parent] = 1.0, -1.0
            rows.append(row)
    bounds = np.array([0.0] * len(rows) + [time_s])
    found = linprog(-np.asarray(profits), A_ub=np.array([*rows, np.asarray(costs)]), b_ub=bounds, bounds=(0, 1))
    assert found.success
    return -float(found.fun)


def best_by_trying(parents: Sequence[int], costs: Sequence[float], profits: Sequence[float], time_s: float) -> float:
    """Return the most that any set of whole jobs earns which fits into the time and holds each job's parent."""
    best = 0.0
    jobs = range(len(parents))
    for size in range(1, len(parents) + 1):
        for chosen in combinations(jobs, size):
            held = set(chosen)
            if all(parents[job] in held or parents[job] < 0 for job in chosen):
                if sum(costs[job] for job in chosen) <= time_s + 1e-9:
                    best = max(best, sum(profits[job] for job in chosen))
    return best
