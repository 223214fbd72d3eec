"""`/metrics`: figures of the server, its archive and its standing queries for Prometheus."""

import logging
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from queries.jobs.runner import Runner
from queries.snapshots.latest import NEVER, LatestValues
from queries.standing.service import StandingQueries
from queries.web.middleware.request_limits import AccessLogEntry

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
_LOG: Final = logging.getLogger(__name__)
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
        """Return all figures in Prometheus' text format."""
        return generate_latest(self._registry)


@dataclass(eq=False)
class _FigureCollector(Collector):
    """Collects figures from their sources on each scrape."""

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
        yield _gauge("hypergrid_archive_readable", "1 where the archive can be read", bool(figures))
        yield from figures

    def _queries(self) -> Iterator[Metric]:
        statistics = self.runner.statistics()
        yield _gauge("hypergrid_queries_queued", "Queries that wait", statistics.queued)
        yield _gauge("hypergrid_queries_queue_limit", "Queries that may wait", statistics.capacity)
        yield _gauge("hypergrid_queries_running", "Queries that run", statistics.running)
        yield _gauge("hypergrid_results_bytes", "Size of the results that are kept", statistics.result_bytes)
        yield _gauge("hypergrid_results_limit_bytes", "What they may take", statistics.result_bytes_limit)
        ended = CounterMetricFamily("hypergrid_queries_ended", "Queries that ended", labels=["end"])
        for end in ("done", "failed", "cancelled", "shared"):
            ended.add_metric([end], getattr(statistics, end))
        yield ended

    def _disks(self) -> Iterator[Metric]:
        free = GaugeMetricFamily("hypergrid_disk_free_bytes", "Free space where a folder lies", labels=["folder"])
        for name, folder in self.folders.items():
            free.add_metric([name], free_bytes(folder))
        yield free

    def _standing(self, standing: StandingQueries) -> Iterator[Metric]:
        statistics = standing.statistics()
        yield _gauge("hypergrid_standing_queries", "Standing queries", statistics.queries)
        yield _gauge("hypergrid_standing_waiting", "Standing queries that wait for their evaluation", statistics.queue)
        yield _gauge(
            "hypergrid_standing_oldest_seconds", "How long the one waits that waits longest", statistics.oldest_s
        )
        yield _gauge("hypergrid_standing_failing", "Standing queries that failed last time", len(statistics.failing))
        yield _gauge(
            "hypergrid_standing_trouble", "1 where nothing can be evaluated or kept now", bool(statistics.trouble)
        )
        yield CounterMetricFamily("hypergrid_standing_evaluations", "Evaluations", statistics.evaluations)
        yield CounterMetricFamily(
            "hypergrid_standing_postponed", "Evaluations that were overtaken", statistics.postponed
        )
        late = GaugeMetricFamily(
            "hypergrid_standing_behind_seconds", "How late evaluations were, of late", labels=["class", "quantile"]
        )
        for kind, freshness in statistics.freshness.items():
            for quantile, seconds in (
                ("0.5", freshness.median_s),
                ("0.99", freshness.p99_s),
                ("1", freshness.longest_s),
            ):
                late.add_metric([kind, quantile], seconds)
        yield late
        letters = GaugeMetricFamily("hypergrid_letters", "Letters with alerts", labels=["state"])
        for state, count in standing.store.count_messages().items():
            letters.add_metric([state], count)
        yield letters

    def _archive(self) -> Iterator[Metric]:
        if self._latest is None:
            self._latest = LatestValues(self.archive)
        self._latest.look()
        archive = self._latest.archive
        # These figures need the archive read; the ages below are computed at each scrape.
        if archive.snapshot != self._snapshot_figures[0]:
            self._snapshot_figures = (archive.snapshot, self._read(archive, self._latest))
        figures, now_ns = self._snapshot_figures[1], self.clock()
        yield _gauge("hypergrid_snapshots", "Versions of the archive that can be read", figures["snapshots"])
        yield _gauge("hypergrid_rejects", "Rows that could not be read", figures["rejects"])
        yield _gauge(
            "hypergrid_commit_age_seconds", "Since the newest commit", (now_ns - figures["committed_ns"]) / SECOND_NS
        )
        age = GaugeMetricFamily("hypergrid_feed_age_seconds", "Since the newest value of a feed", labels=["feed"])
        lag = GaugeMetricFamily(
            "hypergrid_feed_lag_seconds", "From a feed's newest value to its commit", labels=["feed"]
        )
        for feed, newest_ns in figures["feeds"].items():
            age.add_metric([feed], (now_ns - newest_ns) / SECOND_NS)
            lag.add_metric([feed], (figures["committed_ns"] - newest_ns) / SECOND_NS)
        yield age
        yield lag
        streamed = GaugeMetricFamily(
            "hypergrid_stream_readings", "What became of a stream's readings", labels=["stream", "what"]
        )
        for stream, ledger in figures["streams"].items():
            for what in _STREAM:
                if isinstance(ledger.get(what), int):
                    streamed.add_metric([stream, what], ledger[what])
        yield streamed

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


def _gauge(name: str, what: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, what, value)
