"""The Python client asks with the words of a query in this process, and gets the same surface."""

from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr
from fastapi import FastAPI
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.core.errors import Cancelled, InvalidQuery, InvalidTime, NotFound
from hypergrid.perspective.spec.fluent import Fluent
from queries.jobs.runner import Runner
from viz import connection as connection_module
from viz.client import Client, RemoteQuery, ServerProblem

MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
GRID = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(10, 12))


@pytest.fixture
def remote(app: FastAPI, gate: Any) -> Client:  # noqa: ANN401 - of the folder above
    gate.open()
    return Client("http://127.0.0.1", transport=TestClient(app, base_url="http://127.0.0.1")._transport)


def chain(base: Any) -> Any:  # noqa: ANN401 - a query of either kind
    """Say the same to a query in this process and to one of a server."""
    hourly = base.convert("valid_range", low=-40.0, high="50 degC").aggregate("mean", time="1h", min_coverage=0.5)
    kriged = hourly.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4)
    other = hourly.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    clipped = kriged.merge("difference", other).clip(time=("2007-10-01", "2007-10-01T04:00"))
    return clipped.select(height_m=2.0, statistic=["sample", "mean"]).accept_flags(1, 2, 3)


def test_the_same_words_make_the_same_json(remote: Client, archive: hg.OpenArchive) -> None:
    here, there = chain(archive["air_temperature"]), chain(remote["air_temperature"])
    assert isinstance(here, hg.Query)
    assert isinstance(there, RemoteQuery)
    mine, its = here.to_json(), there.to_json()
    for document in (mine, mine["steps"][3]["with"][0]):
        assert document.pop("snapshot") == archive.snapshot
    for document in (its, its["steps"][3]["with"][0]):
        assert document.pop("snapshot") is None
    assert its == mine
    assert repr(there) == repr(here).replace("Query", "RemoteQuery")


def test_no_word_is_missing() -> None:
    words = {name for name in vars(Fluent) if not name.startswith("_")}
    assert words == {
        "convert",
        "aggregate",
        "interpolate",
        "merge",
        "clip",
        "at_stations",
        "select",
        "accept_flags",
        "with_variance",
        "to_json",
    }
    assert not words & set(vars(hg.Query))
    assert not words & set(vars(RemoteQuery))


def test_the_same_surface_comes_back(remote: Client, archive: hg.OpenArchive) -> None:
    told: list[float] = []
    there = chain(remote["air_temperature"]).compute(progress=told.append)
    here = chain(archive["air_temperature"]).compute()
    np.testing.assert_allclose(there["value"], here["value"], rtol=1e-12)
    assert set(there.variables) == set(here.variables)
    assert type(there) is type(here)
    assert all(there[name].attrs == here[name].attrs for name in here.data_vars)
    assert there.attrs["hypergrid_snapshot"] == archive.snapshot
    assert told == sorted(told)
    assert told[-1] == 1.0
    series = remote["air_temperature"].aggregate("max", time="6h").compute()
    xr.testing.assert_equal(series["value"], archive["air_temperature"].aggregate("max", time="6h").compute()["value"])
    assert "ordinary_kriging" in chain(remote["air_temperature"]).explain()


def test_what_there_is(remote: Client, archive: hg.OpenArchive) -> None:
    assert "air_temperature" in remote
    assert list(remote.variables) == ["air_temperature"]
    assert remote.snapshots[0]["id"] == archive.snapshot
    assert len(remote.stations["features"]) == 6
    assert remote.saved["hourly"].to_json()["variable"] == "air_temperature"
    latest = remote.latest("air_temperature")
    assert sorted(latest["station"]) == ["1", "2", "3", "4", "5"]
    rows = remote.series(station=["1", "2"], start="2007-10-01T01:00Z", stop="2007-10-01T02:00Z", flags=[1, 2])
    readings = archive.store.read("air_temperature")
    assert set(rows["station"]) == {"1", "2"}
    assert len(rows) == 2 * 30
    assert set(rows["value"]) <= set(readings.value)


