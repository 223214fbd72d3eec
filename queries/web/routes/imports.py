"""`imports`: files that are uploaded, described, and ingested by a process of their own."""

from typing import Any

import anyio
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.core.importing import ImportBusy, Importer
from queries.web.responses.addresses import announce_created, resolve_name
from queries.web.responses.bodies import media_type_of, read_body, read_document
from queries.web.responses.problems import NotJson
from queries.web.schemas import answer_of, body_of

TOML = "application/toml"
"""Media type of a deployment file."""
PROPOSALS = 1
"""Proposals that are made at a time; as many wait, and more are refused."""
_FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
_DESCRIPTION: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {**body_of("Deployment")["requestBody"]["content"], TOML: {"schema": {"type": "string"}}},
    }
}


def router(importer: Importer) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["imports"])
    # Threads of their own: a proposal takes up to a minute, and those that all routes share must not wait for it.
    proposing = anyio.CapacityLimiter(PROPOSALS)
    # Counted here: requests that come at once all find the queue of `proposing` empty, as they enter it a moment later.
    admitted = anyio.Semaphore(2 * PROPOSALS)

    def known(request: Request, name: str) -> str:
        """Check a name in the URL, recording it for the audit log."""
        with resolve_name(request, name):
            importer.show(name)
        return name

    @routes.get("/imports", responses=answer_of("Import", listed=True))
    def list_imports() -> list[dict[str, Any]]:
        """List the imports, newest first."""
        return importer.listing()

    @routes.post("/imports", status_code=201, responses=answer_of("Import", status=201))
    def create_import(request: Request, response: Response) -> dict[str, Any]:
        """Make an import, which has no files yet."""
        state = importer.create(request.state.caller.name)
        announce_created(request, response, f"imports/{state['id']}")
        return state

    @routes.get("/imports/{name}", responses=answer_of("Import"))
    def show_import(request: Request, name: str) -> dict[str, Any]:
        """Return an import: its files, how far it is, and the report of its last run, with examples of rejects."""
        return importer.show(known(request, name))

    @routes.delete("/imports/{name}", status_code=204)
    def remove_import(request: Request, name: str) -> None:
        """Remove an import and its files, and stop it where it runs; readings that are in the archive stay."""
        importer.remove(known(request, name))

    @routes.put("/imports/{name}/files/{file}", openapi_extra=_FILE)
    async def receive_file(request: Request, name: str, file: str) -> dict[str, Any]:
        """Take a file, as it is, in the place of one of the same name; answer under which name it is kept."""
        await run_in_threadpool(known, request, name)
        upload = importer.receive(name, file)
        received = await run_in_threadpool(upload.__enter__)
        try:
            async for block in request.stream():
                await run_in_threadpool(received.write, block)
        except BaseException as error:
            # An upload that stops half way, or is too large, leaves nothing.
            with anyio.CancelScope(shield=True):
                await run_in_threadpool(upload.__exit__, type(error), error, error.__traceback__)
            raise
        await run_in_threadpool(upload.__exit__, None, None, None)
        return {"name": received.name}

    @routes.delete("/imports/{name}/files/{file}", status_code=204)
    def remove_file(request: Request, name: str, file: str) -> None:
        """Remove a file of an import."""
        with resolve_name(request, name):
            importer.remove_file(name, file)

    @routes.get("/imports/{name}/proposal", responses=answer_of("ImportProposal"))
    async def propose(request: Request, name: str) -> dict[str, Any]:
        """Say how the files would be read and why, as a deployment with what has to be answered; nothing is kept."""
        await run_in_threadpool(known, request, name)
        try:
            admitted.acquire_nowait()
        except anyio.WouldBlock:
            raise ImportBusy(
                "files are being looked at, and another request waits for its turn; ask again in a minute"
            ) from None
        try:
            return await to_thread.run_sync(importer.propose, name, limiter=proposing)
        finally:
            admitted.release()

    @routes.get("/imports/{name}/deployment", response_class=Response)
    def description(request: Request, name: str) -> Response:
        """Return the deployment file."""
        with resolve_name(request, name):
            text = importer.description(name)
        headers = {"Content-Disposition": 'attachment; filename="deployment.toml"'}
        return Response(text, media_type=f"{TOML}; charset=utf-8", headers=headers)

    @routes.put("/imports/{name}/deployment", openapi_extra=_DESCRIPTION)
    async def describe(request: Request, name: str) -> Response:
        """Keep a deployment, as JSON or TOML; where it cannot be used, the problem has the `key` that is at fault."""
        await run_in_threadpool(known, request, name)
        kept = await run_in_threadpool(importer.describe, name, await _read_description(request))
        return Response(kept, media_type=f"{TOML}; charset=utf-8")

    @routes.post("/imports/{name}/run", status_code=202, responses=answer_of("Import", status=202))
    def run(request: Request, name: str) -> dict[str, Any]:
        """Ingest the files; run again, readings of before are replaced by those of the present deployment."""
        return importer.run(known(request, name))

    @routes.post("/imports/{name}/stop", responses=answer_of("Import"))
    def stop(request: Request, name: str) -> dict[str, Any]:
        """Stop an import that runs; what it has not committed is as if it had not been started."""
        importer.stop(known(request, name))
        return importer.show(name)

    return routes


async def _read_description(request: Request) -> dict[str, Any] | str:
    """Read a deployment in the body, as an object of JSON or as text of TOML.

    Raises
    ------
    NotJson, BodyTooLarge, InvalidBody, InvalidQuery
        As `read_document`; another media type than JSON and TOML.
    """
    if media_type_of(request) != TOML:
        return await read_document(request)
    body = await read_body(request, "a deployment", remedy="name a table of stations")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotJson(f"a deployment as {TOML} needs UTF-8: {error}") from error
