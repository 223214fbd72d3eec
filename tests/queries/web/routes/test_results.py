"""Finished results: every format, tags, and a Zarr store that is read file by file."""

import base64
import io
import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from covjson_pydantic.coverage import Coverage
from rasterio.io import MemoryFile
from zarr.storage import FsspecStore, WrapperStore

import hypergrid as hg
from hypergrid.core.errors import SingularSystem

Document = dict[str, Any]


@pytest.fixture
def done(client: httpx.Client, gate: Any, map_query: Document, wait_until: Callable[..., None]) -> str:  # noqa: ANN401
    """Return the address of a finished map."""
    gate.open()
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    wait_until(lambda: client.get(address).json()["state"] == "done")
    return str(address)


@pytest.fixture
def surface(archive: hg.OpenArchive, map_query: Document) -> xr.Dataset:
    return archive.query(map_query).compute()


def test_new_formats_hold_what_python_computes(client: httpx.Client, done: str, surface: xr.Dataset) -> None:
    values = surface["value"].to_numpy()
    coverage = client.get(f"{done}/result", params={"f": "covjson"})
    assert coverage.headers["content-type"] == "application/vnd.cov+json"
    parsed = Coverage.model_validate_json(coverage.content)
    np.testing.assert_allclose(parsed.ranges["air_temperature"].values, values.ravel())
    table = pd.read_parquet(io.BytesIO(client.get(f"{done}/result", params={"f": "parquet"}).content))
    np.testing.assert_allclose(table["value"], values.ravel())
    tiff = client.get(f"{done}/result", params={"f": "geotiff"})
    with MemoryFile(tiff.content) as held, held.open() as raster:
        np.testing.assert_allclose(raster.read(3)[::-1], values[2])


def test_a_second_opinion_is_given_of_a_finished_result(client: httpx.Client, done: str) -> None:
    opinion = client.get(f"{done}/second-opinion", params={"cells": 30}).json()
    assert opinion["agrees"]
    assert opinion["comparisons"][0]["cells"] == 30
    assert opinion["sentence"].startswith("second opinion by PyKrige 1.")
    assert "notes" in client.get(done).json()
    assert client.get(f"{done}/second-opinion", params={"cells": 0}).status_code == 422
    assert client.get("/api/v1/queries/none/second-opinion").status_code == 404


def test_the_lineage_of_a_cell_is_told(client: httpx.Client, done: str, surface: xr.Dataset) -> None:
    cell = surface["air_temperature"].isel(time=2, lat=3, lon=1)
    at = {"time": str(cell.time.to_numpy()), "lat": cell.lat.item(), "lon": cell.lon.item()}
    answer = client.get(f"{done}/lineage", params={**at, "limit": 3})
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["value"] == pytest.approx(cell.item()) == pytest.approx(made["recomputed"])
    assert made["stations"][0]["slices"] == 1
    assert len(made["readings"]) == 3 <= made["used"]
    assert (made["changes"], made["changed"]) == ([], {})
    assert client.get(f"{done}/lineage", params=at | {"lat": 12.0}).status_code == 404
    answer = client.get(f"{done}/lineage", params={"time": at["time"]})
    assert answer.status_code == 400
    assert "got no lat; give for example" in answer.json()["detail"]
    assert client.get("/api/v1/queries/none/lineage").status_code == 404


def test_a_query_is_asked_together_with_a_second_opinion(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Callable[..., None],
) -> None:
    gate.open()
    jobs = [
        client.post("/api/v1/queries", json=map_query, params=params).json()
        for params in ({}, {"second_opinion": 20}, {"second_opinion": 30})
    ]
    # A result without it is another one, also for caches.
    assert len({job["token"] for job in jobs}) == 3
    addresses = [job["links"]["self"] for job in jobs]
    wait_until(lambda: all(client.get(address).json()["state"] == "done" for address in addresses))
    notes = [client.get(address).json()["notes"] for address in addresses]
    assert [sum("second opinion by PyKrige" in note for note in each) for each in notes] == [0, 1, 1]
    assert "20 of 480 cells agree" in notes[1][-1]
    content = client.get(f"{addresses[2]}/result", params={"f": "netcdf"}).content
    with xr.open_dataset(io.BytesIO(content), engine="h5netcdf") as held:
        assert json.loads(held.attrs["hypergrid_second_opinion"])["comparisons"][0]["cells"] == 30
    assert client.post("/api/v1/queries", json=map_query, params={"second_opinion": "all"}).status_code == 422


