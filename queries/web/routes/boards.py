"""`boards` and `links`: boards of pinned panels, and short links to the pages."""

import time
from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from queries.boards.definition import Board, address_from_json, board_from_json
from queries.boards.repository import BoardStore
from queries.web.responses.addresses import announce_created, resolve_name
from queries.web.responses.bodies import read_document
from queries.web.schemas import answer_of, body_of


def router(store: BoardStore, clock: Callable[[], int] = time.time_ns) -> APIRouter:
    """Create the routes of this module; `clock` returns the time [ns since 1970 UTC]."""
    routes = APIRouter(tags=["boards"])

    def find_board(request: Request, name: str) -> Board:
        with resolve_name(request, name):
            return store.board(name)

    @routes.get("/boards", responses=answer_of("Board", listed=True))
    def boards() -> list[dict[str, Any]]:
        """List the boards with their panels, by title."""
        return [board.to_json() for board in store.boards()]

    @routes.post(
        "/boards", status_code=201, openapi_extra=body_of("NewBoard"), responses=answer_of("Board", status=201)
    )
    async def add_board(request: Request, response: Response) -> dict[str, Any]:
        """Make a board; it is on the disk when this answers."""
        board = board_from_json(await read_document(request))
        # The audit log names a board that is refused, too.
        request.state.about = board.name
        stored = await run_in_threadpool(store.add_board, board, now_ns=clock())
        announce_created(request, response, f"boards/{stored.name}")
        return stored.to_json()

    @routes.get("/boards/{name}", responses=answer_of("Board"))
    def board(request: Request, name: str) -> dict[str, Any]:
        """Return a board."""
        return find_board(request, name).to_json()

    @routes.put("/boards/{name}", openapi_extra=body_of("ChangedBoard"), responses=answer_of("Board"))
    async def replace_board(request: Request, name: str) -> dict[str, Any]:
        """Have a board be what a document says, which names the version that it was made from (409 if it changed)."""
        document = await read_document(request)
        await run_in_threadpool(find_board, request, name)
        changed = board_from_json(document, name=name)
        return (await run_in_threadpool(store.replace_board, changed, now_ns=clock())).to_json()

    @routes.delete("/boards/{name}", status_code=204)
    def remove_board(request: Request, name: str) -> None:
        """Forget a board; links to it open nothing any more."""
        # Not read first: a damaged board can be removed.
        with resolve_name(request, name):
            store.remove_board(name)

    @routes.post("/links", status_code=201, openapi_extra=body_of("NewLink"), responses=answer_of("Link", status=201))
    async def add_link(request: Request, response: Response) -> dict[str, Any]:
        """Keep a page's address under a short name, which `/l/NAME` opens; one that is kept already keeps its name."""
        address, title = address_from_json(await read_document(request))
        link = await run_in_threadpool(store.add_link, address, title, now_ns=clock())
        announce_created(request, response, f"links/{link.name}")
        return link.to_json()

    @routes.get("/links/{name}", responses=answer_of("Link"))
    def link(request: Request, name: str) -> dict[str, Any]:
        """Return the address of a short link."""
        with resolve_name(request, name):
            return store.link(name).to_json()

    @routes.delete("/links/{name}", status_code=204)
    def remove_link(request: Request, name: str) -> None:
        """Forget a short link."""
        with resolve_name(request, name):
            store.remove_link(name)

    return routes
