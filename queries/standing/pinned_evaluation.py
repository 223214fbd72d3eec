"""Turns: a query that is computed to its end at one snapshot, whatever slices come meanwhile.

Two kinds of queries get one. The query that has waited the longest, in its share of the time; and the one that was
being computed when a newer snapshot came: were it begun anew at each slice, what takes longer than a slice would never
end. What comes meanwhile it sees in the next round.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from queries.scheduling.step_graph import StepGraph
from queries.standing.shared_steps import EvaluationStep, SnapshotEvaluation

Running = Mapping[int, tuple[EvaluationStep, Iterator[float]]]
"""By the identity of a step that was begun, the step and its blocks."""


@dataclass(eq=False)
class PinnedEvaluation:
    """A query on its way to its end."""

    name: str
    evaluation: SnapshotEvaluation
    """The steps that it needs, at its snapshot."""
    blocks: Iterator[float]
    """Its blocks that are still to do, the seconds that each took."""
    weight: float = 0.0
    left_s: float = 0.0
    """What is expected to be still to do [s]."""

    @property
    def density(self) -> float:
        """Weight for each second that is still to do [1/s], as a strategy's pieces have it."""
        return self.weight / max(self.left_s, 1e-9)

    def step(self) -> bool:
        """Compute a block; return whether there was one."""
        seconds = next(self.blocks, None)
        if seconds is not None:
            self.left_s -= seconds
        return seconds is not None


def pin_query(name: str, own: SnapshotEvaluation) -> PinnedEvaluation:
    """Return the turn of a query of which nothing is computed yet."""
    return PinnedEvaluation(name, own, chain.from_iterable(own.compute(step) for step in own.remaining_steps(name)))


def pin_interrupted(
    this: SnapshotEvaluation, running: Running, weights: Mapping[str, float], graph: StepGraph
) -> PinnedEvaluation | None:
    """Return the turn of the query that is worth most, of those of which a step is being computed; None: there is none.

    The others leave the round: they see the newer snapshot. What they have in common with it stays.
    """
    turns: list[PinnedEvaluation] = []
    for name in {user for step, _ in running.values() for user in step.users if user in weights}:
        rest = this.remaining_steps(name)
        left_s = sum(max(graph.cost(step.kind_key).seconds - step.seconds, 0.0) for step in rest)
        blocks = chain.from_iterable(
            running[id(step)][1] if id(step) in running else this.compute(step) for step in rest
        )
        turns.append(PinnedEvaluation(name, this, blocks, weights[name], left_s))
    if not turns:
        return None
    best = max(turns, key=lambda turn: (turn.density, turn.name))
    for name in list(this.tasks):
        if name != best.name:
            this.remove_query(name)
    return best
