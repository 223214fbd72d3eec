"""JSON bodies of the API, from the records of the job runner."""

import base64
from typing import Any, Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.errors import NotFound
from hypergrid.core.times import format_timestamp
from queries.jobs.job_history import POST_AGAIN, JobRecord
from queries.jobs.layout import SurfaceLayout, SurfacePicture, check_frame
from queries.jobs.records import Job
from queries.jobs.run import Event
from queries.web.responses.problems import problem_of, strip_paths

PREFIX: Final = "/api/v1"


def job_body(job: Job, root: str = "") -> dict[str, Any]:
    """Convert a job to JSON: state, progress, interpreted query, and links below `root`."""
    url = f"{root}{PREFIX}/queries/{job.id}"
    return {
        "id": job.id,
        "state": job.state,
        "token": job.token,
        "snapshot": job.snapshot,
        "query": job.document,
        "created": _instant(job.created_ns),
        "started": _instant(job.started_ns),
        "ended": _instant(job.ended_ns),
        **_progress(job),
        "value_range": job.value_range,
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
    url = f"{root}{PREFIX}/queries/{noted.id}"
    problem = {
        "type": "urn:hypergrid:problem:ended", "title": f"The query {noted.state}" if noted.state == "failed" else
        "The query was stopped", "status": 503 if noted.error.endswith(POST_AGAIN) else 500,
        "detail": strip_paths(noted.error),
    }  # fmt: skip
    return {
        "id": noted.id,
        "state": noted.state,
        "token": noted.token,
        "snapshot": noted.snapshot,
        "query": noted.document,
        "created": _instant(noted.created_ns),
        "started": _instant(noted.started_ns),
        "ended": _instant(noted.ended_ns),
        "fraction": float(noted.state == "done"),
        "cells": noted.cells if noted.state == "done" else 0,
        "total": noted.cells,
        "seconds": 0.0,
        "value_range": None,
        "kept": False,
        "error": problem if noted.error else None,
        "links": {"self": url, "events": f"{url}/events"},
    }


def plan_body(job: Job) -> dict[str, Any]:
    """Convert a plan to JSON, with the layout of its surface."""
    return {
        "cells": job.outline.cells,
        "projected_bytes": job.outline.projected_bytes,
        "projected_seconds": job.outline.projected_s,
        "explanation": job.outline.explanation,
        "surface": surface_body(job.outline.layout),
    }


def surface_body(layout: SurfaceLayout) -> dict[str, Any]:
    """Convert a layout to JSON: cell centres (z: levels [m]) and starts of time cells."""
    body: dict[str, Any] = {
        "kind": layout.kind,
        "variable": layout.variable,
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
            return plan_body(job) | {"id": job.id, "state": job.state}
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
    body = surface_body(picture.layout)
    if picture.layout.levels_m is not None:
        body |= {"level": picture.level, "level_m": float(picture.layout.levels_m[picture.level])}
    return body | {
        "shape": list(picture.values.shape),
        "time_index": picture.time_index,
        "time": format_timestamp(int(picture.layout.times_ns[picture.time_index])),
        "fraction": picture.fraction,
        # JSON has no NaN.
        "error": picture.error if np.isfinite(picture.error) else None,
        "values": encode(picture.values, "<f8"),
        "computed": encode(picture.computed, "u1"),
        "estimate": encode(picture.estimate, "<f8"),
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
    rows, columns = len(layout.y), len(layout.x)
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


def encode(array: NDArray[np.generic], dtype: str) -> str:
    """Encode an array in row-major order, as base64 of `dtype`."""
    return base64.b64encode(np.ascontiguousarray(array, dtype).tobytes()).decode("ascii")


def _progress(job: Job) -> dict[str, Any]:
    progress = job.progress
    return {
        "fraction": progress.fraction,
        "cells": progress.cells,
        "total": progress.total or job.outline.cells,
        "seconds": round(progress.seconds, 3),
    }


def _instant(time_ns: int | None) -> str | None:
    return None if time_ns is None else format_timestamp(time_ns)
