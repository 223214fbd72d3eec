"""Text goes compressed to clients that take gzip, and everything else as it is; tags, HEAD and 304 say so."""

import gzip
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from queries.web.responses import negotiation
from queries.web.responses.negotiation import takes_gzip

Document = dict[str, Any]
GZIP, PLAIN = {"Accept-Encoding": "gzip, deflate, br"}, {"Accept-Encoding": "identity"}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the small archive's answers be large enough; before the application is made."""
    monkeypatch.setattr(negotiation, "SMALLEST_BYTES", 200)
    monkeypatch.setattr("queries.web.routes.readings.SMALLEST_BYTES", 200)


@pytest.fixture
def done(
    small: None,
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Callable[..., None],
) -> str:
    """Return the address of a finished map."""
    gate.open()
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    wait_until(lambda: client.get(address).json()["state"] == "done")
    return str(address)


def raw(
    client: httpx.Client, address: str, headers: dict[str, str], method: str = "GET"
) -> tuple[httpx.Response, bytes]:
    """Return an answer, and its bytes as they came."""
    with client.stream(method, address, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


TEXTS = [
    "/api/v1/latest", "/api/v1/latest?f=csv", "/api/v1/stations", "/api/v1/series", "/api/v1/series?f=covjson",
    "/edr/collections", "/edr/collections/stations/locations", "/edr/collections/stations/locations/1?f=GeoJSON",
    "/openapi.json", "{done}", "{done}/result?f=csv", "{done}/result?f=covjson", "{done}/frame",
]  # fmt: skip
FILES = [f"{{done}}/result?f={form}" for form in ("netcdf", "parquet", "geotiff", "png", "zarr")] + [
    "/api/v1/series?f=parquet", "{done}/zarr/air_temperature/c/0/0/0", "/api/v1/series?f=netcdf",
]  # fmt: skip


@pytest.mark.parametrize("address", TEXTS)
def test_text_is_compressed_for_those_that_take_it(client: httpx.Client, done: str, address: str) -> None:
    address = address.format(done=done)
    plain, content = raw(client, address, PLAIN)
    coded, packed = raw(client, address, GZIP)
    assert "content-encoding" not in plain.headers
    assert coded.headers["content-encoding"] == "gzip"
    assert len(packed) < len(content)
    assert gzip.decompress(packed) == content
    for answer in (plain, coded):
        assert "Accept-Encoding" in answer.headers["vary"]
    assert raw(client, address, GZIP)[1] == packed
    head, nothing = raw(client, address, GZIP, "HEAD")
    assert nothing == b""
    for name in ("content-encoding", "content-length", "etag", "vary", "content-type"):
        assert head.headers.get(name) == coded.headers.get(name)
    if "content-length" in coded.headers:
        assert int(coded.headers["content-length"]) == len(packed)


@pytest.mark.parametrize("address", FILES)
def test_files_are_not_compressed_again(client: httpx.Client, done: str, address: str) -> None:
    answer, content = raw(client, address.format(done=done), GZIP)
    assert answer.status_code == 200
    assert "content-encoding" not in answer.headers
    assert len(content) > 200 or "zarr" in address


def test_events_come_as_they_happen(client: httpx.Client, gate: Any, map_query: Document) -> None:  # noqa: ANN401
    address = client.post("/api/v1/queries", json=map_query).headers["location"]
    with client.stream("GET", f"{address}/events", headers=GZIP) as answer:
        assert "content-encoding" not in answer.headers
        # The first comes while the gate still keeps all others back.
        assert next(answer.iter_raw()).startswith(b"id:")
        gate.open()


@pytest.mark.parametrize(
    "address", ["/api/v1/latest", "/api/v1/series", "/edr/collections/stations/locations", "{done}/result?f=csv"]
)
def test_each_coding_has_a_tag_of_its_own(client: httpx.Client, done: str, address: str) -> None:
    address = address.format(done=done)
    plain, coded = (raw(client, address, headers)[0].headers["etag"] for headers in (PLAIN, GZIP))
    assert plain != coded
    assert not coded.startswith("W/")
    for headers, tag in ((PLAIN, plain), (GZIP, coded)):
        for known in (tag, f'"other", W/{tag}'):
            again, nothing = raw(client, address, headers | {"If-None-Match": known})
            assert (again.status_code, nothing, again.headers["etag"]) == (304, b"", tag)
            assert "Accept-Encoding" in again.headers["vary"]
    assert raw(client, address, GZIP | {"If-None-Match": f'"other-gzip", {coded[:-1]}x"'})[0].status_code == 200


def test_what_is_small_goes_as_it_is(client: httpx.Client) -> None:
    answer, _ = raw(client, "/health/live", GZIP)
    assert "content-encoding" not in answer.headers


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, br", False),
        ("", False),
        ("identity", False),
    ],
)
def test_a_coding_of_no_quality_is_not_taken(client: httpx.Client, accepted: str, takes: bool) -> None:  # noqa: FBT001
    assert takes_gzip(httpx.Headers({"Accept-Encoding": accepted})) == takes  # type: ignore[arg-type]
    for address in ("/api/v1/latest", "/api/v1/series"):
        answer, _ = raw(client, address, {"Accept-Encoding": accepted})
        assert (answer.headers.get("content-encoding") == "gzip") == takes
