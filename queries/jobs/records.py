"""What is known of a query that somebody asked for: a frozen record, made anew at each change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hypergrid.core.errors import HyperGridError, NotFound
from queries.jobs.layout import SurfaceLayout

Order = Literal["coarse_to_fine", "raster", "walk"]
"""Which cells are computed first (thesis 5.7.3)."""
State = Literal["queued", "running", "done", "failed", "cancelled"]
ENDED: frozenset[State] = frozenset({"done", "failed", "cancelled"})
"""States that a job never leaves."""


class QueueFull(HyperGridError, RuntimeError):
    """As many queries wait as may wait; ask again later, or stop one."""

    def __init__(self, message: str, retry_s: float = 2.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s
        """When a place may be free [s]."""


class NotReady(HyperGridError, RuntimeError):
    """A result or a picture was asked of a query that has none (yet); the message says in which state it is."""


class ResultGone(HyperGridError, LookupError):
    """The result was computed, but dropped since to make room for later ones; run the query again."""


@dataclass(frozen=True)
class JobProgress:
    """How far a run has come."""

    fraction: float = 0.0
    """Share of the cells that is computed, 0 to 1."""
    cells: int = 0
    """Cells of the surface that are computed."""
    total: int = 0
    """Cells of the surface."""
    seconds: float = 0.0
    """Time since the run started [s]."""


@dataclass(frozen=True)
class Outline:
    """What a run will do, known before it starts."""

    layout: SurfaceLayout
    """Where the cells of the surface lie."""
    cells: int
    """Cells of the surface."""
    projected_bytes: int
    """Most memory that the run will hold [bytes]."""
    projected_s: float
    """What the run will take [s], by costs measured before where there are any, else by tabled ones."""
    explanation: str
    """The plan in words, as `explain` gives it."""


@dataclass(frozen=True)
class Job:
    """One request to answer one query. Identical requests are separate jobs that share one run."""

    id: str
    token: str
    """Content token of the query."""
    snapshot: str
    """Version of the archive that it reads."""
    document: Mapping[str, Any]
    """The query in its JSON form, as the engine understood it."""
    state: State
    created_ns: int
    """When it was asked for [ns since 1970 UTC]."""
    started_ns: int | None
    """When its run started [ns since 1970 UTC]; None while it waits."""
    ended_ns: int | None
    """When it ended [ns since 1970 UTC]; None until then."""
    outline: Outline
    progress: JobProgress
    error: Exception | None = None
    """Why it failed."""
    value_range: tuple[float, float] | None = None
    """Least and greatest value of the finished surface [its unit]; None until done, or where every cell is missing."""
    kept: bool = False
    """Whether the finished result can still be had."""
    passing: bool = False
    """Whether it is asked for, waited for and forgotten in one go; nobody notes it."""
    owner: str = ""
    """Who asked for it: `Asker.owner`."""

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ENDED


@dataclass(frozen=True)
class RunnerStatistics:
    """What a runner holds and did."""

    workers: int
    """Runs that compute at a time."""
    queued: int
    """Runs that wait for their first turn."""
    capacity: int
    """Runs that may wait."""
    running: int
    """Runs that had a turn, and have not ended."""
    longest_block_s: float
    """Longest that a run went on without giving way [s]."""
    jobs: int
    """Jobs that are remembered."""
    shared: int
    """Jobs that joined a run which somebody else had started."""
    done: int
    failed: int
    cancelled: int
    results: int
    """Results that are kept."""
    result_bytes: int
    """Their size [bytes]."""
    result_bytes_limit: int
    """What they may take together [bytes]."""
    evicted: int
    """Results that were dropped to make room."""


def unknown_job(job_id: str) -> NotFound:
    """Return the error for an id that no remembered job has."""
    message = f"no query {job_id!r} is known here; it was never asked, or is forgotten; post it again"
    return NotFound(message)