def test_a_picture_shows_the_time_cell_that_is_asked_for(client: httpx.Client, done: str) -> None:
    pictures = {client.get(f"{done}/result", params={"f": "png", "time": time}).content for time in (0, 1)}
    assert len(pictures) == 2
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert client.get(f"{done}/result", params={"f": "png", "time": 4}).status_code == 400


def test_the_same_is_not_sent_again(client: httpx.Client, done: str) -> None:
    tags = {}
    for name in ("netcdf", "csv", "covjson"):
        answer = client.get(f"{done}/result", params={"f": name})
        tags[name] = answer.headers["etag"]
        assert answer.headers["cache-control"] == "private, no-cache"
        for known in (tags[name], f'"other", W/{tags[name]}'):
            again = client.get(f"{done}/result", params={"f": name}, headers={"If-None-Match": known})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tags[name])
    assert len(set(tags.values())) == 3
    other = client.get(f"{done}/result", params={"f": "csv"}, headers={"If-None-Match": tags["netcdf"]})
    assert other.status_code == 200


def test_an_identical_query_has_the_same_tag(
    client: httpx.Client, done: str, map_query: Document, wait_until: Callable[..., None]
) -> None:
    second = client.post("/api/v1/queries", json=map_query).headers["location"]
    wait_until(lambda: client.get(second).json()["state"] == "done")
    first = client.get(f"{done}/result").headers["etag"]
    assert client.get(f"{second}/result", headers={"If-None-Match": first}).status_code == 304


class Noting(WrapperStore[FsspecStore]):
    """What is read of a store is noted."""

    def __init__(self, store: FsspecStore) -> None:
        super().__init__(store)
        self.asked: list[str] = []

    async def get(self, key: str, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the store has it
        self.asked.append(key)
        return await super().get(key, *given, **named)


def test_zarr_is_read_file_by_file(client: httpx.Client, done: str, surface: xr.Dataset) -> None:
    store = Noting(FsspecStore.from_url(f"{client.base_url}{done}/zarr", read_only=True))
    opened = xr.open_zarr(store, chunks=None)
    assert not any(key.startswith("air_temperature/c/") for key in store.asked)
    assert opened.load().identical(surface)
    assert any(key.startswith("air_temperature/c/") for key in store.asked)


def test_xarray_opens_the_address(client: httpx.Client, done: str, surface: xr.Dataset) -> None:
    opened = xr.open_zarr(f"{client.base_url}{done}/zarr", chunks=None)
    assert opened.load().identical(surface)


def test_the_store_lists_its_files_and_no_others(client: httpx.Client, done: str) -> None:
    names = client.get(f"{done}/zarr/").json()
    assert "zarr.json" in names
    for name in names:
        answer = client.get(f"{done}/zarr/{name}")
        assert answer.status_code == 200
        again = client.get(f"{done}/zarr/{name}", headers={"If-None-Match": answer.headers["etag"]})
        assert again.status_code == 304
    for name in ("air_temperature/c/9/9/9", ".zmetadata", "..%2f..%2f..%2fetc%2fpasswd", "%2fetc%2fpasswd"):
        missing = client.get(f"{done}/zarr/{name}")
        assert missing.status_code == 404
        assert missing.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "path",
    ["{done}", "{done}/zarr/zarr.json", "{done}/zarr/nothing", "{done}/result?f=geotiff", "/edr/collections"],
)
def test_head_is_get_without_its_body(client: httpx.Client, done: str, path: str) -> None:
    address = path.format(done=done)
    head, whole = client.head(address), client.get(address)
    assert (head.status_code, head.content) == (whole.status_code, b"")
    # As they came: what is large enough comes compressed.
    assert head.headers["content-length"] == str(whole.num_bytes_downloaded)
    assert head.headers.get("etag") == whole.headers.get("etag")


def test_head_of_events_ends(client: httpx.Client, map_query: Document) -> None:
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    head = client.head(f"{address}/events", timeout=60)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"].startswith("text/event-stream")


