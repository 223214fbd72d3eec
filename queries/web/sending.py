"""Results on their way: few are written at once, and large ones wait on the disk for clients that read slowly.

Were they held in memory until they are read, clients that read slowly, or not at all, would fill it: forty of them with
one result of half a million cells took 2.5 GiB.
"""

import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType
from typing import IO, Final

import xarray as xr
from fastapi import Response
from fastapi.responses import StreamingResponse

from hypergrid.export import FORMATS, to_bytes
from hypergrid.pictures import picture_bytes

AT_ONCE: Final = 2
"""Results that are written as a file format at one time; others wait their turn."""
SMALL_BYTES: Final = 1 << 20
"""Up to this size an answer is held in memory [bytes]."""
CHUNK_BYTES: Final = 1 << 18
"""Of a larger one so much is in memory at a time [bytes]."""

RESULT_MEDIA: Final = {name: row.media_type for name, row in FORMATS.items()}
"""Media types of results, by the names of their formats."""
_WRITING: Final = threading.BoundedSemaphore(AT_ONCE)


def file_name(job_id: str) -> str:
    """Return what the file with the result of a query is called, without its ending."""
    return f"hypergrid-{job_id[:8]}"


def surface_sent(
    dataset: xr.Dataset, form: str, *, name: str, headers: Mapping[str, str], time: int = 0, level: int = 0
) -> Response:
    """Return the answer with a surface as a file to keep. Not for the event loop: it may wait.

    Parameters
    ----------
    dataset
        The surface.
    form
        A name of `hypergrid.export.FORMATS`.
    name
        Of the file, without its ending.
    headers
        More of the answer.
    time, level
        Which a picture is of.

    Raises
    ------
    NotFound
        There is no such format.
    """
    if form == "png":
        write = partial(picture_bytes, dataset, time=time, level=level)
    else:
        write = partial(to_bytes, dataset, form)
    row = FORMATS[form]
    disposition = f'attachment; filename="{name}{row.suffix}"'
    return sent(write, media_type=row.media_type, headers={"Content-Disposition": disposition, **headers})


def sent(write: Callable[[], bytes], *, media_type: str, headers: Mapping[str, str] = MappingProxyType({})) -> Response:
    """Return the answer with what `write` returns. Not for the event loop: it may wait.

    Parameters
    ----------
    write
        Returns the content.
    media_type, headers
        Of the answer.
    """
    with _WRITING:
        content = write()
        if len(content) <= SMALL_BYTES:
            return Response(content, media_type=media_type, headers=dict(headers))
        # Without a name: gone when it is closed, or with the process.
        file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by who sends it
        file.write(content)
    file.seek(0)
    told = {**headers, "Content-Length": str(len(content))}
    return StreamingResponse(_chunks(file), media_type=media_type, headers=told)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    with file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
