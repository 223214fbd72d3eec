"""State of a submitted query, as frozen records that are replaced at each change."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hypergrid.core.errors import HyperGridError, NotFound
from queries.jobs.layout import SurfaceLayout

Order = Literal["coarse_to_fine", "raster", "walk"]
"""Order in which cells are computed (thesis 5.7.3)."""
State = Literal["queued", "running", "done", "failed", "cancelled"]
ENDED: frozenset[State] = frozenset({"done", "failed", "cancelled"})
"""Final states of a job."""


class QueueFull(HyperGridError, RuntimeError):
    """The queue is full; retry later, or cancel a query."""

    def __init__(self, message: str, retry_s: float = 2.0) -> None:
        super().__init__(message)
        self.retry_s = retry_s
        """When a place may be free [s]."""


class NotReady(HyperGridError, RuntimeError):
    """The query has no result or picture (yet); the message names its state."""


class ResultGone(HyperGridError, LookupError):
    """The result was evicted to make room for later ones; run the query again."""


@dataclass(frozen=True)
class JobProgress:
    """Progress of a run."""

    fraction: float = 0.0
    """Share of the cells computed, 0 to 1."""
    cells: int = 0
    """Number of cells computed."""
    total: int = 0
    """Number of cells of the surface."""
    seconds: float = 0.0
    """Time since the run started [s]."""


@dataclass(frozen=True)
class Outline:
    """Properties of a run that are known before it starts."""

    layout: SurfaceLayout
    """Layout of the cells of the surface."""
    cells: int
    """Number of cells of the surface."""
    projected_bytes: int
    """Peak memory of the run [bytes]."""
    projected_s: float
    """Projected duration [s], from measured costs if there are any, else from tabulated ones."""
    explanation: str
    """The plan in words, as from `explain`."""


@dataclass(frozen=True)
class Job:
    """A request to answer a query. Identical requests are separate jobs that share one run."""

    id: str
    token: str
    """Content token of the query."""
    snapshot: str
    """Snapshot of the archive that it reads."""
    document: Mapping[str, Any]
    """The query in its JSON form, as the engine interpreted it."""
    state: State
    created_ns: int
    """When it was submitted [ns since 1970 UTC]."""
    started_ns: int | None
    """When its run started [ns since 1970 UTC]; None while queued."""
    ended_ns: int | None
    """When it ended [ns since 1970 UTC]; None until then."""
    outline: Outline
    progress: JobProgress
    error: Exception | None = None
    """Error of a failed job."""
    value_range: tuple[float, float] | None = None
    """Minimum and maximum of the finished surface [its unit]; None until done, or if every cell is missing."""
    kept: bool = False
    """Whether the finished result is still available."""
    passing: bool = False
    """Whether it is submitted, awaited and forgotten in one request; such jobs are not recorded in the journal."""
    owner: str = ""
    """Id of the submitter: `Asker.owner`."""

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ENDED


@dataclass(frozen=True)
class RunnerStatistics:
    """Statistics of a runner since it was created."""

    workers: int
    """Runs that compute concurrently."""
    queued: int
    """Runs waiting for their first turn."""
    capacity: int
    """Limit of queued runs."""
    running: int
    """Runs that had a turn and have not ended."""
    longest_block_s: float
    """Longest time that a run computed without yielding [s]."""
    jobs: int
    """Jobs remembered."""
    shared: int
    """Jobs that joined a run started by another."""
    done: int
    failed: int
    cancelled: int
    results: int
    """Cached results."""
    result_bytes: int
    """Size of the cached results [bytes]."""
    result_bytes_limit: int
    """Size limit of the cache [bytes]."""
    evicted: int
    """Results evicted to make room."""


def unknown_job(job_id: str) -> NotFound:
    """Make the error for an id that no remembered job has."""
    message = f"no query {job_id!r} is known here; it was never asked, or is forgotten; post it again"
    return NotFound(message)
