"""`engine`, `engine/plan` and `stations/health`: what the pages tell of the engine itself, and how the stations are."""

import math
import os
import time
from dataclasses import asdict
from typing import Any, Final

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from hypergrid.execution.kept import KEPT
from hypergrid.execution.plan_graph import plan_graph
from hypergrid.kriging.weights import WEIGHTS
from hypergrid.query import OpenArchive
from hypergrid.times import format_instant
from queries.scheduling.runner import Runner
from queries.station_health import Health
from queries.web.bodies import read_document
from queries.web.schemas import body_of

_BEGUN_S: Final = time.monotonic()


def router(runner: Runner, archive: OpenArchive) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["engine"])
    health = Health(archive)

    @routes.get("/engine")
    def engine() -> dict[str, Any]:
        """Return what the workers hold and did, what the caches hold, and what the process takes."""
        return {
            "queries": asdict(runner.statistics()),
            "caches": {"kriging weights": asdict(WEIGHTS.statistics()), "results": asdict(KEPT.statistics())},
            "process": {"up_s": time.monotonic() - _BEGUN_S, "resident_bytes": _resident_bytes(), "cpu_s": _cpu_s()},
        }

    @routes.post("/engine/plan", openapi_extra=body_of("Query"))
    async def plan(request: Request) -> dict[str, Any]:
        """Return the plan of a query as a graph: perspectives with their sources, costs and measured rates."""
        made = await run_in_threadpool(runner.plan, await read_document(request))
        return {
            "nodes": [asdict(node) for node in plan_graph(made)],
            "rules": [{"rule": fired.rule, "why": fired.why} for fired in made.rewritten.fired],
            "strategy": made.strategy.describe(),
            "cells": made.cells,
            "projected_bytes": made.projected_bytes,
            "projected_s": made.projected_s if math.isfinite(made.projected_s) else None,
        }

    @routes.get("/stations/health")
    def stations_health() -> list[dict[str, Any]]:
        """Say of every station when it read last, how long it is silent as a rule, and whether it is late or dead."""
        return [
            {
                "station": one.station,
                "state": one.state,
                "last": None if one.last_ns is None else format_instant(one.last_ns),
                "interval_s": None if one.interval_ns is None else one.interval_ns / 1e9,
                "readings": one.readings,
                "flagged": one.flagged,
                "variables": one.variables,
            }
            for one in health.now()
        ]

    return routes


def _resident_bytes() -> int | None:
    """Return the memory of this process [bytes]; None where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def _cpu_s() -> float:
    used = os.times()
    return used.user + used.system
