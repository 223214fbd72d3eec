"""Incremental surfaces: after new commits only the affected time cells are recomputed.

The surface is stored with spare rows for future time cells. An update reads the slices written since the last one from
the archive's commits, propagates them through the chain (`execution/planning/dependencies.py`), computes the affected
time cells as a query of their own, and replaces them. Everything is recomputed, with the reason in the update, where
this would not be exact: stations or layers changed, a variogram is fitted to all slices, the variance of a mean over
time estimates its temporal correlation from all of them, a climatology includes the new readings, or the archive no
longer knows what was written since.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.execution import Outcome, free_bytes, make_plan, run, to_dataset
from hypergrid.execution.planning.dependencies import (
    Changes,
    affected_time_cells,
    list_contents,
    list_fitted_steps,
    needs_all_slices,
)
from hypergrid.execution.running.result_cache import allocate
from hypergrid.execution.running.run import collect_diagnostics
from hypergrid.perspective import Perspective, QuerySpec, Recur, Surface
from hypergrid.perspective.build.data_sources import SourceLookup
from hypergrid.perspective.build.restrict import restrict
from hypergrid.query import Query
from hypergrid.rewrite.rules import push_clip
from hypergrid.topology import Bins, Periodic, Regular, sum_per_cell

SPARE_FACTOR = 1.25
"""Allocated time cells as a multiple of the existing ones."""


@dataclass(frozen=True)
class Update:
    """Result of an update."""

    snapshot: str
    """Snapshot that the surface now shows."""
    time_cells: NDArray[np.intp]
    """Indices of the computed time cells in the updated surface, shape (cells,)."""
    why: str = ""
    """Reason for a full recomputation; empty for an incremental update, or if nothing changed."""


class Growing:
    """A query's surface that can be updated with its archive."""

    def __init__(self, query: Query, *, allowed_bytes: int | None = None) -> None:
        """Compute the whole surface.

        Parameters
        ----------
        query
            A query of an archive. An automatic interpolation keeps the method that is chosen now.
        allowed_bytes
            As for `Query.compute`, applied to each update.

        Raises
        ------
        InvalidQuery
            The query reads an array in memory, which does not change.
        HyperGridError
            The query cannot be answered.
        """
        given: object = query
        if not isinstance(given, Query):
            raise InvalidQuery(
                f"hg.Growing follows a query, such as archive['air_temperature'].aggregate(…); got {query!r}"
            )
        if query.lookup.archive is None or query.lookup.arrays:
            raise InvalidQuery(
                "only a query of an archive can be followed; an array in memory does not grow: compute it"
            )
        self._allowed_bytes = allowed_bytes
        self._query = query.resolve(is_followed=True)
        self._node = clip_query(self._query)
        self._diagnostics: Outcome | None = None
        self._rows = _SurfaceRows(self._node.topology.space.count)
        self._recompute()

    def __repr__(self) -> str:
        return f"Growing({self._query.question.summary}, snapshot {self.snapshot})"

    @property
    def query(self) -> Query:
        """The query at the snapshot that the surface shows, with its automatic interpolations resolved."""
        return self._query

    @property
    def snapshot(self) -> str:
        """Snapshot that the surface shows."""
        return self._archive.snapshot

    def dataset(self) -> xr.Dataset:
        """Return the current surface, as `Query.compute` does; its arrays change with the next update.

        Diagnostics (notes, extrapolated cells, readings left out) refer to the whole surface. After an incremental
        update they are recomputed from the stations' values, without any cell of a map.
        """
        if self._diagnostics is None:
            plan = make_plan(Surface(self._node), allowed_bytes=self._allowed_memory())
            self._diagnostics = collect_diagnostics(plan)
        outcome = self._rows.make_outcome(self._diagnostics, self._node.topology.time.count)
        return to_dataset(self._query.question, self._node, outcome, token=self._query.token)

    def update(self) -> Update:
        """Compute what the commits since the last update affect.

        Raises
        ------
        HyperGridError
            The query can no longer be answered; the surface is unchanged.
        """
        before, newest = self._archive, self._archive.latest()
        if newest.snapshot == before.snapshot:
            return Update(before.snapshot, np.empty(0, dtype=np.intp))
        query = Query(move_to_snapshot(self._query.question, before.snapshot, newest.snapshot), SourceLookup(newest))
        node, old = clip_query(query), self._node
        changes = _read_changes(newest, before.snapshot)
        why = _find_reason(old, node, changes)
        if why or changes is None:
            self._query, self._node = query, node
            self._recompute()
            return Update(newest.snapshot, np.arange(node.topology.time.count), why)
        shift = _find_shift(old, node) or 0
        wanted = affected_time_cells(node, changes) | _mask_new_cells(old, node, shift)
        # Every part is computed before any row changes, so that an error leaves the surface as it was.
        parts = [(part, self._compute(restrict(node, part), is_part=True)) for part in _find_runs(wanted)]
        self._rows.move_rows(shift, node.topology.time.count, old.topology.time.count)
        for part, outcome in parts:
            self._rows.put_rows(part.start, outcome)
        self._query, self._node, self._diagnostics = query, node, None
        return Update(newest.snapshot, np.flatnonzero(wanted))

    @property
    def _archive(self) -> Archive:
        if self._query.lookup.archive is None:
            raise TypeError("a query that is followed has an archive")
        return self._query.lookup.archive

    def _recompute(self) -> None:
        outcome = self._compute(self._node)
        self._rows = _SurfaceRows(self._node.topology.space.count)
        self._rows.move_rows(0, self._node.topology.time.count, 0)
        self._rows.put_rows(0, outcome)
        # Without the arrays, which the rows hold.
        bare: dict[str, Any] = {**dict.fromkeys(_ARRAYS), "value": np.empty((0, 0))}
        self._diagnostics = replace(outcome, **bare)

    def _allowed_memory(self) -> int:
        return free_bytes() // 2 if self._allowed_bytes is None else self._allowed_bytes

    def _compute(self, node: Perspective, *, is_part: bool = False) -> Outcome:
        allowed = self._allowed_memory()
        plan = make_plan(Surface(node), allowed_bytes=allowed)
        plan.check(allowed)
        return list(run(plan, watched=False, is_part=is_part))[-1].outcome


