"""`health`, `health/live`, `health/ready` and `metrics`: for those who watch over the server."""

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
"""How long an examination counts [s]."""
LIMIT_S: Final = 2.0
"""How long an examination may take; longer, and the disk counts as one that does not answer [s]."""
BUDGET_S: Final = 0.05
"""How long one examination reads chunks; the next one continues where it stopped [s]."""


Troubles = Mapping[str, str]
"""What is wrong, in words, by what was examined."""


class SharedExamination:
    """Examines something in a thread of its own, once for all that ask, and keeps what it gave for a moment.

    A disk that hangs holds that one thread, and nobody else.

    Parameters
    ----------
    examine
        Returns what is wrong.
    clock
        Returns seconds that only grow.
    """

    def __init__(self, examine: Callable[[], Troubles], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._examine, self._clock = examine, clock
        self._changed = threading.Condition()
        self._started_s: float | None = None
        self._ended_s = -np.inf
        self._is_late = False
        self._troubles: Troubles = {}

    def troubles(self) -> Troubles:
        """Return what is wrong, by an examination of the last `KEPT_S`; waits for at most `LIMIT_S`."""
        with self._changed:
            if self._started_s is None and self._clock() - self._ended_s >= KEPT_S:
                self._started_s = self._clock()
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
    """Reads what answers with the newest values need, from the disk and not from what the server has in memory.

    Parameters
    ----------
    archive
        The archive that is served.
    clock
        Returns seconds that only grow.
    """

    def __init__(self, archive: OpenArchive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive, self._clock = archive, clock
        self._next_column = 0

    def trouble(self) -> str:
        """Return why the head, its snapshot or the newest chunks cannot be read; empty: they can."""
        try:
            try:
                self._read()
            except NotFound:
                # The snapshot expired while it was read.
                self._read()
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes the libraries raise
            return f"it cannot be read: {' '.join(str(error).split())[:500] or type(error).__name__}"
        return ""

    def _read(self) -> None:
        self._archive.latest()
        archive = Archive.open(self._archive.path)
        # The first chunks of all variables, then the second ones.
        columns = sorted((first, name) for name in archive.variables for first in _firsts(archive, name))
        ends_s = self._clock() + BUDGET_S
        for _ in columns:
            # It moves on only behind what was read: what is damaged is read again by the next examination.
            first, name = columns[self._next_column % len(columns)]
            _read_newest(archive, name, first)
            self._next_column += 1
            if self._clock() >= ends_s:
                break


def _firsts(archive: Archive, name: str) -> range:
    """Return the first series of each chunk of a variable."""
    return range(0, len(archive.series(name)), CHUNK_SERIES)


def _read_newest(archive: Archive, name: str, first: int) -> None:
    """Read the newest slice of as many series of a variable as one chunk holds."""
    extent = archive.extent(name)
    if extent is not None:
        newest = Window(extent.stop_ns - round(archive.slice_s * SECOND_NS), extent.stop_ns)
        series = np.arange(first, min(first + CHUNK_SERIES, len(archive.series(name))))
        archive.read(name, window=newest, series=series)


LEAST_FREE_BYTES: Final = 64 * 2**20
"""Free space below which nothing more can be kept [bytes]."""
NEEDED: Final = frozenset({"archive", "queries", "keys"})
"""What data cannot be served without; the server is degraded where something else is wrong."""
EXAMINERS: Final = 8
"""Threads that wait for an examination of the server's health,"""
GATHERERS: Final = 2
"""and that gather metrics."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(eq=False)
class ServerHealth:
    """Examines whether everything that answers need is there, and logs what changes.

    Parameters
    ----------
    runner, archive, standing
        What is examined.
    folders
        Folders that need space.
    keys
        Access keys, without which nobody is let in.
    damage
        State that was damaged at the start and that the server does without, by file.
    surfaces
        Returns which saved surfaces cannot be computed, and why; empty: none.
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
        """Begin to share what is found among all that ask."""
        self._newest = NewestData(self.archive)
        self._examination = SharedExamination(self._examine)

    def troubles(self) -> Troubles:
        """Return what is wrong, in words, by what is examined; empty: nothing is. Files are named by their paths."""
        return self._examination.troubles()

    def _examine(self) -> Troubles:
        parts: dict[str, Callable[[], str]] = {
            "archive": self._newest.trouble, "disk": self._disk, "queries": self._queries, "standing": self._standing,
            "keys": self._keys,
        }  # fmt: skip
        for name, examine in parts.items():
            known, trouble = self._known.get(name, ""), examine()
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
    """Return the routes of this file."""
    routes = APIRouter(tags=["server"])
    # Threads of their own: those of other requests may all wait for a disk.
    examining, gathering = anyio.CapacityLimiter(EXAMINERS), anyio.CapacityLimiter(GATHERERS)

    @routes.get("/health")
    async def state() -> dict[str, Any]:
        """Say that the server answers, what it holds, and what is wrong: "ok", "degraded" or "failing"."""
        troubles = {**health.damage, **await to_thread.run_sync(health.troubles, limiter=examining)}
        # Planning them all may take longer than readiness waits.
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
            message = "the server answers, and loads what queries compute with; ask again in a second"
            raise NotReadyYet(message)
        troubles = await to_thread.run_sync(health.troubles, limiter=examining)
        if failing := [name for name in troubles if name in NEEDED]:
            message = f"the server is not ready: {', '.join(failing)}; /health says more to those who may read"
            raise NotReadyYet(message)
        return {"status": "ready"}

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    async def figures() -> Response:
        """Tell the figures of server, archive and standing queries in Prometheus' text form."""
        return Response(await to_thread.run_sync(metrics.text, limiter=gathering), media_type=MEDIA_TYPE)

    return routes
