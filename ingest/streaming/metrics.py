"""Prometheus metrics of a running stream, on a local port."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector, start_http_server
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from hypergrid.core.errors import CannotListen
from hypergrid.core.times import SECOND_NS
from ingest.streaming.stream_commit import StreamStatus

HOST: Final = "127.0.0.1"
"""Listening address: without access control only local clients may connect, such as a proxy or an agent."""


class StreamMetrics(Collector):
    """Collects the last status of a stream.

    Parameters
    ----------
    folder
        Archive whose disk is monitored.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._status: StreamStatus | None = None

    def update(self, status: StreamStatus) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Return nothing, because the metrics are known only when collected."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        if self._folder.exists():
            free = shutil.disk_usage(self._folder).free
            yield GaugeMetricFamily("hypergrid_disk_free_bytes", "Free space where the archive lies", free)
        status = self._status
        if status is None:
            return
        ledger = status.ledger
        yield CounterMetricFamily("hypergrid_stream_came", "Readings that came", ledger.came)
        became = GaugeMetricFamily("hypergrid_stream_readings", "What became of them", labels=["what"])
        # All arrived readings end up in one of these.
        for what in ("stored", "superseded", "duplicates", "rejected", "held"):
            became.add_metric([what], getattr(ledger, what))
        yield became
        yield CounterMetricFamily("hypergrid_stream_late_rows", "Rows that came to a closed slice", ledger.late)
        yield CounterMetricFamily("hypergrid_stream_slices", "Slices that were closed", ledger.slices)
        yield CounterMetricFamily("hypergrid_stream_batches", "Batches of this run", status.batches)
        yield GaugeMetricFamily(
            "hypergrid_stream_readings_per_second", "Readings let go, over the last batches", status.readings_per_s
        )
        yield GaugeMetricFamily("hypergrid_stream_behind_records", "Records that no batch has had yet", status.behind)
        if status.last_slice_ns is not None:
            yield GaugeMetricFamily(
                "hypergrid_stream_slice_age_seconds", "Since the end of the last slice that was closed",
                time.time() - status.last_slice_ns / SECOND_NS,
            )  # fmt: skip


@contextmanager
def serve_metrics(metrics: StreamMetrics, port: int) -> Iterator[int]:
    """Serve the metrics of a stream at `/metrics`; yield the port.

    Parameters
    ----------
    metrics
        Collector to serve.
    port
        0 takes any free port.

    Raises
    ------
    CannotListen
        The port is in use or invalid.
    """
    registry = CollectorRegistry()
    registry.register(metrics)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    try:
        server, thread = start_http_server(port, HOST, registry)
    except (OSError, OverflowError) as error:
        raise CannotListen(
            f"cannot tell metrics on {HOST} port {port}: {error}; choose another with --metrics-port"
        ) from error
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
