"""`health`, `health/live`, `health/ready` and `metrics`: monitoring of the server."""

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import starmap
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import CHUNK_SERIES
from hypergrid.core.errors import HyperGridError, NotFound
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import OpenArchive
from queries.jobs.runner import Runner
from queries.snapshots.latest import NEVER, LatestValues
from queries.standing.service import StandingQueries
from queries.web.auth.keys import KeysDamaged, KeyStore
from queries.web.middleware.request_limits import AccessLogEntry
from queries.web.responses.problems import NotReadyYet, strip_paths

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)
_FEED: Final = re.compile(r"[:/]")
"""Separators between feed and column in the source of a series."""
_STREAM: Final = ("came", "stored", "superseded", "duplicates", "rejected", "held", "late", "slices")
"""Counters of a stream, as `hypergrid stream` commits them."""


class Metrics:
    """Counts requests and collects all other figures, in a registry of its own.

    Parameters
    ----------
    runner, archive, standing
        Sources of the figures.
    clock
        Returns the time [ns since 1970 UTC].
    folders
        Monitored folders, by name.
    """

    def __init__(
        self,
        runner: Runner,
        archive: OpenArchive,
        standing: StandingQueries | None,
        *,
        clock: Callable[[], int],
        folders: Mapping[str, Path],
    ) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "hypergrid_requests", "Requests that were answered", ("method", "route", "status"), registry=self._registry
        )
        self._seconds = Histogram(
            "hypergrid_request_seconds", "Seconds that they took", ("route",), buckets=_BUCKETS, registry=self._registry
        )
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._registry.register(_FigureCollector(runner, archive, standing, clock, dict(folders)))

    def count_request(self, entry: AccessLogEntry) -> None:
        """Count a request by its route."""
        # The row of the scope table bounds the number of label values, which callers could otherwise inflate.
        route = entry.route or "none"
        # Clients can send any method name, and each would be a new time series.
        method = entry.method if entry.method in ("GET", "HEAD", "POST", "DELETE", "OPTIONS") else "other"
        self._requests.labels(method, route, str(entry.status)).inc()
        # Event streams are excluded: they last as long as their reader.
        if not entry.path.endswith("/events"):
            self._seconds.labels(route).observe(entry.seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)