def test_rasterio_opens_the_address(client: httpx.Client, done: str, surface: xr.Dataset) -> None:
    # In a process of its own: rasterio holds the interpreter while it waits for the server.
    words = "import json, sys, rasterio; print(json.dumps(rasterio.open(sys.argv[1]).read(1).tolist()))"
    address = f"{client.base_url}{done}/result?f=geotiff"
    told = subprocess.run([sys.executable, "-c", words, address], capture_output=True, check=True, timeout=60)
    # The first row of a picture is its northernmost.
    np.testing.assert_allclose(json.loads(told.stdout), surface["value"].to_numpy()[0, ::-1])


def test_a_store_needs_a_finished_query(client: httpx.Client, map_query: Document) -> None:
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    assert client.get(f"{address}/zarr/zarr.json").status_code == 409
    assert client.get("/api/v1/queries/none/zarr/zarr.json").status_code == 404


@pytest.mark.parametrize(
    ("params", "headers"),
    [({"wait": "20s"}, {}), ({"wait": "20"}, {}), ({}, {"Prefer": "respond-async, wait=20"})],
)
def test_who_waits_gets_the_result_itself(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    surface: xr.Dataset,
    params: Document,
    headers: dict[str, str],
) -> None:
    gate.open()
    answer = client.post("/api/v1/queries", json=map_query, params={**params, "f": "csv"}, headers=headers)
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, "text/csv")
    np.testing.assert_allclose(pd.read_csv(io.BytesIO(answer.content))["value"], surface["value"].to_numpy().ravel())
    assert answer.headers["preference-applied"] == "wait=20"
    known = {"If-None-Match": answer.headers["etag"]}
    again = client.get(f"{answer.headers['location']}/result", params={"f": "csv"}, headers=known)
    assert again.status_code == 304


def test_who_waits_too_short_is_told_where_to_look(client: httpx.Client, gate: Any, map_query: Document) -> None:  # noqa: ANN401
    answer = client.post("/api/v1/queries", json=map_query, params={"wait": "100ms"})
    assert answer.status_code == 202
    gate.open()
    assert client.get(answer.headers["location"]).status_code == 200


def test_who_waits_is_told_of_failure_and_of_bad_words(client: httpx.Client, gate: Any, map_query: Document) -> None:  # noqa: ANN401
    gate.failure = SingularSystem("two stations in one place")
    gate.open()
    answer = client.post("/api/v1/queries", json=map_query, params={"wait": "20s"})
    assert (answer.status_code, answer.json()["detail"]) == (422, "two stations in one place")
    for params in ({"wait": "long"}, {"wait": "-1s"}, {"wait": "1s", "f": "xls"}):
        assert client.post("/api/v1/queries", json=map_query, params=params).status_code == 422


@pytest.mark.parametrize("z", [None, [2350, 2450]])
def test_a_query_of_points_is_answered_by_its_series(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    archive: hg.OpenArchive,
    map_query: Document,
    z: object,  # noqa: ANN401
) -> None:
    gate.open()
    places = {"lon": [7.178, 7.179, 7.178], "lat": [45.8675, 45.868, 45.8675]}
    levels = {} if z is None else {"z": z}
    steps = [
        step if "grid" not in step else {
            **step, "grid": {"step": "1arcsec", "points": places, **levels},
            "params": {**step["params"], **({"trend": {"lapse_rate": -6.5}} if levels else {})},
        }
        for step in map_query["steps"]
    ]  # fmt: skip
    document = {**map_query, "steps": steps}
    answer = client.post("/api/v1/queries", json=document, params={"wait": "20s", "f": "csv"})
    assert answer.status_code == 200, answer.text
    expected = archive.query(document).compute()["value"].to_numpy()
    body = client.get(f"{answer.headers['location']}/series").json()
    assert body["shape"] == [len(expected), 6 if levels else 3]
    assert body["stations"][:3] == [
        f"{lon}, {lat}{' at 2350 m' if levels else ''}" for lon, lat in zip(*places.values(), strict=True)
    ]
    np.testing.assert_allclose(np.frombuffer(base64.b64decode(body["values"])), expected.ravel())
    assert client.get(f"{answer.headers['location']}/result", params={"f": "png"}).status_code == 200
    refused = client.get(f"{answer.headers['location']}/result", params={"f": "geotiff"})
    assert (refused.status_code, "interpolate onto a grid" in refused.json()["detail"]) == (400, True)
    assert client.get(f"{answer.headers['location']}/frame").status_code == 400
