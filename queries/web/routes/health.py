"""`health`, `health/live`, `health/ready` and `metrics`: monitoring of the server."""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Response

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import CHUNK_SERIES
from hypergrid.core.errors import NotFound
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import OpenArchive
from queries.jobs.runner import Runner
from queries.standing.service import StandingQueries
from queries.web.auth.keys import KeysDamaged, KeyStore
from queries.web.responses.problems import NotReadyYet, strip_paths
from queries.web.routes.metrics import MEDIA_TYPE, Metrics, free_bytes

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
        columns = sorted((first, name) for name in archive.variables for first in _firsts(archive, name))
        ends_s = self._clock() + BUDGET_S
        for _ in columns:
            # Advances only after a successful read, so that the next check reads a damaged chunk again.
            first, name = columns[self._next_column % len(columns)]
            _read_newest(archive, name, first)
            self._next_column += 1
            if self._clock() >= ends_s:
                break


def _firsts(archive: Archive, name: str) -> range:
    """Return the first series of each chunk of a variable."""
    return range(0, len(archive.series(name)), CHUNK_SERIES)


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


@dataclass(eq=False)
class ServerHealth:
    """Checks all components that answers need, and logs changes.

    Parameters
    ----------
    runner, archive, standing
        The checked components.
    folders
        Folders that need free space.
    keys
        Access keys, without which no caller can be authenticated.
    damage
        State found damaged at startup and ignored since, by file.
    surfaces
        Describes the unavailable saved surfaces; empty: none.
    """

    runner: Runner
    archive: OpenArchive
    standing: StandingQueries | None = None
    folders: Sequence[Path] = ()
    keys: KeyStore | None = None
    damage: Mapping[str, str] = field(default_factory=dict)
    surfaces: Callable[[], str] = str
    _known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Set up the shared check."""
        self._newest = NewestData(self.archive)
        self._examination = SharedExamination(self._examine)

    def troubles(self) -> Troubles:
        """Return the problems by component, empty if there are none; messages may contain paths."""
        return self._examination.troubles()

    def _examine(self) -> Troubles:
        parts: dict[str, Callable[[], str]] = {
            "archive": self._newest.trouble, "disk": self._disk, "queries": self._queries, "standing": self._standing,
            "keys": self._keys,
        }  # fmt: skip
        for name, examine in parts.items():
            known, trouble = self._known.get(name, ""), examine()
            # Only changes are logged, not every check.
            if trouble != known:
                _LOG.log(logging.ERROR if trouble else logging.WARNING, "%s: %s", name, trouble or "well again")
            self._known[name] = trouble
        return {name: trouble for name, trouble in self._known.items() if trouble}

    def _disk(self) -> str:
        try:
            short = any(free_bytes(folder) < LEAST_FREE_BYTES for folder in self.folders)
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


def router(health: ServerHealth, metrics: Metrics, is_warm: Callable[[], bool]) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["server"])
    # Separate limiters: the threads of other requests may all be waiting for a disk.
    examining, gathering = anyio.CapacityLimiter(EXAMINERS), anyio.CapacityLimiter(GATHERERS)

    @routes.get("/health")
    async def state() -> dict[str, Any]:
        """Say that the server answers, what it holds, and what is wrong: "ok", "degraded" or "failing"."""
        troubles = {**health.damage, **await to_thread.run_sync(health.troubles, limiter=examining)}
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
        if not is_warm():
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