@dataclass(eq=False)
class _FigureCollector(Collector):
    runner: Runner
    archive: OpenArchive
    standing: StandingQueries | None
    clock: Callable[[], int]
    folders: dict[str, Path]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _latest: LatestValues | None = None
    _snapshot_figures: tuple[str, dict[str, Any]] = ("", {})

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are known only when collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._queries()
        yield from self._disks()
        if self.standing is not None:
            yield from self._standing(self.standing)
        yield from self._archive_figures()

    def _archive_figures(self) -> Iterator[Metric]:
        """Yield the archive's figures; if it cannot be read, those of the server remain available."""
        figures: list[Metric] = []
        try:
            with self._lock:
                figures = list(self._archive())
        except (HyperGridError, OSError) as error:
            _LOG.error("metrics lack the archive: %s", error)
        yield GaugeMetricFamily("hypergrid_archive_readable", "1 where the archive can be read", bool(figures))
        yield from figures

    def _queries(self) -> Iterator[Metric]:
        statistics = self.runner.statistics()
        yield from starmap(GaugeMetricFamily, (
            ("hypergrid_queries_queued", "Queries that wait", statistics.queued),
            ("hypergrid_queries_queue_limit", "Queries that may wait", statistics.capacity),
            ("hypergrid_queries_running", "Queries that run", statistics.running),
            ("hypergrid_results_bytes", "Size of the results that are kept", statistics.result_bytes),
            ("hypergrid_results_limit_bytes", "What they may take", statistics.result_bytes_limit),
        ))  # fmt: skip
        ended = CounterMetricFamily("hypergrid_queries_ended", "Queries that ended", labels=["end"])
        for end in ("done", "failed", "cancelled", "shared"):
            ended.add_metric([end], getattr(statistics, end))
        yield ended

    def _disks(self) -> Iterator[Metric]:
        free = (([name], free_bytes(folder)) for name, folder in self.folders.items())
        yield _gauges("hypergrid_disk_free_bytes", "Free space where a folder lies", ["folder"], free)

    def _standing(self, standing: StandingQueries) -> Iterator[Metric]:
        statistics = standing.statistics()
        yield from starmap(GaugeMetricFamily, (
            ("hypergrid_standing_queries", "Standing queries", statistics.queries),
            ("hypergrid_standing_waiting", "Standing queries that wait for their evaluation", statistics.queue),
            ("hypergrid_standing_oldest_seconds", "How long the one waits that waits longest", statistics.oldest_s),
            ("hypergrid_standing_failing", "Standing queries that failed last time", len(statistics.failing)),
            ("hypergrid_standing_trouble", "1 where nothing can be evaluated or kept now", bool(statistics.trouble)),
        ))  # fmt: skip
        yield CounterMetricFamily("hypergrid_standing_evaluations", "Evaluations", statistics.evaluations)
        yield CounterMetricFamily(
            "hypergrid_standing_postponed", "Evaluations that were overtaken", statistics.postponed
        )
        late = (
            ([kind, quantile], seconds)
            for kind, freshness in statistics.freshness.items()
            for quantile, seconds in (
                ("0.5", freshness.median_s),
                ("0.99", freshness.p99_s),
                ("1", freshness.longest_s),
            )
        )
        yield _gauges(
            "hypergrid_standing_behind_seconds", "How late evaluations were, of late", ["class", "quantile"], late
        )
        yield GaugeMetricFamily(
            "hypergrid_alerting_silent",
            "1 where alerts are not raised or not delivered",
            bool(standing.dead_mans_switch.find_trouble()),
        )
        letters = (([state], count) for state, count in standing.store.count_messages().items())
        yield _gauges("hypergrid_letters", "Letters with alerts", ["state"], letters)

    def _archive(self) -> Iterator[Metric]:
        if self._latest is None:
            self._latest = LatestValues(self.archive)
        self._latest.look()
        archive = self._latest.archive
        # These figures need the archive read; the ages below are computed at each scrape.
        if archive.snapshot != self._snapshot_figures[0]:
            self._snapshot_figures = (archive.snapshot, self._read(archive, self._latest))
        figures, now_ns = self._snapshot_figures[1], self.clock()
        committed_ns = figures["committed_ns"]
        yield from starmap(GaugeMetricFamily, (
            ("hypergrid_snapshots", "Versions of the archive that can be read", figures["snapshots"]),
            ("hypergrid_rejects", "Rows that could not be read", figures["rejects"]),
            ("hypergrid_commit_age_seconds", "Since the newest commit", (now_ns - committed_ns) / SECOND_NS),
        ))  # fmt: skip
        for name, what, until_ns in (
            ("hypergrid_feed_age_seconds", "Since the newest value of a feed", now_ns),
            ("hypergrid_feed_lag_seconds", "From a feed's newest value to its commit", committed_ns),
        ):
            feeds = [([feed], (until_ns - newest_ns) / SECOND_NS) for feed, newest_ns in figures["feeds"].items()]
            yield _gauges(name, what, ["feed"], feeds)
        streamed = (
            ([stream, counter], ledger[counter])
            for stream, ledger in figures["streams"].items()
            for counter in _STREAM
            if isinstance(ledger.get(counter), int)
        )
        yield _gauges("hypergrid_stream_readings", "What became of a stream's readings", ["stream", "what"], streamed)

    @staticmethod
    def _read(archive: OpenArchive, latest: LatestValues) -> dict[str, Any]:
        """Read the figures that depend only on the snapshot."""
        feeds: dict[str, int] = {}
        for variable in archive.variables:
            newest = latest.read_newest(variable)
            # Rows without values do not count as new data of a feed.
            for series, time_ns in zip(newest.series, newest.valued_ns.tolist(), strict=True):
                if time_ns != NEVER:
                    feed = _FEED.split(series.source, maxsplit=1)[0]
                    feeds[feed] = max(feeds.get(feed, time_ns), time_ns)
        snapshots = archive.snapshots
        return {
            "snapshots": len(snapshots), "rejects": len(archive.store.rejects()), "feeds": feeds,
            "streams": dict(archive.store.streams), "committed_ns": snapshots[0].time_ns if snapshots else 0,
        }  # fmt: skip


