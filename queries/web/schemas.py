"""JSON of the API: answers made of the runner's records, and the OpenAPI schemas of bodies and answers."""

from __future__ import annotations

import copy
import json
from dataclasses import MISSING, asdict, fields
from typing import Any, Final, get_args

import numpy as np
from fastapi import FastAPI

from hypergrid.core.encoded_arrays import encode
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import MEANINGS
from hypergrid.core.importing import ImportState
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.publication import Publication
from hypergrid.core.result_names import by_role
from hypergrid.core.times import format_timestamp
from hypergrid.interpolation import METHODS, MODELS
from hypergrid.interpolation.validation.cross_validate import WAYS
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.rows import CONVERTS, MERGES
from hypergrid.perspective.spec.query_spec import CELL_KEYS, DIMENSIONS, GRID_KEYS, MAX_STEPS, SELECTABLE
from queries.boards import definition as boards
from queries.jobs.job_history import POST_AGAIN, JobRecord
from queries.jobs.records import Event, Job, Outline, SurfaceLayout, SurfacePicture, check_frame
from queries.snapshots.catalogue import Catalogue
from queries.standing.conditions import KINDS
from queries.standing.definition import CHANNELS, LONGEST_TITLE, WEIGHTS
from queries.standing.service import LONGEST_COMMENT
from queries.web.auth.scopes import API, find_rule
from queries.web.responses.problems import MEDIA_TYPE, problem_of, strip_paths


def job_body(job: Job, root: str = "") -> dict[str, Any]:
    """Convert a job to JSON: state, progress, interpreted query, and links below `root`."""
    url = f"{root}{API}/queries/{job.id}"
    return _describe_job(job) | {
        **_progress(job),
        "title": job.outline.layout.labels.title,
        "value_range": job.value_range,
        "notes": list(job.notes),
        "kept": job.kept,
        "error": problem_of(job.error, posted=True, is_answer=False) if job.error else None,
        "links": {
            "self": url,
            "events": f"{url}/events",
            "frame": f"{url}/frame",
            "series": f"{url}/series",
            "result": f"{url}/result",
        },
    }


def record_body(noted: JobRecord, root: str = "") -> dict[str, Any]:
    """Convert a job of an earlier process to the form of `job_body`."""
    url = f"{root}{API}/queries/{noted.id}"
    problem = {
        "type": "urn:hypergrid:problem:ended", "title": f"The query {noted.state}" if noted.state == "failed" else
        "The query was stopped", "status": 503 if noted.error.endswith(POST_AGAIN) else 500,
        "detail": strip_paths(noted.error),
    }  # fmt: skip
    return _describe_job(noted) | {
        "fraction": float(noted.state == "done"),
        "cells": noted.cells if noted.state == "done" else 0,
        "total": noted.cells,
        "seconds": 0.0,
        "title": "",
        "value_range": None,
        "notes": [],
        "kept": False,
        "error": problem if noted.error else None,
        "links": {"self": url, "events": f"{url}/events"},
    }


def _describe_job(job: Job | JobRecord) -> dict[str, Any]:
    return {
        "id": job.id,
        "state": job.state,
        "token": job.token,
        "snapshot": job.snapshot,
        "query": job.document,
        "created": format_time(job.created_ns),
        "started": format_time(job.started_ns),
        "ended": format_time(job.ended_ns),
    }


def plan_body(outline: Outline) -> dict[str, Any]:
    return {
        "cells": outline.cells,
        "projected_bytes": outline.projected_bytes,
        "projected_seconds": outline.projected_s,
        "explanation": outline.explanation,
        "surface": surface_body(outline.layout),
    }


def surface_body(layout: SurfaceLayout) -> dict[str, Any]:
    """Convert a layout to JSON: cell centres (z: levels [m]) and starts of time cells."""
    body: dict[str, Any] = {
        "kind": layout.kind,
        "variable": layout.variable,
        **asdict(layout.labels),
        "units": layout.units,
        "times": [format_timestamp(int(start)) for start in layout.times_ns],
    }
    if layout.names is not None:
        row, column = layout.names
        axis_units = "degree" if column == "lon" else "m"
        body |= {"dims": [row, column], "axis_units": axis_units, column: layout.x.tolist(), row: layout.y.tolist()}
    if layout.levels_m is not None:
        body["z"] = layout.levels_m.tolist()
    return body


