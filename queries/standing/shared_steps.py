"""The steps of all standing queries at one snapshot: equal steps are one, by their token, and computed once.

Of every query the chain of each part that is to be computed is laid into one round. What a step holds is kept until
the last query that needs it is done; so what queries have in common is computed once, whoever asks for it first. The
scheduler knows steps by what they do (`sort`), whatever the time and the snapshot are: of that it learns costs.
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
from hypergrid.execution.running.materialise import holding
from hypergrid.perspective import Base, Interpolate, Merge, Perspective
from hypergrid.perspective.build.restrict import restrict
from hypergrid.topology import SeriesAxis
from queries.scheduling.step_graph import Step
from queries.standing.incremental_tasks import Task

BLOCK_CELLS: Final = 1 << 18
"""Cells (over all time cells) that a block of a map has at most: between two blocks others may go first."""


@dataclass(eq=False)
class Computed:
    """One perspective step of a round."""

    here: Perspective
    sort: str
    """What it does, whatever the time and the snapshot are."""
    users: set[str] = field(default_factory=set)
    """Names of the queries that need it and are not done."""
    is_done: bool = False
    seconds: float = 0.0
    """What it took so far, all blocks together [s]."""


class Round:
    """What the standing queries need computed at one snapshot. Not locked: one thread computes."""

    def __init__(self, snapshot: str) -> None:
        self.snapshot = snapshot
        self.tasks: dict[str, Task] = {}
        """By name of the query; queries on one surface share one."""
        self.asked = self.run = 0
        """Steps that the queries would run alone, and steps that were run."""
        self.asked_s = self.run_s = 0.0
        """What they took, or would have taken [s]."""
        self._evaluator = Evaluator()
        self._steps: dict[str, Computed] = {}
        self._sorts: dict[str, dict[str, Computed]] = {}
        self._needed: dict[str, tuple[str, ...]] = {}
        self._chains: dict[int, tuple[Perspective, ...]] = {}
        self._listed: dict[int, tuple[Step, ...]] = {}

    def add(self, name: str, task: Task) -> None:
        """Lay the chains of a task into the round."""
        self.tasks[name] = task
        chain = self._chains.get(id(task))
        if chain is None:
            listed = {here.token: here for _, part in task.parts for here in _as_cells(part)}
            chain = self._chains[id(task)] = tuple(listed.values())
        for here in chain:
            step = self._steps.get(here.token)
            if step is None:
                step = self._steps[here.token] = Computed(here, sort_of(here))
                self._sorts.setdefault(step.sort, {})[here.token] = step
            step.users.add(name)
        self._needed[name] = tuple(here.token for here in chain)

    def steps_of(self, name: str) -> tuple[Step, ...]:
        """Return the steps of a query as the scheduler knows them, its surface last."""
        task = id(self.tasks[name])
        if task not in self._listed:
            self._listed[task] = self._list(name)
        return self._listed[task]

    def _list(self, name: str) -> tuple[Step, ...]:
        found: dict[str, Step] = {}
        for token_ in self._needed[name]:
            step = self._steps[token_]
            sources = tuple(dict.fromkeys(self._steps[source.token].sort for source in _sources(step.here)))
            # A merge waits for another base, an interpolation's cost depends on who reports (4.5).
            steady = not isinstance(step.here.operator, Merge | Interpolate)
            found[step.sort] = Step(step.sort, sources, predictable=steady)
        return tuple(found.values())

    def waiting(self, sort: str) -> list[Computed]:
        """Return the steps of a sort that somebody still needs."""
        return [step for step in self._sorts.get(sort, {}).values() if step.users and not step.is_done]

    def remaining(self, name: str) -> list[Computed]:
        """Return the steps that a query still needs, each after those that it reads."""
        return [step for step in self.needed(name) if not step.is_done]

    def needed(self, name: str) -> list[Computed]:
        """Return the steps that a query needs, done or not."""
        return [self._steps[token_] for token_ in self._needed.get(name, ())]

    def compute(self, step: Computed, clock: Callable[[], float] = time.perf_counter) -> Iterator[float]:
        """Compute a step in blocks; yields after each how long it took [s].

        Raises
        ------
        HyperGridError
            What the engine raises.
        """
        begun, total = clock(), 0.0
        if isinstance(step.here.topology.space, SeriesAxis):
            self._evaluator.materialise_stations(step.here)
        else:
            block = max(1, BLOCK_CELLS // step.here.topology.time.count)
            for _ in holding(self._evaluator, step.here, block):
                now = clock()
                total += now - begun
                step.seconds = total
                yield now - begun
                begun = clock()
        last = clock() - begun
        step.is_done = True
        total += last
        step.seconds = total
        self.run += 1
        self.run_s += total
        self.asked += len(step.users)
        self.asked_s += total * len(step.users)
        yield last

    def complete(self, step: Computed) -> list[str]:
        """Return the queries that need a step and have all they need."""
        return [name for name in sorted(step.users) if not self.remaining(name)]

    def values(self, task: Task) -> list[Cells]:
        """Return the computed parts of a task whose steps are all done."""
        parts = [part for _, part in task.parts]
        return [self._evaluator.surface(part, np.arange(part.topology.space.count)) for part in parts]

    def told(self) -> tuple[dict[str, int], list[str]]:
        """Return the readings left out by reason, and the notes, of all that was computed."""
        return dict(self._evaluator.left_out), list(self._evaluator.remarks.notes)

    def leave(self, name: str) -> None:
        """Let go of what only a query needed that is done, failed or is left for later."""
        self.tasks.pop(name, None)
        for token_ in self._needed.pop(name, ()):
            step = self._steps[token_]
            step.users.discard(name)
            if not step.users:
                self._evaluator.drop(step.here)
                step.is_done = False


@dataclass(frozen=True, eq=False)
class Latest:
    """The newest time cell of a surface that was computed, to be looked at."""

    task: Task
    here: Perspective
    """The surface, of which it is the last time cell."""
    cells: Cells
    """Shape (1, places)."""
    left_out: dict[str, int]
    notes: list[str]

    def dataset(self) -> xr.Dataset:
        """Return it as `Query.compute` returns results."""
        count = self.here.topology.time.count
        here = restrict(self.here, slice(count - 1, count))
        return _dataset(self.task, here, self.cells, self.left_out, self.notes)


def latest(task: Task, this: Round, parts: Sequence[Cells]) -> Latest:
    """Return the newest time cell of the computed parts of a task, of which there is one at least."""
    here, cells = task.parts[-1][1], parts[-1]
    variances = [None if array is None else array[-1:].copy() for array in (cells.variance, cells.variance_low)]
    last = Cells(cells.value[-1:].copy(), cells.count[-1:].copy(), cells.possible[-1:].copy(), *variances)
    return Latest(task, here, last, *this.told())


def datasets(task: Task, this: Round, parts: Sequence[Cells]) -> Iterator[xr.Dataset]:
    """Yield the computed parts of a task as results, each as `Query.compute` returns it."""
    left_out, notes = this.told()
    for (_, here), cells in zip(task.parts, parts, strict=True):
        yield _dataset(task, here, cells, left_out, notes)


def _dataset(task: Task, here: Perspective, cells: Cells, left_out: dict[str, int], notes: list[str]) -> xr.Dataset:
    shape = cells.value.shape
    count, possible = (np.broadcast_to(array, shape) for array in (cells.count, cells.possible))
    computed = np.ones(shape[1], bool)
    outcome = Outcome(
        cells.value, count, possible, cells.variance, cells.variance_low, computed, left_out=left_out, notes=notes
    )
    return to_dataset(task.query.question, here, outcome, token=task.query.token)


def sort_of(here: Perspective) -> str:
    """Return the content token of a step, whatever the time and the snapshot are."""
    operator = here.operator
    if isinstance(operator, Base):
        return token("base", operator.source.variable.name, operator.accept_flags, here.topology.space.token())
    kind = (type(operator).__name__, operator.content(), here.topology.space.token())
    return token(kind, [sort_of(source) for source in here.sources])


def _as_cells(part: Perspective) -> Sequence[Perspective]:
    """Return the steps of a chain that are computed as cells: readings are read by who takes them, once a token."""
    return [here for here in part.chain() if here is part or not here.holds_readings]


def _sources(here: Perspective) -> list[Perspective]:
    return [source for source in here.sources if not source.holds_readings]
