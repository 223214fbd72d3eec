"""Clients with and without an event loop: the same answers as locally, refined, validated and broken off."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fastapi import FastAPI
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.core.errors import Cancelled, InvalidQuery, NotFound
from hypergrid.core.pacing import pace_work
from hypergrid.interpolation import CrossValidation
from queries.jobs import runner as runner_module
from queries.jobs.admission import Limits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.auth.access import Access, CallerLimits, Rules
from queries.web.auth.keys import KeyStore
from queries.web.routes import validation
from tests.serving import serving
from viz import connection as connection_module
from viz.client import AsyncClient, AsyncRemoteQuery, Client, RemoteQuery, RemoteRefinement, ServerProblem

ADDRESS = "http://127.0.0.1"
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
GRID = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(10, 12))
Ask = Callable[[AsyncClient], Awaitable[Any]]


@pytest.fixture
def remote(app: FastAPI, gate: Any) -> Client:  # noqa: ANN401 - of the folder above
    gate.open()
    return Client(ADDRESS, transport=TestClient(app, base_url=ADDRESS)._transport)


def run(app: FastAPI, ask: Ask, key: str | None = None) -> Any:  # noqa: ANN401 - whatever is asked
    """Ask on an event loop."""

    async def answer() -> Any:  # noqa: ANN401
        async with AsyncClient(ADDRESS, key, transport=httpx.ASGITransport(app), tries=1) as client:
            return await ask(client)

    return asyncio.run(answer())


def hourly(base: Any) -> Any:  # noqa: ANN401 - a query of any kind
    return base.convert("valid_range", low=-40.0, high=50.0).aggregate("mean", time="1h")


def kriged(base: Any) -> Any:  # noqa: ANN401
    made = hourly(base).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return made.clip(time=("2007-10-01", "2007-10-01T04:00"))


def test_both_forms_give_the_same_answers(app: FastAPI, remote: Client, archive: hg.OpenArchive) -> None:
    async def ask(client: AsyncClient) -> dict[str, Any]:
        assert isinstance(kriged(client["air_temperature"]), AsyncRemoteQuery)
        assert "AsyncClient('http://127.0.0.1')" in repr(client["air_temperature"].client)
        return {
            "variables": await client.variables(),
            "stations": await client.stations(),
            "snapshots": await client.snapshots(),
            "saved": {name: query.to_json() for name, query in (await client.saved()).items()},
            "suggestion": (await client.suggest()).to_json(),
            "latest": await client.latest("air_temperature"),
            "series": await client.series(station="1", stop="2007-10-01T01:00Z"),
            "explanation": await kriged(client["air_temperature"]).explain(),
            "surface": await kriged(client["air_temperature"]).compute(),
        }

    given = run(app, ask)
    pd.testing.assert_frame_equal(given.pop("latest"), remote.latest("air_temperature"))
    pd.testing.assert_frame_equal(given.pop("series"), remote.series(station="1", stop="2007-10-01T01:00Z"))
    surface = given.pop("surface")
    xr.testing.assert_identical(surface, kriged(remote["air_temperature"]).compute())
    np.testing.assert_allclose(surface["value"], kriged(archive["air_temperature"]).compute()["value"], rtol=1e-12)
    assert given == {
        "variables": remote.variables,
        "stations": remote.stations,
        "snapshots": remote.snapshots,
        "saved": {name: query.to_json() for name, query in remote.saved.items()},
        "suggestion": remote.suggest().to_json(),
        "explanation": kriged(remote["air_temperature"]).explain(),
    }


def test_each_request_has_both_forms() -> None:
    for blocking, asynchronous in ((Client, AsyncClient), (RemoteQuery, AsyncRemoteQuery)):
        missing = {name for name in dir(asynchronous) if not name.startswith("_")} - set(dir(blocking))
        assert missing <= {"connection", "submit", "follow"}


def test_values_at_stations_are_those_of_a_local_query(remote: Client, archive: hg.OpenArchive) -> None:
    local, there = kriged(archive["air_temperature"]).at_stations(), kriged(remote["air_temperature"]).at_stations()
    assert [step["op"] for step in there.to_json()["steps"]] == ["convert", "aggregate"]
    xr.testing.assert_equal(there.compute()["value"], local.compute()["value"])
    assert there.at_stations() is there


def test_a_picture_sharpens_as_it_does_locally(client: httpx.Client, gate: Any, archive: hg.OpenArchive) -> None:  # noqa: ANN401
    whole = kriged(archive["air_temperature"]).compute()["value"].to_numpy()
    with Client(str(client.base_url)) as remote:
        refinements = kriged(remote["air_temperature"]).refine()
        gate.let(1)
        first = next(refinements)
        assert isinstance(first, RemoteRefinement)
        assert repr(first) == f"RemoteRefinement({first.cells} of 480 cells)"
        assert (first.total, first.frames, first.complete) == (480, 4, False)
        assert 0 < first.fraction < 1
        frame = first.frame(1)
        assert frame.values.shape == (10, 12)
        assert frame.computed.any()
        assert not frame.computed.all()
        np.testing.assert_allclose(frame.values[frame.computed], whole[1][frame.computed], rtol=1e-12)
        assert np.isfinite(frame.estimate).all()
        partial = first.dataset()
        assert partial.attrs["hypergrid_fraction"] == pytest.approx(first.fraction)
        known = np.isfinite(partial["value"].to_numpy())
        assert known.sum() >= first.cells
        np.testing.assert_allclose(partial["value"].to_numpy()[known], whole[known], rtol=1e-12)
        gate.open()
        rest = list(refinements)
        fractions = [first.fraction, *(each.fraction for each in rest)]
        assert fractions == sorted(fractions)
        assert rest[-1].complete
        assert "hypergrid_fraction" not in rest[-1].dataset().attrs
        np.testing.assert_allclose(rest[-1].dataset()["value"], whole, rtol=1e-12)


def test_refinements_on_an_event_loop(app: FastAPI, gate: Any, archive: hg.OpenArchive) -> None:  # noqa: ANN401
    gate.open()

    async def ask(client: AsyncClient) -> xr.Dataset:
        return await [each async for each in kriged(client["air_temperature"]).refine(order="raster")][-1].dataset()

    whole = kriged(archive["air_temperature"]).compute()
    np.testing.assert_allclose(run(app, ask)["value"], whole["value"], rtol=1e-12)


def test_a_reader_that_stops_cancels_its_query(client: httpx.Client, gate: Any, runner: Runner) -> None:  # noqa: ANN401
    with Client(str(client.base_url)) as remote:
        refinements = kriged(remote["air_temperature"]).refine()
        gate.let(1)
        next(refinements)
        refinements.close()  # type: ignore[attr-defined]
        assert [job.state for job in runner.jobs()] == ["cancelled"]


def test_errors_of_a_query_come_before_the_first_refinement(remote: Client) -> None:
    with pytest.raises(InvalidQuery, match="grid"):
        remote["air_temperature"].aggregate("mean", lon="all").refine()
    with pytest.raises((InvalidQuery, ServerProblem), match="order"):
        kriged(remote["air_temperature"]).refine(order="spiral")


def test_a_query_that_fails_or_is_stopped_ends_its_refinements(client: httpx.Client, gate: Any, runner: Runner) -> None:  # noqa: ANN401
    with Client(str(client.base_url)) as remote:
        refinements = kriged(remote["air_temperature"]).refine()
        gate.let(1)
        next(refinements)
        runner.cancel(runner.jobs()[0].id)
        with pytest.raises(Cancelled, match="stopped on the server"):
            list(refinements)
        gate.failure = InvalidQuery("the disk is gone")
        gate.open()
        with pytest.raises(InvalidQuery, match="the disk is gone"):
            list(kriged(remote["air_temperature"]).refine(order="raster"))


def test_an_impatient_reader_on_an_event_loop_cancels_its_query(app: FastAPI, runner: Runner) -> None:
    async def ask(client: AsyncClient) -> None:
        with pytest.raises(Cancelled, match="longer than 0.1 s"):
            await kriged(client["air_temperature"]).compute(timeout_s=0.1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await kriged(client["air_temperature"]).compute()

    run(app, ask)
    assert [job.state for job in runner.jobs()] == ["cancelled", "cancelled"]


def test_a_server_that_ends_in_the_middle_is_reported(
    app: FastAPI,
    gate: Any,  # noqa: ANN401
    give_time: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_time(connection_module, sleep=lambda _seconds: None)
    # Its block is held at the gate.
    monkeypatch.setattr(runner_module, "_STOP_S", 0.0)
    with serving(app) as address:
        refinements = kriged(Client(address, tries=2)["air_temperature"]).refine()
        gate.let(1)
        assert not next(refinements).complete
    # A server that stops says so; one that is killed does not, as below.
    with pytest.raises((Cancelled, ServerProblem), match=r"stopped|does not answer"):
        list(refinements)
    gate.open()


EVENTS = (
    'event: plan\nid: 1\ndata: {"surface": {"times": ["2007-10-01T00:00:00Z"]}}\n\n',
    ': ping\n\nevent: progress\nid: 2\ndata: {"cells": 6, "total": 12, "fraction": 0.5, "seconds": 0.1}\n\nevent: pro',
)
END = (
    "event: done\nid: 9\ndata: "
    '{"id": "1", "state": "done", "cells": 12, "total": 12, "fraction": 1.0, "seconds": 0.2}\n\n'
)


class Broken(httpx.SyncByteStream):
    """A body that breaks off."""

    def __iter__(self) -> Iterator[bytes]:
        """Give the events, and then nothing more."""
        yield from (part.encode() for part in EVENTS)
        message = "peer closed connection"
        raise httpx.RemoteProtocolError(message)


@pytest.mark.parametrize("is_back", [True, False])
def test_a_stream_that_breaks_off_is_resumed_while_the_server_is_there(
    give_time: Callable[..., None], *, is_back: bool
) -> None:
    paused: list[float] = []
    seen: list[httpx.Request] = []
    give_time(connection_module, sleep=paused.append)

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        if request.method != "GET":
            return httpx.Response(202, json={"id": "1"})
        if "last-event-id" not in request.headers:
            return httpx.Response(200, stream=Broken())
        if is_back:
            return httpx.Response(200, text=END)
        message = "refused"
        raise httpx.ConnectError(message, request=request)

    client = Client("http://example.test", transport=httpx.MockTransport(answer), tries=3)
    refinements = client.query({"variable": "air_temperature", "steps": []}).refine()
    assert next(refinements).fraction == 0.5
    if is_back:
        assert [each.complete for each in refinements] == [True]
        assert [request.headers.get("last-event-id") for request in seen[1:]] == [None, "2"]
        assert paused == [1.0]
    else:
        with pytest.raises(ServerProblem, match=r"does not answer: http://example\.test.* refused"):
            list(refinements)
        assert [request.method for request in seen] == ["POST", "GET", "GET", "GET", "GET", "DELETE"]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("ordinary_kriging", {"parameters": {"variogram": MODEL}}),
        ("ordinary_kriging", {"parameters": {"variogram": MODEL, "neighbours": 3}, "by": "region"}),
        ("inverse_distance", {"parameters": {"power": 3.0}}),
        ("nearest", {}),
        ("ordinary_kriging", {}),
        ("ordinary_kriging", {"parameters": {"variogram": {"fit": "gaussian", "by": "slice"}, "radius_m": "30 km"}}),
        ("ordinary_kriging", {"parameters": {"trend": "auto"}, "by": "region"}),
        ("inverse_distance", {"parameters": {"trend": {"lapse_rate": -6.5}}}),
        ("auto", {}),
    ],
)
def test_cross_validation_is_that_of_a_local_query(
    app: FastAPI, remote: Client, archive: hg.OpenArchive, method: str, options: dict[str, Any]
) -> None:
    local = hg.cross_validate(kriged(archive["air_temperature"]), method, **options)

    async def ask(client: AsyncClient) -> CrossValidation:
        return await kriged(client["air_temperature"]).cross_validate(method, **options)

    for there in (kriged(remote["air_temperature"]).cross_validate(method, **options), run(app, ask)):
        xr.testing.assert_identical(there.to_dataset(), local.to_dataset())
        assert there.score.to_json() == local.score.to_json()
        pd.testing.assert_frame_equal(there.stations, local.stations)
        pd.testing.assert_frame_equal(there.bands, local.bands)
        assert (there.method, there.by, there.not_used) == (local.method, local.by, local.not_used)
        assert there.in_closed_form == local.in_closed_form
        assert there.given == local.given
        assert repr(there) == repr(local)


def test_errors_of_a_cross_validation_are_local_ones(remote: Client) -> None:
    base = hourly(remote["air_temperature"])
    with pytest.raises(NotFound, match="ordinary_kriging"):
        base.cross_validate("ordinary_krigging")
    with pytest.raises(NotFound, match="station, time_block"):
        base.cross_validate("nearest", by="moon")
    with pytest.raises(InvalidQuery, match="fits nothing"):
        base.cross_validate("nearest", by="time_block")
    with pytest.raises(InvalidQuery, match="no pair of values within"):
        base.cross_validate("ordinary_kriging", by="time_block", model="spherical")
    with pytest.raises(NotFound, match="powr"):
        base.cross_validate("inverse_distance", parameters={"powr": 3})
    for document in (
        {"query": {}, "method": 5},
        {"method": "nearest"},
        {"query": base.to_json(), "methods": "nearest"},
    ):
        with pytest.raises((InvalidQuery, NotFound), match=r"method|query"):
            remote.send("POST", "queries/cross-validation", json=document)


def test_cross_validation_needs_the_scope_and_the_time_of_a_query(
    archive: hg.OpenArchive,
    make_runner: Callable[..., Runner],
    gate: Any,  # noqa: ANN401
    store: KeyStore,
    texts: dict[str, str],
    clock: Callable[[], int],
) -> None:
    gate.open()
    limited = CallerLimits(queries=Limits(seconds=1e-3))
    app = create_app(
        make_runner(gate),
        Catalogue(archive),
        access=Access(store, clock, Rules(keyed=limited, anonymous=CallerLimits())),
    )

    async def ask(client: AsyncClient) -> CrossValidation:
        return await hourly(client["air_temperature"]).cross_validate("nearest")

    with pytest.raises(ServerProblem, match="key") as unknown:
        run(app, ask, "hg_wrong")
    assert unknown.value.status == 401
    with pytest.raises(ServerProblem) as forbidden:
        run(app, ask, texts["read"])
    assert forbidden.value.status == 403
    with pytest.raises(ServerProblem, match="cross-validation") as refused:
        run(
            app,
            lambda client: client["air_temperature"].aggregate("mean", time="2min").cross_validate("nearest"),
            texts["query"],
        )
    assert refused.value.status == 413


def stations_of(stations: int, slices: int) -> hg.Query:
    coords = {
        "time": pd.date_range("2024-01-01", periods=slices, freq="10min"),
        "x": ("station", np.arange(stations) * 100.0),
        "y": ("station", np.arange(stations) % 7 * 90.0),
    }
    return hg.base(xr.DataArray(np.zeros((slices, stations)), dims=("time", "station"), coords=coords))


def test_cross_validation_is_projected_as_it_is_computed() -> None:
    project_s, ordinary = validation.project_s, stations_of(50, 500)
    in_closed_form = project_s(ordinary, "ordinary_kriging", {"variogram": MODEL}, "station")
    # As measured; a system of its own for each station took minutes in the projection.
    assert in_closed_form < project_s(ordinary, "ordinary_kriging", {}, "time_block") < 5.0
    assert project_s(ordinary, "ordinary_kriging", {"neighbours": 5}, "time_block") > 50.0
    # The choice takes longer than the systems of few slices, and comes again for each region of some neighbours.
    few = stations_of(60, 60)
    assert 0.55 < project_s(few, "auto", {}, "station") < 3.0
    assert project_s(few, "auto", {"neighbours": 8}, "region") > 4 * 0.55
    # 17 s of the processor for 20 stations and 50 slices.
    by_slice = project_s(stations_of(20, 50), "ordinary_kriging", {"variogram": "fit_by_slice"}, "station")
    assert 17.0 < by_slice < 60.0
    given = {"variogram": MODEL}
    chosen = project_s(few, "ordinary_kriging", {**given, "trend": "auto"}, "region")
    assert chosen > 10 * project_s(few, "ordinary_kriging", {**given, "trend": "profile"}, "region")


def test_a_client_waits_longer_than_a_cross_validation_may_take() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.extensions["timeout"]["read"] > 2 * validation.MAX_S
        return httpx.Response(404, json={"title": "Not found", "detail": "seen", "type": "urn:x:not-found"})

    client = Client("http://example.test", transport=httpx.MockTransport(answer), timeout_s=1.0)
    with pytest.raises(NotFound, match="seen"):
        client.query({"variable": "air_temperature", "steps": []}).cross_validate("nearest")


def test_a_large_answer_of_a_cross_validation_is_refused(remote: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "MAX_BYTES", 1000)
    with pytest.raises(ServerProblem, match="bytes of its answer") as refused:
        hourly(remote["air_temperature"]).cross_validate("nearest")
    assert refused.value.status == 413


class Counted:
    """A pace that counts how often work gives way."""

    waited_s = 0.0
    times = 0

    def give_way(self) -> None:
        self.times += 1


@pytest.mark.parametrize("method", ["nearest", "inverse_distance"])
def test_cross_validation_gives_way_for_each_part(method: str) -> None:
    pace = Counted()
    with pace_work(pace):
        hg.cross_validate(stations_of(12, 2), method)
    assert pace.times >= 12