def free_bytes(folder: Path) -> int:
    """Return the free space of the disk that holds, or will hold, a folder [bytes]."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _gauges(
    name: str, what: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, what, labels=labels)
    for labelled, value in values:
        family.add_metric(labelled, value)
    return family


KEPT_S: Final = 5.0
"""How long a check result is cached [s]."""
LIMIT_S: Final = 2.0
"""Timeout of a check, after which the disk counts as unresponsive [s]."""
BUDGET_S: Final = 0.05
"""Time for reading chunks in one check [s]; the next check continues where it stopped."""


Troubles = Mapping[str, str]
"""Problems in words, by component."""


class SharedExamination:
    """Runs a check on its own thread, shared by concurrent callers, and caches the result.

    A disk that hangs blocks only that thread.

    Parameters
    ----------
    examine
        Returns the problems.
    clock
        Monotonic clock [s].
    """

    def __init__(self, examine: Callable[[], Troubles], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._examine, self._clock = examine, clock
        self._changed = threading.Condition()
        self._started_s: float | None = None
        self._ended_s = -np.inf
        self._is_late = False
        self._troubles: Troubles = {}

    def troubles(self) -> Troubles:
        """Return the problems found within the last `KEPT_S`; wait at most `LIMIT_S`."""
        with self._changed:
            if self._started_s is None and self._clock() - self._ended_s >= KEPT_S:
                self._started_s = self._clock()
                # Daemon, as a disk that hangs must not keep the process alive.
                threading.Thread(target=self._run, name="readiness", daemon=True).start()
            if self._started_s is not None:
                left_s = self._started_s + LIMIT_S - self._clock()
                self._changed.wait_for(lambda: self._started_s is None, max(left_s, 0.0))
            return self._troubles if self._started_s is None else self._report_late()

    def _report_late(self) -> Troubles:
        trouble = f"it has not answered for {LIMIT_S:g} s; look at its disk, or at its store"
        if not self._is_late:
            self._is_late = True
            _LOG.error("archive: %s", trouble)
        return {"archive": trouble}

    def _run(self) -> None:
        try:
            troubles = self._examine()
        except Exception:
            _LOG.exception("the server's health cannot be examined")
            troubles = {"archive": "its examination failed; the server's log says why"}
        with self._changed:
            self._started_s, self._ended_s, self._troubles, self._is_late = None, self._clock(), troubles, False
            self._changed.notify_all()


class NewestData:
    """Checks that the newest values are readable from disk, bypassing the server's caches.

    Parameters
    ----------
    archive
        The served archive.
    clock
        Monotonic clock [s].
    """

    def __init__(self, archive: OpenArchive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive, self._clock = archive, clock
        self._next_column = 0

    def trouble(self) -> str:
        """Return why the head, its snapshot or the newest chunks are unreadable; else empty."""
        try:
            try:
                self._read()
            except NotFound:
                # The snapshot expired during the read.
                self._read()
        except Exception as error:  # noqa: BLE001 - libraries raise any error on a damaged file
            return f"it cannot be read: {' '.join(str(error).split())[:500] or type(error).__name__}"
        return ""

    def _read(self) -> None:
        self._archive.latest()
        # Opened again, to bypass the caches of the served archive.
        archive = Archive.open(self._archive.path)
        # The first chunks of all variables, then the second ones.
        columns = sorted(
            (first, name) for name in archive.variables for first in range(0, len(archive.series(name)), CHUNK_SERIES)
        )
        ends_s = self._clock() + BUDGET_S
        for _ in columns:
            # Advances only after a successful read, so that the next check reads a damaged chunk again.
            first, name = columns[self._next_column % len(columns)]
            _read_newest(archive, name, first)
            self._next_column += 1
            if self._clock() >= ends_s:
                break


def _read_newest(archive: Archive, name: str, first: int) -> None:
    """Read the newest slice of one chunk of series."""
    extent = archive.extent(name)
    if extent is not None:
        newest = Window(extent.stop_ns - round(archive.slice_s * SECOND_NS), extent.stop_ns)
        series = np.arange(first, min(first + CHUNK_SERIES, len(archive.series(name))))
        archive.read(name, window=newest, series=series)


LEAST_FREE_BYTES: Final = 64 * 2**20
"""Free space below which nothing more can be stored [bytes]."""
NEEDED: Final = frozenset({"archive", "queries", "keys"})
"""Components without which no data can be served; other problems only degrade the server."""
EXAMINERS: Final = 8
"""Threads that wait for health checks."""
GATHERERS: Final = 2
"""Threads that collect metrics."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Monitoring:
    """What monitoring of a server follows besides its queries and its archive."""

    folders: Mapping[str, Path] = field(default_factory=dict)
    """Folders that need free space, by name."""
    damage: Mapping[str, str] = field(default_factory=dict)
    """State found damaged at startup and ignored since, by file."""
    is_warm: Callable[[], bool] = lambda: True
    """Returns whether what queries compute with is loaded; until then the server is not ready."""
    listeners: Sequence[Callable[[AccessLogEntry], None]] = ()
    """Called with each finished request."""