_ARRAYS: Final = ("value", "count", "possible", "variance", "variance_low")
"""Arrays of an outcome."""


class _SurfaceRows:
    """Arrays of a surface, one row per time cell, with spare rows."""

    def __init__(self, places: int) -> None:
        self._places = places
        self._arrays: dict[str, NDArray[Any]] = {}
        self._rows = 0

    def move_rows(self, shift: int, rows: int, before: int) -> None:
        """Move row `k + shift` to row k; rows without a predecessor are uninitialised."""
        self._rows = rows
        if shift or any(len(array) < rows for array in self._arrays.values()):
            first, stop = max(shift, 0), min(before, rows + shift)
            for name, array in self._arrays.items():
                made = _allocate_rows(array, max(rows, round(rows * SPARE_FACTOR)))
                made[first - shift : stop - shift] = array[first:stop]
                self._arrays[name] = made

    def put_rows(self, first: int, outcome: Outcome) -> None:
        for name in _ARRAYS:
            part = getattr(outcome, name)
            if part is None:
                continue
            held = self._arrays.get(name)
            if held is None:
                held = _allocate_rows(part, max(self._rows, round(self._rows * SPARE_FACTOR)))
            elif held.shape[1] < part.shape[1]:
                held = np.broadcast_to(held, (len(held), part.shape[1])).copy()
            held[first : first + len(outcome.value)] = part
            self._arrays[name] = held

    def make_outcome(self, diagnostics: Outcome, rows: int) -> Outcome:
        held: dict[str, Any] = {name: array[:rows] for name, array in self._arrays.items()}
        return replace(diagnostics, **held)


def _allocate_rows(like: NDArray[Any], rows: int) -> NDArray[Any]:
    """Allocate rows; rows that are never written use no memory."""
    if like.dtype == np.float64:
        return allocate((rows, like.shape[1]))
    return np.empty((rows, like.shape[1]), dtype=like.dtype)


def clip_query(query: Query) -> Perspective:
    return push_clip(query.surface())[0].perspective


def move_to_snapshot(question: QuerySpec, old: str, new: str) -> QuerySpec:
    """Return a query that reads another snapshot, with those merged into it."""
    steps = tuple(step.change_others(partial(move_to_snapshot, old=old, new=new)) for step in question.steps)
    return replace(question, steps=steps, snapshot=new if question.snapshot in (None, old) else question.snapshot)


def _read_changes(archive: Archive, since: str) -> Changes | None:
    """Return the windows written since a snapshot by variable; None if no longer known."""
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
    """Return the reason for a full recomputation; empty if an incremental update is exact."""
    if changes is None:
        return "the archive no longer knows what was written since"
    if list_contents(old) != list_contents(new):
        return "stations, layers or what is far from the grid changed"
    if _find_shift(old, new) is None:
        return "its time cells are others"
    if any(
        isinstance(item.operator, Recur) and affected_time_cells(item.source, changes).any()
        for item in new.list_chain()
    ):
        return "what is normal is of the new readings as well; clip the climatology to a time of its own"
    if any(affected_time_cells(item.source, changes).any() for item in list_fitted_steps(new)):
        return (
            "the variogram is fitted to the new slices as well, or the trend chosen by them; give both, variogram={…} "
            "and trend, to keep them"
        )
    if needs_all_slices(new) and affected_time_cells(new, changes).any():
        return "the variance of a mean over time depends on all slices; give correlation_time a duration to keep it"
    return ""


def _find_shift(old: Perspective, new: Perspective) -> int | None:
    """Return the index of the first new time cell among the old ones.

    None if the cells do not match.
    """
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
    """Mark time cells that are new or have grown, shape (time cells,)."""
    before, after = old.topology.time, new.topology.time
    if isinstance(before, Periodic) and isinstance(after, Periodic):
        return np.asarray(
            sum_per_cell(after, after.ends - after.starts) != sum_per_cell(before, before.ends - before.starts)
        )
    known = np.arange(after.count) + shift
    return np.asarray((known < 0) | (known >= before.count))


def _find_runs(wanted: NDArray[np.bool_]) -> Iterator[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
    for first, stop in edges.reshape(-1, 2).tolist():
        yield slice(first, stop)
