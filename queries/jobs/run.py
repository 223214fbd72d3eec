"""One run of one query, shared by every job that asked for it: its state, and what its followers are told.

Events are not logged but derived from three slots (plan, latest progress, end), numbered in the order in which they
changed: a follower that missed some gets the current state, however late it comes, and memory does not grow.
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
    """Something that a follower of a job is told."""

    id: int
    """Grows with time within one job; a follower resumes after the last that it saw."""
    name: EventName
    job: Job


@dataclass(eq=False)
class QueryRun:
    """The state that a thread drives; every field is guarded by its runner's lock, except `stop`."""

    id: str
    key: tuple[str, str]
    """Token of the query and snapshot: equal keys give equal surfaces."""
    query: Query
    outline: Outline
    order: Order = "coarse_to_fine"
    """Which cells come first."""
    owner: str = ""
    """For whom it was asked for first; its turns are theirs."""
    followers: dict[str, Job] = field(default_factory=dict)
    """Jobs that wait for it, by id."""
    state: State = "queued"
    started_ns: int | None = None
    ended_ns: int | None = None
    progress: JobProgress = JobProgress()
    error: Exception | None = None
    value_range: tuple[float, float] | None = None
    refinement: Refinement | None = None
    """The latest refinement, while it runs: the arrays that are being filled."""
    changes: int = _FIRST_ID
    progress_id: int = _FIRST_ID
    passing: bool = True
    """Whether all who wait for it take its result at once, so that it need not be kept among those of others."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set when nobody waits for it any more; the thread looks at it between blocks."""

    def advance(self, progress: JobProgress) -> None:
        """Note how far it has come."""
        self.changes += 1
        self.progress, self.progress_id = progress, self.changes

    def end(self, state: State, ended_ns: int, error: Exception | None = None) -> None:
        """Note that it is over; its arrays are let go."""
        self.changes += 1
        self.state, self.ended_ns, self.error = state, ended_ns, error
        self.refinement = None

    def view(self, job: Job, *, kept: bool) -> Job:
        """Return the job as it stands; one that left the run early keeps its own end."""
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
        """Return what a follower that saw events up to `after` still has to be told, oldest first."""
        job_events = [Event(_FIRST_ID, "plan", job)]
        if self.progress_id > _FIRST_ID:
            job_events.append(Event(self.progress_id, "progress", job))
        if job.state in ENDED:
            job_events.append(Event(self.changes + 1, _ENDINGS[job.state], job))
        return [event for event in job_events if event.id > after]


Listener = Callable[[], None]
"""Called, from any thread, whenever a job changed; it must not block."""
