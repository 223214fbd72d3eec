"""OpenAPI schemas of bodies and answers, beyond what the routes declare."""

import copy
from collections.abc import Callable, Iterable
from dataclasses import MISSING, fields
from typing import Any, Final

from fastapi import FastAPI

from hypergrid.core.flags import MEANINGS
from hypergrid.interpolation import METHODS
from hypergrid.perspective.functions.merges import MERGES
from hypergrid.perspective.functions.rows import AGGREGATES, CONVERTS
from hypergrid.perspective.spec.query_spec import CELL_KEYS, DIMENSIONS, GRID_KEYS, MAX_STEPS, SELECTABLE
from queries.standing.conditions import KINDS
from queries.standing.definition import CHANNELS, WEIGHTS
from queries.web.auth.scopes import find_rule

Schema = dict[str, Any]

PROBLEM_TYPE: Final = "application/problem+json"
_TEXT: Final[Schema] = {"type": "string"}
_TEXT_OR_NULL: Final[Schema] = {"type": ["string", "null"]}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, required: list[str], *, more: bool = False) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": more}


def _step(operation: str, properties: Schema, required: list[str]) -> Schema:
    own = {"op": {"const": operation}, "params": {"type": ["object", "null"]}, **properties}
    return _object(own, ["op", *required])


_LEVEL: Final[Schema] = {"type": ["number", "string", "null"]}
_DURATION: Final[Schema] = {"type": "string", "examples": ["10min", "1h", "1day"]}
_JOB: Final[Schema] = {
    "id": _TEXT, "state": {"enum": ["queued", "running", "done", "failed", "cancelled"]}, "token": _TEXT,
    "snapshot": _TEXT, "query": {"type": "object"}, "created": _TEXT, "started": _TEXT_OR_NULL, "ended": _TEXT_OR_NULL,
    "fraction": {"type": "number", "minimum": 0, "maximum": 1}, "cells": _COUNT, "total": _COUNT,
    "seconds": {"type": "number", "minimum": 0},
    "value_range": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]},
    "kept": {"type": "boolean"}, "error": {"anyOf": [_ref("Problem"), {"type": "null"}]}, "links": {"type": "object"},
}  # fmt: skip
_PLAN: Final[Schema] = {
    "cells": _COUNT, "projected_bytes": _COUNT, "projected_seconds": {"type": "number", "minimum": 0},
    "explanation": _TEXT, "surface": {"type": "object", "required": ["kind", "variable", "units", "times"]},
}  # fmt: skip


def _condition(kind: type[Any]) -> Schema:
    """Make the schema of a condition from its fields; those in nanoseconds are durations."""
    own = {
        field.name.removesuffix("_ns"): _DURATION if field.name.endswith("_ns") else _LEVEL for field in fields(kind)
    }
    required = [field.name.removesuffix("_ns") for field in fields(kind) if field.default is MISSING]
    return _object({"kind": {"const": kind.kind}, **own}, ["kind", *required])


