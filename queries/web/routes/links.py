"""`/l/NAME`, a card that opens the page of a short link; its picture; `/embed/NAME`, the same for an iframe."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from html import escape
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, urlencode

import anyio
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.result_names import value_of
from hypergrid.plots.labels import count_levels, is_map
from hypergrid.query import OpenArchive
from queries.boards.definition import KINDS, Link
from queries.boards.repository import BoardStore
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.news import ArchiveNews
from queries.web.auth.scopes import is_allowed
from queries.web.responses.addresses import resolve_name, root_of
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.waiting import TookTooLong, compute_dataset

T = TypeVar("T")

PICTURE_S: Final = 4.0
"""How long a picture waits for its result [s]: services that show cards give up after some seconds."""
KEPT_BYTES: Final = 16 << 20
"""Size limit of the cached pictures [bytes]."""
DRAWN_S: Final = 600.0
"""How long a picture is waited for without a request [s]; the limits of its caller hold as well."""
MOST_DRAWN: Final = 4
"""Pictures that are computed at the same time, with requests or without."""
DRAWN_AT_ONCE: Final = 2
APPLICATION: Final = "HyperGrid"
_PNG: Final[dict[int | str, dict[str, Any]]] = {200: {"content": {"image/png": {}}}}


class NoPicture(HyperGridError, LookupError):
    """A link shows no result that could be drawn."""


@dataclass(frozen=True)
class LinkPicture:
    """A drawn result."""

    snapshot: str
    content: bytes
    """PNG."""


@dataclass(frozen=True)
class PageAddress:
    """What follows "#" in the address of a page."""

    page: str
    parameters: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "PageAddress":
        page, _, query = text.partition("?")
        return cls(page, {name: values[0] for name, values in parse_qs(query).items()})

    @property
    def board(self) -> str:
        """Name of its board; empty if it is another page."""
        return self.parameters.get("board", "") if self.page == "boards" else ""

    def read_question(self) -> dict[str, Any]:
        """Read the query of an address of Explore.

        Raises
        ------
        InvalidQuery
            There is none, or it is not a JSON object.
        """
        if self.page != "explore":
            raise InvalidQuery(f"the page {self.page!r} has no picture")
        try:
            question = json.loads(self.parameters["q"])
        except (KeyError, ValueError, RecursionError) as error:
            raise InvalidQuery("the address has no query that can be read") from error
        if not isinstance(question, dict):
            raise InvalidQuery(f"the query of the address is not a JSON object but {type(question).__name__}")
        return question


@dataclass(frozen=True)
class PictureSubject:
    """What the picture of a link shows."""

    question: Mapping[str, Any]
    """Query document."""
    time: int | None
    """Time cell of a map, from 0; None: the newest with values."""
    level: int


def router(store: BoardStore, runner: Runner, catalogue: Catalogue, news: ArchiveNews) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["boards"])
    # Both by link and version of its board.
    pictures: LruCache[tuple[str, str], LinkPicture] = LruCache(KEPT_BYTES)
    drawing: dict[tuple[str, str], asyncio.Task[HyperGridError | None]] = {}
    few = anyio.CapacityLimiter(DRAWN_AT_ONCE)

    async def run(function: Callable[..., T], *arguments: object) -> T:
        return await to_thread.run_sync(partial(function, *arguments), limiter=few)

    def find_link(request: Request, name: str) -> Link:
        with resolve_name(request, name):
            return store.link(name)

    def describe(link: Link) -> tuple[str, str]:
        """Return title and description of a link's card."""
        address, network = PageAddress.parse(link.address), f"{catalogue.archive.name} · {APPLICATION}"
        title, description = f"{APPLICATION}: {address.page}", network
        try:
            if address.board:
                board, panel = store.board(address.board), address.parameters.get("panel", "")
                title = (board.find_panel(panel).title if panel else "") or board.title
                description = f"Follows the newest data, {len(board.panels)} panels; {network}"
            elif not link.title:
                title = runner.explain(address.read_question()).layout.labels.title
        except HyperGridError:
            # The link outlives what it shows; its page then reports why.
            pass
        return link.title or title, description

    def find_subject(link: Link) -> PictureSubject:
        """Return what the picture of a link shows.

        Raises
        ------
        HyperGridError
            It shows no result: a page of another kind, an empty board, a query that cannot be read.
        """
        address = PageAddress.parse(link.address)
        if not address.board:
            return PictureSubject(
                address.read_question(), _index(address.parameters, "time"), _index(address.parameters, "level")
            )
        board, wanted = store.board(address.board), address.parameters.get("panel", "")
        panels = (board.find_panel(wanted),) if wanted else board.panels
        # Pictures say more than numbers.
        panel = min(panels, key=lambda panel: KINDS.index(panel.kind), default=None)
        if panel is None:
            raise InvalidQuery(f"the board {board.name!r} has no panels")
        variable = str((panel.query or {"variable": panel.variable})["variable"])
        end = news.read_news().ends.get(variable)
        question = panel.make_question(None if end is None else end.end_ns)
        return PictureSubject(
            question, None if panel.last_ns else _index(panel.view, "time"), _index(panel.view, "level")
        )

    def find_version(link: Link) -> str:
        """Return what identifies the content of a link, besides the snapshot: a board may change without one."""
        name = PageAddress.parse(link.address).board
        if not name:
            return ""
        try:
            board = store.board(name)
        except NotFound:
            return ""
        return f"{board.version} {board.changed_ns}"

    async def draw_result(link: Link) -> bytes:
        try:
            subject = await run(find_subject, link)
        except (InvalidQuery, NotFound) as error:
            raise NoPicture(str(error)) from error
        dataset = await compute_dataset(runner, subject.question, None, seconds=DRAWN_S)
        return await run(_draw, dataset, subject)

    async def keep_picture(key: tuple[str, str], link: Link, snapshot: str) -> HyperGridError | None:
        """Draw and keep a link's picture; return the error that prevented it."""
        try:
            content = await draw_result(link)
            pictures.put(key, LinkPicture(snapshot, content), len(content))
        except HyperGridError as error:
            return error
        finally:
            del drawing[key]
        return None

    async def wait_for_picture(link: Link, version: str, snapshot: str) -> LinkPicture:
        """Return the picture of a link; if there is none of this snapshot in time, the latest of an earlier one.

        Raises
        ------
        NoPicture, TookTooLong, HyperGridError
            The link has none; it is not drawn yet; it cannot be drawn now.
        """
        key = link.name, version
        kept = pictures.peek(key)
        if kept is not None and kept.snapshot == snapshot:
            return kept
        if key not in drawing and len(drawing) >= MOST_DRAWN:
            raise TookTooLong(f"{MOST_DRAWN} pictures are being drawn already")
        # It goes on after this request, as a later one asks for the same.
        task = drawing.get(key) or asyncio.create_task(keep_picture(key, link, snapshot))
        drawing[key] = task
        done, _ = await asyncio.wait({task}, timeout=PICTURE_S)
        error = task.result() if done else None
        if error is not None:
            raise error
        kept = pictures.peek(key)
        if kept is None:
            raise TookTooLong(f"the picture of the link {link.name!r} is not drawn yet")
        return kept

    @routes.get("/l/{name}.png", response_class=Response, responses=_PNG)
    async def picture(request: Request, name: str) -> Response:
        """Draw what a short link shows at the newest snapshot; where that takes long, where the stations are."""
        link = await run(find_link, request, name)
        archive = await run(catalogue.archive.latest)
        headers = {"Cache-Control": "no-store"}
        try:
            version = await run(find_version, link)
            tag = entity_tag(link.name, archive.snapshot, version)
            if (same := not_modified_response(request, tag)) is not None:
                return same
            drawn = await wait_for_picture(link, version, archive.snapshot)
            if drawn.snapshot == archive.snapshot:
                headers = etag_headers(tag)
            return Response(drawn.content, media_type="image/png", headers=headers)
        except NoPicture:
            headers = etag_headers(tag)
        except HyperGridError:
            # The next request may find the result.
            pass
        title, _ = await run(describe, link)
        return Response(await run(_draw_stations, archive, title), media_type="image/png", headers=headers)

    @routes.get("/l/{name}", response_class=HTMLResponse, include_in_schema=False)
    def card(request: Request, name: str) -> HTMLResponse:
        """Open the page of a short link; what reads only its head gets title, description and picture."""
        if not is_allowed(request.state.caller.scope, "read"):
            # Not even whether the link exists: the page asks for a key, and then for the link.
            return HTMLResponse(_write_card(name, APPLICATION, {"og:title": APPLICATION, "og:type": "website"}))
        title, description = describe(find_link(request, name))
        own = f"{request.state.scheme}://{request.headers.get('host', '')}{root_of(request)}/l/{name}"
        properties = {
            "og:title": title, "og:description": description, "og:type": "website", "og:site_name": APPLICATION,
            "og:url": own, "og:image": f"{own}.png", "og:image:type": "image/png", "og:image:alt": title,
        }  # fmt: skip
        return HTMLResponse(_write_card(name, title, properties))

    @routes.get("/embed/{name}", response_class=RedirectResponse, include_in_schema=False)
    def embed(name: str) -> RedirectResponse:
        """Open a short link without the frame of the pages, for an iframe."""
        return RedirectResponse(f"../?embed=1#link?{urlencode({'name': name})}", status_code=307)

    return routes


