"""Bad input of every kind: a problem document and no harm, never an error of the server, a traceback or a hang."""

import copy
import dataclasses
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

import hypergrid as hg
from queries.jobs.admission import Limits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web import server
from queries.web.app import create_app
from queries.web.auth.access import LOCAL, Access, Caller, CallerLimits
from queries.web.auth.scopes import PROBES
from queries.web.middleware import request_limits
from tests.queries.conftest import MAP, SERIES, Gate
from tests.serving import SharedServer

Document = dict[str, Any]
JSON = {"Content-Type": "application/json"}
SMALL = Caller("local", "this machine", "admin", CallerLimits(queries=Limits(cells=2000, seconds=1.0, bytes=1 << 28)))
"""Somebody who may not keep this machine busy."""


def problem(answer: httpx.Response) -> Document:
    """Return the problem document that an answer is, and must be."""
    assert 400 <= answer.status_code < 500 or answer.status_code == 503, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told = answer.json()
    assert told["status"] == answer.status_code
    assert told["detail"]
    assert "Traceback" not in answer.text
    return dict(told)


@pytest.fixture
def app(archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> FastAPI:
    return create_app(make_runner(archive), Catalogue(archive))


def host_and_port(address: str) -> tuple[str, int]:
    """Return what a socket needs of an address."""
    url = httpx.URL(address)
    assert url.port is not None
    return url.host, url.port


@pytest.fixture
def address(app: FastAPI, shared: SharedServer) -> Iterator[tuple[str, int]]:
    with shared.serving(app) as made:
        yield host_and_port(made)


@pytest.fixture
def client(address: tuple[str, int]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as made:
        yield made


# Bodies

MEGABYTE = 1_000_000
DEEP = b'{"variable":"air_temperature","steps":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MERGES = '{"variable":"air_temperature","steps":[{"op":"merge","function":"difference","with":['
BODIES = [
    b"[" * 900_000,
    b'{"a":' * 100_000,
    DEEP,
    (MERGES * 9 + '{"variable":"air_temperature"}' + "]}]}" * 9).encode(),  # deeper than merges may be
    b'{"variable": 1e400}',
    b'{"variable": "air_temperature", "clip": {"time": [1e400, -1e400]}}',
    b'{"variable": "air_temperature", "clip": {"time": [NaN, Infinity]}}',
    b'{"variable": ' + b"9" * 900_000 + b"}",  # a whole number of 900,000 digits
    b'{"variable": "air_temperature", "accept_flags": [' + b"1," * 400_000 + b"1]}{",
    b'{"variable": "\\ud800"}',
    b'{"variable": "a\\u0000b"}',
    b'\xff\xfe{\x00"\x00',
    b"\x1f\x8b\x08\x00" + b"\x00" * 100,
    b"",
    b"null",
    b"true",
    b'"text"',
    b"{}",
    b'{"variable": {"$ref": "#/"}}',
    b'{"variable":"air_temperature","variable":"x"}',
]


@pytest.mark.parametrize("body", BODIES, ids=range(len(BODIES)))
@pytest.mark.parametrize("path", ["queries", "queries/explain", "session"])
def test_bodies_that_are_meant_ill(client: httpx.Client, path: str, body: bytes) -> None:
    begun = time.process_time()
    problem(client.post(f"/api/v1/{path}", content=body, headers=JSON))
    assert time.process_time() - begun < 5
    assert client.get("/health/live").status_code == 200


def test_ten_megabytes_are_refused_before_they_are_read(client: httpx.Client, address: tuple[str, int]) -> None:
    told = problem(client.post("/api/v1/queries", content=b" " * 10 * MEGABYTE, headers=JSON))
    assert told["status"] == 413
    with socket.create_connection(address, timeout=60) as one:
        one.sendall(
            b"POST /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 10000000000000\r\n\r\n"
        )
        assert one.recv(100).startswith(b"HTTP/1.1 413")


def test_ten_megabytes_in_chunks_are_refused(client: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(160):
            yield b" " * 65_536

    assert problem(client.post("/api/v1/queries", content=chunks(), headers=JSON))["status"] == 413


# Numbers, times, grids, names

GRID = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [10, 12]}
GRIDS: list[Document] = [
    {"shape": [10**9, 10**9]},
    {"shape": [10**30, 1]},
    {"shape": [-1, 5]},
    {"shape": [0, 0]},
    {"shape": [1.5, 2]},
    {"shape": "big"},
    {"step": "1e-300arcsec"},
    {"step": 1e-300},
    {"step": 1e300},
    {"step": -1},
    {"step": "0arcsec"},
    {"lon": 1e308},
    {"lon": [7, 1e308], "lat": [45, 46], "shape": None},
    {"lon": "9" * 5000},
    {"lon": {"a": 1}},
    {"z": [10**400]},
    {"z": list(range(100_000))},
]


@pytest.mark.parametrize("change", GRIDS, ids=range(len(GRIDS)))
def test_grids_without_measure(client: httpx.Client, change: Document) -> None:
    document = copy.deepcopy(MAP)
    document["steps"][2]["grid"] = {k: v for k, v in {**GRID, **change}.items() if v is not None}
    begun = time.process_time()
    for path in ("queries", "queries/explain"):
        answer = client.post(f"/api/v1/{path}", json=document)
        if path == "queries" or answer.status_code != 200:
            problem(answer)
    assert time.process_time() - begun < 5


CLIPS = [
    ["1500-01-01", "1600-01-01"],
    ["0000-01-01", "9999-12-31"],
    ["-271821-04-20", "275760-09-13"],
    ["2007-10-01T25:00Z", "2007-10-02"],
    ["2007-02-30", "2007-03-01"],
    [0, 10**30],
    ["2007-10-01", "2007-10-01"],
    [None, None],
    ["2007-10-01"],
    "2007",
    [["2007-10-01"], {}],
    ["2007-10-01T00:00Z" * 10_000, "2007-10-02"],
]


@pytest.mark.parametrize("clip", CLIPS, ids=range(len(CLIPS)))
def test_times_out_of_time(client: httpx.Client, clip: object) -> None:
    problem(client.post("/api/v1/queries", json={**MAP, "clip": {"time": clip}}))


TIMES: list[object] = [
    "1e400min", "0min", "-1h", "1ns", "99999999999999999999day", {"length": "1day", "step": "1ns"}, 5, None, [],
    {"step": "1day", "zone": "../../etc/passwd"}, {"step": "1day", "zone": "/etc/passwd"}, "all " * 1000,
]  # fmt: skip


@pytest.mark.parametrize("time_", TIMES, ids=range(len(TIMES)))
def test_cells_of_time_that_cannot_be(client: httpx.Client, time_: object) -> None:
    document = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": time_}]}
    begun = time.process_time()
    problem(client.post("/api/v1/queries", json=document))
    assert time.process_time() - begun < 5


PATHS = [
    "/../../etc/passwd", "/api/v1/../../etc/passwd", "/api/v1/queries/..%2f..%2f..%2fetc%2fpasswd",
    "/api/v1/queries/%2e%2e/%2e%2e", "/static/..%2f..%2fpyproject.toml", "/api/v1/queries/%00",
    "/api/v1/queries/%ff%fe", "/api/v1/queries/" + "a" * 8000, "/api/v1/queries/x/zarr/../../../../etc/passwd",
    "/api/v1/queries/x/zarr/%2e%2e/%2e%2e",
    "//evil.example/", "/api//v1//variables", "/API/v1/variables", "/api/v1/variables/", "/api/v1/variables;x",
    "/api/v1/queries/x%0d%0aSet-Cookie:%20a=b", "/api/v1/series?station=..%2f..&variable=..%2f..%2fetc",
    "/api/v1/latest?variable=%00", "/api/v1/latest?variable=..%2f..", "/api/v1/queries/x/result?f=../../etc/passwd",
    "/api/v1/queries/x/frame?time=1e400", "/api/v1/queries/x/frame?time=99999999999999999999999",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS, ids=range(len(PATHS)))
def test_paths_that_lead_elsewhere(address: tuple[str, int], path: str) -> None:
    with socket.create_connection(address, timeout=60) as one:
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: one.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    status = int(head.split()[1])
    assert status in (307, 400, 404, 405, 422), head
    assert b"root:" not in body
    assert b"Set-Cookie" not in head
    assert b"evil.example" not in head
    if status != 307:
        assert b"application/problem+json" in head


POST = b"POST /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
HEADS = [
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n",  # a header over two lines
    b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    POST + b"Content-Length: -5\r\n\r\n",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000,
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
]


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_heads_that_are_none(address: tuple[str, int], head: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_S", 1.0)
    with socket.create_connection(address, timeout=60) as one:
        try:
            one.sendall(head)
            answer = one.recv(65_536)
        except ConnectionError:
            answer = b""
    assert answer == b"" or int(answer.split()[1]) < 500
    assert b"Traceback" not in answer
    with httpx.Client(base_url=f"http://{address[0]}:{address[1]}", timeout=60) as other:
        assert other.get("/health/live").status_code == 200


# Slow ones


def is_closed(one: socket.socket) -> bool:
    """Wait until the other end closes; tell whether it did."""
    one.settimeout(60)
    try:
        while one.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionError:
        pass
    return True


def test_a_connection_that_says_nothing_or_little_is_closed(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HEAD_S", 0.5)
    with socket.create_connection(address) as silent, socket.create_connection(address) as slow:
        slow.sendall(b"GET /health/live HTTP/1.1\r\nHost: local")
        for _ in range(3):
            time.sleep(0.1)
            with suppress(ConnectionError):
                slow.sendall(b"h")  # a byte now and then buys no time
        assert is_closed(silent)
        assert is_closed(slow)
    with socket.create_connection(address) as second:
        second.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert second.recv(100).startswith(b"HTTP/1.1 200")
        second.sendall(b"GET /health/l")  # the head of another one
        assert is_closed(second)


def test_a_body_that_comes_too_slowly_is_refused(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], shared: SharedServer
) -> None:
    app = create_app(make_runner(archive), Catalogue(archive))
    (middleware,) = [one for one in app.user_middleware if one.cls is request_limits.RequestLimitsMiddleware]
    middleware.kwargs["body_s"] = 0.5
    with shared.serving(app) as made, socket.create_connection(host_and_port(made)) as one:
        one.sendall(
            b"POST /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        one.settimeout(60)
        answer = b""
        # Head and body may come together or apart.
        while b"within 0.5 s" not in answer and (more := one.recv(65_536)):
            answer += more
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"within 0.5 s" in answer


def test_many_half_open_connections_keep_nobody_out(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    def is_let_in() -> bool:
        with suppress(httpx.TransportError), httpx.Client(base_url=f"http://{address[0]}:{address[1]}") as other:
            return other.get("/health/live").status_code == 200
        return False

    monkeypatch.setattr(server, "MOST_CONNECTIONS", 50)
    monkeypatch.setattr(server, "HEAD_S", 600.0)  # so that nothing else closes a connection
    held = []
    try:
        for _ in range(60):
            one = socket.create_connection(address)
            one.sendall(b"GET / HTTP/1.1\r\n")
            held.append(one)
        with socket.create_connection(address, timeout=60) as further:
            assert is_closed(further)
        for one in held[:20]:
            one.close()
        wait_until(is_let_in)
    finally:
        for one in held:
            one.close()


def test_one_address_cannot_take_all_connections(
    address: tuple[str, int], app: FastAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_OF_AN_ADDRESS", 5)
    monkeypatch.setattr(server, "HEAD_S", 600.0)  # so that nothing else closes a connection
    held = [socket.create_connection(address) for _ in range(5)]
    try:
        with socket.create_connection(address, timeout=60) as further:
            assert is_closed(further)
        with socket.create_connection(address, timeout=60, source_address=("127.0.0.2", 0)) as other:
            other.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert other.recv(100).startswith(b"HTTP/1.1 200")
        access = app.state.access
        monkeypatch.setattr(access, "rules", dataclasses.replace(access.rules, trusted_proxies=("127.0.0.1",)))
        with socket.create_connection(address, timeout=60) as proxy:
            proxy.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert proxy.recv(100).startswith(b"HTTP/1.1 200")
    finally:
        for one in held:
            one.close()


def test_a_body_with_two_lengths_is_refused(address: tuple[str, int]) -> None:
    with socket.create_connection(address, timeout=60) as one:
        one.sendall(
            b"POST /api/v1/queries HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
        )
        assert one.recv(1000).startswith(b"HTTP/1.1 400")


def test_more_requests_than_may_be_open_are_told_to_come_back(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = create_app(make_runner(archive), Catalogue(archive))
    (middleware,) = [one for one in app.user_middleware if one.cls is request_limits.RequestLimitsMiddleware]
    middleware.kwargs["most_open"] = 0
    client = TestClient(app, base_url="http://127.0.0.1")
    answer = client.get("/api/v1/variables")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
    problem(answer)
    assert [client.get(probe).status_code for probe in PROBES] == [200] * 4
    monkeypatch.setattr(request_limits, "MOST_PROBES", 0)
    assert [client.get(probe).status_code for probe in PROBES] == [503] * 4


def opened_streams(place: tuple[str, int], path: str, addresses: Sequence[str]) -> Iterator[socket.socket]:
    """Yield connections from some addresses, each with a stream of events that has begun."""
    for address in addresses:
        one = socket.create_connection(place, timeout=60, source_address=(address, 0))
        one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert one.recv(20).startswith(b"HTTP/1.1 200")
        yield one


@contextmanager
def streams(
    archive: hg.OpenArchive, runner: Runner, gate: Gate, shared: SharedServer, addresses: Sequence[str]
) -> Iterator[httpx.Client]:
    """Open idle streams of events of a query that the gate holds, and give a client."""
    held: list[socket.socket] = []
    with ExitStack() as stack:
        made = stack.enter_context(shared.serving(create_app(runner, Catalogue(archive))))
        stack.callback(lambda: [one.close() for one in held])
        # Else the server waits at its end for what the gate holds.
        stack.callback(gate.open)
        client = stack.enter_context(httpx.Client(base_url=made, timeout=60))
        job = client.post("/api/v1/queries", json=MAP).json()["id"]
        # Its own connection is no longer there when the streams are.
        client.close()
        held.extend(opened_streams(host_and_port(made), f"/api/v1/queries/{job}/events", addresses))
        yield stack.enter_context(httpx.Client(base_url=made, timeout=60))


def test_400_idle_streams_leave_health_and_metrics_answered(
    archive: hg.OpenArchive, gate: Gate, make_runner: Callable[..., Runner], shared: SharedServer
) -> None:
    addresses = [f"127.0.0.{2 + number // 200}" for number in range(400)]
    with streams(archive, make_runner(gate), gate, shared, addresses) as client:
        assert client.get("/api/v1/variables").status_code == 503
        begun = time.perf_counter()
        assert [client.get(probe).status_code for probe in PROBES] == [200] * 4
        assert time.perf_counter() - begun < 5


def test_an_address_with_all_its_connections_reads_health_and_metrics_alone(
    archive: hg.OpenArchive, gate: Gate, make_runner: Callable[..., Runner], shared: SharedServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(server, "MOST_OF_AN_ADDRESS", 10)
    with streams(archive, make_runner(gate), gate, shared, ["127.0.0.1"] * 10) as client:
        answers = [client.get(probe) for probe in PROBES]
        assert [(answer.status_code, answer.headers["connection"]) for answer in answers] == [(200, "close")] * 4
        problem(client.get("/api/v1/variables"))
        monkeypatch.setattr(server, "MOST_RESERVED", 0)
        with pytest.raises(httpx.TransportError):
            client.get("/health/live")


# A fuzz of query JSON: valid ones with something changed.

WORDS = [
    "", "all", "10min", "1e9day", "2007-10-01", "1500-01-01", "mean", "fit", "recipe", "time", "°", "\x00", "5 m",
    "hour_of_day", "month", "station", "ordinary_kriging", "1arcsec", "45:52:01", "air_temperature",
]  # fmt: skip
KEYS = ["time", "grid", "params", "with", "z", "zones", "lon", "x", "op", "junk"]
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(-(10**40), 10**40), st.floats(allow_nan=False),
    st.sampled_from([1e308, -1e308, 5e-324, 10**400, 2**63, -(2**63) - 1, 0, -1, 0.5]), st.text(max_size=20),
    st.sampled_from(WORDS),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=4),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip

SEEDS: list[Document] = [
    MAP,
    SERIES,
    {**SERIES, "select": {"station": "1", "height_m": [2.0]}, "accept_flags": [1, 2, 3]},
    {**MAP, "variance": True},
    {**SERIES, "as_of": "2007-10-01T06:00Z", "snapshot": None},
    {
        "variable": "air_temperature",
        "steps": [
            {"op": "aggregate", "function": "mean", "time": {"length": "2h", "step": "1h"}},
            {"op": "merge", "function": "difference", "with": [SERIES]},
            {"op": "aggregate", "function": "max", "time": "hour_of_day"},
        ],
    },
    {
        "variable": "air_temperature",
        "steps": [
            {"op": "interpolate", "method": "linear", "time": "10min"},
            {"op": "aggregate", "function": "mean", "time": "all", "lon": "1arcmin", "lat": "1arcmin"},
        ],
    },
]


def places(value: object, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a document."""
    inside = (
        list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    )
    return [here, *(place for key, one in inside for place in places(one, (*here, key)))]


@st.composite
def changed(draw: st.DrawFn) -> object:
    """A valid query in which one to three things were replaced, removed, added or repeated."""
    document: Any = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(document)))
        if not place:
            continue
        holder = document
        for key in place[:-1]:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add", "swap"])):
            case "replace":
                holder[place[-1]] = draw(ODD)
            case "remove":
                del holder[place[-1]]
            case "add" if isinstance(holder, dict):
                holder[draw(st.sampled_from(KEYS))] = draw(ODD)
            case "add":
                holder.append(draw(ODD))
            case "swap":
                holder[place[-1]] = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    return document


@pytest.fixture
def fuzzed(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[object], None]]:
    """Ask what a document says, of somebody who may not ask for much, and look at the answer."""
    monkeypatch.setattr("queries.web.auth.access.LOCAL", SMALL)
    runner = make_runner(archive, capacity=1000, allowed_bytes=1 << 29)
    with TestClient(
        create_app(runner, Catalogue(archive), access=Access(None, time.time_ns)), base_url="http://127.0.0.1"
    ) as client:

        def ask(document: object) -> None:
            content = json.dumps(document).encode("utf-8", "surrogatepass")
            for path in ("queries/explain", "queries"):
                begun = time.process_time()
                answer = client.post(f"/api/v1/{path}", content=content, headers=JSON)
                assert time.process_time() - begun < 20, "it takes too long to say what a query costs"
                if not answer.is_success:
                    problem(answer)
            if answer.status_code == 202:
                here = f"/api/v1/queries/{answer.json()['id']}"
                client.delete(here)
                error = client.get(here).json()["error"]
                assert error is None or error["type"] != "urn:hypergrid:problem:unexpected", error

        yield ask


def test_who_is_local_is_so_in_this_file(fuzzed: Callable[[object], None]) -> None:
    assert LOCAL.allowed.queries.cells is None
    assert Access(None, time.time_ns).identify_caller(key=None, session=None).allowed.queries.cells == 2000


@settings(max_examples=500, suppress_health_check=list(HealthCheck))
@given(document=changed())
def test_changed_queries_are_answered_or_refused(fuzzed: Callable[[object], None], document: object) -> None:
    fuzzed(document)


@pytest.mark.soak
@settings(max_examples=50_000, suppress_health_check=list(HealthCheck))
@given(document=changed())
def test_fifty_thousand_changed_queries(fuzzed: Callable[[object], None], document: object) -> None:
    fuzzed(document)
