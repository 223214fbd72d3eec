"""The web application: routes, limits, headers and problem documents put together."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict
from typing import Any

from fastapi import FastAPI

from queries.catalogue import Catalogue
from queries.scheduling.runner import Runner
from queries.standing.service import StandingQueries
from queries.web import about, engine, events, jobs, problems, readings, results, zarr_files
from queries.web import standing as standing_routes
from queries.web.edr import router as edr_router
from queries.web.guard import LOOPBACK_NAMES, Guard
from queries.web.records import PREFIX


def create_app(
    runner: Runner,
    catalogue: Catalogue,
    *,
    names: Iterable[str] = LOOPBACK_NAMES,
    standing: StandingQueries | None = None,
) -> FastAPI:
    """Return the application that answers for one archive.

    Parameters
    ----------
    runner
        Answers the queries; stopped when the application shuts down.
    catalogue
        Knows what there is to ask about.
    names
        Host names that it answers to.
    standing
        The standing queries, started and stopped by the caller; none are served where absent.
    """

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        runner.stop()

    # Pages of interactive documentation would fetch their scripts from another host; the description itself needs none.
    app = FastAPI(title="HyperGrid", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.runner = runner
    app.add_middleware(Guard, names=tuple(names))
    problems.install(app)
    answers = (jobs.router(runner), events.router(runner), results.router(runner), zarr_files.router(runner))
    for routes in (about.router(catalogue), readings.router(catalogue.archive), *answers):
        app.include_router(routes, prefix=PREFIX)
    app.include_router(engine.router(runner, catalogue.archive), prefix=PREFIX)
    app.include_router(edr_router(runner, catalogue))
    if standing is not None:
        app.include_router(standing_routes.router(standing), prefix=PREFIX)

    @app.get("/health", tags=["server"])
    def health() -> dict[str, Any]:
        """Say that the server answers, and what it holds."""
        return {"status": "ok", "queries": asdict(runner.statistics())}

    return app
