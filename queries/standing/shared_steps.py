"""Steps of all standing queries at one snapshot: equal steps, by token, are computed once.

The step chains of every query are merged into one round. The result of a step is kept until the last query that needs
it is done, whichever query computes it first. The scheduler knows steps by `kind_key`, which ignores time and snapshot:
it learns costs per kind.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import xarray as xr

from hypergrid.core.tokens import token
from hypergrid.execution import Outcome, to_dataset
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.materialise import hold_blocks
from hypergrid.perspective import Base, Interpolate, Merge, Perspective
from hypergrid.perspective.build.restrict import restrict
from hypergrid.topology import SeriesAxis
from queries.scheduling.step_graph import GraphStep
from queries.standing.incremental_tasks import EvaluationTask

# Other queries may run only between two blocks.
BLOCK_CELLS: Final = 1 << 18
"""Cells (over all time cells) in a block of a map, at most."""


@dataclass(eq=False)
class EvaluationStep:
    """One perspective step of a round."""

    node: Perspective
    kind_key: str
    """Identity of the step's kind, without time and snapshot."""
    users: set[str] = field(default_factory=set)
    """Names of the unfinished queries that need it."""
    is_done: bool = False
    seconds: float = 0.0
    """Time taken so far, over all blocks [s]."""


class SnapshotEvaluation:
    """All steps that the standing queries need at one snapshot; for one thread only."""

    def __init__(self, snapshot: str) -> None:
        self.snapshot = snapshot
        self.tasks: dict[str, EvaluationTask] = {}
        """By query name; queries on the same surface share a task."""
        self.steps_asked = self.steps_run = 0
        """Steps that the queries would run separately, and steps that were run."""
        self.asked_s = self.run_s = 0.0
        """Time that they would have taken, and took [s]."""
        self._evaluator = Evaluator()
        self._steps: dict[str, EvaluationStep] = {}
        self._steps_by_kind: dict[str, dict[str, EvaluationStep]] = {}
        self._needed: dict[str, tuple[str, ...]] = {}
        self._chains: dict[int, tuple[Perspective, ...]] = {}
        self._listed: dict[int, tuple[GraphStep, ...]] = {}

    def add(self, name: str, task: EvaluationTask) -> None:
        """Merge the step chains of a task into the round."""
        self.tasks[name] = task
        # Queries on one surface share a task, whose chain is expanded once.
        chain = self._chains.get(id(task))
        if chain is None:
            listed = {node.token: node for _, part in task.parts for node in _select_cell_nodes(part)}
            chain = self._chains[id(task)] = tuple(listed.values())
        for node in chain:
            step = self._steps.get(node.token)
            if step is None:
                step = self._steps[node.token] = EvaluationStep(node, make_kind_key(node))
                self._steps_by_kind.setdefault(step.kind_key, {})[node.token] = step
            step.users.add(name)
        self._needed[name] = tuple(node.token for node in chain)

    def steps_of(self, name: str) -> tuple[GraphStep, ...]:
        """Return the steps of a query as the scheduler knows them, its surface last."""
        task = id(self.tasks[name])
        if task not in self._listed:
            self._listed[task] = self._list_steps(name)
        return self._listed[task]

    def _list_steps(self, name: str) -> tuple[GraphStep, ...]:
        steps: dict[str, GraphStep] = {}
        for token_ in self._needed[name]:
            step = self._steps[token_]
            sources = tuple(dict.fromkeys(self._steps[source.token].kind_key for source in _cell_sources(step.node)))
            # A merge waits for another base; the cost of an interpolation depends on which stations report (4.5).
            steady = not isinstance(step.node.operator, Merge | Interpolate)
            steps[step.kind_key] = GraphStep(step.kind_key, sources, predictable=steady)
        return tuple(steps.values())

    def waiting_steps(self, sort: str) -> list[EvaluationStep]:
        """Return the unfinished steps of a kind that any query still needs."""
        return [step for step in self._steps_by_kind.get(sort, {}).values() if step.users and not step.is_done]

    def remaining_steps(self, name: str) -> list[EvaluationStep]:
        """Return the unfinished steps of a query, sources first."""
        return [step for step in self.needed_steps(name) if not step.is_done]

    def needed_steps(self, name: str) -> list[EvaluationStep]:
        """Return all steps of a query, finished or not."""
        return [self._steps[token_] for token_ in self._needed.get(name, ())]

    def compute(self, step: EvaluationStep, clock: Callable[[], float] = time.perf_counter) -> Iterator[float]:
        """Compute a step in blocks; yield the duration of each [s].

        Raises
        ------
        HyperGridError
            Any error of the engine.
        """
        started_s, total = clock(), 0.0
        if isinstance(step.node.topology.space, SeriesAxis):
            self._evaluator.materialise_stations(step.node)
        else:
            # A block spans all time cells, so long series get fewer places per block.
            block = max(1, BLOCK_CELLS // step.node.topology.time.count)
            for _ in hold_blocks(self._evaluator, step.node, block):
                now = clock()
                total += now - started_s
                step.seconds = total
                yield now - started_s
                started_s = clock()
        last = clock() - started_s
        step.is_done = True
        total += last
        step.seconds = total
        self.steps_run += 1
        self.run_s += total
        self.steps_asked += len(step.users)
        self.asked_s += total * len(step.users)
        yield last

    def complete(self, step: EvaluationStep) -> list[str]:
        """List the queries that use a step and have no steps left."""
        return [name for name in sorted(step.users) if not self.remaining_steps(name)]

    def values(self, task: EvaluationTask) -> list[Cells]:
        """Return the computed parts of a task whose steps are all done."""
        parts = [part for _, part in task.parts]
        return [self._evaluator.surface(part, np.arange(part.topology.space.count)) for part in parts]

    def collect_diagnostics(self) -> tuple[dict[str, int], list[str]]:
        """Return readings left out by reason, and notes, over all computed steps."""
        return dict(self._evaluator.left_out), list(self._evaluator.diagnostics.notes)

    def remove_query(self, name: str) -> None:
        """Remove a finished, failed or postponed query, and free the steps that only it needed."""
        self.tasks.pop(name, None)
        for token_ in self._needed.pop(name, ()):
            step = self._steps[token_]
            step.users.discard(name)
            if not step.users:
                # A step without users is dropped even if done; a later query recomputes it.
                self._evaluator.drop(step.node)
                step.is_done = False


@dataclass(frozen=True, eq=False)
class LatestCell:
    """Newest computed time cell of a surface, for inspection."""

    task: EvaluationTask
    node: Perspective
    """The surface; this is its last time cell."""
    cells: Cells
    """Shape (1, places)."""
    left_out: dict[str, int]
    notes: list[str]

    def dataset(self) -> xr.Dataset:
        """Convert to the format of `Query.compute`."""
        count = self.node.topology.time.count
        node = restrict(self.node, slice(count - 1, count))
        return _make_dataset(self.task, node, self.cells, self.left_out, self.notes)


def take_latest(task: EvaluationTask, this: SnapshotEvaluation, parts: Sequence[Cells]) -> LatestCell:
    """Copy the newest time cell of a task's computed parts, of which there is one at least."""
    node, cells = task.parts[-1][1], parts[-1]
    variances = [None if array is None else array[-1:].copy() for array in (cells.variance, cells.variance_low)]
    # Copies, as views would keep the whole part in memory.
    last = Cells(cells.value[-1:].copy(), cells.count[-1:].copy(), cells.possible[-1:].copy(), *variances)
    return LatestCell(task, node, last, *this.collect_diagnostics())


def make_datasets(task: EvaluationTask, this: SnapshotEvaluation, parts: Sequence[Cells]) -> Iterator[xr.Dataset]:
    """Yield the computed parts of a task in the format of `Query.compute`."""
    left_out, notes = this.collect_diagnostics()
    for (_, node), cells in zip(task.parts, parts, strict=True):
        yield _make_dataset(task, node, cells, left_out, notes)


def _make_dataset(
    task: EvaluationTask, node: Perspective, cells: Cells, left_out: dict[str, int], notes: list[str]
) -> xr.Dataset:
    shape = cells.value.shape
    count, possible = (np.broadcast_to(array, shape) for array in (cells.count, cells.possible))
    computed = np.ones(shape[1], bool)
    outcome = Outcome(
        cells.value, count, possible, cells.variance, cells.variance_low, computed, left_out=left_out, notes=notes
    )
    return to_dataset(task.query.question, node, outcome, token=task.query.token)


def make_kind_key(node: Perspective) -> str:
    """Compute the content token of a step, independent of time and snapshot."""
    operator = node.operator
    if isinstance(operator, Base):
        return token("base", operator.source.variable.name, operator.accept_flags, node.topology.space.token())
    kind = (type(operator).__name__, operator.content(), node.topology.space.token())
    return token(kind, [make_kind_key(source) for source in node.sources])


def _select_cell_nodes(part: Perspective) -> Sequence[Perspective]:
    """Select the steps of a chain that are computed as cells."""
    # Readings are not steps of their own: their consumer reads them, once per token.
    return [node for node in part.list_chain() if node is part or not node.holds_readings]


def _cell_sources(node: Perspective) -> list[Perspective]:
    return [source for source in node.sources if not source.holds_readings]
