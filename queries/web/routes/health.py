"""`health`, `health/live`, `health/ready` and `metrics`: for those who watch over the server."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from anyio import to_thread
from fastapi import APIRouter, Response

from hypergrid.query import OpenArchive
from queries.jobs.runner import Runner
from queries.standing.service import StandingQueries
from queries.web.auth.keys import KeysDamaged, KeyStore
from queries.web.readiness import NewestData, SharedExamination, Troubles
from queries.web.responses.problems import NotReadyYet, strip_paths
from queries.web.routes.metrics import MEDIA_TYPE, Metrics, free_bytes

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


def router(health: ServerHealth, metrics: Metrics) -> APIRouter:
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
