"""State and events of one run, shared by all jobs for the same query.

Events are not logged but derived from three slots (plan, latest progress, end), numbered in the order of their changes:
a follower that missed some gets the current state, however late, and memory use is bounded.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

from hypergrid.query import Query
from hypergrid.refinement import Refinement
from queries.jobs.records import ENDED, Job, JobProgress, Order, Outline, State

EventName = Literal["plan", "progress", "done", "error", "cancelled"]
_ENDINGS: dict[State, EventName] = {"done": "done", "failed": "error", "cancelled": "cancelled"}
_FIRST_ID = 1


@dataclass(frozen=True)
class Event:
    """An event of a job, for its followers."""

    id: int
    """Increases within one job; a follower resumes after the last one it saw."""
    name: EventName
    job: Job


@dataclass(eq=False)
class QueryRun:
    """State of a run, guarded by the runner's lock except for `stop`."""

    id: str
    key: tuple[str, str]
    """Token of the query and snapshot: equal keys give equal surfaces."""
    query: Query
    outline: Outline
    order: Order = "coarse_to_fine"
    """Order of the cells."""
    owner: str = ""
    """First submitter; the run uses its turns."""
    followers: dict[str, Job] = field(default_factory=dict)
    """Jobs that wait for it, by id."""
    state: State = "queued"
    started_ns: int | None = None
    ended_ns: int | None = None
    progress: JobProgress = JobProgress()
    error: Exception | None = None
    value_range: tuple[float, float] | None = None
    refinement: Refinement | None = None
    """Latest refinement of a running query, whose arrays are still being filled."""
    changes: int = _FIRST_ID
    progress_id: int = _FIRST_ID
    passing: bool = True
    """Whether all its jobs take the result at once, so that the shared cache need not keep it."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set once no job waits for it; checked between blocks."""

    def advance(self, progress: JobProgress) -> None:
        """Record progress."""
        self.changes += 1
        self.progress, self.progress_id = progress, self.changes

    def end(self, state: State, ended_ns: int, error: Exception | None = None) -> None:
        """Record the end and release the arrays."""
        self.changes += 1
        self.state, self.ended_ns, self.error = state, ended_ns, error
        self.refinement = None

    def view(self, job: Job, *, kept: bool) -> Job:
        """Return the job's current state; one that left the run keeps its own end."""
        if job.has_ended:
            return job
        return replace(
            job,
            state=self.state,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            progress=self.progress,
            error=self.error,
            value_range=self.value_range,
            kept=kept and self.state == "done",
        )

    def events(self, job: Job, after: int) -> list[Event]:
        """List the events after number `after`, oldest first."""
        job_events = [Event(_FIRST_ID, "plan", job)]
        if self.progress_id > _FIRST_ID:
            job_events.append(Event(self.progress_id, "progress", job))
        if job.state in ENDED:
            # Above all numbers so far, also for a job that left the run early.
            job_events.append(Event(self.changes + 1, _ENDINGS[job.state], job))
        return [event for event in job_events if event.id > after]


Listener = Callable[[], None]
"""Called from any thread at each change of a job; must not block."""
