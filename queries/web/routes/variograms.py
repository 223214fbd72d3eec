"""`queries/variogram`: empirical variogram of a query's station values, and a fitted model."""

import json
import math
from collections.abc import Mapping
from typing import Annotated, Any, Final

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request
from numpy.typing import NDArray

from hypergrid.analysis.geostatistics import fit_variogram
from hypergrid.core.lru_cache import LruCache
from hypergrid.interpolation.variograms.models import MODELS
from hypergrid.interpolation.variograms.variogram import Variogram, parse_variogram
from queries.jobs.runner import Runner
from queries.web.responses.bodies import read_document
from queries.web.schemas import body_of

DEFAULT_MODEL: Final = "exponential"
LINE: Final = 101
"""Number of distances at which model curves are evaluated."""
AT_ONCE: Final = 4
"""Variograms fitted concurrently."""
KEPT_BYTES: Final = 4 << 20
"""Size limit of the cached answers [bytes]."""

VariogramBody = dict[str, Any]


def router(runner: Runner) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["queries"])
    # Values at stations are computed within the request, in turns of the block queue; this bounds those held in memory.
    few = anyio.CapacityLimiter(AT_ONCE)
    kept: LruCache[tuple[str, ...], VariogramBody] = LruCache(KEPT_BYTES)

    @routes.post("/queries/variogram", openapi_extra=body_of("Query"))
    async def variogram(
        request: Request,
        model: Annotated[str | None, Query(description="of the fit; absent: the query's, or " + DEFAULT_MODEL)] = None,
        cutoff_m: Annotated[
            float | None, Query(gt=0, le=1e8, description="greatest distance of pairs; a third of the extent if absent")
        ] = None,
        bins: Annotated[int, Query(ge=2, le=100, description="how many up to it")] = 15,
    ) -> dict[str, Any]:
        """Return the empirical variogram of a query's values at its stations, all slices together, and a fitted model.

        Steps before the first interpolation over space count; `given` is the variogram that this one names.
        """
        document = await read_document(request)

        def made() -> VariogramBody:
            query = runner.query_at_stations(document)
            given = find_given_variogram(document)
            wanted = model or (given.model if given and given.model != "nugget" else DEFAULT_MODEL)
            snapshot = str(query.to_json()["snapshot"])
            key = (query.token, snapshot, wanted, repr(cutoff_m), str(bins), repr(given))
            answer = kept.peek(key)
            if answer is None:
                with runner.turn():
                    fit = fit_variogram(query, model=wanted, cutoff_m=cutoff_m, bins=bins)
                near = fit.bins.cutoff_m * np.linspace(1e-6, 1.03, LINE)
                at = fit.bins.distance_m
                answer = {
                    "variable": query.question.variable,
                    "unit": query.surface().perspective.unit,
                    "snapshot": snapshot,
                    "cutoff_m": fit.bins.cutoff_m,
                    "bins": {
                        "distance_m": at.tolist(),
                        "semivariance": fit.bins.semivariance.tolist(),
                        "pairs": fit.bins.pairs.tolist(),
                    },
                    "line_m": near.tolist(),
                    "fitted": {
                        **_variogram_body(fit.variogram, at, near),
                        "weights": fit.weights,
                        "explained": fit.explained,
                        "reasons": list(fit.reasons),
                    },
                    "given": None if given is None else _variogram_body(given, at, near),
                    "models": list(MODELS),
                }
                kept.put(key, answer, len(json.dumps(answer)))
            return answer

        return await to_thread.run_sync(made, limiter=few)

    return routes


def find_given_variogram(document: Mapping[str, Any]) -> Variogram | None:
    """Return the variogram given in a query's first spatial interpolation; None if it is fitted."""
    steps = [step for step in document.get("steps") or [] if step.get("op") == "interpolate" and "time" not in step]
    named = (steps[0].get("params") or {}).get("variogram") if steps else None
    return parse_variogram(named) if isinstance(named, Mapping) else None


def _variogram_body(variogram: Variogram, bins_m: NDArray[np.float64], line_m: NDArray[np.float64]) -> VariogramBody:
    """Convert a variogram and its semivariances to JSON; infinite values become null."""
    sill, reach_m = variogram.sill, variogram.effective_range_m
    return {
        **variogram.to_json(),
        "sill": sill if math.isfinite(sill) else None,
        "effective_range_m": reach_m if math.isfinite(reach_m) else None,
        "at_bins": variogram.semivariance(bins_m).tolist(),
        "at_line": variogram.semivariance(line_m).tolist(),
    }