def test_errors_are_those_of_a_query_in_this_process(remote: Client) -> None:
    base = remote["air_temperature"]
    with pytest.raises(NotFound, match="air_temperature"):
        remote["air_temprature"]
    with pytest.raises(InvalidQuery, match="grid"):
        base.aggregate("mean", lon="all").compute()
    with pytest.raises(InvalidTime):
        base.clip(time=("yesterday", "today")).compute()
    with pytest.raises(NotFound, match="mena"):
        base.aggregate("mena", time="1h")


def test_an_impatient_client_stops_its_query(
    app: FastAPI,
    gate: Any,  # noqa: ANN401
    runner: Runner,
    wait_until: Callable[..., None],
) -> None:
    remote = Client("http://127.0.0.1", transport=TestClient(app, base_url="http://127.0.0.1")._transport)
    with pytest.raises(Cancelled, match="longer"):
        chain(remote["air_temperature"]).compute(timeout_s=0.1)
    gate.open()
    wait_until(lambda: runner.statistics().running == 0)
    assert [job.state for job in runner.jobs()] == ["cancelled"]


def test_the_key_goes_along_and_is_never_shown() -> None:
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(401, json={"title": "An access key is needed", "detail": "give one", "status": 401})

    client = Client("http://example.test/below/", key="hg_secret", transport=httpx.MockTransport(answer))
    with pytest.raises(ServerProblem, match="An access key is needed: give one") as raised:
        client["air_temperature"]
    assert raised.value.status == 401
    assert str(seen[0].url) == "http://example.test/below/api/v1/variables"
    assert seen[0].headers["authorization"] == "Bearer hg_secret"
    assert "hg_secret" not in repr(client)


@pytest.mark.parametrize("content", [b"<html>gateway</html>", b"[]", b""])
def test_what_is_no_problem_document_is_told_all_the_same(content: bytes) -> None:
    client = Client(
        "http://example.test", transport=httpx.MockTransport(lambda _: httpx.Response(502, content=content))
    )
    with pytest.raises(ServerProblem, match="The server answered 502"):
        _ = client.stations


def test_a_server_that_is_not_there_is_told(give_time: Callable[..., None]) -> None:
    paused: list[float] = []
    give_time(connection_module, sleep=paused.append)

    def fail(request: httpx.Request) -> httpx.Response:
        message = "refused"
        raise httpx.ConnectError(message, request=request)

    client = Client("http://example.test", transport=httpx.MockTransport(fail), tries=3)
    with pytest.raises(ServerProblem, match=r"does not answer: http://example\.test.* refused"):
        _ = client.stations
    assert paused == [1.0, 1.0]
    with pytest.raises(ServerProblem, match="does not answer"):
        client.send("POST", "queries", json={})
    assert len(paused) == 2, "what may have been done is not done again"


def test_a_server_that_says_later_is_asked_again(give_time: Callable[..., None]) -> None:
    paused: list[float] = []
    give_time(connection_module, sleep=paused.append)
    answers = iter([(429, {"Retry-After": "3"}), (503, {"Retry-After": "3600"}), (200, {})])

    def answer(_: httpx.Request) -> httpx.Response:
        status, headers = next(answers)
        return httpx.Response(status, headers=headers, json={"title": "Later", "detail": "busy", "status": status})

    client = Client("http://example.test", transport=httpx.MockTransport(answer))
    assert client.send("POST", "queries", json={}).status_code == 200
    assert paused == [3.0, 10.0]
    full = httpx.MockTransport(lambda _: httpx.Response(429, headers={"Retry-After": "1"}, json={"title": "Full"}))
    with pytest.raises(ServerProblem, match="Full"):
        _ = Client("http://example.test", transport=full, tries=2).stations
    assert paused == [3.0, 10.0, 1.0]


def test_a_second_opinion_comes_with_the_result(remote: Client) -> None:
    dataset = chain(remote["air_temperature"]).compute(second_opinion=10)
    assert "second opinion by PyKrige" in dataset.attrs["comment"]
