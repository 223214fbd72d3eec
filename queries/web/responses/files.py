"""File answers: few are encoded concurrently, large ones spooled to disk for slow readers.

Spooled files are cached while they fit, for clients that read a file in parts.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hypergrid.core.errors import HyperGridError
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.times import SECOND_NS, Window, format_timestamp
from hypergrid.formats.readings import ReadingsPiece, SelectedReadings
from hypergrid.formats.results import FORMATS, package_bytes, to_bytes

AT_ONCE: Final = 2
"""Results encoded concurrently; others wait."""
# In memory, large answers would pile up for slow or stalled clients: forty of them with one result of half a million
# cells took 2.5 GiB.
SMALL_BYTES: Final = 1 << 20
"""Largest answer held in memory [bytes]; larger ones are spooled to disk."""
CHUNK_BYTES: Final = 1 << 18
"""Part of a spooled answer in memory at a time [bytes]."""
KEPT_BYTES: Final = 1 << 30
"""Size limit of the cached spooled files [bytes]."""
KEPT_FILES: Final = 64
"""Limit of cached spooled files, each of which is an open file."""

RESULT_MEDIA: Final = {name: row.media_type for name, row in FORMATS.items()}
"""Media types of result formats, by name."""
PARTS: Final[dict[int | str, dict[str, Any]]] = {206: {"description": "The part of the file that Range asks for"}}
"""OpenAPI description of routes that support Range."""
_RANGE: Final = re.compile(r"bytes=\s*([0-9]{0,18})-([0-9]{0,18})", re.IGNORECASE)
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.+-]+")
_WRITING: Final = threading.BoundedSemaphore(AT_ONCE)


class RangeNotSatisfiable(HyperGridError, ValueError):
    """The requested range begins beyond the end of the file."""

    def __init__(self, asked: str, size: int) -> None:
        super().__init__(f"the file has {size} bytes; {asked[:80]!r} has none of them")
        self.size = size


class _SpooledContent:
    """Content in an unnamed temporary file, deleted with its last reader or the process."""

    def __init__(self, content: bytes) -> None:
        self.size = len(content)
        # Unbuffered: a failed write on a full disk would be repeated, and fail again, on closing.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed below
        weakref.finalize(self, self._file.close)
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) :]

    def chunks(self, first: int, stop: int) -> Generator[bytes]:
        for at in range(first, stop, CHUNK_BYTES):
            # pread, as several readers share the file.
            yield os.pread(self._file.fileno(), min(CHUNK_BYTES, stop - at), at)


class _StreamedResponse(StreamingResponse):
    """Streamed answer that releases its content when it ends or the client disconnects."""

    def __init__(self, chunks: Generator[bytes], status: int, headers: dict[str, str], media_type: str) -> None:
        super().__init__(chunks, status, headers, media_type)
        self._chunks = chunks

    # Otherwise an aborted request keeps the file open until garbage collection, which may take long.
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._chunks.close()


_KEPT: Final[LruCache[str, _SpooledContent]] = LruCache(KEPT_BYTES)
"""Spooled files by entity tag, which identifies their bytes."""


def attachment(name: str, suffix: str) -> dict[str, str]:
    """Return the header that names a download; names beyond ASCII are encoded, as headers are Latin-1."""
    whole = f"{name}{suffix}"
    named = f'filename="{whole}"' if _PLAIN.fullmatch(whole) else f"filename*=UTF-8''{quote(whole, safe='')}"
    return {"Content-Disposition": f"attachment; {named}"}


def surface_response(
    dataset: xr.Dataset,
    form: str,
    *,
    headers: Mapping[str, str],
    asked: Request | None = None,
    time: int = 0,
    level: int = 0,
) -> Response:
    """Answer with a surface as a download. Blocking: not for the event loop.

    Parameters
    ----------
    dataset
        The surface.
    form
        A name of `hypergrid.formats.results.FORMATS`.
    headers
        Additional headers.
    asked
        The request, for Range; requires an entity tag in the headers.
    time, level
        Indices for a picture.

    Raises
    ------
    NotFound
        Unknown format.
    RangeNotSatisfiable
        The range is not in the file.
    """
    if form == "png":
        from hypergrid.plots import picture_bytes  # noqa: PLC0415 - matplotlib takes a second to load

        write = partial(picture_bytes, dataset, time=time, level=level)
    elif form == "package":
        write = partial(package_bytes, dataset, time=time, level=level)
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
    """Answer with the content that `write` returns. Blocking: not for the event loop.

    Parameters
    ----------
    write
        Returns the content.
    media_type, headers
        Of the answer.
    asked
        The request, for Range; requires an entity tag in the headers.

    Raises
    ------
    RangeNotSatisfiable
        The range is not in the content.
    """
    if asked is None:
        content, waiting = _write_content(write)
    else:
        waiting = _KEPT.peek(headers["ETag"])
        content = b""
        if waiting is None:
            content, waiting = _write_content(write)
            if waiting is not None:
                # The minimum weight bounds the number of open files.
                _KEPT.put(headers["ETag"], waiting, max(waiting.size, KEPT_BYTES // KEPT_FILES))
    return _answer(waiting or content, media_type, dict(headers), asked)


def part_response(content: bytes, *, media_type: str, headers: Mapping[str, str], asked: Request) -> Response:
    """Answer with content in memory, or its requested range; `headers` include its tag.

    Raises
    ------
    RangeNotSatisfiable
        The range is not in the content.
    """
    return _answer(content, media_type, dict(headers), asked)


def _write_content(write: Callable[[], bytes]) -> tuple[bytes, _SpooledContent | None]:
    """Encode content; spool it if it is large."""
    with _WRITING:
        content = write()
        # Spooled within the semaphore, so that few large contents are in memory together.
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
    """Parse the requested range as first byte and end (RFC 9110, section 14); None: everything.

    Multiple ranges, malformed ones, and those for another version (`If-Range`) also return None.
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


