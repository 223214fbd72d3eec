"""Results on their way: few are written at once, and large ones wait on the disk for clients that read slowly.

Were they held in memory until they are read, clients that read slowly, or not at all, would fill it: forty of them with
one result of half a million cells took 2.5 GiB. There they stay while they fit, for clients that read a file in parts.
"""

import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import xarray as xr
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hypergrid.core.errors import HyperGridError
from hypergrid.core.lru_cache import LruCache
from hypergrid.formats.results import FORMATS, to_bytes
from queries.snapshots.file_names import surface_name

AT_ONCE: Final = 2
"""Results that are written as a file format at one time; others wait their turn."""
SMALL_BYTES: Final = 1 << 20
"""Up to this size an answer is held in memory [bytes]."""
CHUNK_BYTES: Final = 1 << 18
"""Of a larger one so much is in memory at a time [bytes]."""
KEPT_BYTES: Final = 1 << 30
"""What the files that wait on the disk for the next part may take together [bytes]."""
KEPT_FILES: Final = 64
"""So many may wait: each is an open file."""

RESULT_MEDIA: Final = {name: row.media_type for name, row in FORMATS.items()}
"""Media types of results, by the names of their formats."""
PARTS: Final[dict[int | str, dict[str, Any]]] = {206: {"description": "The part of the file that Range asks for"}}
"""What the description says of routes whose files are sent in parts."""
_RANGE: Final = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_WRITING: Final = threading.BoundedSemaphore(AT_ONCE)


class RangeNotSatisfiable(HyperGridError, ValueError):
    """A part of a file is asked for that begins behind its end."""

    def __init__(self, asked: str, size: int) -> None:
        super().__init__(f"the file has {size} bytes; {asked[:80]!r} has none of them")
        self.size = size


class _SpooledContent:
    """Content on the disk, in a file without a name: gone with the last that reads it, or with the process."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        # Without a buffer: what a full disk does not take would be written again, and fail again, when it is closed.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed below
        weakref.finalize(self, self._file.close)
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) :]

    def chunks(self, first: int, stop: int) -> Generator[bytes]:
        for at in range(first, stop, CHUNK_BYTES):
            yield os.pread(self._file.fileno(), min(CHUNK_BYTES, stop - at), at)


class _StreamedResponse(StreamingResponse):
    """An answer that lets go of its content when it is over, or its client has gone.

    Else what is left of a request that broke off keeps the file until garbage is collected, which may take long.
    """

    def __init__(self, chunks: Generator[bytes], status: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(chunks, status, headers, media_type)
        self._chunks = chunks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._chunks.close()


_KEPT: Final[LruCache[str, _SpooledContent]] = LruCache(KEPT_BYTES)
"""By entity tag, which stands for every byte of a file."""


def attachment(name: str, suffix: str) -> dict[str, str]:
    """Return the header of an answer that is a file to keep."""
    return {"Content-Disposition": f'attachment; filename="{name}{suffix}"'}


def surface_response(
    dataset: xr.Dataset,
    form: str,
    *,
    headers: Mapping[str, str],
    asked: Request | None = None,
    time: int = 0,
    level: int = 0,
) -> Response:
    """Return the answer with a surface as a file to keep. Not for the event loop: it may wait.

    Parameters
    ----------
    dataset
        The surface.
    form
        A name of `hypergrid.formats.results.FORMATS`.
    headers
        More of the answer.
    asked
        Who asks, perhaps for a part; given where the headers have an entity tag.
    time, level
        Which a picture is of.

    Raises
    ------
    NotFound
        There is no such format.
    RangeNotSatisfiable
        The part is not in the file.
    """
    if form == "png":
        from hypergrid.plots import picture_bytes  # noqa: PLC0415 - matplotlib takes a second to load

        write = partial(picture_bytes, dataset, time=time, level=level)
    else:
        write = partial(to_bytes, dataset, form)
    row = FORMATS[form]
    named = attachment(surface_name(dataset, time=time if form == "png" else None), row.suffix)
    return file_response(write, media_type=row.media_type, headers={**named, **headers}, asked=asked)


def file_response(
    write: Callable[[], bytes],
    *,
    media_type: str,
    headers: Mapping[str, str] = MappingProxyType({}),
    asked: Request | None = None,
) -> Response:
    """Return the answer with what `write` returns. Not for the event loop: it may wait.

    Parameters
    ----------
    write
        Returns the content.
    media_type, headers
        Of the answer.
    asked
        Who asks, perhaps for a part; given where the headers have an entity tag.

    Raises
    ------
    RangeNotSatisfiable
        The part is not in the content.
    """
    if asked is None:
        content, waiting = _write_content(write)
    else:
        waiting = _KEPT.peek(headers["ETag"])
        content = b""
        if waiting is None:
            content, waiting = _write_content(write)
            if waiting is not None:
                _KEPT.put(headers["ETag"], waiting, max(waiting.size, KEPT_BYTES // KEPT_FILES))
    return _answer(waiting or content, media_type, dict(headers), asked)


def part_response(content: bytes, *, media_type: str, headers: Mapping[str, str], asked: Request) -> Response:
    """Return the answer with content that is in memory, or the part of it that is asked for; `headers` have its tag.

    Raises
    ------
    RangeNotSatisfiable
        The part is not in the content.
    """
    return _answer(content, media_type, dict(headers), asked)


def _write_content(write: Callable[[], bytes]) -> tuple[bytes, _SpooledContent | None]:
    """Return content, or where it waits."""
    with _WRITING:
        content = write()
        return (content, None) if len(content) <= SMALL_BYTES else (b"", _SpooledContent(content))


def _answer(
    content: bytes | _SpooledContent, media_type: str, headers: dict[str, str], asked: Request | None
) -> Response:
    size = len(content) if isinstance(content, bytes) else content.size
    part = None
    if asked is not None:
        headers["Accept-Ranges"] = "bytes"
        part = _part(asked, size, headers["ETag"])
    first, stop = part or (0, size)
    if part is not None:
        headers["Content-Range"] = f"bytes {first}-{stop - 1}/{size}"
    status = 200 if part is None else 206
    if isinstance(content, bytes):
        return Response(content[first:stop], status, headers, media_type)
    headers["Content-Length"] = str(stop - first)
    return _StreamedResponse(content.chunks(first, stop), status, headers, media_type)


def _part(request: Request, size: int, tag: str) -> tuple[int, int] | None:
    """Return the first byte that is asked for, and the one behind the last (RFC 9110, section 14); None: the whole.

    That answers several ranges at once, ranges that cannot be read, and those of another version (`If-Range`).
    """
    text = request.headers.get("range", "").strip()
    match = _RANGE.fullmatch(text)
    if match is None or request.headers.get("if-range", tag).strip() != tag:
        return None
    begin, end = (int(group) if group else None for group in match.groups())
    if begin is None:
        if end is None:
            return None
        first, stop = max(size - end, 0), size
    else:
        if end is not None and end < begin:
            return None
        first, stop = begin, size if end is None else min(end + 1, size)
    if first >= stop:
        raise RangeNotSatisfiable(text, size)
    return first, stop
