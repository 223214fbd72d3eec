"""`queries/{id}/zarr/…`: a finished result as a Zarr v3 store that xarray can open over HTTP."""

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse

from hypergrid.core.errors import NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.formats.results import zarr_files
from queries.jobs.runner import Runner
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.files import PARTS, part_response

KEPT_BYTES: Final = 256 << 20
"""Size limit of the cached stores [bytes]."""


def router(runner: Runner) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["results"])
    kept: LruCache[tuple[str, str], Mapping[str, bytes]] = LruCache(KEPT_BYTES)

    def files_of(job_id: str) -> Mapping[str, bytes]:
        job = runner.job(job_id)
        key = (job.token, job.snapshot)
        files = kept.peek(key)
        if files is None:
            files = zarr_files(runner.result(job_id))
            kept.put(key, files, sum(map(len, files.values())))
        return files

    @routes.get("/queries/{job_id}/zarr/{path:path}", response_class=Response, responses=PARTS)
    def file(request: Request, job_id: str, path: str) -> Response:
        """Return a file of the Zarr store of a finished result; without a path, the names of all."""
        job = runner.job(job_id)
        tag = entity_tag(job.token, job.snapshot, "zarr", path)
        same = not_modified_response(request, tag) if job.state == "done" else None
        if same is not None:
            return same
        files = files_of(job_id)
        if not path:
            return JSONResponse(sorted(files), headers=etag_headers(tag))
        if path not in files:
            raise NotFound(f"the Zarr store of query {job_id} has no file {path[:200]!r}; zarr.json lists its arrays")
        kind = "application/json" if path.endswith("zarr.json") else "application/octet-stream"
        return part_response(files[path], media_type=kind, headers=etag_headers(tag), asked=request)

    return routes
