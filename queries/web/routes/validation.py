"""`queries/cross-validation`: cross-validation of a method on a query's station values."""

from functools import partial
from typing import Any, Final

import anyio
from anyio import to_thread
from fastapi import APIRouter, Request

from hypergrid.analysis.geostatistics import cross_validate
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.parameters import bind
from hypergrid.interpolation import METHODS, Variogram
from hypergrid.interpolation.methods.automatic import AUTO, MOST_STUDIED
from hypergrid.interpolation.methods.detrended import MAX_SLICES as COMPARED_SLICES
from hypergrid.interpolation.methods.detrended import PARTS as COMPARED_PARTS
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest
from hypergrid.interpolation.solvers.trend import trend_of
from hypergrid.interpolation.validation.cross_validate import PARTS, has_closed_form
from hypergrid.interpolation.validation.transfer import write_validation
from hypergrid.query import Query
from queries.jobs.admission import current_asker
from queries.jobs.runner import Runner
from queries.web.responses.bodies import read_document
from queries.web.schemas import answer_of, body_of

AT_ONCE: Final = 2
"""Cross-validations computed concurrently."""
MAX_S: Final = 120.0
"""Maximum projected time of one [s]."""
MAX_BYTES: Final = 64 << 20
"""Maximum size of the arrays of an answer [bytes]."""
BYTES_A_VALUE: Final = 32
"""Value, estimate and variance in base64 [bytes]."""
SLICE_S: Final = 1e-3
CUBE_S: Final = 1e-9
"""Measured times of a slice with gaps of its own, and for each of its stations cubed [s]."""
# Choices among two drifts took 0.10 s of the processor for 10 stations, 0.31 s for 30, 0.55 s for 60 and 0.69 s for
# 100; with elevations there are four.
CHOICE_S: Final = 0.2
CHOICE_STATION_S: Final = 0.015
"""Time of a choice by "auto", and for each of its stations [s]."""
FIT_S: Final = 0.02
"""Measured time of a fit of a variogram to a slice of 20 stations, and to many slices together [s]."""
TRENDS: Final = 3
"""Trends that "auto" compares."""
_NAMES: Final = {"method": "", "by": "station", "model": "exponential"}
"""Keys whose values are names, with their defaults."""


def router(runner: Runner) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["queries"])
    # Computed within the request, in turns of the block queue, as variograms are.
    few = anyio.CapacityLimiter(AT_ONCE)

    @routes.post(
        "/queries/cross-validation",
        openapi_extra=body_of("CrossValidationRequest"),
        responses=answer_of("CrossValidation"),
    )
    async def validate(request: Request) -> dict[str, Any]:
        """Leave out stations, regions or blocks of time of a query, and compare their values with estimates.

        Steps before the first interpolation over space count. Arrays are base64 of little-endian float64.
        """
        document = await read_document(request)
        return await to_thread.run_sync(partial(_validate, runner, document), limiter=few)

    return routes


def _validate(runner: Runner, document: dict[str, Any]) -> dict[str, Any]:
    NotFound.refuse_unknown("key of a cross-validation", document, ("query", "parameters", *_NAMES))
    asked, parameters = document.get("query"), document.get("parameters") or {}
    if not isinstance(asked, dict) or not isinstance(parameters, dict):
        raise InvalidQuery(
            "a cross-validation needs query, a query in its JSON form, and parameters, an object or nothing; got "
            f"{str(asked)[:80]!r} and {str(parameters)[:80]!r}"
        )
    method, by, model = (document.get(name, usual) for name, usual in _NAMES.items())
    for name, given in zip(_NAMES, (method, by, model), strict=True):
        if not isinstance(given, str):
            raise InvalidQuery(f"a cross-validation needs {name}, a name; got {str(given)[:80]!r}")
    query = runner.query_at_stations(asked)
    projected_s = project_s(query, method, parameters, by)
    allowed_s = min(MAX_S, current_asker().limits.seconds or MAX_S)
    if projected_s > allowed_s:
        remedy = "ask for a shorter time or fewer stations, or leave out by region"
        raise TooLarge("the cross-validation", "s", projected_s, allowed_s, remedy)
    topology = query.surface().perspective.topology
    if (projected := BYTES_A_VALUE * topology.space.count * topology.time.count) > MAX_BYTES:
        remedy = "ask for a shorter time, longer cells of time or fewer stations"
        raise TooLarge("the cross-validation", "bytes of its answer", projected, MAX_BYTES, remedy)
    with runner.turn():
        validation = cross_validate(query, method, by=by, parameters=parameters, model=model)
    return write_validation(validation)


def project_s(query: Query, method: str, parameters: dict[str, Any], by: str) -> float:
    """Project the longest time of a cross-validation [s]: a choice and a system a slice, for each part left out.

    Raises
    ------
    HyperGridError
        The method does not exist, or does not take the parameters.
    """
    perspective, row = query.surface().perspective, METHODS[method]
    stations, slices = perspective.topology.space.count, perspective.topology.time.count
    given = row.parse(bind(method, row.parameters, parameters, variable_unit=perspective.unit))
    # Blocks of time have a fitted variogram, whatever is given.
    fitted = {**given, "variogram": Variogram("nugget", 0.0, 1.0, 1.0)} if by == "time_block" else given
    is_closed = has_closed_form(method, fitted, stations)
    parts = 1 if is_closed else PARTS if by == "region" else stations
    if by == "time_block":
        parts *= PARTS
    choice_s = CHOICE_S + CHOICE_STATION_S * min(stations, MOST_STUDIED) if method == AUTO else 0.0
    trend = trend_of(given)
    compared = TRENDS * COMPARED_PARTS * min(slices, COMPARED_SLICES) if trend is not None and trend.is_chosen else 0
    request = fitted.get("variogram")
    fits = 0 if not isinstance(request, VariogramRequest) else slices if request.by == "slice" else 1
    return (choice_s + FIT_S * fits + (SLICE_S + CUBE_S * float(stations) ** 3) * (slices + compared)) * parts
