"""`queries/{id}/frame`, `/series`, `/result`, …: the surface in its current and final state, and a second opinion."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

from hypergrid.core.encoded_arrays import encode
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.result_names import value_of
from hypergrid.execution import Part
from hypergrid.execution.results.second_opinion import MAX_CELLS
from hypergrid.formats.results import FORMATS, zarr_files
from hypergrid.plots.labels import place_names
from queries.jobs.runner import Runner
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.files import PARTS, RESULT_MEDIA, part_response, surface_response
from queries.web.responses.negotiation import form_of
from queries.web.schemas import cell_body, picture_body, picture_bytes, surface_body

KEPT_BYTES: Final = 256 << 20
"""Size limit of the cached Zarr stores [bytes]."""
OPINIONS_AT_ONCE: Final = 4
"""Second opinions computed concurrently."""
LINEAGE_READINGS: Final = 500_000
"""Maximum readings in the time of a cell whose lineage is asked for."""
LISTED_READINGS: Final = 10_000
"""Maximum readings listed in an answer."""
FrameForm = Literal["json", "binary"]
FRAME: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "content": {
            "application/json": {"schema": {"type": "object"}},
            "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        }
    }
}


class CellOfResult(BaseModel, frozen=True):
    """Coordinates that lie in the wanted cell."""

    time: Annotated[str | None, Field(description="an instant, or the number of a periodic cell")] = None
    lat: float | None = None
    lon: float | None = None
    y: float | None = None
    x: float | None = None
    z: float | None = None
    station: Annotated[str | None, Field(description="of a table of stations")] = None
    zone: Annotated[str | None, Field(description="of means over zones")] = None
    series: Annotated[int | None, Field(ge=0, description="of series, from 0, where stations have several")] = None
    point: Annotated[int | None, Field(ge=0, description="of points, from 0")] = None
    limit: Annotated[int, Field(ge=0, le=LISTED_READINGS, description="readings that are listed")] = 100

    def coordinates(self) -> dict[str, object]:
        """Return the given ones by name."""
        return self.model_dump(exclude_none=True, exclude={"limit"})


def router(runner: Runner) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["results"])
    kept: LruCache[tuple[str, str], Mapping[str, bytes]] = LruCache(KEPT_BYTES)
    # They compute in turns of the block queue; this bounds the threads that wait.
    few = anyio.CapacityLimiter(OPINIONS_AT_ONCE)

    @routes.get("/queries/{job_id}/frame", response_model=None, responses=FRAME)
    def frame(
        job_id: str,
        time: Annotated[int, Query(description="which time cell, from 0")] = 0,
        level: Annotated[int, Query(description="which level of a grid with z, from 0, the lowest")] = 0,
        part: Annotated[Part, Query(description="the values, or their variance")] = "value",
        f: Annotated[FrameForm, Query(description="json, or binary: a short JSON object, then the arrays")] = "json",
    ) -> dict[str, Any] | Response:
        """Return one time cell of the map as it stands now, with an estimate where it is not computed yet.

        As "binary": the length of a JSON object as 8 bytes; the object, padded to a multiple of 8 bytes; the estimate
        of each cell, its value where it is computed, as float64; a byte for each cell, 1 where it is computed. Numbers
        are little-endian.
        """
        picture = runner.picture(job_id, time, level, part)
        if f == "json":
            return picture_body(picture)
        return Response(picture_bytes(picture), media_type="application/octet-stream")

    @routes.get("/queries/{job_id}/series")
    def series(job_id: str) -> dict[str, Any]:
        """Return the finished table of a query without a map: shape (time, series), base64 of little-endian float64."""
        dataset = runner.result(job_id)
        layout = runner.job(job_id).outline.layout
        if layout.kind != "series":
            raise InvalidQuery("this query answers with a map, not with series; ask for its frames instead")
        values = value_of(dataset).to_numpy().reshape(len(layout.times_ns), -1)
        return surface_body(layout) | {
            "shape": list(values.shape),
            "stations": place_names(dataset),
            "values": encode(values.astype(np.float64), "<f8"),
        }

    @routes.get("/queries/{job_id}/cell")
    def cell(
        job_id: str,
        row: Annotated[int, Query(ge=0, description="row of the cell, from the first lat (or y)")],
        column: Annotated[int, Query(ge=0, description="column of the cell, from the first lon (or x)")],
        level: Annotated[int, Query(ge=0, description="which level, from 0, the lowest")] = 0,
    ) -> dict[str, Any]:
        """Return one cell of a finished map over time: values, and their variance where it was asked for."""
        return cell_body(runner.job(job_id).outline.layout, runner.result(job_id), row, column, level)

    @routes.get("/queries/{job_id}/second-opinion")
    async def opinion(
        job_id: str,
        cells: Annotated[int, Query(ge=1, le=MAX_CELLS, description="how many random cells it recomputes")] = 50,
    ) -> dict[str, Any]:
        """Compare random cells of a finished surface with PyKrige's kriging of the same values and variogram."""
        ask = partial(runner.second_opinion, job_id, cells=cells)
        return (await to_thread.run_sync(ask, limiter=few)).to_json()

    @routes.get("/queries/{job_id}/lineage")
    async def lineage(
        job_id: str,
        cell: Annotated[CellOfResult, Query()],
    ) -> dict[str, Any]:
        """Return which readings made a cell of a finished surface, and what changed since.

        The cell is the one that holds the coordinates given; dimensions of a single cell may be absent.
        """
        find = partial(runner.lineage, job_id, cell.coordinates(), max_readings=LINEAGE_READINGS)
        return (await to_thread.run_sync(find, limiter=few)).to_json(limit=cell.limit)

    @routes.get("/queries/{job_id}/result", response_class=Response, responses=PARTS)
    def result(
        request: Request,
        job_id: str,
        f: Annotated[str | None, Query(description=f"{', '.join(FORMATS)}; where absent by Accept, or netcdf")] = None,
        time: Annotated[int, Query(description="which time cell a PNG shows of a map, from 0")] = 0,
        level: Annotated[int, Query(description="which level it shows, from 0, the lowest")] = 0,
        is_partial: Annotated[  # noqa: FBT002
            bool, Query(alias="partial", description="the surface as computed so far, if it is not finished")
        ] = False,
    ) -> Response:
        """Download the finished surface, or a part of the file (Range); with If-None-Match only where it is another."""
        form, job = FORMATS[form_of(request, RESULT_MEDIA, f)].name, runner.job(job_id)
        if is_partial and not job.has_ended:
            dataset = runner.result(job_id, is_partial=True)
            return surface_response(dataset, form, headers={"Cache-Control": "no-store"}, time=time, level=level)
        tag = entity_tag(job.token, job.snapshot, form, time, level)
        same = not_modified_response(request, tag) if job.state == "done" else None
        return same or surface_response(
            runner.result(job_id), form, headers=etag_headers(tag), asked=request, time=time, level=level
        )

    @routes.get("/queries/{job_id}/zarr/{path:path}", response_class=Response, responses=PARTS)
    def file(request: Request, job_id: str, path: str) -> Response:
        """Return a file of the Zarr store of a finished result; without a path, the names of all."""
        job = runner.job(job_id)
        tag = entity_tag(job.token, job.snapshot, "zarr", path)
        same = not_modified_response(request, tag) if job.state == "done" else None
        if same is not None:
            return same
        key = (job.token, job.snapshot)
        files = kept.peek(key)
        if files is None:
            files = zarr_files(runner.result(job_id))
            kept.put(key, files, sum(map(len, files.values())))
        if not path:
            return JSONResponse(sorted(files), headers=etag_headers(tag))
        if path not in files:
            raise NotFound(f"the Zarr store of query {job_id} has no file {path[:200]!r}; zarr.json lists its arrays")
        kind = "application/json" if path.endswith("zarr.json") else "application/octet-stream"
        return part_response(files[path], media_type=kind, headers=etag_headers(tag), asked=request)

    return routes
