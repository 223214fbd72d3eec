"""Steps of all standing queries at one snapshot, computed once for equal tokens, and their stored results.

The step chains of every query are merged into one round. The result of a step is kept until the last query that needs
it is done, whichever query computes it first. The scheduler knows steps by `kind_key`, which ignores time and snapshot:
it learns costs per kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Final

import numpy as np

from hypergrid.core.files import replace_atomically
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role, drop_file_variables, find_names, index_series, index_stations
from hypergrid.core.times import DAY_NS
from hypergrid.core.tokens import token
from hypergrid.execution import Outcome, to_dataset
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.run import hold_blocks
from hypergrid.formats.results import write
from hypergrid.perspective import Base, Interpolate, Merge, Perspective
from hypergrid.perspective.build.restrict import restrict
from hypergrid.topology import SeriesAxis
from queries.scheduling.step_graph import GraphStep, StepGraph
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
        self._evaluator = Evaluator(is_part=True)
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
        if task in self._listed:
            return self._listed[task]
        steps: dict[str, GraphStep] = {}
        for token_ in self._needed[name]:
            step = self._steps[token_]
            sources = tuple(dict.fromkeys(self._steps[source.token].kind_key for source in _cell_sources(step.node)))
            # A merge waits for another base; the cost of an interpolation depends on which stations report (4.5).
            steady = not isinstance(step.node.operator, Merge | Interpolate)
            steps[step.kind_key] = GraphStep(step.kind_key, sources, predictable=steady)
        listed = self._listed[task] = tuple(steps.values())
        return listed

    def waiting_steps(self, sort: str) -> list[EvaluationStep]:
        return [step for step in self._steps_by_kind.get(sort, {}).values() if step.users and not step.is_done]

    def remaining_steps(self, name: str) -> list[EvaluationStep]:
        """Return the unfinished steps of a query, sources first."""
        return [step for step in self.needed_steps(name) if not step.is_done]

    def needed_steps(self, name: str) -> list[EvaluationStep]:
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


RESULTS: Final = "results"
"""Folder beside the catalogue, with one subfolder per standing query."""
IDENTITY = ("station", "height_m", "statistic", "interval_s", "replicate", "source")
"""Coordinates that identify a series."""


def keep_dataset(folder: Path, dataset: xr.Dataset) -> None:
    """Merge computed time cells into the daily files, each replaced atomically.

    Parameters
    ----------
    folder
        Folder of the standing query; files are named by the day (UTC) in which their time cells begin, `2007-10-01.nc`,
        or `all.nc` for periodic time cells.
    dataset
        As `Query.compute` returns it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if "time" not in dataset.dims:
        _replace(folder / "all.nc", dataset)
        return
    days = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64) // DAY_NS
    for day in np.unique(days).tolist():
        path = folder / f"{np.datetime64(day, 'D')}.nc"
        _replace(path, _join_file(path, dataset.isel(time=np.flatnonzero(days == day))))


def _join_file(path: Path, new: xr.Dataset) -> xr.Dataset:
    if not path.exists():
        return new
    with xr.open_dataset(path) as opened:
        old = by_role(drop_file_variables(opened.load()))
    joined = index_stations(_join_results(index_series(old), index_series(by_role(new))))
    return joined.rename({role: name for role, name in find_names(new).items() if role in joined})


def _join_results(old: xr.Dataset, new: xr.Dataset) -> xr.Dataset:
    if "series" in old.dims and "series" in new.dims:
        old, new = _align_series(old, new)
    if set(old.sizes) != set(new.sizes) or any(
        old.sizes[name] != new.sizes[name] for name in old.sizes if name != "time"
    ):
        # Zones or bands changed: earlier results are of other places.
        return new
    # Later values replace earlier ones of the same time cell.
    stays = old.isel(time=np.flatnonzero(~np.isin(old["time"].to_numpy(), new["time"].to_numpy())))
    names = [name for name in new.variables if name in old.variables]
    joined = xr.concat([stays[names], new[names]], "time", data_vars="minimal", coords="minimal", compat="override")
    return joined.sortby("time").assign_attrs(new.attrs)


