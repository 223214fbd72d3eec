"""Static files of the page, BokehJS from the installed package, empty figures, and the guide where it was built."""

import html
import importlib
import json
import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from anyio import CapacityLimiter, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

from hypergrid.core.errors import NotFound
from hypergrid.core.lru_cache import LruCache

if TYPE_CHECKING:
    from viz.figures import Scale, Theme

PAGES: Final = Path(__file__).parent / "pages"
DOCS: Final = Path(__file__).parent / "docs" / "html"
"""The guide, as `make docs` builds it; a wheel has it if it was built before."""
_BEGINS: Final = '<script src="static/begin.js"'
_TOOLS: Final = '<div id="tools"'
_GUIDE: Final = 'data-guide="docs/"'
"""Where the page finds the guide; it makes the link, in its own words."""
_LONGEST_TEXT: Final = 200
_LARGEST: Final = 4000
"""Greatest width and height of a figure [px]."""
# An empty figure depends only on its URL.
_KEPT: Final = "private, max-age=600"
"""Cache-Control of figures, which a page may prefetch."""
_DRAWING: Final = CapacityLimiter(1)
_DRAWN: Final = LruCache[str, bytes](16 << 20)
"""Figures by their URL. Bokeh takes 0.2 s for one, in which the interpreter answers and computes little else."""


def site(docs: Path = DOCS) -> Starlette:
    """Create the site: the page, its files, BokehJS and `/figures/{kind}`, empty figures.

    Parameters
    ----------
    docs
        Folder of the guide, served under `/docs`; where it is absent, the page has no link to it.
    """
    has_guide = (docs / "index.html").is_file()
    text = _write_page(has_guide=has_guide)

    async def page(_request: Request) -> Response:
        return HTMLResponse(text)

    return Starlette(
        routes=[
            Route("/", page),
            Route("/figures/coast", _coast),
            Route("/figures/{kind}", _figure),
            Mount("/static", StaticFiles(directory=PAGES)),
            Mount("/bokeh", StaticFiles(directory=find_bokeh_js())),
            *([Mount("/docs", GuideFiles(docs))] if has_guide else []),
        ],
        exception_handlers={HTTPException: _problem},
    )


