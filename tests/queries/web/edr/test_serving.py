"""EDR as it is served: below a proxy's path, to who goes away, and beside what others keep."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

import hypergrid as hg
from queries.jobs.records import RunnerLimits
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from queries.web.auth.access import Access, Rules
from tests.judges import judge_cf
from tests.serving import SharedServer

POINT = {"coords": "POINT(7.178 45.8675)"}


def test_links_keep_the_path_of_a_proxy(archive: hg.OpenArchive, saved_surfaces: Path) -> None:
    access = Access(None, time.time_ns, Rules(root_path="/weather"))
    app = create_app(Runner(archive), Catalogue(archive, saved=saved_surfaces), access=access)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        told = client.get("/weather/edr/collections").json()["collections"]
        hrefs = [query["link"]["href"] for one in told for query in one["data_queries"].values()]
        assert all(href.startswith("http://127.0.0.1/weather/edr/collections/") for href in hrefs)
        features = client.get("/weather/edr/collections/stations/items").json()["features"]
        assert client.get(features[0]["properties"]["edrqueryendpoint"]).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "hourly/cube?bbox=7,45,8,46",
        "levels/cube?bbox=7,45,8,46",
        "hourly/area?coords=POLYGON((7.177 45.867,7.18 45.867,7.177 45.8696,7.177 45.867))",
        "hourly/position?coords=MULTIPOINT((7.178 45.8675),(7.179 45.868))",
        "stations/position?coords=POINT(7.178 45.8675)",
    ],
)
def test_the_judge_of_cf_finds_no_error(edr: httpx.Client, tmp_path: Path, path: str) -> None:
    (tmp_path / "answer.nc").write_bytes(edr.get(f"collections/{path}&f=NetCDF").content)
    assert judge_cf(tmp_path / "answer.nc") == []


@pytest.fixture
def served(
    gate: Any,  # noqa: ANN401 - of the folder above
    archive: hg.OpenArchive,
    saved_surfaces: Path,
    shared: SharedServer,
) -> Iterator[tuple[int, Runner]]:
    """Serve what computes block by block at the gate; yield port and runner."""
    runner = Runner(gate)
    with shared.serving(create_app(runner, Catalogue(archive, saved=saved_surfaces))) as address:
        yield int(address.rpartition(":")[2]), runner
        gate.open()


def test_who_goes_away_stops_what_was_computed(
    served: tuple[int, Runner],
    gate: Any,  # noqa: ANN401
    wait_until: Callable[..., None],
) -> None:
    port, runner = served
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        address = "/edr/collections/hourly/position?coords=POINT(7.178%2045.8675)"
        connection.sendall(f"GET {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        wait_until(lambda: runner.statistics().running == 1)
    wait_until(lambda: runner.statistics().cancelled == 1)
    assert runner.jobs() == []
    gate.open()
    wait_until(lambda: runner.statistics().running == 0)


def test_answers_take_no_place_among_results_that_are_kept(
    served: tuple[int, Runner],
    gate: Any,  # noqa: ANN401
    map_query: dict[str, Any],
    wait_until: Callable[..., None],
) -> None:
    port, runner = served
    gate.open()
    job = runner.submit(map_query)
    wait_until(lambda: runner.job(job.id).has_ended)
    before = runner.statistics()
    for place in range(20):
        params = {"coords": f"POINT(7.178 45.86{750 + place})"}
        answer = httpx.get(f"http://127.0.0.1:{port}/edr/collections/hourly/position", params=params, timeout=60)
        assert answer.status_code == 200
    after = runner.statistics()
    assert (after.results, after.evicted, after.jobs) == (before.results, before.evicted, 1)
    assert runner.result(job.id)["value"].size == 480


def test_a_full_queue_is_told(served: tuple[int, Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    port, runner = served
    monkeypatch.setattr(runner, "_limits", RunnerLimits(capacity=0))
    answer = httpx.get(f"http://127.0.0.1:{port}/edr/collections/hourly/position", params=POINT, timeout=60)
    assert answer.status_code == 429
    assert answer.headers["retry-after"]
    assert answer.json()["code"] == "429"


def test_who_waits_too_long_is_told(served: tuple[int, Runner], monkeypatch: pytest.MonkeyPatch) -> None:
    port, runner = served
    monkeypatch.setattr("queries.web.responses.waiting.LONGEST_S", 0.2)
    answer = httpx.get(f"http://127.0.0.1:{port}/edr/collections/hourly/position", params=POINT, timeout=60)
    assert answer.status_code == 503
    assert "no answer within 0.2 s" in answer.json()["detail"]
    assert runner.jobs() == []


@pytest.mark.parametrize(
    "path", ["hourly/position?coords=POINT(7.178 45.8675)", "stations/locations/1", "stations/items"]
)
def test_the_same_is_not_computed_again(edr: httpx.Client, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    first = edr.get(f"collections/{path}")
    other = edr.get(f"collections/{path}{'&' if '?' in path else '?'}f=GeoJSON")
    assert first.headers["etag"] != other.headers["etag"]

    def fail(*_: object, **__: object) -> None:
        message = "nothing is computed"
        raise AssertionError(message)

    monkeypatch.setattr(Runner, "submit", fail)
    monkeypatch.setattr("queries.web.edr.stations.pieces_of", fail)
    again = edr.get(f"collections/{path}", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_who_waits_for_a_posted_query_and_goes_away_stops_it(
    served: tuple[int, Runner],
    map_query: dict[str, Any],
    wait_until: Callable[..., None],
) -> None:
    port, runner = served
    body = json.dumps(map_query).encode()
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(f"POST /api/v1/queries?wait=30s HTTP/1.1\r\n{head}".encode() + body)
        wait_until(lambda: runner.statistics().running == 1)
    wait_until(lambda: runner.statistics().cancelled == 1)
