"""`engine…`, `stations/health`, `stations/quality`, `rejects`: state of the engine, the stream and the network."""

import math
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.archive.arrays import stream_log
from hypergrid.core.times import SECOND_NS, format_timestamp, parse_instant
from hypergrid.execution.planning.explain import make_plan_graph
from hypergrid.execution.planning.plan import free_bytes
from hypergrid.execution.running.result_cache import RESULT_CACHE
from hypergrid.interpolation.weight_cache import WEIGHTS
from hypergrid.query import OpenArchive
from queries.jobs.runner import Runner
from queries.snapshots.latest import LatestValues
from queries.snapshots.station_health import (
    MOST_DAYS,
    HealthAssessor,
    SnapshotCache,
    assess_quality,
    reject_kinds,
    rejects_csv,
)
from queries.web.responses.bodies import read_document
from queries.web.responses.negotiation import form_of
from queries.web.schemas import body_of, format_time

_STARTED_S: Final = time.monotonic()
_SILENT_S: Final = 60
"""A running stream writes several records within this time [s]."""


def router(runner: Runner, archive: OpenArchive, newest: LatestValues) -> APIRouter:
    """Create the routes of the engine, the stream and the stations' health."""
    routes = APIRouter(tags=["engine"])
    assessor = HealthAssessor(newest)
    health = SnapshotCache(archive, lambda opened, _asked: assessor.assess(opened))

    @routes.get("/engine")
    def engine() -> dict[str, Any]:
        """Return what the workers hold and did, what the caches hold, and what the process takes."""
        return {
            "queries": asdict(runner.statistics()),
            "caches": {"kriging weights": asdict(WEIGHTS.statistics()), "results": asdict(RESULT_CACHE.statistics())},
            "process": {
                "up_s": time.monotonic() - _STARTED_S,
                "resident_bytes": resident_bytes(),
                "cpu_s": sum(os.times()[:2]),
            },
            "memory": {"free_bytes": free_bytes(), "total_bytes": _total_memory_bytes()},
            "disk": _disk_space(archive.path),
        }

    @routes.post("/engine/plan", openapi_extra=body_of("Query"))
    async def plan(request: Request) -> dict[str, Any]:
        """Return the plan of a query as a graph: perspectives with their sources, costs and measured rates."""
        made = await run_in_threadpool(runner.plan, await read_document(request))
        return {
            "nodes": [asdict(node) for node in make_plan_graph(made)],
            "rules": [{"rule": fired.rule, "why": fired.why} for fired in made.rewritten.fired],
            "strategy": made.strategy.describe(),
            "cells": made.cells,
            "projected_bytes": made.projected_bytes,
            "projected_s": made.projected_s if math.isfinite(made.projected_s) else None,
        }

    @routes.get("/engine/stream")
    def stream(
        after: Annotated[str | None, Query(description="instant of the last one that is known already")] = None,
    ) -> dict[str, Any]:
        """Return how the stream of the archive stood every few seconds of about the last hour, and whether it runs.

        Tuples of its joins are rows, one of a station and a slice each.
        """
        records = stream_log.read_records(archive.store.path)
        since_ns = None if after is None else parse_instant(after)
        now_ns = time.time_ns()
        return {
            "state": _state(records[-1], now_ns) if records else "none",
            "now": format_timestamp(now_ns),
            "records": [
                {
                    **{name: value for name, value in record.items() if not name.endswith("_ns")},
                    **{name.removesuffix("_ns"): format_time(record.get(name)) for name in ("at_ns", "last_slice_ns")},
                }
                for record in records
                if since_ns is None or record["at_ns"] > since_ns
            ],
        }

    @routes.get("/stations/health")
    def stations_health() -> list[dict[str, Any]]:
        """Say of every station when it read last, how long it is silent as a rule, and whether it is late or dead.

        `last` is its newest value, `heard` its newest row: a station that sends only missing values is silent.
        """
        return [
            {
                "station": station_state.station,
                "state": station_state.state,
                "last": format_time(station_state.last_ns),
                "heard": format_time(station_state.heard_ns),
                "interval_s": None if station_state.interval_ns is None else station_state.interval_ns / 1e9,
                "readings": station_state.readings,
                "missing": station_state.missing,
                "flagged": station_state.flagged,
                "variables": station_state.variables,
            }
            for station_state in health.get_answer()
        ]

    return routes


def _state(last: stream_log.Record, now_ns: int) -> Literal["running", "ended", "lost"]:
    """Classify a stream: without recent records or an end record, it was killed."""
    if last.get("ended"):
        return "ended"
    # A killed stream leaves no end record, only old ones.
    return "running" if now_ns - last["at_ns"] < _SILENT_S * SECOND_NS else "lost"


def _total_memory_bytes() -> int | None:
    """Return the memory of this machine [bytes]; None if unavailable."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None


def _disk_space(folder: Path) -> dict[str, int] | None:
    """Return the free and the total space of a folder's disk [bytes]; None if unavailable."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return None
    return {"free_bytes": usage.free, "total_bytes": usage.total}


def resident_bytes() -> int | None:
    """Return the resident memory of this process [bytes]; None if unavailable."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def quality_router(archive: OpenArchive) -> APIRouter:
    """Create the routes of flags by test and of rejected rows."""
    routes = APIRouter(tags=["quality"])
    qualities = SnapshotCache(archive, lambda opened, days: assess_quality(opened.store, days))
    rejected = SnapshotCache(archive, lambda opened, _asked: opened.store.rejects())

    @routes.get("/stations/quality")
    def stations_quality(
        days: Annotated[
            int | None, Query(ge=1, le=MOST_DAYS, description="so many before each variable's newest reading; or all")
        ] = None,
    ) -> list[dict[str, Any]]:
        """Return, for every station and variable, how many readings have which flag, and which tests set how many."""
        return [asdict(row) for row in qualities.get_answer(days)]

    @routes.get("/rejects", response_model=None, responses={200: {"content": {"text/csv": {}}}})
    def rejects(
        request: Request,
        response: Response,
        f: Annotated[
            Literal["json", "csv"] | None,
            Query(description="kinds with examples, or a row each; where absent by Accept, or json"),
        ] = None,
    ) -> dict[str, Any] | Response:
        """Return what could not be read: reasons by kind with counts and examples, or every one of them as CSV."""
        rows = rejected.get_answer()
        if form_of(request, {"json": "application/json", "csv": "text/csv"}, f) == "csv":
            headers = {"Content-Disposition": 'attachment; filename="rejects.csv"', "Vary": "Accept"}
            return Response(rejects_csv(rows), media_type="text/csv", headers=headers)
        kinds = [
            {
                "kind": reject_kind.kind,
                "count": reject_kind.count,
                "files": len(reject_kind.files),
                "examples": [asdict(example) for example in reject_kind.examples],
            }
            for reject_kind in reject_kinds(rows)
        ]
        response.headers["Vary"] = "Accept"
        return {"count": len(rows), "kinds": kinds}

    return routes
