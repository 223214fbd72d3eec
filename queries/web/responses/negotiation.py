"""Content negotiation: the format by `f`, else by `Accept` (RFC 9110, 12.5.1), else the default; gzip for text.

A client that accepts none of the formats gets the default, as RFC 9110 allows and as routes with a single format do:
many clients send an `Accept` header that does not reflect their needs.

Event streams and formats that are compressed already are sent unchanged. A compressed answer is a representation with
its own entity tag (RFC 9110, 8.8.3.3): the plain tag with a suffix, removed before the application compares it.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_JSON: Final = "application/json"
_COVERAGES: Final = ("application/vnd.cov+json", "application/prs.coverage+json")
"""Media types of CoverageJSON: registered, and before registration."""


def form_of(request: Request, forms: Mapping[str, str], f: str | None = None) -> str:
    """Choose the format of an answer.

    Parameters
    ----------
    request
        The request.
    forms
        Media types by format name, the default first.
    f
        Format named in the request, which wins even if it is unknown; None: not given.
    """
    if f is not None:
        return f
    ranges = _ranges(",".join(request.headers.getlist("accept")))
    quality = {name: _quality(media_type, ranges) for name, media_type in forms.items()}
    return max(quality, key=lambda name: quality[name])


def _ranges(accept: str) -> dict[str, float]:
    """Parse the quality of each valid media range; other parameters are ignored."""
    qualities = {}
    for entry in accept.lower().split(","):
        media_range, *parameters = (part.strip() for part in entry.split(";"))
        weights = [part[2:].strip() for part in parameters if part.startswith("q=")]
        try:
            quality = float(weights[0]) if weights else 1.0
        except ValueError:
            continue
        if media_range and 0 <= quality <= 1:
            qualities[media_range] = quality
    return qualities


def _quality(media_type: str, ranges: Mapping[str, float]) -> float:
    """Return a media type's quality: that of the most specific matching range, else 0."""
    whole = media_type.partition(";")[0].strip().lower()
    names = [*_COVERAGES] if whole in _COVERAGES else [whole]
    general = [_JSON] if whole.endswith("json") else []
    wider = [f"{whole.partition('/')[0]}/*", "*/*"]
    return next((ranges[name] for name in [*names, *general, *wider] if name in ranges), 0.0)


# Smaller answers fit into a few packets.
SMALLEST_BYTES: Final = 4096
"""Size from which answers are compressed [bytes]."""
# For CSV and JSON a tenth more bytes than at the highest level, in a third of the time.
LEVEL: Final = 5
"""zlib level."""
CODED: Final = {"Content-Encoding": "gzip", "Vary": "Accept, Accept-Encoding"}
"""Headers of an answer that its route has compressed."""
_WHOLE: Final = (
    *DEFAULT_EXCLUDED_CONTENT_TYPES,
    "application/octet-stream", "application/vnd.apache.parquet", "application/x-netcdf", "image/tiff",
)  # fmt: skip
_ENDING: Final = '-gzip"'


class Compression:
    """Compresses answers; sits next to the routes, so that HEAD reports the headers of GET.

    Parameters
    ----------
    app
        The inner application.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = GZipMiddleware(app, minimum_size=SMALLEST_BYTES, compresslevel=LEVEL, exclude_content_types=_WHOLE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        known = Headers(scope=scope).get("if-none-match", "")

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers, is_same = MutableHeaders(scope=message), message["status"] == 304
                coded = f"{headers['etag'][:-1]}{_ENDING}" if headers.get("etag", "").startswith('"') else ""
                # 304 and 206 answers also vary by encoding, as their resource can be compressed.
                if is_same or message["status"] == 206:
                    headers.add_vary_header("Accept-Encoding")
                if coded and (coded in known if is_same else headers.get("content-encoding") == "gzip"):
                    headers["ETag"] = coded
            await send(message)

        await self._app({**scope, "headers": list(_plain(scope["headers"]))}, receive, sending)


def takes_gzip(headers: Headers) -> bool:
    """Return whether a client accepts gzip: named, with a quality above zero."""
    for part in headers.get("accept-encoding", "").lower().split(","):
        coding, _, weight = part.replace(" ", "").partition(";q=")
        if coding in ("gzip", "x-gzip"):
            # q=0 in any spelling ("0", "0.0") means not acceptable.
            return weight.strip("0.") != "" or not weight
    return False


def compress(content: bytes) -> bytes:
    """Compress content with gzip, deterministically."""
    made = zlib.compressobj(LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return made.compress(content) + made.flush()


def _plain(raw: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[bytes, bytes]]:
    """Yield request headers with plain entity tags, and gzip as the only coding if accepted."""
    ending = _ENDING.encode()
    takes = takes_gzip(Headers(raw=list(raw)))
    for name, value in raw:
        if name == b"if-none-match":
            yield name, value.replace(ending, b'"')
        elif name != b"accept-encoding":
            yield name, value
        elif takes:
            yield name, b"gzip"
