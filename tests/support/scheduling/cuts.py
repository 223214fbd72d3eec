"""Cuts of job trees that the server does not use: single jobs (Aurora), and algorithm 4 of the thesis as printed."""

import math
from collections.abc import Callable, Sequence

from queries.scheduling.job_tree import (
    Cut,
    Fragment,
    Shape,
    build_cut,
    cut_from_fragments,
)


def cut_into_jobs(shape: Shape) -> Cut:
    """Cut into single jobs, valued at everything they lead to (4.6.1.1), and due accordingly."""
    profits, slacks_s, below_s = downstream_profits(shape), min_slacks_s(shape), work_below_s(shape)
    pieces = [
        Fragment(
            (number,),
            shape.parents[number],
            shape.costs_s[number],
            shape.profits[number],
            profits[number],
            slacks_s[number],
            below_s[number],
        )
        for number in range(len(shape.names))
    ]
    return build_cut(pieces, len(shape.names))


def cut_as_printed(shape: Shape) -> Cut:
    """Cut into fragments by algorithm 4 as printed; jobs without profit come last, singly."""
    fragments, steps = find_printed_fragments(shape.parents, shape.costs_s, shape.profits)
    return cut_from_fragments(shape, fragments, steps)


def find_printed_fragments(
    parents: Sequence[int], costs: Sequence[float], profits: Sequence[float]
) -> tuple[list[list[int]], int]:
    """Find the fragments of algorithms 3 to 5 exactly as printed, and count comparisons.

    Among all jobs with a profit it merges the one that is densest *together with its parent*. The parts may have been
    worth more separately, so it sometimes earns less than `find_horn_fragments`.

    Parameters
    ----------
    parents, costs, profits
        As for `find_horn_fragments`.
    """
    parent, cost, profit = list(parents), list(costs), list(profits)
    jobs = [[number] for number in range(len(parents))]
    left, steps = set(range(len(parents))), 0
    fragments: list[list[int]] = []
    while True:
        best, candidate = 0.0, -1
        for number in sorted((n for n in left if profit[n] > 0), key=lambda n: (-profit[n] / cost[n], n)):
            steps += 1
            # Sorted by density: no later job can beat the best merge.
            if profit[number] / cost[number] <= best:
                break
            above = parent[number]
            density = profit[number] / cost[number]
            if above >= 0:
                density = (profit[number] + profit[above]) / (cost[number] + cost[above])
            if density > best:
                best, candidate = density, number
        if candidate < 0:
            # The remaining jobs earn nothing; they are kept so that no job is lost.
            return fragments + [jobs[number] for number in sorted(left)], steps
        above = parent[candidate]
        if above < 0:
            fragments.append(jobs[candidate])
        else:
            cost[above] += cost[candidate]
            profit[above] += profit[candidate]
            jobs[above] += jobs[candidate]
        left.remove(candidate)
        for number in left:
            if parent[number] == candidate:
                parent[number] = above


def downstream_profits(shape: Shape) -> tuple[float, ...]:
    """Return the profit of each job and its descendants: Aurora's value of a job (4.6.1.1)."""
    return tuple(_join_descendants(shape, shape.profits, lambda above, below: above + below))


def work_below_s(shape: Shape) -> tuple[float, ...]:
    """Return the cost of each job's descendants, without its own [s per unit]."""
    whole = _join_descendants(shape, shape.costs_s, lambda above, below: above + below)
    return tuple(total - own for total, own in zip(whole, shape.costs_s, strict=True))


def min_slacks_s(shape: Shape) -> tuple[float, ...]:
    """Return the least slack of each job and its descendants, among those with a profit [s]."""
    own = [slack if profit else math.inf for slack, profit in zip(shape.slacks_s, shape.profits, strict=True)]
    slacks = _join_descendants(shape, own, min)
    return tuple(slack if slack < math.inf else 0.0 for slack in slacks)


def _join_descendants(shape: Shape, own: Sequence[float], join: Callable[[float, float], float]) -> list[float]:
    """Combine the value of each job with those of its descendants."""
    values = list(own)
    # Children come after their parents, so one backward pass is enough.
    for number in range(len(shape.names) - 1, 0, -1):
        parent = shape.parents[number]
        if parent >= 0:
            values[parent] = join(values[parent], values[number])
    return values
