"""What one snapshot asks of the standing queries: found once for all that stand on one surface."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypergrid.errors import NotFound
from hypergrid.perspective.known import Known
from hypergrid.query import OpenArchive
from hypergrid.store import Change, told
from hypergrid.tokens import token
from queries.scheduling.steps import Step
from queries.standing.conditions import Dead
from queries.standing.following import Judged, Kept, Task, may_touch, newest_ns, task_of
from queries.standing.store import Entry


@dataclass(eq=False)
class Standing:
    """What the runner knows of a standing query."""

    entry: Entry
    stale_since_s: float | None = None
    """When the oldest change was seen that it does not show; None: it is fresh."""
    evaluations: int = 0
    postponed: int = 0
    failures: int = 0
    error: str = ""
    retry_s: float = 0.0
    steps: tuple[Step, ...] = ()
    """Steps that the scheduler knows of it."""
    cost_s: float = 0.0
    """What it is expected to take alone [s]; 0 where it never ran."""
    surface: str = ""
    """What queries on the same surface have in common."""

    def __post_init__(self) -> None:
        definition = self.entry.definition
        self.surface = token(definition.query, definition.window_ns)


class Planner:
    """Finds what standing queries need computed at one snapshot.

    Parameters
    ----------
    archive
        At the snapshot.
    standing
        All standing queries that are evaluated.
    kept
        Rows that were computed before, by surface; surfaces that are new are added.
    known
        What queries that are built have in common, also from one snapshot to the next.
    """

    def __init__(
        self, archive: OpenArchive, standing: Mapping[str, Standing], kept: dict[str, Kept], known: Known
    ) -> None:
        self._archive, self._kept, self._known = archive, kept, known
        self._changes: dict[str, Sequence[Change] | None] = {}
        self._anchors: dict[str, int] = {}
        self._tasks: dict[tuple[str, str], Task | None] = {}
        self._judged = _judged(standing)

    def changes(self, since: str) -> Sequence[Change] | None:
        """Return what was committed since a snapshot; None where the archive no longer knows."""
        if since not in self._changes:
            try:
                self._changes[since] = told(self._archive.store, since)
            except NotFound:
                self._changes[since] = None
        return self._changes[since]

    def concerns(self, one: Standing) -> bool:
        """Return whether a query may have something to compute; a quick look, which `task` makes exact."""
        definition, since = one.entry.definition, one.entry.progress.snapshot
        if since == self._archive.snapshot and one.evaluations:
            return False
        if self._archive.store.extent(str(definition.query["variable"])) is None:
            return False
        begins = definition.window_ns is not None and not self._kept.setdefault(one.surface, Kept()).content
        return begins or may_touch(definition.query, self.changes(since))

    def task(self, one: Standing) -> Task | None:
        """Return what a query needs computed; None where nothing that it reads changed.

        Raises
        ------
        HyperGridError
            The query cannot be answered any more.
        """
        definition, since = one.entry.definition, one.entry.progress.snapshot
        key = (one.surface, since)
        if key not in self._tasks:
            variable = str(definition.query["variable"])
            if variable not in self._anchors:
                self._anchors[variable] = newest_ns(self._archive.store, variable)
            self._tasks[key] = task_of(
                definition.query, self._archive, self.changes(since), self._kept.setdefault(one.surface, Kept()),
                window_ns=definition.window_ns, judged=self._judged.get(one.surface),
                anchor_ns=self._anchors[variable], known=self._known,
            )  # fmt: skip
        return self._tasks[key]


def _judged(standing: Mapping[str, Standing]) -> dict[str, Judged]:
    """Return what the conditions of all queries on a surface need of it together, by surface."""
    found: dict[str, Judged] = {}
    for one in standing.values():
        condition = one.entry.definition.condition
        if condition is None or isinstance(condition, Dead):
            continue
        progress = one.entry.progress
        behind_ns = progress.judged_ns if condition.kind == "missing" else None
        own = Judged(condition.memory_ns, progress.since_ns or 0, behind_ns)
        others = found.get(one.surface, own)
        behind = [each.behind_ns for each in (own, others) if each.behind_ns is not None]
        found[one.surface] = Judged(
            max(own.memory_ns, others.memory_ns), min(own.since_ns, others.since_ns), min(behind) if behind else None
        )
    return found