def _align_series(old: xr.Dataset, new: xr.Dataset) -> tuple[xr.Dataset, xr.Dataset]:
    """Align both on the union of their series; fill with NaN, counts with 0."""
    keys = [_series_keys(dataset) for dataset in (old, new)]
    if np.array_equal(keys[0], keys[1]):
        return old, new
    union = list(dict.fromkeys([*keys[1].tolist(), *keys[0].tolist()]))
    along = [name for name, coordinate in new.coords.items() if coordinate.dims == ("series",)]
    wide = []
    for dataset, own in zip((old, new), keys, strict=True):
        data = dataset.drop_vars(along).assign_coords(series=own)
        # Integer arrays have no NaN; a count without readings is 0.
        none = {name: 0 for name, array in data.data_vars.items() if np.issubdtype(array.dtype, np.integer)}
        wide.append(data.reindex(series=union, fill_value={name: none.get(name, np.nan) for name in data.data_vars}))
    places = {key: index for index, key in enumerate(keys[1].tolist())}
    others = {key: index for index, key in enumerate(keys[0].tolist())}
    for name in along:
        values = [new[name].values[places[key]] if key in places else old[name].values[others[key]] for key in union]
        for number, dataset in enumerate(wide):
            wide[number] = dataset.assign_coords({name: ("series", np.array(values), new[name].attrs)})
    first, second = (dataset.drop_vars("series") for dataset in wide)
    return first, second


def _series_keys(dataset: xr.Dataset) -> np.ndarray:
    """Identify the series of a result as text, shape (series,)."""
    columns = [dataset[name].values.astype(str) for name in IDENTITY if name in dataset.coords]
    return np.array(["|".join(row) for row in zip(*columns, strict=True)], dtype=object)


def _replace(path: Path, dataset: xr.Dataset) -> None:
    with replace_atomically(path) as scratch:
        write(dataset, scratch)


Running = Mapping[int, tuple[EvaluationStep, Iterator[float]]]
"""Started steps and their remaining blocks, by the identity of the step."""


@dataclass(eq=False)
class PinnedEvaluation:
    """A query that is computed to completion at one snapshot; changes committed meanwhile wait for the next round.

    Two kinds of queries are pinned: the one that has waited longest, within its share of the time, and one that was
    being computed when a newer snapshot arrived. If it restarted with each slice, a query that takes longer than the
    slice interval would never finish.
    """

    name: str
    evaluation: SnapshotEvaluation
    """Its steps, at its snapshot."""
    blocks: Iterator[float]
    """Its remaining blocks; each yields its duration [s]."""
    profit: float = 0.0
    """Tokens that its answer earns."""
    left_s: float = 0.0
    """Estimated remaining time [s]."""

    @property
    def density(self) -> float:
        """Profit per remaining second [1/s], as the strategies define it."""
        return self.profit / max(self.left_s, 1e-9)

    def step(self) -> bool:
        """Compute a block; return whether one was left."""
        seconds = next(self.blocks, None)
        if seconds is not None:
            self.left_s -= seconds
        return seconds is not None


def pin_query(name: str, own: SnapshotEvaluation) -> PinnedEvaluation:
    return PinnedEvaluation(name, own, chain.from_iterable(own.compute(step) for step in own.remaining_steps(name)))


def pin_interrupted(
    this: SnapshotEvaluation, running: Running, profits: Mapping[str, float], graph: StepGraph
) -> PinnedEvaluation | None:
    """Pin the most valuable query with a step in progress; None if there is none.

    The others leave the round, to be computed at the newer snapshot. Shared steps are kept.
    """
    turns: list[PinnedEvaluation] = []
    for name in {user for step, _ in running.values() for user in step.users if user in profits}:
        rest = this.remaining_steps(name)
        left_s = sum(max(graph.cost(step.kind_key).seconds - step.seconds, 0.0) for step in rest)
        blocks = chain.from_iterable(
            running[id(step)][1] if id(step) in running else this.compute(step) for step in rest
        )
        turns.append(PinnedEvaluation(name, this, blocks, profits[name], left_s))
    if not turns:
        return None
    best = max(turns, key=lambda turn: (turn.density, turn.name))
    # list(), as remove_query changes the dictionary.
    for name in list(this.tasks):
        if name != best.name:
            this.remove_query(name)
    return best