@dataclass(eq=False)
class ServerHealth:
    """Checks all components that answers need, and logs changes.

    Parameters
    ----------
    runner, archive, standing
        The checked components.
    keys
        Access keys, without which no caller can be authenticated.
    surfaces
        Describes the unavailable saved surfaces; empty: none.
    monitoring
        What is reported besides.
    """

    runner: Runner
    archive: OpenArchive
    standing: StandingQueries | None
    keys: KeyStore | None
    surfaces: Callable[[], str]
    monitoring: Monitoring
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._newest = NewestData(self.archive)
        self._examination = SharedExamination(self._examine)

    def troubles(self) -> Troubles:
        """Return the problems by component, empty if there are none; messages may contain paths."""
        return self._examination.troubles()

    def _examine(self) -> Troubles:
        parts: dict[str, Callable[[], str]] = {
            "archive": self._newest.trouble, "disk": self._disk, "queries": self._queries, "standing": self._standing,
            "keys": self._keys, "alerting": self._alerting,
        }  # fmt: skip
        for name, examine in parts.items():
            known, trouble = self._known.get(name, ""), examine()
            # Only changes are logged, not every check; those of alerting by what examines it, with the reason.
            if trouble != known and name != "alerting":
                _LOG.log(logging.ERROR if trouble else logging.WARNING, "%s: %s", name, trouble or "well again")
            self._known[name] = trouble
        return {name: trouble for name, trouble in self._known.items() if trouble}

    def _disk(self) -> str:
        try:
            short = any(free_bytes(folder) < LEAST_FREE_BYTES for folder in self.monitoring.folders.values())
        except OSError as error:
            return f"its free space is not known ({type(error).__name__})"
        return "it is full: data are served, and nothing more can be kept; make room" if short else ""

    def _queries(self) -> str:
        return "no query is taken any more" if self.runner.is_stopped else ""

    def _keys(self) -> str:
        try:
            _ = self.keys is not None and self.keys.exist
        except KeysDamaged as error:
            return f"nobody is let in: {error}"
        return ""

    def _standing(self) -> str:
        is_well = self.standing is None or not self.standing.statistics().trouble
        return "" if is_well else "they cannot be kept up to date; /api/v1/standing/statistics says why"

    def _alerting(self) -> str:
        trouble = "" if self.standing is None else self.standing.dead_mans_switch.find_trouble()
        # Names of queries, hosts and replies of servers are for the log: everybody who reads data reads this.
        return "alerts are late or silent; the server's log says why" if trouble else ""


def router(health: ServerHealth, metrics: Metrics) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["server"])
    # Separate limiters: the threads of other requests may all be waiting for a disk.
    examining, gathering = anyio.CapacityLimiter(EXAMINERS), anyio.CapacityLimiter(GATHERERS)

    @routes.get("/health")
    async def state() -> dict[str, Any]:
        """Say that the server answers, what it holds, and what is wrong: "ok", "degraded" or "failing"."""
        troubles = {**health.monitoring.damage, **await to_thread.run_sync(health.troubles, limiter=examining)}
        # Planning all of them may take longer than the readiness timeout.
        if "archive" not in troubles and (lost := await to_thread.run_sync(health.surfaces, limiter=examining)):
            troubles["saved surfaces"] = lost
        status = "failing" if NEEDED.intersection(troubles) else "degraded" if troubles else "ok"
        shown = {name: strip_paths(trouble) for name, trouble in troubles.items()}
        return {"status": status, "troubles": shown, "queries": asdict(health.runner.statistics())}

    @routes.get("/health/live")
    async def live() -> dict[str, str]:
        """Say that the server answers at all; where it does not, start it anew."""
        return {"status": "ok"}

    @routes.get("/health/ready")
    async def ready() -> dict[str, str]:
        """Say that data can be served, as some of them were read just now; 503 where they cannot."""
        if not health.monitoring.is_warm():
            raise NotReadyYet("the server answers, and loads what queries compute with; ask again in two seconds")
        troubles = await to_thread.run_sync(health.troubles, limiter=examining)
        if failing := [name for name in troubles if name in NEEDED]:
            raise NotReadyYet(f"the server is not ready: {', '.join(failing)}; /health says more to those who may read")
        return {"status": "ready"}

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def figures() -> Response:
        """Tell the figures of server, archive and standing queries in Prometheus' text form."""
        return Response(await to_thread.run_sync(metrics.text, limiter=gathering), media_type=MEDIA_TYPE)

    return routes
