"""Planning at one snapshot: what each standing query must compute, found once per surface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.archive import Change, diff_from_log
from hypergrid.core.errors import HyperGridError, NotFound, TooLarge
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.tokens import token
from hypergrid.execution.planning.plan import free_bytes
from hypergrid.perspective import Perspective
from hypergrid.perspective.build.data_sources import PlanMemo
from hypergrid.query import OpenArchive
from queries.jobs.records import NotReady
from queries.scheduling.step_graph import GraphStep
from queries.standing.conditions import Dead, Listening
from queries.standing.incremental_tasks import (
    LONGEST_NS,
    NEVER_NS,
    ConditionNeeds,
    EvaluationTask,
    FollowedSurface,
    RowCache,
    check_condition,
    make_task,
    may_touch,
    newest_ns,
)
from queries.standing.repository import EvaluationProgress, StandingEntry
from queries.standing.shared_steps import LatestCell

FIRST_PAUSE_S: Final = 1.0
"""Pause after the first failure of a query, doubled after each further one [s]."""
LONGEST_PAUSE_S: Final = 600.0
"""Upper limit of that pause [s]."""


@dataclass(eq=False)
class StandingState:
    """State of a standing query in the runner."""

    entry: StandingEntry
    stale_since_s: float | None = None
    """When the oldest change was seen that it does not include [s]; None: fresh."""
    was_fresh: bool = False
    """Whether it was up to date since the start of this process."""
    evaluations: int = 0
    postponed: int = 0
    failures: int = 0
    error: str = ""
    retry_s: float = 0.0
    steps: tuple[GraphStep, ...] = ()
    """Its steps, as the scheduler knows them."""
    cost_s: float = 0.0
    """Expected time to compute it alone [s]; 0 if it never ran."""
    latest: LatestCell | None = None
    """Its newest computed time cell."""
    surface: str = ""
    """Key shared by queries on the same surface."""

    def __post_init__(self) -> None:
        definition = self.entry.definition
        self.surface = token(definition.query, definition.window_ns)

    def is_left_alone(self, now_s: float) -> bool:
        """Return whether it failed and its retry is not due yet."""
        return bool(self.failures) and self.retry_s > now_s

    def record_failure(self, error: Exception, now_s: float) -> None:
        """Record a failure and schedule the retry, with exponential backoff."""
        self.failures += 1
        self.error = str(error) if isinstance(error, HyperGridError) else f"{type(error).__name__}: {error}"
        self.retry_s = now_s + min(FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 20), LONGEST_PAUSE_S)
        # A failed query is stale, so its wait is counted.
        self.stale_since_s = now_s if self.stale_since_s is None else self.stale_since_s

    def record_success(self, progress: EvaluationProgress) -> None:
        self.entry = replace(self.entry, progress=progress)
        self.evaluations += 1
        self.was_fresh = True
        self.stale_since_s, self.failures, self.error = None, 0, ""

    def newest_dataset(self) -> xr.Dataset:
        """Return its newest computed time cell in the format of `Query.compute`.

        Raises
        ------
        NotReady
            Nothing was computed since the process started.
        """
        if self.latest is None:
            raise NotReady(
                f"nothing of standing query {self.entry.name!r} was computed since the start; a new slice brings it"
            )
        return self.latest.dataset()


class Planner:
    """Plan what standing queries must compute at one snapshot.

    Parameters
    ----------
    archive
        At the snapshot.
    standing
        All active standing queries.
    kept
        Rows computed before, by surface; new surfaces are added.
    known
        What the plans share, also from one snapshot to the next.
    """

    def __init__(
        self, archive: OpenArchive, standing: Mapping[str, StandingState], kept: dict[str, RowCache], known: PlanMemo
    ) -> None:
        self._archive, self._kept, self._known = archive, kept, known
        self._changes: dict[str, Sequence[Change] | None] = {}
        self._anchors: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], EvaluationTask | None] = {}
        self._needs = _collect_needs(standing)

    def changes(self, since: str) -> Sequence[Change] | None:
        """List what was committed since a snapshot; None if the archive no longer knows."""
        if since not in self._changes:
            try:
                self._changes[since] = diff_from_log(self._archive.store, since)
            except NotFound:
                # The snapshot has expired: everything may have changed.
                self._changes[since] = None
        return self._changes[since]

    def concerns(self, state: StandingState) -> bool:
        """Return whether a query may need computing: a cheap check, which `task` refines."""
        definition, since = state.entry.definition, state.entry.progress.snapshot
        if since == self._archive.snapshot and state.evaluations:
            return False
        if self._archive.store.extent(str(definition.query["variable"])) is None:
            return False
        begins = definition.window_ns is not None and not self._kept.setdefault(state.surface, RowCache()).content
        # A dead-station query without memory learns from the archive first.
        begins = begins or (isinstance(definition.condition, Dead) and not state.entry.progress.memory)
        return begins or may_touch(definition.query, self.changes(since))

    def task(self, state: StandingState) -> EvaluationTask | None:
        """Plan what a query must compute; None if nothing that it reads changed.

        Raises
        ------
        HyperGridError
            The query cannot be answered any more.
        """
        definition, since = state.entry.definition, state.entry.progress.snapshot
        check_condition(definition)
        # Queries on one surface with equal progress share a task.
        key = (state.surface, since)
        if key not in self._tasks:
            variable = str(definition.query["variable"])
            if variable not in self._anchors:
                self._anchors[variable] = newest_ns(self._archive.store, variable)
            kept = self._kept.setdefault(state.surface, RowCache())
            followed = FollowedSurface(definition.query, definition.window_ns, self._needs.get(state.surface), kept)
            self._tasks[key] = make_task(
                followed, self._archive, self.changes(since), anchor_ns=self._anchors[variable], known=self._known
            )
        task = self._tasks[key]
        if task is not None:
            check_condition(definition, task.node)
        return task


def _collect_needs(standing: Mapping[str, StandingState]) -> dict[str, ConditionNeeds]:
    """Combine the needs of all conditions on each surface."""
    needs: dict[str, ConditionNeeds] = {}
    for state in standing.values():
        condition, progress = state.entry.definition.condition, state.entry.progress
        # A condition that looks back too far fails alone, without affecting other queries on its surface.
        if condition is None or isinstance(condition, Listening) or condition.memory_ns > LONGEST_NS:
            continue
        judged_ns = NEVER_NS if progress.judged_ns is None else progress.judged_ns
        behind_ns = judged_ns if condition.kind == "missing" else None
        own = ConditionNeeds(condition.memory_ns, progress.since_ns or 0, behind_ns)
        others = needs.get(state.surface, own)
        behind = [each.behind_ns for each in (own, others) if each.behind_ns is not None]
        needs[state.surface] = ConditionNeeds(
            max(own.memory_ns, others.memory_ns), min(own.since_ns, others.since_ns), min(behind) if behind else None
        )
    return needs


SMALL_BYTES: Final = 1 << 26
"""Projection below which free memory is not checked [bytes]."""
CELL_BYTES: Final = 16
"""Size of a value and a count [bytes]."""
REMEDY: Final = "give it a window or a clip in time, a coarser step or a smaller grid"


def refuse_large(name: str, parts: Iterable[Perspective]) -> None:
    """Reject surfaces, computed at once, that need more than half of the free memory.

    Raises
    ------
    TooLarge
        The projection for all their steps together exceeds it; the message has both numbers.
    """
    projected = sum(projected_bytes(part) for part in parts)
    if projected <= SMALL_BYTES:
        return
    allowed = free_bytes() // 2
    if projected > allowed:
        raise TooLarge(f"standing query {name!r}", "bytes of memory", projected, allowed, REMEDY)


def projected_bytes(node: Perspective) -> int:
    """Compute the memory of a chain's cells, all steps together [bytes]."""
    return sum(CELL_BYTES * item.topology.count for item in node.list_chain() if not item.holds_readings)
