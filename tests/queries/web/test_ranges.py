"""Parts of files: what Range asks for, as RFC 9110 (section 14) says, and what readers of large files make of it."""

import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import fsspec
import httpx
import numpy as np
import pyarrow.parquet as pq
import pytest
from fastapi import FastAPI
from rasterio.io import MemoryFile

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.middleware.request_limits import AccessLogEntry
from queries.web.responses import files
from queries.web.routes.health import Monitoring

Document = dict[str, Any]
FILES = [
    *(f"{{done}}/result?f={form}" for form in ("geotiff", "netcdf", "parquet", "zarr", "csv", "package")),
    "/api/v1/series?f=parquet", "/api/v1/series?f=netcdf", "{done}/zarr/air_temperature/c/0/0/0",
]  # fmt: skip
SERVED: list[AccessLogEntry] = []


@pytest.fixture
def app(runner: Runner, archive: hg.OpenArchive) -> FastAPI:
    """Return the application, which notes how many bytes each answer took."""
    SERVED.clear()
    return create_app(runner, Catalogue(archive), monitoring=Monitoring(listeners=(SERVED.append,)))


@pytest.fixture
def done(client: httpx.Client, gate: Any, map_query: Document, wait_until: Callable[..., None]) -> str:  # noqa: ANN401
    """Return the address of a finished map."""
    return ask(client, gate, map_query, wait_until)


def ask(client: httpx.Client, gate: Any, query: Document, wait_until: Callable[..., None]) -> str:  # noqa: ANN401
    gate.open()
    address = client.post("/api/v1/queries", json=query).headers["location"]
    wait_until(lambda: client.get(address).json()["state"] == "done")
    return str(address)


@pytest.fixture
def large(client: httpx.Client, gate: Any, map_query: Document, wait_until: Callable[..., None]) -> str:  # noqa: ANN401
    """Return the address of a finished map whose GeoTIFF waits on the disk."""
    grid = {"lon": "7:10:37", "lat": "45:52:01", "step": "0.01arcsec", "shape": [1000, 1200]}
    interpolate = {"op": "interpolate", "method": "inverse_distance", "grid": grid}
    clip = {"time": ["2007-10-01T00:00Z", "2007-10-01T01:00Z"]}
    query = map_query | {"steps": [*map_query["steps"][:2], interpolate], "clip": clip}
    return ask(client, gate, query, wait_until)


RANGES = [
    # Range of a file of `size` bytes, the part that is sent; None: the whole
    ("bytes=0-0", lambda size: (0, 1)),
    ("bytes=10-99", lambda size: (10, 100)),
    ("BYTES=10-99", lambda size: (10, 100)),
    ("bytes=100-", lambda size: (100, size)),
    ("bytes=-7", lambda size: (size - 7, size)),
    ("bytes=-99999999999", lambda size: (0, size)),
    ("bytes=5-99999999999", lambda size: (5, size)),
    ("bytes=0-", lambda size: (0, size)),
    # Several ranges, other units, and what cannot be read: passed over, as RFC 9110, 14.2 allows.
    ("bytes=0-1,4-5", None),
    ("lines=0-1", None),
    ("bytes=9-3", None),
    ("bytes=-", None),
    ("bytes=a-b", None),
    ("bytes=1-2-3", None),
    (f"bytes=0-{'9' * 5000}", None),
    ("", None),
]


@pytest.mark.parametrize("path", FILES)
def test_a_range_is_that_part(client: httpx.Client, done: str, path: str) -> None:
    address, plain = path.format(done=done), {"Accept-Encoding": "identity"}
    whole = client.get(address, headers=plain)
    size = len(whole.content)
    assert whole.headers["accept-ranges"] == "bytes"
    for asked, part in RANGES:
        answer = client.get(address, headers={"Range": asked})
        for name in ("content-type", "etag", "cache-control", "content-disposition"):
            if answer.headers.get("content-encoding") != "gzip":
                assert answer.headers.get(name) == whole.headers.get(name), name
        if part is None:
            assert (answer.status_code, answer.content) == (200, whole.content), asked
            assert "content-range" not in answer.headers
            continue
        first, stop = part(size)
        assert (answer.status_code, answer.content) == (206, whole.content[first:stop]), asked
        assert answer.headers["content-range"] == f"bytes {first}-{stop - 1}/{size}"
        assert answer.headers["content-length"] == str(stop - first)
        assert "content-encoding" not in answer.headers


@pytest.mark.parametrize("asked", ["bytes={size}-", "bytes={size}-99999999999", "bytes=-0"])
@pytest.mark.parametrize("path", FILES[:2])
def test_a_range_beyond_the_end_is_refused(client: httpx.Client, done: str, path: str, asked: str) -> None:
    address = path.format(done=done)
    size = len(client.get(address).content)
    answer = client.get(address, headers={"Range": asked.format(size=size)})
    assert answer.status_code == 416
    assert answer.headers["content-range"] == f"bytes */{size}"
    assert answer.headers["content-type"] == "application/problem+json"
    assert f"{size}" in answer.json()["detail"]


