"""Records of submitted queries: frozen jobs, the layout of their surface, and the run that jobs share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role, value_of
from hypergrid.execution import Part
from hypergrid.query import Query
from hypergrid.refinement import Refinement
from hypergrid.topology import Bands, Grid, Points, Topology

Kind = Literal["map", "series"]


@dataclass(frozen=True)
class SurfaceLabels:
    """Words on pictures of a surface."""

    long_name: str
    """Name of the values for display."""
    title: str
    """Statistic, quantity, time and interpolation."""
    source: str
    """Archive, snapshot and software."""


@dataclass(frozen=True, eq=False)
class SurfaceLayout:
    """Cells of a surface by dimension."""

    kind: Kind
    """Whether the surface is a map (lon and lat, or x and y) or a table of series."""
    names: tuple[str, str] | None
    """Names of the two horizontal dimensions of a map, ("lat", "lon") or ("y", "x"); None for series."""
    x: NDArray[np.float64]
    """Cell centres, shape (columns,) [degree or m]; for series their positions."""
    y: NDArray[np.float64]
    """Cell centres, shape (rows,) [degree or m]."""
    levels_m: NDArray[np.float64] | None
    """Centres of a map's levels above sea level [m], shape (levels,); None without levels."""
    times_ns: NDArray[np.int64]
    """Start of each time cell [ns since 1970 UTC], shape (frames,)."""
    variable: str
    units: str
    """Unit of the values."""
    labels: SurfaceLabels


@dataclass(frozen=True, eq=False)
class SurfacePicture:
    """One time cell of a map in its current state."""

    layout: SurfaceLayout
    time_index: int
    level: int
    """Index of the level, from 0; 0 for a map without levels."""
    values: NDArray[np.float64]
    """[the result's unit], shape (rows, columns); NaN if missing or not computed."""
    computed: NDArray[np.bool_]
    """Mask of the computed cells, same shape."""
    estimate: NDArray[np.float64]
    """The values, with cells not yet computed estimated from those around them, same shape."""
    fraction: float
    """Share of all cells of the surface that is computed, 0 to 1."""
    error: float = 0.0
    """Root mean square error of the estimates, by cross-validation on computed cells; NaN if unknown."""


def layout_of(topology: Topology, *, variable: str, units: str, labels: SurfaceLabels) -> SurfaceLayout:
    """Lay out the cells of a topology."""
    space = topology.space
    if isinstance(space, Grid):
        names = (space.y.name, space.x.name)
        levels_m = None if space.z is None else space.z.centres
        return SurfaceLayout(
            "map", names, space.x.centres, space.y.centres, levels_m, topology.time.corners, variable, units, labels
        )
    if isinstance(space, Points):
        x, y = space.centres(np.arange(space.count)).T
    else:
        # A band has no single position.
        x, y = (np.full(space.count, np.nan),) * 2 if isinstance(space, Bands) else (space.x, space.y)
    return SurfaceLayout("series", None, x, y, None, topology.time.corners, variable, units, labels)


def make_finished_picture(
    layout: SurfaceLayout, dataset: xr.Dataset, time_index: int, level: int, part: Part = "value"
) -> SurfacePicture:
    """Extract the values or the variance of one time cell of a finished map.

    Raises
    ------
    InvalidQuery
        The query did not ask for its variance.
    """
    dataset = by_role(dataset)
    if part not in dataset:
        raise InvalidQuery('this query was not asked for its variance; add "variance": true, or ask for its values')
    at = (time_index,) if layout.levels_m is None else (time_index, level)
    values = np.asarray(dataset[part].to_numpy()[at], np.float64)
    # A finished map needs no estimates: they equal the values.
    return SurfacePicture(layout, time_index, level, values, np.ones(values.shape, np.bool_), values, 1.0)


def check_frame(layout: SurfaceLayout, time_index: int, level: int) -> None:
    """Reject a time cell or level outside the surface, or a surface without a map.

    Raises
    ------
    InvalidQuery
        The surface has no map.
    NotFound
        It has no such time cell or level; the message has both numbers.
    """
    if layout.kind != "map":
        raise InvalidQuery(
            "this query answers with series, not with a map, so it has no frames; ask for its series instead"
        )
    frames = len(layout.times_ns)
    if not 0 <= time_index < frames:
        raise NotFound(f"the surface has the time cells 0 to {frames - 1}; got {time_index}; ask for one of them")
    levels = 1 if layout.levels_m is None else len(layout.levels_m)
    if not 0 <= level < levels:
        raise NotFound(f"the surface has the levels 0 to {levels - 1}; got {level}; ask for one of them")


