"""A surface that grows with its archive: after new slices only the cells that they touch are computed again.

What is kept is the surface itself, with room for time cells to come. An update finds the slices that were written since
(the archive's commits say so), follows them through the chain (`execution/touched.py`), computes the touched time cells
as a query of their own, and puts them in their place. Where that would not be exact, because stations or layers
changed, because a variogram is fitted to all slices, because the variance of a mean over time looks at all of them for
its correlation in time, because a climatology is of the new readings as well, or because the archive no longer knows
what was written since, everything is computed anew, and the update says so.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.execution import Outcome, free_bytes, make_plan, run, to_dataset
from hypergrid.execution.planning.invalidation import Changes, affected_time_cells, is_fitted_to_data
from hypergrid.execution.running.buffer_pool import allocate
from hypergrid.execution.running.diagnostics import collect_diagnostics
from hypergrid.perspective import Base, Interpolate, Perspective, QuerySpec, Recur, Surface
from hypergrid.perspective.build.data_sources import SourceLookup
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.spec.query_spec import Step
from hypergrid.query import Query
from hypergrid.rewrite.push_clip import push_clip
from hypergrid.topology import Bins, Periodic, Regular, sum_per_cell

SPARE_FACTOR = 1.25
"""Time cells that there is room for, as a multiple of those that are there, when more room is made."""


@dataclass(frozen=True)
class Update:
    """What an update did."""

    snapshot: str
    """Snapshot that the surface is of now."""
    time_cells: NDArray[np.intp]
    """Time cells that were computed, in the surface as it is now; shape (cells,)."""
    why: str = ""
    """Why everything was computed anew; empty where it was not, and where nothing was."""


class Growing:
    """A query's surface, kept up to date with its archive."""

    def __init__(self, query: Query, *, allowed_bytes: int | None = None) -> None:
        """Compute the whole surface.

        Parameters
        ----------
        query
            Of an archive.
        allowed_bytes
            As for `Query.compute`, for each update.

        Raises
        ------
        InvalidQuery
            The query is of an array in memory, which does not grow.
        HyperGridError
            The query cannot be answered.
        """
        given: object = query
        if not isinstance(given, Query):
            message = f"hg.Growing follows a query, such as archive['air_temperature'].aggregate(…); got {query!r}"
            raise InvalidQuery(message)
        if query.lookup.archive is None or query.lookup.arrays:
            message = "only a query of an archive can be followed; an array in memory does not grow: compute it"
            raise InvalidQuery(message)
        self._allowed_bytes = allowed_bytes
        self._query = query
        self._node = clip_query(query)
        self._diagnostics: Outcome | None = None
        self._rows = _SurfaceRows(self._node.topology.space.count)
        self._recompute()

    def __repr__(self) -> str:
        """Return the query and the snapshot that its surface is of."""
        return f"Growing({self._query.question.summary}, snapshot {self.snapshot})"

    @property
    def snapshot(self) -> str:
        """Snapshot that the surface is of."""
        return self._archive.snapshot

    def dataset(self) -> xr.Dataset:
        """Return the surface as it is now, as `Query.compute` returns it; its arrays change with the next update.

        What is told beside the values (notes, extrapolated cells, readings left out) is of all of it: after an update
        that computed a part, the stations' values are made anew for that, and no cell of a map.
        """
        if self._diagnostics is None:
            plan = make_plan(Surface(self._node), allowed_bytes=self._allowed_memory())
            self._diagnostics = collect_diagnostics(plan)
        outcome = self._rows.make_outcome(self._diagnostics, self._node.topology.time.count)
        return to_dataset(self._query.question, self._node, outcome, token=self._query.token)

    def update(self) -> Update:
        """Take what was committed since, and compute what it touches.

        Raises
        ------
        HyperGridError
            The query cannot be answered any more; the surface stays as it was.
        """
        before, newest = self._archive, self._archive.latest()
        if newest.snapshot == before.snapshot:
            return Update(before.snapshot, np.empty(0, dtype=np.intp))
        query = Query(_move_to_snapshot(self._query.question, before.snapshot, newest.snapshot), SourceLookup(newest))
        node, old = clip_query(query), self._node
        changes = _read_changes(newest, before.snapshot)
        why = _find_reason(old, node, changes)
        if why or changes is None:
            self._query, self._node = query, node
            self._recompute()
            return Update(newest.snapshot, np.arange(node.topology.time.count), why)
        shift = _find_shift(old, node) or 0
        wanted = affected_time_cells(node, changes) | _mask_new_cells(old, node, shift)
        parts = [(part, self._compute(restrict(node, part))) for part in _find_runs(wanted)]
        self._rows.move_rows(shift, node.topology.time.count, old.topology.time.count)
        for part, outcome in parts:
            self._rows.put_rows(part.start, outcome)
        self._query, self._node, self._diagnostics = query, node, None
        return Update(newest.snapshot, np.flatnonzero(wanted))

    @property
    def _archive(self) -> Archive:
        if self._query.lookup.archive is None:
            message = "a query that is followed has an archive"
            raise TypeError(message)
        return self._query.lookup.archive

    def _recompute(self) -> None:
        outcome = self._compute(self._node)
        self._rows = _SurfaceRows(self._node.topology.space.count)
        self._rows.move_rows(0, self._node.topology.time.count, 0)
        self._rows.put_rows(0, outcome)
        self._diagnostics = _SurfaceRows.strip_rows(outcome)

    def _allowed_memory(self) -> int:
        return free_bytes() // 2 if self._allowed_bytes is None else self._allowed_bytes

    def _compute(self, node: Perspective) -> Outcome:
        allowed = self._allowed_memory()
        plan = make_plan(Surface(node), allowed_bytes=allowed)
        plan.check(allowed)
        return list(run(plan, watched=False))[-1].outcome


