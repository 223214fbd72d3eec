"""What every test gets: its marks, a loopback network, one Spark session a run, and skips that can be forbidden."""

import functools
import gc
import os
import signal
import socket
import ssl
import time
from collections.abc import Callable, Generator, Iterator
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.s3_server import S3Server

# Figures need no display.
os.environ.setdefault("MPLBACKEND", "Agg")
# Each client of httpx reads all certificates that there are, in 20 to 40 ms, also for the plain connections of tests.
ssl.create_default_context = functools.cache(ssl.create_default_context)  # type: ignore[assignment]
pytest_plugins = ["tests.selection"]

FORBIDDEN_SKIPS = frozenset(os.environ.get("HYPERGRID_FORBID_SKIPS", "").replace(",", " ").split())
"""Markers whose tests must not skip: continuous integration names ``browser``."""


def pytest_collection_finish() -> None:
    """Keep what collecting made, which lives as long as the run, out of each collection of garbage."""
    # Scanning the objects of 10,000 tests at each collection took 2 % of a full run, and 10 % of a short one.
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    forbidden = FORBIDDEN_SKIPS.intersection(marker.name for marker in item.iter_markers())
    if report.skipped and forbidden and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = (
            f"{item.nodeid} was skipped, which HYPERGRID_FORBID_SKIPS={','.join(forbidden)} forbids: {reason}"
        )
    return report


@pytest.fixture(autouse=True)
def loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse connections to any other machine: nothing here may need one."""
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:  # noqa: ANN401 - whatever the family takes
        if self.family in (socket.AF_INET, socket.AF_INET6) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            message = f"a test reached for {address}; tests stay on this machine"
            raise AssertionError(message)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture
def default_hangup() -> Iterator[None]:
    """Let processes that a test starts end at SIGHUP, also in a run that `nohup` started."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def give_time(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give a module functions of `time` that are its own: a server in another thread keeps the clock of the machine."""

    def give(module: ModuleType, **functions: object) -> None:
        monkeypatch.setattr(module, "time", SimpleNamespace(**{**vars(time), **functions}))

    return give


@pytest.fixture(scope="session")
def spark() -> "Iterator[SparkSession]":
    """Give the one Spark session of the run."""
    from ingest.spark.session import session, stop  # noqa: PLC0415 - most runs of a few tests need no Spark

    running = session(cores=2)
    yield running
    stop(running)


@pytest.fixture(scope="session")
def _s3_server(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[S3Server]":
    from tests.s3_server import S3Server  # noqa: PLC0415 - most runs of a few tests need no server

    server = S3Server(tmp_path_factory.mktemp("s3"))
    try:
        yield server.start()
    finally:
        server.stop()


@pytest.fixture
def s3(_s3_server: "S3Server", monkeypatch: pytest.MonkeyPatch) -> "S3Server":
    """Give the one S3 server of the run, with its credentials in the environment."""
    for key, value in _s3_server.credentials.items():
        monkeypatch.setenv(key, value)
    return _s3_server