class GuideFiles(StaticFiles):
    """Serves the guide under a policy of its own, which names its inline scripts by their hashes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(directory=folder, html=True)
        self._policy = (folder / "policy.txt").read_text(encoding="utf-8")

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers["Content-Security-Policy"] = self._policy
        return response


def find_bokeh_js() -> Path:
    """Return the folder of BokehJS in the installed package, without loading the package."""
    spec = find_spec("bokeh")
    if spec is None or spec.origin is None:
        raise NotFound("pages need Bokeh; install hypergrid-stations[serve]")
    return Path(spec.origin).parent / "server" / "static" / "js"


def load_figures() -> None:
    """Load what draws figures, so that the first one does not wait for it."""
    importlib.import_module("viz.figures")


def _write_page(*, has_guide: bool) -> str:
    """Return the page, which names the guide where there is one, and the modules that each part of it loads."""
    text = (PAGES / "index.html").read_text(encoding="utf-8")
    modules = html.escape(json.dumps({name: list_modules(name) for name in list_pages()}, separators=(",", ":")))
    text = text.replace(_BEGINS, f'{_BEGINS} data-modules="{modules}"', 1)
    return text.replace(_TOOLS, f"{_TOOLS} {_GUIDE}", 1) if has_guide else text


def list_pages() -> list[str]:
    """Return the names of the pages, as addresses have them."""
    return re.findall(r'import\("\./(\w+)\.js"\)', _read_module("page.js"))


def list_modules(name: str) -> list[str]:
    """Return the files that a page imports: those of the frame of all pages first, as it is needed before any page."""
    modules, waiting = dict[str, None](), ["page.js", f"{name}.js"]
    while waiting:
        each = waiting.pop(0)
        if each not in modules:
            modules[each] = None
            waiting[:0] = re.findall(r'^(?:import|export)\b[^;]*?"\./(\w+\.js)"', _read_module(each), re.MULTILINE)
    return list(modules)


@cache
def _read_module(file: str) -> str:
    return (PAGES / file).read_text(encoding="utf-8")


async def _figure(request: Request) -> Response:
    key = f"{request.path_params['kind']}?{request.url.query}"
    body = _DRAWN.peek(key)
    if body is None:
        # Off the event loop and one at a time: drawing is slow, and the route needs no key.
        figure = await to_thread.run_sync(_draw_figure, request, limiter=_DRAWING)
        body = bytes(JSONResponse(figure).body)
        _DRAWN.put(key, body, len(key) + len(body))
    return Response(body, media_type="application/json", headers={"Cache-Control": _KEPT})


def _draw_figure(request: Request) -> dict[str, Any]:
    """Draw `?title=&variable=&units=&theme=&width=&height=&scale=`.

    Maps take `&west=&east=&south=&north=&geographic=` as well. With a height the figure fills it.
    """
    # Bokeh takes a second to import; the server answers before that.
    from viz.figures import (  # noqa: PLC0415
        LOOKS,
        PALETTES,
        MapExtent,
        Words,
        day_by_hour_figure,
        histogram_figure,
        lines_figure,
        map_figure,
        overview_figure,
        region_figure,
        variogram_figure,
    )

    asked = request.query_params
    words = Words(*(asked.get(name, "")[:_LONGEST_TEXT] for name in ("title", "variable", "units")))
    theme = cast("Theme", asked["theme"]) if asked.get("theme") in LOOKS else "light"
    scale = cast("Scale", asked["scale"]) if asked.get("scale") in PALETTES else "sequential"
    try:
        width = min(max(int(asked.get("width", "800")), 280), _LARGEST)
        height = min(max(int(asked.get("height", "0")), 0), _LARGEST)
        match request.path_params["kind"]:
            case "map" | "region" | "overview" as kind:
                west, south, east, north = _read_extent(request)
                extent = MapExtent(west, east, south, north, asked.get("geographic", "true") == "true")
                if kind == "overview":
                    height = min(max(int(asked.get("height", "600")), 200), 2000)
                    return overview_figure(extent, theme=theme, size=(width, height), scale=scale)
                if kind == "region":
                    return region_figure(extent, words, theme=theme, width=width)
                return map_figure(extent, words, theme=theme, width=width, height=height, scale=scale)
            case "lines":
                choosing = asked.get("choosing") == "true"
                return lines_figure(words, theme=theme, width=width, height=height, choosing=choosing)
            case "day_by_hour":
                return day_by_hour_figure(words, theme=theme, width=width, height=height, scale=scale)
            case "histogram":
                return histogram_figure(words, theme=theme, width=width, height=height)
            case "variogram":
                return variogram_figure(words, theme=theme, width=width, height=height)
            case kind:
                there = "map, region, overview, lines, day_by_hour, histogram and variogram"
                raise HTTPException(404, f"no figure {kind!r}; there are {there}")
    except ValueError as error:
        raise HTTPException(400, str(error)) from error


async def _coast(request: Request) -> Response:
    # In turn with the figures: the route needs no key either.
    response = await to_thread.run_sync(_clip_coast, request, limiter=_DRAWING)
    response.headers["Cache-Control"] = _KEPT
    return response


def _clip_coast(request: Request) -> Response:
    """Clip coast, borders and land to `?west=&east=&south=&north=&width=` [degree, px]."""
    # Shapely and the files take a tenth of a second; the server answers before that.
    from viz.natural_earth import clip_atlas  # noqa: PLC0415

    try:
        west, south, east, north = extent = _read_extent(request)
        pixels = min(max(int(request.query_params.get("width", "800")), 16), 4000)
    except ValueError as error:
        raise HTTPException(400, str(error)) from error
    if not (-540 <= west < east <= 540 and east - west <= 720 and -90 <= south < north <= 90):
        raise HTTPException(400, f"a coast needs degrees, west below east and south below north; got {extent}")
    return JSONResponse(clip_atlas(extent, pixels=pixels))


def _read_extent(request: Request) -> tuple[float, float, float, float]:
    """Return west, south, east and north of a request."""
    west, south, east, north = (
        float(request.query_params.get(name, "nan")) for name in ("west", "south", "east", "north")
    )
    return west, south, east, north


async def _problem(request: Request, error: Exception) -> Response:
    """Answer with a problem document (RFC 9457), as the web API does."""
    status, detail = (error.status_code, error.detail) if isinstance(error, HTTPException) else (500, "")
    title = "Not found" if status == 404 else "It cannot be shown"
    body = {"type": "about:blank", "title": title, "status": status, "detail": f"{request.url.path}: {detail}"}
    return JSONResponse(body, status, media_type="application/problem+json")