class _SurfaceRows:
    """The arrays of a surface, a row a time cell, with room for more rows."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._arrays: dict[str, NDArray[Any]] = {}
        self._rows = 0

    def move_rows(self, shift: int, rows: int, before: int) -> None:
        """Let row k hold what row `k + shift` held, where there was one; rows that held nothing have no meaning yet."""
        self._rows = rows
        if shift or any(len(array) < rows for array in self._arrays.values()):
            first, stop = max(shift, 0), min(before, rows + shift)
            for name, array in self._arrays.items():
                made = _allocate_rows(array, max(rows, round(rows * SPARE_FACTOR)))
                made[first - shift : stop - shift] = array[first:stop]
                self._arrays[name] = made

    def put_rows(self, first: int, outcome: Outcome) -> None:
        """Take the rows of a part of the surface."""
        parts = {
            "value": outcome.value, "count": outcome.count, "possible": outcome.possible,
            "variance": outcome.variance, "variance_low": outcome.variance_low,
        }  # fmt: skip
        for name, part in parts.items():
            if part is None:
                continue
            held = self._arrays.get(name)
            if held is None:
                held = _allocate_rows(part, max(self._rows, round(self._rows * SPARE_FACTOR)))
            elif held.shape[1] < part.shape[1]:
                wide = np.empty((len(held), part.shape[1]), dtype=held.dtype)
                wide[:] = held
                held = wide
            held[first : first + len(outcome.value)] = part
            self._arrays[name] = held

    def make_outcome(self, diagnostics: Outcome, rows: int) -> Outcome:
        """Return the surface as one outcome, with what is told beside it."""
        held = {name: array[:rows] for name, array in self._arrays.items()}
        return replace(
            diagnostics, value=held["value"], count=held.get("count"), possible=held.get("possible"),
            variance=held.get("variance"), variance_low=held.get("variance_low"),
        )  # fmt: skip

    @staticmethod
    def strip_rows(outcome: Outcome) -> Outcome:
        """Return what an outcome tells, without its rows."""
        return replace(
            outcome, value=np.empty((0, 0)), count=None, possible=None, variance=None, variance_low=None
        )  # fmt: skip


def _allocate_rows(like: NDArray[Any], rows: int) -> NDArray[Any]:
    """Return rows of which those that nobody writes to cost no memory."""
    if like.dtype == np.float64:
        return allocate((rows, like.shape[1]))
    return np.empty((rows, like.shape[1]), dtype=like.dtype)


def clip_query(query: Query) -> Perspective:
    """Return the chain of the cells that a query's clip selects."""
    return push_clip(query.surface())[0].perspective


def _move_to_snapshot(question: QuerySpec, old: str, new: str) -> QuerySpec:
    """Return a question of another snapshot, those merged into it likewise where they read the same one."""
    steps = tuple(_move_step(step, old, new) for step in question.steps)
    return replace(question, steps=steps, snapshot=new if question.snapshot in (None, old) else question.snapshot)