def _index(view: Mapping[str, str], name: str) -> int:
    text = view.get(name, "0")
    return int(text) if text.isdecimal() and len(text) < 10 else 0


def _draw(dataset: "xr.Dataset", subject: PictureSubject) -> bytes:
    """Draw a result as PNG, of a map the wanted time cell or the newest with values."""
    from hypergrid.plots import picture_bytes  # noqa: PLC0415 - matplotlib takes a second to load

    time = 0
    if is_map(dataset):
        values = value_of(dataset).to_numpy()
        has_values = np.flatnonzero(np.isfinite(values).any(axis=tuple(range(1, values.ndim))))
        newest = int(has_values[-1]) if len(has_values) else 0
        time = newest if subject.time is None else min(subject.time, len(values) - 1)
    return picture_bytes(dataset, time=time, level=min(subject.level, count_levels(dataset) - 1))


def _draw_stations(archive: OpenArchive, title: str) -> bytes:
    """Draw where the stations are, as PNG."""
    from hypergrid.plots import plot_positions  # noqa: PLC0415 - matplotlib takes a second to load

    return plot_positions(archive.stations, title=title).png()


def _write_card(name: str, title: str, properties: Mapping[str, str]) -> str:
    # The address of the page is not written here: the page asks for it, with its key.
    target = escape(f"../#link?{urlencode({'name': name})}")
    head = f'<meta http-equiv="refresh" content="0; url={target}">'
    head += '\n<meta name="twitter:card" content="summary_large_image">'
    head += '\n<link rel="icon" href="../static/icon.svg" type="image/svg+xml">'
    tags = "\n".join(f'<meta property="{key}" content="{escape(text)}">' for key, text in properties.items())
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n{head}\n'
        f'{tags}\n</head>\n<body>\n<p><a href="{target}">{escape(title)}</a></p>\n</body>\n</html>\n'
    )
