"""How often standing queries are updated when there is not time for all (thesis 5.11, figures 5.13 and 5.14)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from queries.scheduling.step_graph import GraphStep, StepGraph, Tokens
from queries.scheduling.strategy import SchedulingStrategy

UserClass = Literal["alert", "user", "archive"]
CLASSES: tuple[UserClass, ...] = ("alert", "user", "archive")
Profits = Literal["tokens", "weights"]
"""What an answer earns: the tokens that its query has saved (thesis 5.11), as for the live runner, or its weight."""


@dataclass(frozen=True)
class Standing:
    """Standing queries on one base, by name."""

    steps: Mapping[str, tuple[GraphStep, ...]]
    """One to four perspectives each; the first ones are often those of others."""
    weights: Mapping[str, float]
    classes: Mapping[str, UserClass]

    @property
    def work_s(self) -> float:
        """What all cost once, each step once [s]."""
        return sum({step.token: step.projected_s for steps in self.steps.values() for step in steps}.values())


@dataclass(frozen=True)
class Updates:
    """What one simulation found."""

    frequency: Mapping[UserClass, float]
    """Updates of a query of each class for one of the base, mean."""
    weighted: float
    """Sum over the queries of weight times frequency."""
    score: float
    """Share of the tokens that were credited, 0 to 1."""
    scheduled: int
    """Pieces that were chosen."""
    longest: int
    """Most slices that came while a query waited for an answer."""


def random_standing(rng: np.random.Generator, *, queries: int = 30, sharing: float = 0.5) -> Standing:
    """Return random standing queries: a fifth alerts, two fifths of users, two fifths for the archive.

    Parameters
    ----------
    rng
        Where chance comes from.
    queries
        How many.
    sharing
        How likely each step but the last is one that another query has in its place already.
    """
    steps: dict[str, tuple[GraphStep, ...]] = {}
    weights: dict[str, float] = {}
    classes: dict[str, UserClass] = {}
    known: dict[tuple[str, ...], list[GraphStep]] = {}
    for number in range(queries):
        kind: UserClass = "alert" if number % 5 == 0 else "user" if number % 5 in (1, 2) else "archive"
        name = f"{kind} {number}"
        chain: list[GraphStep] = []
        depth = int(rng.integers(2, 5))
        for level in range(depth):
            before = (chain[-1].token,) if chain else ()
            there = known.setdefault(before, [])
            if there and level < depth - 1 and rng.random() < sharing:
                chain.append(there[int(rng.integers(0, len(there)))])
                continue
            chain.append(GraphStep(f"step {number}.{level}", before, projected_s=float(rng.uniform(0.2, 1.8))))
            if level < depth - 1:
                there.append(chain[-1])
        steps[name] = tuple(chain)
        weights[name] = {"alert": 10.0, "user": float(rng.integers(2, 6)), "archive": 1.0}[kind]
        classes[name] = kind
    return Standing(steps, weights, classes)


def simulate_updates(
    standing: Standing, strategy: SchedulingStrategy, *, overload: float, slices: int = 60, profits: Profits = "tokens"
) -> Updates:
    """Return how often each class is updated.

    At each new slice of the base every query is stale. What has not run of the slice before is withdrawn: a query that
    is answered later answers for all that it missed. A piece that has begun is ended first.

    Parameters
    ----------
    standing
        The queries.
    strategy
        With nothing waiting; it is used up.
    overload
        What all queries would cost for each slice, in units of the time between two.
    slices
        Updates of the base.
    profits
        What the strategy is given to choose by; the score counts tokens either way.
    """
    graph = StepGraph()
    for name, steps in standing.steps.items():
        graph.add(name, steps, weight=standing.weights[name], validity_s=standing.work_s)
    answers: dict[str, list[str]] = {}
    for name, steps in standing.steps.items():
        answers.setdefault(steps[-1].token, []).append(name)
    tokens, counts = Tokens(standing.weights), dict.fromkeys(standing.weights, 0)
    waits, longest = dict.fromkeys(standing.weights, 0), 0
    period_s = standing.work_s / overload
    now_s, tree = 0.0, None
    for number in range(slices):
        now_s = max(now_s, number * period_s)
        if tree is not None:
            strategy.withdraw(tree)
        tokens.offer(standing.weights)
        waits = {name: missed + 1 for name, missed in waits.items()}
        longest = max(longest, *waits.values())
        # Every query is stale.
        tree = graph.tree(dict(tokens._saved) if profits == "tokens" else standing.weights, now_s=now_s)
        strategy.push(tree, now_s)
        while now_s < (number + 1) * period_s and (work := strategy.next(now_s)) is not None:
            now_s += work.cost_s
            for job in work.fragment.jobs:
                for name in answers.get(tree.shape.names[job], ()):
                    tokens.credit(name)
                    counts[name] += 1
                    waits[name] = 0
            strategy.done(work, now_s)
    frequency = {
        kind: float(np.mean([counts[name] / slices for name in counts if standing.classes[name] == kind]))
        for kind in CLASSES
    }
    weighted = sum(standing.weights[name] * count / slices for name, count in counts.items())
    return Updates(frequency, weighted, tokens.score, strategy.statistics(now_s).chosen, longest)