def _move_step(step: Step, old: str, new: str) -> Step:
    others = tuple(_move_to_snapshot(other, old, new) for other in step.others)
    return replace(step, others=others) if others else step


def _read_changes(archive: Archive, since: str) -> Changes | None:
    """Return the windows written since a snapshot, None where the archive no longer knows them."""
    windows: dict[str, list[Window]] = {}
    slice_ns = round(archive.slice_s * SECOND_NS)
    for snapshot in archive.iterate_since(since):
        if snapshot is None:
            return None
        for variable, span in snapshot.metadata.get("slices", {}).items():
            window = Window(int(span["first_ns"]), int(span["last_ns"]) + slice_ns)
            windows.setdefault(variable, []).append(window)
    return windows


def _find_reason(old: Perspective, new: Perspective, changes: Changes | None) -> str:
    """Return why nothing of the old surface can be used; empty where it can."""
    if changes is None:
        return "the archive no longer knows what was written since"
    if [_step_content(item) for item in old.list_chain()] != [_step_content(item) for item in new.list_chain()]:
        return "stations, layers or what is far from the grid changed"
    if _find_shift(old, new) is None:
        return "its time cells are others"
    if any(
        isinstance(item.operator, Recur) and affected_time_cells(item.source, changes).any()
        for item in new.list_chain()
    ):
        return "what is normal is of the new readings as well; clip the climatology to a time of its own"
    fitted = [
        item for item in new.list_chain() if isinstance(item.operator, Interpolate) and is_fitted_to_data(item.operator)
    ]
    if any(affected_time_cells(item.source, changes).any() for item in fitted):
        return (
            "the variogram is fitted to the new slices as well, or the trend chosen by them; give both, variogram={…} "
            "and trend, to keep them"
        )
    if needs_all_slices(new) and affected_time_cells(new, changes).any():
        return "the variance of a mean over time depends on all slices; give correlation_time a duration to keep it"
    return ""


def needs_all_slices(node: Perspective) -> bool:
    """Return whether the correlation in time behind a variance is found from all slices: it was not given."""
    below, aggregates = split_aggregates(node)
    operator = below.operator
    over_time = any("time" in item.operator.dimensions for item in aggregates)  # type: ignore[union-attr]
    is_asked = (
        isinstance(operator, Interpolate) and operator.variance and not isinstance(operator.error_correlation, float)
    )
    return is_asked and over_time


def _step_content(item: Perspective) -> object:
    """Return what a step does, whatever the time and the snapshot are."""
    return (item.topology.space.token(), "base" if isinstance(item.operator, Base) else item.operator.content())


def _find_shift(old: Perspective, new: Perspective) -> int | None:
    """Return which old time cell the first new one is; None where the two have other cells."""
    before, after = old.topology.time, new.topology.time
    if isinstance(before, Regular) and isinstance(after, Regular):
        alike = (before.step, before.length) == (after.step, after.length)
        shift, between = divmod(after.origin - before.origin, before.step)
        return shift if alike and not between else None
    if isinstance(before, Periodic) and isinstance(after, Periodic):
        return 0 if np.array_equal(before.labels, after.labels) else None
    if isinstance(before, Bins) and isinstance(after, Bins):
        shift = int(np.searchsorted(before.starts, after.origin) - np.searchsorted(after.starts, before.origin))
        first, stop = max(shift, 0), min(before.count, after.count + shift)
        ours, theirs = after.part(first - shift, stop - shift), before.part(first, stop)
        same = np.array_equal(ours.starts, theirs.starts) and np.array_equal(ours.ends, theirs.ends)
        return shift if first < stop and same else None
    return 0 if type(before) is type(after) and np.array_equal(before.corners, after.corners) else None


def _mask_new_cells(old: Perspective, new: Perspective, shift: int) -> NDArray[np.bool_]:
    """Return which new time cells were not there before, or were made of less time, shape (time cells,)."""
    before, after = old.topology.time, new.topology.time
    if isinstance(before, Periodic) and isinstance(after, Periodic):
        return np.asarray(
            sum_per_cell(after, after.ends - after.starts) != sum_per_cell(before, before.ends - before.starts)
        )
    known = np.arange(after.count) + shift
    return np.asarray((known < 0) | (known >= before.count))


def _find_runs(wanted: NDArray[np.bool_]) -> Iterator[slice]:
    """Yield the ranges of cells that are wanted."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield slice(first, stop)