MOST_NAMES: Final = 3
"""Variables, or stations, listed in a name; with more of them none is listed."""
_LONGEST: Final = 60
_BOUNDS: Final = ("time_bounds", "climatology_bounds")


def surface_name(dataset: xr.Dataset, time: int | None = None) -> str:
    """Name a file with a surface, without suffix; `time` selects a single time cell.

    Examples
    --------
    `air_temperature_2007-10-01_2007-10-04_map`
    """
    variable = str(dataset.attrs["summary"]).partition(":")[0]
    bounds = next((dataset[name] for name in _BOUNDS if name in dataset.coords), dataset["time"])
    stamps = bounds.to_numpy().astype("datetime64[ns]").astype(np.int64).reshape(dataset["time"].size, -1)
    if time is not None and 0 <= time < len(stamps):
        stamps = stamps[time : time + 1]
    period = (int(stamps.min()), int(stamps.max())) if stamps.size else None
    along = str(dataset["time"].dims[0]) if dataset["time"].dims else "time"
    kind = "map" if {"lat", "y"} & set(dataset.dims) else "series"
    return _join_parts(variable, *_period(period), *(() if along == "time" else (along,)), kind)


def readings_name(chosen: SelectedReadings, pieces: Sequence[ReadingsPiece] = ()) -> str:
    """Name a file with readings, without suffix; any pieces define the period.

    Examples
    --------
    `air_temperature_station-3_2007-10-01_2007-10-02_readings`
    """
    variables = list(dict.fromkeys(kind.variable.name for kind in chosen.kinds))
    stations = chosen.selection.stations
    extents = [extent for extent in map(chosen.archive.extent, variables) if extent is not None]
    period = None
    if pieces:
        spans = [piece.intervals_ns() for piece in pieces]
        period = min(int(first.min()) for first, _ in spans), max(int(last.max()) for _, last in spans)
    elif extents:
        whole = Window(min(extent.start_ns for extent in extents), max(extent.stop_ns for extent in extents))
        part = whole if chosen.selection.window is None else whole.intersect(chosen.selection.window)
        period = None if part is None else (part.start_ns, part.stop_ns)
    return _join_parts(
        *(variables if len(variables) <= MOST_NAMES else ()),
        *(f"station-{station}" for station in stations if len(stations) <= MOST_NAMES),
        *_period(period),
        "readings",
    )


def _period(period: tuple[int, int] | None) -> tuple[str, ...]:
    return () if period is None else tuple(map(_instant, period))


def _instant(time_ns: int) -> str:
    """Format a day, or an instant to the second, in characters safe for file names."""
    # Colons are not allowed in file names on Windows.
    text = format_timestamp(time_ns // SECOND_NS * SECOND_NS).replace(":", "")
    if text.endswith("T000000Z"):
        return text.removesuffix("T000000Z")
    return f"{text.removesuffix('00Z')}Z" if text.endswith("00Z") else text


def _join_parts(*parts: str) -> str:
    return "_".join(re.sub(r"[^A-Za-z0-9_.+-]+", "-", part)[:_LONGEST] for part in parts)
