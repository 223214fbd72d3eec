"""Web application: assembles routes, access control, limits, headers and problem documents."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import anyio
from anyio import to_thread
from fastapi import Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.middleware.cors import CORSMiddleware

from hypergrid.core.importing import Importer
from queries.boards.repository import BoardStore
from queries.continuous.service import ContinuousQueries
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.latest import LatestValues
from queries.snapshots.news import ArchiveNews
from queries.standing.service import StandingQueries
from queries.web.auth.access import Access, Audit
from queries.web.auth.scopes import API, Undeclared, find_undeclared
from queries.web.edr import Collections
from queries.web.edr import router as edr_router
from queries.web.middleware.authentication import AuthenticationMiddleware
from queries.web.middleware.request_limits import RequestLimitsMiddleware, SecurityHeadersMiddleware
from queries.web.responses import problems
from queries.web.responses.bodies import refuse_unknown
from queries.web.responses.etags import Tags
from queries.web.responses.negotiation import Compression
from queries.web.responses.waiting import OrphanJobCanceller
from queries.web.routes import (
    about,
    continuous,
    continuous_kept,
    engine,
    ground,
    health,
    imports,
    jobs,
    links,
    login,
    readings,
    results,
    validation,
    variograms,
)
from queries.web.routes import boards as boards_routes
from queries.web.routes import standing as standing_routes
from queries.web.routes.health import Metrics, Monitoring, ServerHealth
from queries.web.schemas import describe

PREPARED_S: Final = 10.0
"""How long a server waits for the newest readings before it starts to answer [s]."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Services:
    """What a server offers besides readings and queries; None: it is not offered."""

    standing: StandingQueries | None = None
    """Standing queries, started and stopped by the caller."""
    boards: BoardStore | None = None
    """Boards and short links."""
    importer: Importer | None = None
    """Imports files that callers send."""


def create_app(
    runner: Runner,
    catalogue: Catalogue,
    *,
    services: Services | None = None,
    access: Access | None = None,
    audit: Audit | None = None,
    monitoring: Monitoring | None = None,
) -> FastAPI:
    """Create the application for one archive.

    Parameters
    ----------
    runner
        Answers the queries; stopped when the application shuts down.
    catalogue
        Catalogue of the archive.
    services
        What is offered besides; None: nothing.
    access
        Access control; None: every caller may do everything, as the server listens on loopback.
    audit
        Log of changes.
    monitoring
        What is monitored besides; None: nothing.

    Raises
    ------
    Undeclared
        A route is not in the table of scopes.
    """
    newest, services = LatestValues(catalogue.archive), services or Services()
    asked = ContinuousQueries(catalogue.archive, runner)
    standing, boards, importer = services.standing, services.boards, services.importer

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        with anyio.move_on_after(PREPARED_S):
            await to_thread.run_sync(_prepare, newest, abandon_on_cancel=True)
        with newest.kept_recent():
            yield
        asked.stop()
        runner.stop()

    # The interactive documentation loads scripts from another host, so it is off; the description itself needs none.
    app = FastAPI(title="HyperGrid", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    known, monitoring = access or Access(None, time.time_ns), monitoring or Monitoring()
    app.state.runner = runner
    app.state.access = known
    # Starlette runs the last one first.
    app.add_middleware(Tags)
    app.add_middleware(Compression)
    app.add_middleware(AuthenticationMiddleware, access=known, audit=audit)
    if known.rules.origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=known.rules.origins,
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=[
                "Authorization", "Content-Type", "If-Range", "Last-Event-ID", "Range", "X-API-Key", "X-Request-ID",
            ],
            expose_headers=["Accept-Ranges", "Content-Range", "ETag", "Location", "Retry-After", "X-Request-ID"],
        )  # fmt: skip
    app.add_middleware(
        SecurityHeadersMiddleware, names=known.rules.names, embed_origins=known.rules.embed_origins
    )  # fmt: skip
    metrics = Metrics(runner, catalogue.archive, standing, clock=known.clock, folders=monitoring.folders)
    app.add_middleware(
        RequestLimitsMiddleware, rules=known.rules, notify=(metrics.count_request, *monitoring.listeners),
        folders=(catalogue.archive.path, *monitoring.folders.values()),
    )  # fmt: skip
    problems.install(app)
    collections, news = Collections(catalogue), ArchiveNews(newest)
    native = [
        login.router(known, takes_imports=importer is not None), about.router(catalogue, collections),
        ground.router(catalogue.archive), readings.router(catalogue.archive, newest, news),
        variograms.router(runner), validation.router(runner), jobs.router(runner, OrphanJobCanceller(runner)),
        results.router(runner), continuous.router(asked),
        engine.router(runner, catalogue.archive, newest), engine.quality_router(catalogue.archive),
        *([] if standing is None else [standing_routes.router(standing), continuous_kept.router(standing)]),
        *([] if boards is None else [boards_routes.router(boards)]),
        *([] if importer is None else [imports.router(importer)]),
    ]  # fmt: skip
    for routes in native:
        app.include_router(routes, prefix=API, dependencies=[Depends(refuse_unknown)])
    if boards is not None:
        app.include_router(links.router(boards, runner, catalogue, news))
    app.include_router(edr_router(runner, catalogue, collections))

    looked = ServerHealth(runner, catalogue.archive, standing, known.store, collections.trouble, monitoring)
    app.include_router(health.router(looked, metrics))
    describe(app, catalogue)
    forgotten = find_undeclared(
        (method, str(route.path)) for route in iter_route_contexts(app.routes) for method in route.methods or ()
    )
    if forgotten:
        raise Undeclared(
            f"routes without a scope: {', '.join(forgotten)}; give each a row in queries/web/auth/scopes.py"
        )
    return app


def _prepare(newest: LatestValues) -> None:
    """Load the newest readings; errors are only logged, as readiness reports them."""
    try:
        newest.prepare()
    except Exception as error:  # noqa: BLE001 - libraries raise any error on a damaged file
        _LOG.warning("the newest readings could not be read before the first request: %s", " ".join(str(error).split()))