COMPONENTS: Final[dict[str, Schema]] = {
    "Problem": _object(
        {"type": _TEXT, "title": _TEXT, "status": {"type": "integer", "minimum": 400, "maximum": 599}, "detail": _TEXT},
        ["type", "title", "status", "detail"], more=True,
    ),
    "Query": _object(
        {
            "variable": _TEXT,
            "snapshot": {"type": ["string", "null"], "minLength": 1},
            "as_of": {"type": ["string", "null"], "examples": ["2007-10-01T06:00Z"]},
            "steps": {"type": "array", "maxItems": MAX_STEPS, "items": _ref("Step")},
            "clip": {
                "type": ["object", "null"], "additionalProperties": False,
                "properties": {name: {"type": "array", "minItems": 2, "maxItems": 2} for name in DIMENSIONS},
            },
            "accept_flags": {"type": "array", "minItems": 1, "items": {"enum": sorted(MEANINGS)}},
            "select": {
                "type": ["object", "null"], "additionalProperties": False,
                "properties": dict.fromkeys(SELECTABLE, {"type": ["string", "number", "null", "array"]}),
            },
            "variance": {"anyOf": [{"type": "boolean"}, _object({"correlation_time": _TEXT}, ["correlation_time"])]},
        },
        ["variable"],
    ),
    "Step": {
        "oneOf": [
            _step("convert", {"function": {"enum": sorted(CONVERTS)}}, ["function"]),
            _step(
                "aggregate", {"function": {"enum": sorted(AGGREGATES)}, **dict.fromkeys(CELL_KEYS, {})}, ["function"]
            ),
            _step(
                "interpolate",
                {
                    "method": {"type": "string", "examples": sorted(METHODS)},
                    "grid": {"type": ["object", "null"], "properties": dict.fromkeys(GRID_KEYS, {})},
                    "time": {}, "with": {"type": "array", "items": _ref("Query")},
                },
                ["method"],
            ),
            _step(
                "merge",
                {"function": {"enum": sorted(MERGES)}, "with": {"type": "array", "items": _ref("Query")}},
                ["function", "with"],
            ),
        ]
    },
    "StandingQuery": _object(
        {
            "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"},
            "query": _ref("Query"),
            "class": {"enum": sorted(WEIGHTS)},
            "weight": {"type": "number", "exclusiveMinimum": 0},
            "validity": _DURATION,
            "window": {"anyOf": [_DURATION, {"type": "null"}]},
            "condition": {"anyOf": [_ref("Condition"), {"type": "null"}]},
            "to": {"type": "array", "items": {"type": "string", "pattern": f"^({'|'.join(CHANNELS)})(:.*)?$"}},
        },
        ["name", "query"],
    ),
    "Condition": {"oneOf": [_condition(kind) for kind in KINDS.values()]},
    "Mute": {
        "oneOf": [
            _object({"until": {"type": ["string", "null"], "examples": ["2025-10-01T12:00Z"]}}, ["until"]),
            _object({"for": _DURATION}, ["for"]),
        ]
    },
    "Login": _object({"key": _TEXT}, ["key"]),
    "Job": _object({**_JOB, "plan": _object(_PLAN, sorted(_PLAN))}, sorted(_JOB)),
    "Plan": _object(_PLAN, sorted(_PLAN)),
    "Standing": {"type": "object", "required": ["name", "query", "class", "paused", "muted_until", "standing"]},
    "Alert": {"type": "object", "required": ["id", "number", "query", "happening", "at", "muted", "text"]},
}  # fmt: skip

# Common to all routes; the problem document has the details.
_PROBLEMS: Final = {
    "4XX": "What was asked cannot be answered, or not to this caller; the problem document says why",
    "5XX": "The server cannot answer now, or there is an error in it",
}


def body_of(name: str) -> Schema:
    """Declare a JSON request body of a component, for `openapi_extra`."""
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": _ref(name)}}}}


def answer_of(
    name: str, *, status: int = 200, listed: bool = False, links: Schema | None = None
) -> dict[int | str, Schema]:
    """Declare an answer of a component, or a list of it, for `responses`."""
    schema = {"type": "array", "items": _ref(name)} if listed else _ref(name)
    return {status: {"content": {"application/json": {"schema": schema}}, **({"links": links} if links else {})}}


def describe(app: FastAPI, variables: Callable[[], Iterable[str]]) -> None:
    """Complete an application's description: components, problems, and security schemes.

    Parameters
    ----------
    app
        The application, with all its routes.
    variables
        Returns the current variable names, as the values of `variable` in a query.
    """
    make_document = app.openapi
    known: tuple[str, ...] = ()

    def complete() -> Schema:
        nonlocal known
        names = tuple(sorted(variables()))
        # Regenerated when the archive gets a new variable.
        if app.openapi_schema is not None and names == known:
            return app.openapi_schema
        app.openapi_schema, known = None, names
        document = make_document()
        components = document.setdefault("components", {})
        # Copied, as the variable names are filled in below.
        components.setdefault("schemas", {}).update(copy.deepcopy(COMPONENTS))
        components["schemas"]["Query"]["properties"]["variable"] = {"type": "string", "enum": list(names)}
        for unused in ("HTTPValidationError", "ValidationError"):
            components["schemas"].pop(unused, None)
        components["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer", "description": "an access key"},
            "header": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            "session": {"type": "apiKey", "in": "cookie", "name": "hypergrid_session"},
        }
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                answers = operation["responses"]
                if find_rule(method.upper(), path).need != "open":
                    operation["security"] = [{"bearer": []}, {"header": []}, {"session": []}]
                # FastAPI adds its own form of 422, which problem documents replace.
                answers.pop("422", None)
                for status, what in _PROBLEMS.items():
                    content = {PROBLEM_TYPE: {"schema": _ref("Problem")}}
                    answers.setdefault(status, {"description": what, "content": content})
        return document

    app.openapi = complete  # type: ignore[method-assign]