def test_a_range_is_of_the_version_that_the_client_has(client: httpx.Client, done: str) -> None:
    address = f"{done}/result?f=geotiff"
    whole = client.get(address)
    tag = whole.headers["etag"]
    for version, status in (
        (tag, 206), (f"W/{tag}", 200), ('"other"', 200), (f'{tag[:-1]}-gzip"', 200),
        ("Mon, 23 Nov 2026 17:57:28 GMT", 200), ("", 200),
    ):  # fmt: skip
        answer = client.get(address, headers={"Range": "bytes=3-8", "If-Range": version})
        assert answer.status_code == status, version
        assert answer.content == (whole.content[3:9] if status == 206 else whole.content)
        # Nor is a range refused that is of another version.
        beyond = client.get(address, headers={"Range": "bytes=999999999-", "If-Range": version})
        assert beyond.status_code == (416 if status == 206 else 200)
    # What has not changed is not sent, whichever part is asked for (RFC 9110, 13.2.2).
    assert client.get(address, headers={"Range": "bytes=3-8", "If-None-Match": tag}).status_code == 304


@pytest.mark.parametrize("path", ["{done}/result?f=geotiff", "/api/v1/series?f=netcdf"])
def test_head_tells_of_the_whole(client: httpx.Client, done: str, path: str) -> None:
    address = path.format(done=done)
    head = client.head(address, headers={"Range": "bytes=3-8"})
    assert (head.status_code, head.headers["accept-ranges"]) == (200, "bytes")
    assert head.headers["content-length"] == str(len(client.get(address).content))


def test_a_part_of_text_that_could_come_compressed_says_so(client: httpx.Client) -> None:
    answer = client.get("/api/v1/series", headers={"Range": "bytes=0-99", "Accept-Encoding": "gzip"})
    assert (answer.status_code, len(answer.content)) == (206, 100)
    assert "Accept-Encoding" in answer.headers["vary"]
    assert not answer.headers["etag"].endswith('-gzip"')


def test_what_bears_a_tag_is_the_same_byte_for_byte(client: httpx.Client, done: str) -> None:
    addresses, plain = [path.format(done=done) for path in FILES], {"Accept-Encoding": "identity"}
    before = [client.get(address, headers=plain) for address in addresses]
    time.sleep(2.1)  # in zip files a time is even seconds
    for address, first in zip(addresses, before, strict=True):
        again = client.get(address, headers=plain)
        assert again.headers["etag"] == first.headers["etag"], address
        assert again.content == first.content, address


def test_a_large_file_is_written_once_for_all_its_parts(
    client: httpx.Client, large: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    real = files.to_bytes

    def counted(dataset: Any, form: str) -> bytes:  # noqa: ANN401
        written.append(form)
        return real(dataset, form)

    monkeypatch.setattr(files, "to_bytes", counted)
    address = f"{large}/result?f=geotiff"
    whole = client.get(address).content
    assert len(whole) > 2 * files.SMALL_BYTES
    edges = np.linspace(0, len(whole), 8, dtype=int).tolist()
    parts = [
        client.get(address, headers={"Range": f"bytes={first}-{stop - 1}"}).content
        for first, stop in zip(edges[:-1], edges[1:], strict=True)
    ]
    assert b"".join(parts) == whole
    assert client.get(address, headers={"Range": f"bytes=1-{len(whole) - 2}"}).content == whole[1:-1]
    assert written == ["geotiff"]


def test_rasterio_reads_a_window_without_the_whole(
    client: httpx.Client, large: str, wait_until: Callable[..., None]
) -> None:
    address = f"{large}/result?f=geotiff"
    whole = client.get(address).content
    with MemoryFile(whole) as held, held.open() as raster:
        window = raster.read(1, window=((700, 740), (900, 960)))
    wait_until(lambda: SERVED[-1].bytes == len(whole))
    SERVED.clear()
    # In a process of its own: rasterio holds the interpreter while it waits for the server.
    words = (
        "import json, sys, rasterio; raster = rasterio.open(sys.argv[1]); "
        "print(json.dumps(raster.read(1, window=((700, 740), (900, 960))).tolist()))"
    )
    told = subprocess.run(
        [sys.executable, "-c", words, f"{client.base_url}{address}"], capture_output=True, check=True, timeout=60
    )
    np.testing.assert_array_equal(json.loads(told.stdout), window)
    # GDAL looks for files beside it, too, and there are none.
    taken = [one for one in SERVED if one.method == "GET" and one.status < 400]
    assert {one.status for one in taken} == {206}
    assert sum(one.bytes for one in taken) < 0.4 * len(whole)


def test_parquet_is_read_by_column(client: httpx.Client, large: str, wait_until: Callable[..., None]) -> None:
    address = f"{large}/result?f=parquet"
    whole = client.get(address).content
    wait_until(lambda: SERVED[-1].bytes == len(whole))
    SERVED.clear()
    with fsspec.open(f"{client.base_url}{address}", block_size=2**16) as file:
        column = pq.ParquetFile(file).read(["value"])["value"].to_numpy()
    np.testing.assert_array_equal(column, pq.read_table(io.BytesIO(whole))["value"].to_numpy())
    taken = [one for one in SERVED if one.method == "GET"]
    assert {one.status for one in taken} == {206}
    assert sum(one.bytes for one in taken) < len(whole)