def event_body(event: Event, root: str = "") -> dict[str, Any]:
    """Convert an event to JSON, with links below a proxy's prefix."""
    job = event.job
    match event.name:
        case "plan":
            return plan_body(job.outline) | {"id": job.id, "state": job.state}
        case "progress":
            return _progress(job)
        case "error":
            return problem_of(job.error or RuntimeError("unknown"), posted=True, is_answer=False)
        case _:
            return job_body(job, root)


def picture_body(picture: SurfacePicture) -> dict[str, Any]:
    """Convert one time cell of a map to JSON.

    Arrays are base64 of little-endian values, rows from the first lat (or y).
    """
    return {
        **surface_body(picture.layout),
        **_frame_head(picture),
        "values": encode(picture.values, "<f8"),
        "computed": encode(picture.computed, "u1"),
        "estimate": encode(picture.estimate, "<f8"),
    }


def picture_bytes(picture: SurfacePicture) -> bytes:
    """Convert one time cell of a map to bytes, for a reader that knows the surface.

    First the length of a JSON object as 8 bytes, then the object, padded so that arrays begin at a multiple of 8 bytes:
    the estimates, which are the values where a cell is computed, as float64; and a byte for each cell, 1 where it is
    computed. Numbers are little-endian, rows begin with the first lat (or y).
    """
    # In JSON, with all coordinates and times, 40,000 cells take 40 ms to encode and compress; this takes 1 ms.
    head = json.dumps(_frame_head(picture)).encode()
    head = head.ljust(-(-len(head) // 8) * 8)
    estimate, computed = picture.estimate.astype("<f8"), picture.computed.astype("u1")
    return b"".join((len(head).to_bytes(8, "little"), head, estimate.tobytes(), computed.tobytes()))


def _frame_head(picture: SurfacePicture) -> dict[str, Any]:
    layout, levels_m = picture.layout, picture.layout.levels_m
    head = {} if levels_m is None else {"level": picture.level, "level_m": float(levels_m[picture.level])}
    return head | {
        "shape": list(picture.values.shape),
        "time_index": picture.time_index,
        "time": format_timestamp(int(layout.times_ns[picture.time_index])),
        "fraction": picture.fraction,
        # JSON has no NaN.
        "error": picture.error if np.isfinite(picture.error) else None,
    }


def cell_body(layout: SurfaceLayout, dataset: xr.Dataset, row: int, column: int, level: int) -> dict[str, Any]:
    """Convert one cell of a finished map over time to JSON.

    Arrays are base64 of little-endian float64, shape (times,).

    Raises
    ------
    InvalidQuery, NotFound
        The surface has no map; it has no such cell, or level.
    """
    check_frame(layout, 0, level)
    dataset, rows, columns = by_role(dataset), len(layout.y), len(layout.x)
    if row >= rows or column >= columns:
        raise NotFound(f"the map has {rows} rows and {columns} columns, counted from 0; got row {row}, column {column}")
    at = (slice(None), row, column) if layout.levels_m is None else (slice(None), level, row, column)
    variance = dataset["variance"].to_numpy()[at] if "variance" in dataset else None
    return {
        "variable": layout.variable,
        "units": layout.units,
        "times": [format_timestamp(int(start)) for start in layout.times_ns],
        "place": {
            name: float(centres[i])
            for name, centres, i in zip(layout.names or (), (layout.y, layout.x), (row, column), strict=True)
        },
        "values": encode(dataset["value"].to_numpy()[at], "<f8"),
        "variance": None if variance is None else encode(variance, "<f8"),
    }


def _progress(job: Job) -> dict[str, Any]:
    progress = job.progress
    return {
        "fraction": progress.fraction,
        "cells": progress.cells,
        "total": progress.total or job.outline.cells,
        "seconds": round(progress.seconds, 3),
    }


def format_time(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_timestamp(time_ns)


Schema = dict[str, Any]

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
_CQL: Final[Schema] = {"type": "string", "minLength": 1, "examples": ["Select Count(*) From readings [Range 1 Hour]"]}
_JOB: Final[Schema] = {
    "id": _TEXT, "state": {"enum": ["queued", "running", "done", "failed", "cancelled"]}, "token": _TEXT,
    "snapshot": _TEXT, "query": {"type": "object"}, "created": _TEXT, "started": _TEXT_OR_NULL, "ended": _TEXT_OR_NULL,
    "fraction": {"type": "number", "minimum": 0, "maximum": 1}, "cells": _COUNT, "total": _COUNT,
    "seconds": {"type": "number", "minimum": 0}, "title": _TEXT,
    "value_range": {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]},
    "notes": {"type": "array", "items": _TEXT}, "kept": {"type": "boolean"},
    "error": {"anyOf": [_ref("Problem"), {"type": "null"}]}, "links": {"type": "object"},
}  # fmt: skip
_PLAN: Final[Schema] = {
    "cells": _COUNT, "projected_bytes": _COUNT, "projected_seconds": {"type": "number", "minimum": 0},
    "explanation": _TEXT,
    "surface": {
        "type": "object",
        "required": ["kind", "variable", "long_name", "title", "source", "units", "times"],
    },
}  # fmt: skip


_NUMBER: Final[Schema] = {"type": "number"}
_NUMBERS: Final[Schema] = {"type": "array", "items": _NUMBER}
_ARRAY: Final[Schema] = {
    "type": "object", "required": ["shape", "float64"],
    "properties": {"shape": {"type": "array", "items": _COUNT}, "float64": _TEXT},
}  # fmt: skip


def _condition(kind: type[Any]) -> Schema:
    """Make the schema of a condition from its fields; those in nanoseconds are durations."""
    own = {
        field.name.removesuffix("_ns"): _DURATION if field.name.endswith("_ns") else _LEVEL for field in fields(kind)
    }
    required = [field.name.removesuffix("_ns") for field in fields(kind) if field.default is MISSING]
    return _object({"kind": {"const": kind.kind}, **own}, ["kind", *required])


_TITLE: Final[Schema] = {"type": "string", "maxLength": boards.LONGEST_TITLE}
_NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": boards.LONGEST_TITLE}
_BOARD: Final[Schema] = {
    "name": {"type": "string", "pattern": boards.NAME_PATTERN},
    "title": _TITLE | {"minLength": 1},
    "panels": {"type": "array", "maxItems": boards.MAX_PANELS, "items": _ref("Panel")},
}
_VERSION: Final[Schema] = {"type": "integer", "minimum": 1}
_ADDRESS: Final[Schema] = {
    "type": "string", "minLength": 1, "maxLength": boards.LONGEST_ADDRESS, "examples": ["boards?board=frost"],
}  # fmt: skip


def _panel(kind: boards.PanelKind, properties: Schema, required: list[str]) -> Schema:
    common: Schema = {
        "id": {"type": "string", "pattern": boards.ID_PATTERN}, "kind": {"const": kind}, "title": _TITLE,
        "columns": {"enum": list(boards.COLUMNS)}, "last": {"anyOf": [_DURATION, {"type": "null"}]},
    }  # fmt: skip
    return _object(common | properties, ["kind", *required], more=True)


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
            "title": {"type": "string", "maxLength": LONGEST_TITLE},
            "query": {"anyOf": [_ref("Query"), _object({"continuous": _TEXT}, ["continuous"])]},
            "class": {"enum": sorted(WEIGHTS)},
            "weight": {"type": "number", "exclusiveMinimum": 0},
            "validity": _DURATION,
            "window": {"anyOf": [_DURATION, {"type": "null"}]},
            "condition": {"anyOf": [_ref("Condition"), {"type": "null"}]},
            "to": {"type": "array", "items": {"type": "string", "pattern": f"^({'|'.join(CHANNELS)})(:.*)?$"}},
        },
        # Without a name it is made of the title.
        ["query"],
    ),
    "Condition": {"oneOf": [_condition(kind) for kind in KINDS.values()]},
    "Mute": {
        "oneOf": [
            _object({"until": {"type": ["string", "null"], "examples": ["2025-10-01T12:00Z"]}}, ["until"]),
            _object({"for": _DURATION}, ["for"]),
        ]
    },
    "Remark": _object({"comment": {"type": "string", "maxLength": LONGEST_COMMENT}}, []),
    "Login": _object({"key": _TEXT}, ["key"]),
    "Job": _object({**_JOB, "plan": _object(_PLAN, sorted(_PLAN))}, sorted(_JOB)),
    "Plan": _object(_PLAN, sorted(_PLAN)),
    "CrossValidationRequest": _object(
        {
            "query": _ref("Query"),
            "method": {"type": "string", "examples": sorted(METHODS)},
            "by": {"enum": list(WAYS)},
            "parameters": {"type": ["object", "null"]},
            "model": {"enum": list(MODELS)},
        },
        ["query", "method"],
    ),
    "CrossValidation": _object(
        {
            "method": _TEXT, "parameters": {"type": "array", "items": {"type": "object"}}, "by": {"enum": list(WAYS)},
            "in_closed_form": {"type": "boolean"}, "unit": _TEXT, "names": {"type": "array", "items": _TEXT},
            "not_used": {"type": "array", "items": _TEXT}, "score": {"type": "object"},
            **dict.fromkeys(("stations", "bands"), {"type": "array", "items": {"type": "object"}}),
            **dict.fromkeys(("arrays", "covariates"), {"type": "object", "additionalProperties": _ARRAY}),
        },
        ["method", "by", "unit", "names", "score", "stations", "bands", "arrays"],
    ),
    "Ground": _object(
        {
            **dict.fromkeys(("layer", "unit", "shade"), {"type": ["string", "null"]}),
            "shape": {"type": ["array", "null"], "items": {"type": "integer"}, "minItems": 2, "maxItems": 2},
            "interval": {"type": ["number", "null"]},
            "contours": {
                "type": "array",
                "items": _object({"level": _NUMBER, **dict.fromkeys("xy", _NUMBERS)}, ["level", "x", "y"]),
            },
        },
        ["layer", "unit", "shape", "shade", "interval", "contours"],
    ),
    "Panel": {
        "oneOf": [
            _panel("picture", {"query": _ref("Query"), "view": {"type": "object"}}, ["query"]),
            _panel("series", {"station": _NAME, "variable": _NAME}, ["station", "variable"]),
            _panel(
                "number", {"query": _ref("Query"), "station": _NAME, "variable": _NAME,
                           "reduce": {"enum": list(boards.REDUCTIONS)}}, [],
            ),
        ]
    },
    "NewBoard": _object(_BOARD, ["title"]),
    "ChangedBoard": _object(_BOARD | {"version": _VERSION, "changed": _TEXT}, ["title", "version", "panels"]),
    "Board": _object(
        _BOARD | {"version": _VERSION, "changed": _TEXT}, ["name", "title", "version", "changed", "panels"]
    ),
    "NewLink": _object({"address": _ADDRESS, "title": _TITLE}, ["address"]),
    "Link": _object(
        {"name": _TEXT, "address": _TEXT, "title": _TEXT, "created": _TEXT}, ["name", "address", "title", "created"]
    ),
    "News": _object(
        {
            "id": _TEXT, "time": _TEXT, "changed": {"anyOf": [{"type": "array", "items": _TEXT}, {"type": "null"}]},
            **dict.fromkeys(("newest", "ends"), {"type": "object", "additionalProperties": _TEXT}),
        },
        ["id", "time", "changed", "newest", "ends"],
    ),  # fmt: skip
    "ContinuousQuery": _object({"text": _CQL}, ["text"]),
    "BacktestRequest": _object(
        {
            "text": _CQL, "order": {"enum": ["time", "arrival"]},
            **dict.fromkeys(("from", "to"), _TEXT_OR_NULL | {"examples": ["2007-10-01T00:00Z"]}),
        },
        ["text"],
    ),
    "NewKeptQuery": _object(
        {
            "name": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,62}$"}, "text": _CQL,
            "start": _TEXT_OR_NULL | {"examples": ["2007-10-01T00:00Z"]}, "idle": _DURATION, "disorder": _DURATION,
            "keep": _DURATION,
            "alert": {
                "anyOf": [
                    _object(
                        {"to": {"type": "array", "items": _TEXT}, "quiet": _DURATION,
                         "title": {"type": "string", "maxLength": LONGEST_TITLE}},
                        [],
                    ),
                    {"type": "null"},
                ]
            },
        },
        ["name", "text"],
    ),
    "ResultRetention": _object({"keep": _DURATION | {"examples": ["90days", "always"]}}, ["keep"]),
    "KeptQuery": _object(
        {
            **dict.fromkeys(("name", "text", "start", "error"), _TEXT), "late_windows": _COUNT,
            "keep_s": {"type": ["number", "null"]}, "too_late_windows": _COUNT,
            **dict.fromkeys(("snapshot", "heartbeat", "kept_from"), _TEXT_OR_NULL), "complete": {"type": "boolean"},
            "result": {"enum": ["stream", "relation", None]},
            **dict.fromkeys(("columns", "keys"), {"type": ["array", "null"]}),
            "alerts": {"type": "array", "items": _ref("Standing")},
        },
        ["name", "text", "start", "snapshot", "heartbeat", "complete", "late_windows", "keep_s", "kept_from",
         "too_late_windows", "error", "result", "columns", "keys", "alerts"],
    ),
    "ContinuousCatalogue": _object(
        {
            **dict.fromkeys(
                ("sources", "functions", "examples", "forms"), {"type": "array", "items": {"type": "object"}}
            ),
            **dict.fromkeys(("keywords", "window_keywords", "time_units"), {"type": "array", "items": _TEXT}),
        },
        ["sources", "functions", "keywords", "window_keywords", "time_units", "examples", "forms"],
    ),
    "ContinuousExplanation": _object(
        {
            "text": _TEXT, "result": {"enum": ["stream", "relation"]}, "emit": {"enum": ["final", "now"]},
            "columns": {"type": "array", "items": {"type": "object"}}, "keys": {"type": "array", "items": _COUNT},
            **dict.fromkeys(("defaults", "warnings", "rewrites"), {"type": "array", "items": _TEXT}),
            "windows": {"type": "array", "items": {"type": "object", "required": ["window", "interval"]}},
            "plan": {"type": "object", "required": ["nodes", "edges"]}, "projected_bytes": _COUNT,
            "unlimited": {"type": "boolean"}, "explanation": _TEXT,
        },
        ["text", "result", "emit", "columns", "keys", "defaults", "warnings", "rewrites", "windows", "plan",
         "projected_bytes", "unlimited", "explanation"],
    ),
    "Backtest": {
        "type": "object", "required": ["id", "state", "text", "from", "to", "order", "result", "fraction", "rows",
                                       "error", "links"],
    },
    "Standing": {"type": "object", "required": ["name", "query", "class", "paused", "muted_until", "standing"]},
    "Import": {
        "type": "object",
        "required": ["id", "owner", "created", "state", "files", "described", "runs", "report", "error"],
        "properties": {"state": {"enum": list(get_args(ImportState))}},
    },
    "ImportProposal": {
        "type": "object",
        "required": ["document", "feeds", "stations", "variables", "units", "unreadable", "questions", "ignored"],
    },
    "Deployment": {"type": "object", "required": ["network", "feed"]},
    "Alert": {"type": "object", "required": ["id", "number", "query", "happening", "at", "muted", "text"]},
    "StandingPreview": _object(
        {
            **dict.fromkeys(("start", "stop", "snapshot", "rule", "unit"), _TEXT),
            **dict.fromkeys(("level", "clear"), {"type": ["number", "null"]}),
            **dict.fromkeys(("places", "raised"), _COUNT),
            "alerts": {"type": "array", "items": {"type": "object", "required": ["happening", "place", "text"]}},
            "series": {
                "type": ["object", "null"], "required": ["places", "times", "values"],
                "properties": {
                    "places": {"type": "array", "items": _TEXT}, "times": {"type": "array", "items": _TEXT},
                    "values": _ARRAY,
                },
            },
            "recent": {
                "type": ["object", "null"],
                "properties": dict.fromkeys(("low", "middle", "high", "fall", "rise"), {"type": ["number", "null"]}),
            },
            "notes": {"type": "array", "items": _TEXT},
        },
        ["start", "stop", "snapshot", "rule", "unit", "places", "raised", "alerts", "series", "recent", "notes"],
    ),
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


def describe(app: FastAPI, catalogue: Catalogue) -> None:
    """Complete an application's description: components, problems, and security schemes.

    Parameters
    ----------
    app
        The application, with all its routes.
    catalogue
        Gives the current variable names, as the values of `variable` in a query, and the publication.
    """
    make_document = app.openapi
    known: tuple[tuple[str, ...], Publication] | None = None

    def complete() -> Schema:
        nonlocal known
        names, publication = tuple(sorted(catalogue.archive.latest().variables)), catalogue.publication
        # Regenerated when the archive gets a new variable, or another publication.
        if app.openapi_schema is not None and (names, publication) == known:
            return app.openapi_schema
        app.openapi_schema, known = None, (names, publication)
        document = make_document()
        document["info"] |= publication.to_openapi()
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
                    content = {MEDIA_TYPE: {"schema": _ref("Problem")}}
                    answers.setdefault(status, {"description": what, "content": content})
        return document

    app.openapi = complete  # type: ignore[method-assign]