def value_range(dataset: xr.Dataset) -> tuple[float, float] | None:
    """Compute minimum and maximum [its unit], None if every cell is missing."""
    values = value_of(dataset).to_numpy()
    present = values[np.isfinite(values)]
    return (float(present.min()), float(present.max())) if present.size else None


Order = Literal["coarse_to_fine", "raster", "walk", "algorithm_9", "by_time"]
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
    cells: int
    projected_bytes: int
    """Peak memory of the run [bytes]."""
    projected_s: float
    """Projected duration [s], from measured costs if there are any, else from tabulated ones."""
    explanation: str
    """The plan of the run in words."""

    def retitle(self, title: str) -> Outline:
        """Return it with another title of the surface."""
        labels = replace(self.layout.labels, title=title)
        return replace(self, layout=replace(self.layout, labels=labels))


@dataclass(frozen=True)
class Job:
    """A request to answer a query. Identical requests are separate jobs that share one run."""

    id: str
    token: str
    """Content token of the query."""
    snapshot: str
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
    value_range: tuple[float, float] | None = None
    """Minimum and maximum of the finished surface [its unit]; None until done, or if every cell is missing."""
    notes: tuple[str, ...] = ()
    """Notes on the finished surface, those of its attribute `comment`."""
    kept: bool = False
    """Whether the finished result is still available."""
    passing: bool = False
    """Whether it is submitted, awaited and forgotten in one request; such jobs are not recorded in the journal."""
    owner: str = ""
    """Id of the submitter: `Asker.owner`."""

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED


@dataclass(frozen=True)
class RunnerLimits:
    """How much a runner computes at a time, and how much it keeps."""

    workers: int = 1
    """Queries that compute concurrently."""
    capacity: int = 32
    """Limit of queued runs."""
    allowed_bytes: int | None = None
    """Memory budget of one plan, and of all started runs together [bytes]; None: half of the free memory."""
    allowed_s: float | None = None
    """Projected time allowed to callers without a limit of their own [s]; None: any."""
    results: int = 16
    """Limit of the result cache; the oldest is evicted first."""
    result_bytes: int = 1 << 30
    """Limit of its size [bytes]."""
    remembered: int = 1000
    """Number of ended jobs to remember."""


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
    return NotFound(f"no query {job_id!r} is known here; it was never asked, or is forgotten; post it again")


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
    """State of a run, guarded by the runner's lock except for `stop`.

    Its events are not logged but derived from three slots (plan, latest progress, end), numbered in the order of their
    changes: a follower that missed some gets the current state, however late, and memory use is bounded.
    """

    id: str
    key: tuple[str, str]
    """Token of the query and snapshot: equal keys give equal surfaces."""
    query: Query | None
    """None once it has ended."""
    outline: Outline
    order: Order = "coarse_to_fine"
    owner: str = ""
    """First submitter; the run uses its turns."""
    second_opinion: int | None = None
    """Number of cells to recompute by PyKrige at its end; None: none."""
    followers: dict[str, Job] = field(default_factory=dict)
    """Jobs that wait for it, by id."""
    state: State = "queued"
    started_ns: int | None = None
    ended_ns: int | None = None
    progress: JobProgress = JobProgress()
    error: Exception | None = None
    value_range: tuple[float, float] | None = None
    notes: tuple[str, ...] = ()
    refinement: Refinement | None = None
    """Latest refinement of a running query, whose arrays are still being filled."""
    changes: int = _FIRST_ID
    progress_id: int = _FIRST_ID
    passing: bool = True
    """Whether all its jobs take the result at once, so that the shared cache need not keep it."""
    stop: threading.Event = field(default_factory=threading.Event)
    """Set once no job waits for it; checked between blocks."""

    def advance(self, progress: JobProgress) -> None:
        self.changes += 1
        self.progress, self.progress_id = progress, self.changes

    def end(self, state: State, ended_ns: int, error: Exception | None = None) -> None:
        """Record the end and release the arrays, and the query with its snapshot."""
        self.changes += 1
        self.state, self.ended_ns, self.error = state, ended_ns, error
        self.refinement = self.query = None

    def view(self, job: Job, *, kept: bool) -> Job:
        """Return the job's current state; one that left the run keeps its own end."""
        if job.has_ended:
            return job
        return replace(
            job,
            state=self.state,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            outline=self.outline,
            progress=self.progress,
            error=self.error,
            value_range=self.value_range,
            notes=self.notes,
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
