"""Incremental evaluation tasks: the time cells of a standing query that a new snapshot invalidates.

Commits record the slices and series they changed. A query is evaluated only if a series that it reads changed; the
slices are propagated through its chain (`hypergrid/execution/planning/dependencies.py`) to the time cells that they can
affect. Computed rows are cached, so unaffected cells are not computed again.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.analysis.incremental import clip_query
from hypergrid.archive import Archive, Change
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import DAY_NS, SECOND_NS, Window, format_duration
from hypergrid.core.tokens import token
from hypergrid.execution import resolve_automatic
from hypergrid.execution.planning.dependencies import Changes, affected_time_cells
from hypergrid.perspective import Base, Perspective, question_from_json
from hypergrid.perspective.build.data_sources import PlanMemo, SourceLookup
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.spec.document_time import clip_in_time, is_clipped_in_time
from hypergrid.query import OpenArchive, Query
from hypergrid.topology import Bands, Grid, Instants, Periodic, Points, Regular, SeriesAxis, Space, ZoneCells, blocks_of
from queries.standing.conditions import Listening, OnRows, Rate, Silent, SurfaceRows
from queries.standing.definition import Definition

LOOK_BACK_NS: Final = DAY_NS
"""How far before the newest slice amendments are judged [ns]; older ones raise no alert."""
AHEAD_NS: Final = DAY_NS
"""How far beyond the newest slice a lone station is judged [ns]; later cells wait for other stations."""
LONGEST_NS: Final = 366 * DAY_NS
"""Longest time that a condition looks back, and that a surface is followed beyond the newest slice [ns]."""
NEVER_NS: Final = int(np.iinfo(np.int64).min)
"""Before all instants."""
LONGEST_WINDOW_NS: Final = 36_525 * DAY_NS
"""Longest supported window [ns]."""


@dataclass(eq=False)
class RowCache:
    """Cached rows of a surface, one per time cell, in time order."""

    content: str = ""
    """Content token of the steps, without time and snapshot; rows of other content are invalid."""
    starts_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """[ns since 1970 UTC], shape (rows,)."""
    value: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 0)))
    """[the surface's unit], shape (rows, places)."""

    def knows(self, starts_ns: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(starts_ns, self.starts_ns)

    def get_rows(self, starts_ns: NDArray[np.int64]) -> NDArray[np.float64]:
        """Look up the rows of cached time cells, shape (times, places)."""
        return self.value[np.searchsorted(self.starts_ns, starts_ns)]

    def put(self, starts_ns: NDArray[np.int64], value: NDArray[np.float64], *, from_ns: int) -> None:
        """Insert computed rows, and evict those that begin before `from_ns`."""
        stays = (self.starts_ns >= from_ns) & ~np.isin(self.starts_ns, starts_ns)
        all_ns = np.concatenate([self.starts_ns[stays], starts_ns])
        order = np.argsort(all_ns, kind="stable")
        # With another number of places the cached rows are of another surface.
        held = self.value[stays] if self.value.shape[1:] == value.shape[1:] else np.empty((0, value.shape[1]))
        self.starts_ns = all_ns[order]
        self.value = np.concatenate([held, value])[order]


@dataclass(frozen=True)
class ConditionNeeds:
    """Combined needs of the conditions on a surface."""

    memory_ns: int
    """How far back they look from a time cell [ns]."""
    since_ns: int
    """Start of the first slice to judge [ns since 1970 UTC]."""
    behind_ns: int | None = None
    """Start of the last time cell judged by a "missing" condition, which waits for cells to end [ns since 1970 UTC];
    `NEVER_NS` if it judged none; None: no such condition.
    """

    def from_ns(self, anchor_ns: int) -> int:
        """Return the start of the judged time [ns since 1970 UTC]."""
        return max(self.since_ns, anchor_ns - LOOK_BACK_NS)


@dataclass(frozen=True, eq=False)
class EvaluationTask:
    """What a surface must compute at one snapshot, for all standing queries that use it."""

    query: Query
    node: Perspective
    """The whole surface, as far as it is followed."""
    content: str
    """As `RowCache.content`."""
    parts: tuple[tuple[slice, Perspective], ...]
    """Runs of time cells to compute, each as a perspective of its own."""
    changed: int
    """Index of the first changed time cell."""
    keep_from_ns: int
    """Rows that begin before it can be evicted [ns since 1970 UTC]."""
    anchor_ns: int
    """End of the newest slice [ns since 1970 UTC]."""
    look_back_ns: int = LOOK_BACK_NS
    """How far before the newest slice time cells are judged [ns]."""

    @property
    def cells(self) -> int:
        return sum(part.topology.count for _, part in self.parts)

    def store_rows(self, kept: RowCache, values: Sequence[NDArray[np.float64]]) -> None:
        """Store the computed parts in the cache, shape (times, places) each."""
        if kept.content != self.content:
            kept.content, kept.starts_ns, kept.value = self.content, np.empty(0, np.int64), np.empty((0, 0))
        starts_ns = cell_bounds(self.node)[0]
        parts = [starts_ns[part] for part, _ in self.parts]
        if parts:
            kept.put(np.concatenate(parts), np.concatenate(list(values)), from_ns=self.keep_from_ns)

    def select_judged(self, condition: OnRows, since_ns: int, judged_ns: int | None) -> tuple[slice, slice]:
        """Select the time cells that a condition judges, and those needed for that.

        Both are empty if there are none to judge.

        Parameters
        ----------
        condition
            On the rows of the surface.
        since_ns
            Start of the first slice to judge [ns since 1970 UTC].
        judged_ns
            Start of the last time cell judged before [ns since 1970 UTC]; None: none yet.
        """
        starts_ns, ends_ns = cell_bounds(self.node)
        stop, first = _first_ahead(starts_ns, self.anchor_ns), self.changed
        if condition.kind == "missing":
            # Nothing can be missing in a time cell that has not ended.
            stop = _first_open(ends_ns, self.anchor_ns)
            first = min(first, _first_after(starts_ns, NEVER_NS if judged_ns is None else judged_ns))
        from_ns = max(since_ns, self.anchor_ns - self.look_back_ns)
        first = max(int(np.searchsorted(ends_ns, from_ns, side="right")), first)
        if first >= stop:
            return slice(0, 0), slice(0, 0)
        return slice(first, stop), slice(first_needed(starts_ns, first, condition.memory_ns), stop)

    def rows(self, kept: RowCache, span: slice) -> SurfaceRows:
        """Return time cells with their values, all of which are cached."""
        starts_ns, ends_ns = cell_bounds(self.node)
        return SurfaceRows(starts_ns[span], ends_ns[span], kept.get_rows(starts_ns[span]))


@dataclass(frozen=True, eq=False)
class FollowedSurface:
    """A surface that standing queries follow, whatever the snapshot."""

    document: Mapping[str, Any]
    """The query."""
    window_ns: int | None
    """Length of the window that ends with the newest slice [ns]; None: all slices."""
    judged: ConditionNeeds | None = None
    """Needs of the conditions; None: there are no conditions."""
    kept: RowCache = field(default_factory=RowCache)
    """Rows computed before."""

    def clip_document(self, anchor_ns: int) -> dict[str, Any]:
        """Clip the query to the time that is followed."""
        if self.window_ns is not None:
            return clip_in_time(self.document, Window(anchor_ns - self.window_ns, anchor_ns))
        if self.judged is None or is_clipped_in_time(self.document):
            return dict(self.document)
        # Time cells begin at most months before an instant in them; nothing ends before the last slice.
        start_ns = self.judged.from_ns(anchor_ns) - self.judged.memory_ns - 32 * DAY_NS
        return clip_in_time(self.document, Window(start_ns, anchor_ns + LONGEST_NS))


def make_task(
    followed: FollowedSurface,
    archive: OpenArchive,
    changes: Sequence[Change] | None,
    *,
    anchor_ns: int,
    known: PlanMemo,
) -> EvaluationTask | None:
    """Plan what a surface must compute at the archive's snapshot; None: nothing changed, or ended.

    Parameters
    ----------
    followed
        The surface.
    archive
        At the new snapshot.
    changes
        What was committed since the last computation; None: unknown, everything may have changed.
    anchor_ns
        End of the newest slice of its variable [ns since 1970 UTC] (`newest_ns`).
    known
        What it may share with surfaces planned in the same thread.

    Raises
    ------
    HyperGridError
        The query cannot be answered any more.
    """
    kept, window_ns, judged = followed.kept, followed.window_ns, followed.judged
    # Most commits concern one variable and end here for queries of all others.
    if not may_touch(followed.document, changes) and not (window_ns is not None and not kept.content):
        return None
    query = archive.query(followed.clip_document(anchor_ns), known=known)
    node = clip_query(query)
    content = token([_content(item) for item in node.list_chain()])
    starts_ns, ends_ns = cell_bounds(node)
    every = np.ones(len(starts_ns), bool)
    reached = every if changes is None else affected_time_cells(node, _select_changes(node, changes))
    held = kept.knows(starts_ns) if kept.content == content else ~every
    if kept.content not in ("", content):
        # Stations or layers changed, so all values did.
        reached = every
    wanted, keep_from_ns = reached, int(np.iinfo(np.int64).max)
    if window_ns is not None:
        wanted, keep_from_ns = reached | ~held, int(starts_ns[0])
    if judged is not None and judged.behind_ns is not None:
        # Time cells without new readings end too, once other stations move the anchor.
        wanted = wanted.copy()
        wanted[_first_after(starts_ns, judged.behind_ns) : _first_open(ends_ns, anchor_ns)] = True
    changed = int(np.argmax(wanted)) if wanted.any() else 0
    if judged is not None and wanted.any():
        from_, ahead = _first_open(ends_ns, judged.from_ns(anchor_ns)), _first_ahead(starts_ns, anchor_ns)
        changed = max(changed, from_)
        # Rows in the look-back that are not cached must be computed as well.
        back = slice(first_needed(starts_ns, changed, judged.memory_ns), ahead)
        if window_ns is None:
            keep_from_ns = int(starts_ns[min(first_needed(starts_ns, from_, judged.memory_ns), len(starts_ns) - 1)])
            # Cells before the judged time, or far ahead of it, are needed by no condition.
            numbers = np.arange(len(wanted))
            wanted = wanted & (numbers >= changed) & (numbers < ahead)
        if wanted.any():
            wanted = wanted.copy()
            wanted[back] |= ~held[back]
    if not wanted.any():
        return None
    parts = tuple((part, restrict(node, part)) for part in _find_runs(wanted))
    return EvaluationTask(query, node, content, parts, changed, keep_from_ns, anchor_ns)


def _first_after(starts_ns: NDArray[np.int64], judged_ns: int) -> int:
    """Return the index of the first time cell after the last judged one."""
    return int(np.searchsorted(starts_ns, judged_ns, side="right"))


def _first_open(ends_ns: NDArray[np.int64], anchor_ns: int) -> int:
    """Return the index of the first time cell that has not ended at an instant."""
    return int(np.searchsorted(ends_ns, anchor_ns, side="right"))


def _first_ahead(starts_ns: NDArray[np.int64], anchor_ns: int) -> int:
    """Return the index of the first time cell too far ahead to be judged yet."""
    return int(np.searchsorted(starts_ns, anchor_ns + AHEAD_NS))


def first_needed(starts_ns: NDArray[np.int64], first: int, memory_ns: int) -> int:
    """Return the index of the first time cell needed to judge another."""
    if first >= len(starts_ns) or not memory_ns:
        return min(first, len(starts_ns))
    # Cells that do not touch, such as instants, need the one before: from it on the look-back is exceeded.
    return max(int(np.searchsorted(starts_ns, starts_ns[first] - memory_ns)) - 1, 0)


def check_definition(definition: Definition, archive: OpenArchive) -> Perspective | None:
    """Reject a standing query that the archive could not answer.

    Raises
    ------
    NotFound
        A variable or another name does not exist; the message lists those that do.
    InvalidQuery, InvalidUnit
        The query or the condition does not fit the surface.
    """
    label = f"standing query {definition.name!r}"
    check_condition(definition)
    archive.query(definition.query)
    condition = definition.condition
    if definition.window_ns is not None and definition.window_ns > LONGEST_WINDOW_NS:
        longest = format_duration(LONGEST_WINDOW_NS)
        raise InvalidQuery(f"{label} needs a window of at most {longest}; got {format_duration(definition.window_ns)}")
    if isinstance(condition, Listening) and definition.query.get("steps"):
        raise InvalidQuery(
            f"{label}: the condition {condition.kind!r} listens to what arrives; leave the steps of the query away"
        )
    variable = str(definition.query["variable"])
    if archive.store.extent(variable) is None:
        return None
    anchor_ns = newest_ns(archive.store, variable)
    followed = FollowedSurface(definition.query, definition.window_ns)
    node = clip_query(archive.query(followed.clip_document(anchor_ns)))
    if condition is None or isinstance(condition, Listening):
        return node
    if isinstance(node.topology.time, Periodic):
        raise InvalidQuery(
            f"{label}: a condition needs time cells that follow one another; the surface is by "
            f"{node.topology.time.describe()}, which come again; aggregate over time='1h' instead"
        )
    condition.convert_levels(node.unit)
    check_condition(definition, node)
    return node


def resolve_definition(definition: Definition, archive: OpenArchive) -> Definition:
    """Replace automatic interpolations by methods that the archive supports today, for all later evaluations."""
    variable = str(definition.query["variable"])
    if archive.store.extent(variable) is None:
        return definition
    followed = FollowedSurface(definition.query, definition.window_ns)
    question = question_from_json(followed.clip_document(newest_ns(archive.store, variable)))
    resolved = resolve_automatic(question, SourceLookup(archive.store), is_followed=True)
    if resolved == question:
        return definition
    return replace(definition, query={**definition.query, "steps": resolved.to_json()["steps"]})


def check_condition(definition: Definition, node: Perspective | None = None) -> None:
    """Reject a condition that looks back too far or can never be judged.

    The latter needs the surface, `node`.

    Raises
    ------
    InvalidQuery
        The message names the standing query, and what would fit.
    """
    condition = definition.condition
    label = f"standing query {definition.name!r}: the condition"
    if condition is None:
        return
    longest_ns = condition.after_ns if isinstance(condition, Silent) else condition.memory_ns
    if longest_ns > LONGEST_NS:
        longest, look_back = format_duration(LONGEST_NS), format_duration(longest_ns)
        raise InvalidQuery(f"{label} {condition.kind!r} looks back {look_back}; at most {longest} are looked back")
    if node is None or not isinstance(condition, Rate) or condition.over_ns is None:
        return
    over_ns, time = condition.over_ns, node.topology.time
    if isinstance(time, Regular) and over_ns % time.step:
        up = format_duration((over_ns // time.step + 1) * time.step)
        step, over = format_duration(time.step), format_duration(over_ns)
        raise InvalidQuery(
            f"{label} 'rate' compares values {over} apart, which is no multiple of the surface's step of {step}, "
            f"so that "
            f"no two are; set 'over' to {up}, or leave it away: {step}"
        )


def newest_ns(archive: Archive, variable: str) -> int:
    """Find the end of the newest slice reached by several stations [ns since 1970 UTC].

    With a single station its newest slice counts. A station that is alone for more than a day, the others being dead,
    counts as long as it has readings on every day since the others' last.
    """
    extent = archive.extent(variable)
    if extent is None:
        raise InvalidQuery(f"variable {variable!r} has no readings yet")
    # One station whose clock runs ahead must not move the window of all others, however far ahead.
    last_ns: dict[str, int] = {}
    # Readings of the newest station; more than one window is read only if it is alone.
    alone: list[NDArray[np.int64]] = []
    seen_ns = 0
    for window in _walk_backwards(archive, variable, extent):
        readings = archive.read(variable, window=window)
        for number in np.unique(readings.index).tolist():
            station, times_ns = readings.series[number].station, readings.time_ns[readings.index == number]
            last_ns[station] = max(last_ns.get(station, int(times_ns[-1])), int(times_ns[-1]))
            alone.append(times_ns)
        seen_ns += window.stop_ns - window.start_ns
        if len(last_ns) > 1 or seen_ns > LONGEST_NS:
            break
    newest, *others = sorted(last_ns, key=lambda station: -last_ns[station])
    reached_ns = last_ns[others[0] if others else newest]
    if others and last_ns[newest] - reached_ns > DAY_NS:
        station_ns = np.concatenate([times_ns for times_ns in alone if times_ns[-1] > reached_ns])
        chain = np.concatenate([[reached_ns], np.sort(station_ns[station_ns > reached_ns])])
        followed_ns = int(chain[np.append(np.diff(chain) > DAY_NS, [True]).argmax()])
        reached_ns = followed_ns if followed_ns - reached_ns > DAY_NS else reached_ns
    slice_ns = round(archive.slice_s * SECOND_NS)
    return (reached_ns // slice_ns + 1) * slice_ns


def _walk_backwards(archive: Archive, variable: str, extent: Window) -> Iterator[Window]:
    """Yield the last day of a variable, and then earlier windows with readings, newest first."""
    start_ns = max(extent.start_ns, extent.stop_ns - DAY_NS)
    yield Window(start_ns, extent.stop_ns)
    for span in reversed(list(archive.spans(variable, 1))):
        if span.start_ns < start_ns:
            yield Window(span.start_ns, min(span.stop_ns, start_ns))


def places_of(space: Space) -> tuple[str, ...]:
    """Name each place of a surface; a grid is judged as a single place."""
    if isinstance(space, Grid):
        return ("map",)
    if isinstance(space, Points):
        at = [f"point {number} ({x:.6f}, {y:.6f}" for number, (x, y) in enumerate(zip(space.x, space.y, strict=True))]
        levels = [""] if space.z is None else [f", {centre:g} m" for centre in space.z.centres]
        return tuple(f"{point}{level})" for level in levels for point in at)
    if isinstance(space, ZoneCells):
        return tuple(space.zones.names)
    if isinstance(space, Bands):
        return tuple(f"{centre:g} m" for centre in space.z.centres)
    stations = [series.station for series in space.series]
    if len(set(stations)) == len(stations):
        return tuple(stations)
    return tuple(
        f"{series.station} {series.height_m} m {series.statistic} {series.source}".strip() for series in space.series
    )


def may_touch(document: Mapping[str, Any], changes: Sequence[Change] | None) -> bool:
    """Return whether changes may concern a query: its variable, or any if it merges others."""
    if changes is None or document["variable"] in {change.variable for change in changes}:
        return True
    merges = any(step.get("with") or step.get("method") == "recipe" for step in document.get("steps", ()))
    return merges and bool(changes)


def _content(item: Perspective) -> object:
    """Return what identifies a step, without time and snapshot."""
    operator = item.operator
    if isinstance(operator, Base):
        return ("base", operator.source.variable.name, operator.accept_flags, item.topology.space.token())
    return (item.topology.space.token(), operator.content())


def _select_changes(node: Perspective, changes: Sequence[Change]) -> Changes:
    """Select the windows of changes to series that a surface reads, by variable."""
    windows: dict[str, list[Window]] = {}
    for base in node.list_bases():
        operator, space = base.operator, base.topology.space
        if not isinstance(operator, Base) or not isinstance(space, SeriesAxis):
            continue
        unread = set(operator.unread)
        series = {member for number, member in enumerate(space.series) if number not in unread}
        for change in changes:
            # Commits of earlier versions do not record the series.
            is_read = not change.series or not series.isdisjoint(change.series)
            if change.variable == operator.source.variable.name and is_read:
                windows.setdefault(change.variable, []).extend(change.runs)
    return windows


def cell_bounds(node: Perspective) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    time = node.topology.time
    if isinstance(time, Instants):
        return time.corners, time.corners + 1
    if isinstance(time, Periodic):
        # Periodic cells are identified by their numbers; they are never judged.
        numbers = np.arange(time.count, dtype=np.int64)
        return numbers, numbers + 1
    return blocks_of(time)


def _find_runs(wanted: NDArray[np.bool_]) -> list[slice]:
    edges = np.flatnonzero(np.diff(np.concatenate([[False], wanted, [False]]).astype(np.int8)))
    return [slice(first, stop) for first, stop in edges.reshape(-1, 2).tolist()]
