"""`health`, `health/live`, `health/ready` and `metrics`: for those who watch over the server."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from fastapi import APIRouter, Response

from hypergrid.errors import HyperGridError
from hypergrid.query import OpenArchive
from queries.scheduling.runner import Runner
from queries.standing.service import StandingQueries
from queries.web.keys import KeysDamaged, KeyStore
from queries.web.metrics import MEDIA_TYPE, Metrics, free_bytes
from queries.web.problems import NotReadyYet

LEAST_FREE_BYTES: Final = 64 * 2**20
"""Free space below which nothing more can be kept [bytes]."""


@dataclass(frozen=True)
class Health:
    """Looks whether everything that answers need is there.

    Parameters
    ----------
    runner, archive, standing
        What is looked at.
    folders
        Folders that need space.
    keys
        Access keys, without which nobody is let in.
    damage
        State that was found damaged at the start and that the server does without, by file.
    """

    runner: Runner
    archive: OpenArchive
    standing: StandingQueries | None = None
    folders: Sequence[Path] = ()
    keys: KeyStore | None = None
    damage: Mapping[str, str] = field(default_factory=dict)

    def troubles(self) -> dict[str, str]:
        """Return what is wrong, in words, by what is looked at; empty: nothing is."""
        looks: dict[str, Callable[[], str]] = {
            "archive": self._archive, "disk": self._disk, "queries": self._queries, "standing": self._standing,
            "keys": self._keys,
        }  # fmt: skip
        found = {name: look() for name, look in looks.items()}
        return {name: trouble for name, trouble in found.items() if trouble}

    def _archive(self) -> str:
        try:
            self.archive.latest()
        except (HyperGridError, OSError) as error:
            return f"the archive cannot be read ({type(error).__name__})"
        return ""

    def _disk(self) -> str:
        try:
            short = any(free_bytes(folder) < LEAST_FREE_BYTES for folder in self.folders)
        except OSError as error:
            return f"the disk cannot be looked at ({type(error).__name__})"
        return "the disk is full" if short else ""

    def _queries(self) -> str:
        return "no query is taken any more" if self.runner.is_stopped else ""

    def _keys(self) -> str:
        try:
            _ = self.keys is not None and self.keys.exist
        except KeysDamaged:
            return "the access keys cannot be read, so nobody is let in"
        return ""

    def _standing(self) -> str:
        is_well = self.standing is None or not self.standing.statistics().trouble
        return "" if is_well else "standing queries cannot be kept up to date; /api/v1/standing/statistics says why"


def router(health: Health, metrics: Metrics) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["server"])

    @routes.get("/health")
    def all_of_it() -> dict[str, Any]:
        """Say that the server answers, what it holds, and what is wrong."""
        troubles = {**health.damage, **health.troubles()}
        told = "troubled" if troubles else "ok"
        return {"status": told, "troubles": troubles, "queries": asdict(health.runner.statistics())}

    @routes.get("/health/live")
    async def live() -> dict[str, str]:
        """Say that the server answers at all; where it does not, start it anew."""
        return {"status": "ok"}

    @routes.get("/health/ready")
    def ready() -> dict[str, str]:
        """Say that queries can be answered; 503 where they cannot now."""
        troubles = health.troubles()
        if troubles:
            message = f"the server is not ready: {', '.join(troubles)}; /health says more to those who may read"
            raise NotReadyYet(message)
        return {"status": "ready"}

    @routes.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
    def figures() -> Response:
        """Tell the figures of server, archive and standing queries in Prometheus' text form."""
        return Response(metrics.text(), media_type=MEDIA_TYPE)

    return routes
