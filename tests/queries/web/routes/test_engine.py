"""What the pages show of the engine: variance and cells of maps, orders, plans as graphs, caches, how stations are."""

import base64
import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr
from starlette.testclient import TestClient

import hypergrid as hg
from hypergrid.analysis.geostatistics import samples_of
from hypergrid.archive import Reject
from hypergrid.archive.arrays import stream_log
from hypergrid.core.times import SECOND_NS, parse_instant
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app

Document = dict[str, Any]
Wait = Callable[..., None]
API = "/api/v1"


def array(text: str, shape: list[int]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f8").reshape(shape)


def finished(client: httpx.Client, document: Document, wait_until: Wait, **params: str) -> str:
    answer = client.post(f"{API}/queries", json=document, params=params)
    assert answer.status_code == 202, answer.text
    address = f"{API}/queries/{answer.json()['id']}"
    wait_until(lambda: client.get(address).json()["state"] in ("done", "failed", "cancelled"))
    assert client.get(address).json()["state"] == "done"
    return address


def computed(archive: hg.OpenArchive, document: Document) -> xr.Dataset:
    return archive.query(document).compute()


def test_frames_of_the_variance(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    archive: hg.OpenArchive,
    map_query: Document,
    wait_until: Wait,
) -> None:
    document = {**map_query, "variance": True}
    address = f"{API}/queries/{client.post(f'{API}/queries', json=document).json()['id']}"
    gate.let(3)
    wait_until(lambda: client.get(address).json()["fraction"] > 0)
    early = client.get(f"{address}/frame", params={"part": "variance"}).json()
    known = np.frombuffer(base64.b64decode(early["computed"]), "u1").reshape(early["shape"]) == 1
    assert 0 < known.mean() < 1
    assert early["error"] > 0
    gate.open()
    wait_until(lambda: client.get(address).json()["state"] == "done")
    frame = client.get(f"{address}/frame", params={"part": "variance", "time": 1}).json()
    expected = computed(archive, document)["variance"].to_numpy()
    np.testing.assert_allclose(array(frame["values"], frame["shape"]), expected[1], rtol=1e-12)
    np.testing.assert_allclose(array(early["values"], early["shape"])[known], expected[0][known], rtol=1e-12)
    assert frame["error"] == 0


def test_a_variance_that_nobody_asked_for(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Wait,
) -> None:
    address = f"{API}/queries/{client.post(f'{API}/queries', json=map_query).json()['id']}"
    gate.let(3)
    wait_until(lambda: client.get(address).json()["fraction"] > 0)
    for _ in range(2):
        refused = client.get(f"{address}/frame", params={"part": "variance"})
        assert refused.status_code in (400, 422)
        assert '"variance": true' in refused.json()["detail"]
        gate.open()
        wait_until(lambda: client.get(address).json()["state"] == "done")


@pytest.mark.parametrize("variance", [True, False])
def test_a_cell_over_time(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    archive: hg.OpenArchive,
    map_query: Document,
    wait_until: Wait,
    variance: bool,  # noqa: FBT001 - a parametrized case
) -> None:
    gate.open()
    document = {**map_query, "variance": True} if variance else map_query
    address = finished(client, document, wait_until)
    cell = client.get(f"{address}/cell", params={"row": 3, "column": 7}).json()
    expected = computed(archive, document)
    np.testing.assert_allclose(array(cell["values"], [4]), expected["value"].to_numpy()[:, 3, 7], rtol=1e-12)
    assert (cell["variance"] is not None) == variance
    if variance:
        np.testing.assert_allclose(array(cell["variance"], [4]), expected["variance"].to_numpy()[:, 3, 7], rtol=1e-12)
    assert cell["times"] == [f"2007-10-01T0{hour}:00:00Z" for hour in range(4)]
    assert cell["place"] == {"lat": expected["lat"].to_numpy()[3], "lon": expected["lon"].to_numpy()[7]}
    outside = client.get(f"{address}/cell", params={"row": 3, "column": 12})
    assert outside.status_code == 404
    assert "12 columns" in outside.json()["detail"]
    assert client.get(f"{address}/cell", params={"row": -1, "column": 0}).status_code == 422


@pytest.mark.parametrize("order", ["coarse_to_fine", "raster", "walk", "algorithm_9", "by_time"])
def test_every_order_gives_the_same_values(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    archive: hg.OpenArchive,
    map_query: Document,
    wait_until: Wait,
    order: str,
) -> None:
    gate.open()
    address = finished(client, map_query, wait_until, order=order)
    frame = client.get(f"{address}/frame").json()
    expected = computed(archive, map_query)["value"].to_numpy()[0]
    np.testing.assert_allclose(array(frame["values"], frame["shape"]), expected, rtol=1e-12)


def test_raster_begins_with_the_first_rows_and_unknown_orders_are_refused(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Wait,
) -> None:
    refused = client.post(f"{API}/queries", json=map_query, params={"order": "spiral"})
    assert refused.status_code == 422
    assert refused.headers["content-type"] == "application/problem+json"
    asked = client.post(f"{API}/queries", json=map_query, params={"order": "raster"}).json()
    gate.let(3)
    wait_until(lambda: client.get(f"{API}/queries/{asked['id']}").json()["fraction"] > 0)
    frame = client.get(f"{API}/queries/{asked['id']}/frame").json()
    known = np.frombuffer(base64.b64decode(frame["computed"]), "u1")
    assert known[: known.sum()].all(), "row by row"
    gate.open()


def test_a_plan_is_a_graph_whose_last_node_is_the_surface(
    client: httpx.Client,
    gate: Any,  # noqa: ANN401
    map_query: Document,
    wait_until: Wait,
) -> None:
    gate.open()
    before = client.post(f"{API}/engine/plan", json=map_query).json()
    tokens = [node["token"] for node in before["nodes"]]
    for place, node in enumerate(before["nodes"]):
        assert set(node["sources"]) <= set(tokens[:place]), "sources come first"
    assert before["nodes"][0]["kind"] == "base"
    assert before["nodes"][0]["sources"] == []
    assert before["nodes"][-1]["cells"] == before["cells"] == 4 * 10 * 12
    assert all(node["projected_s"] >= 0 for node in before["nodes"])
    finished(client, map_query, wait_until)
    after = client.post(f"{API}/engine/plan", json=map_query).json()["nodes"]
    assert [node["token"] for node in after] == tokens
    assert after[-1]["measured_cells"] > 0
    assert after[-1]["measured_s"] > 0
    assert 0 <= after[-1]["density"] <= 1


def test_a_merge_reads_two_sources(client: httpx.Client) -> None:
    hourly = {"op": "aggregate", "function": "mean", "time": "1h"}
    other = {"variable": "air_temperature", "steps": [{**hourly, "function": "max"}]}
    document = {
        "variable": "air_temperature",
        "steps": [hourly, {"op": "merge", "function": "difference", "with": [other]}],
    }
    nodes = client.post(f"{API}/engine/plan", json=document).json()["nodes"]
    assert nodes[-1]["kind"] == "merge"
    assert len(nodes[-1]["sources"]) == 2
    assert sum(node["kind"] == "base" for node in nodes) == 1, "equal perspectives stand once"
    broken = client.post(f"{API}/engine/plan", json={"variable": "rain"})
    assert broken.status_code == 422


def test_the_engine_tells_what_it_holds(client: httpx.Client) -> None:
    told = client.get(f"{API}/engine").json()
    assert told["queries"]["workers"] >= 1
    for cache in told["caches"].values():
        assert 0 <= cache["held_bytes"] <= cache["allowed_bytes"]
    assert told["process"]["resident_bytes"] > 10_000_000
    assert told["process"]["up_s"] > 0
    for held in ("disk", "memory"):
        assert 0 < told[held]["free_bytes"] <= told[held]["total_bytes"]


def test_how_the_stations_are(client: httpx.Client) -> None:
    told = {one["station"]: one for one in client.get(f"{API}/stations/health").json()}
    assert set(told) == {"1", "2", "3", "4", "5", "6"}
    assert told["1"]["state"] == "reporting"
    assert told["1"]["last"] == "2007-10-01T11:58:00Z"
    assert told["1"]["interval_s"] == 3 * 120, "three usual gaps at least"
    assert told["1"]["readings"] == 360
    assert told["1"]["variables"] == ["air_temperature"]
    assert told["6"] == {
        "station": "6", "state": "unknown", "last": None, "heard": None, "interval_s": None, "readings": 0,
        "missing": 0, "flagged": 0, "variables": [],
    }  # fmt: skip


def test_flags_by_station_and_test(client: httpx.Client) -> None:
    told = client.get(f"{API}/stations/quality").json()
    assert [(one["station"], one["variable"]) for one in told] == [(name, "air_temperature") for name in "12345"]
    assert told[0]["flags"] == {"not_evaluated": 360}
    assert told[0]["tests"] == {}
    day = client.get(f"{API}/stations/quality", params={"days": 1}).json()
    assert day == told, "it is half a day"
    assert client.get(f"{API}/stations/quality", params={"days": 0}).status_code == 422


def test_what_could_not_be_read(tmp_path: Path, archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> None:
    shutil.copytree(archive.store.path, tmp_path / "copy")
    copied = hg.open(tmp_path / "copy")
    client = TestClient(create_app(make_runner(copied), Catalogue(copied)), base_url="http://127.0.0.1")
    assert client.get(f"{API}/rejects").json() == {"count": 0, "kinds": []}
    bad = [Reject("a.txt", line, "T", "=1", f"no number: row {line}") for line in range(1, 8)]
    with copied.store.commit(batch="bad", message="bad", now_ns=1_200_000_000 * SECOND_NS) as writer:
        writer.rejects(bad)
    told = client.get(f"{API}/rejects").json()
    assert told["count"] == 7
    (kind,) = told["kinds"]
    assert (kind["kind"], kind["count"], kind["files"], len(kind["examples"])) == ("no number", 7, 1, 5)
    assert kind["examples"][0] == asdict(bad[0])
    rows = client.get(f"{API}/rejects", params={"f": "csv"})
    assert rows.headers["content-type"].startswith("text/csv")
    assert rows.text.splitlines()[1] == "a.txt,1,T,no number: row 1,'=1"
    assert client.get(f"{API}/rejects", params={"f": "xml"}).status_code == 422


@pytest.fixture
def ungated(archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> TestClient:
    """Asks without a gate: values at stations are computed within the request."""
    return TestClient(create_app(make_runner(archive), Catalogue(archive)), base_url="http://127.0.0.1")


def test_the_variogram_of_a_query(ungated: TestClient, archive: hg.OpenArchive, map_query: Document) -> None:
    told = ungated.post(f"{API}/queries/variogram", json=map_query, params={"cutoff_m": 400, "bins": 6}).json()
    query = archive.query(map_query).at_stations()
    expected = hg.fit_variogram(query, cutoff_m=400, bins=6)
    assert told["unit"] == "degC"
    assert told["bins"]["pairs"] == expected.bins.pairs.tolist()
    np.testing.assert_allclose(told["bins"]["semivariance"], expected.bins.semivariance, rtol=1e-12)
    fitted = told["fitted"]
    assert (fitted["model"], fitted["psill"]) == ("exponential", expected.variogram.psill)
    assert fitted["reasons"] == list(expected.reasons)
    at = np.array(told["bins"]["distance_m"])
    np.testing.assert_allclose(fitted["at_bins"], expected.variogram.semivariance(at), rtol=1e-12)
    # The one that the query names: 0.05 + 1.2 (1 - exp(-3 h / 250 m)).
    given = told["given"]
    assert (given["sill"], given["effective_range_m"]) == (1.25, 250.0)
    near = np.array(told["line_m"])
    np.testing.assert_allclose(given["at_line"], 0.05 + 1.2 * (1 - np.exp(-3 * near / 250)), rtol=1e-9)
    assert near[-1] == pytest.approx(1.03 * told["cutoff_m"])


def test_the_empirical_variogram_is_that_of_all_pairs(
    ungated: TestClient, archive: hg.OpenArchive, map_query: Document
) -> None:
    told = ungated.post(
        f"{API}/queries/variogram", json=map_query, params={"bins": 4, "cutoff_m": 500, "model": "nugget"}
    ).json()
    assert told["fitted"]["model"] == "nugget"
    samples = samples_of(archive.query(map_query))
    pairs, squares = np.zeros(4, int), np.zeros(4)
    for one in range(5):
        for other in range(one):
            apart = math.dist(samples.positions_m[one], samples.positions_m[other])
            if apart <= 500:
                place = math.ceil(apart / 125) - 1
                for row in samples.values:
                    pairs[place] += 1
                    squares[place] += (row[one] - row[other]) ** 2
    filled = pairs > 0
    assert told["bins"]["pairs"] == pairs[filled].tolist()
    np.testing.assert_allclose(told["bins"]["semivariance"], squares[filled] / pairs[filled] / 2, rtol=1e-9)


def test_a_variogram_that_cannot_be_is_refused(ungated: TestClient, map_query: Document) -> None:
    for more, said in (
        ({"model": "banana", "cutoff_m": "400"}, "banana"),
        ({"cutoff_m": "1"}, "no pair of values within 1 m"),
        ({"cutoff_m": "-3"}, "greater than 0"),
    ):
        refused = ungated.post(f"{API}/queries/variogram", json=map_query, params=more)
        assert refused.status_code == 422, more
        assert said in refused.text
    assert ungated.post(f"{API}/queries/variogram", json={"variable": "rain"}).status_code == 422


def test_how_a_stream_stands(
    tmp_path: Path, archive: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(archive.store.path, tmp_path / "copy")
    copied = hg.open(tmp_path / "copy")
    client = TestClient(create_app(make_runner(copied), Catalogue(copied)), base_url="http://127.0.0.1")

    def told(**params: str) -> Document:
        return dict(client.get(f"{API}/engine/stream", params=params).json())

    assert (told()["state"], told()["records"]) == ("none", [])
    now_ns = time.time_ns()
    for ago in (20, 10, 5):
        last_ns = None if ago == 20 else now_ns - 3600 * SECOND_NS
        stream_log.append_record(
            tmp_path / "copy", {"at_ns": now_ns - ago * SECOND_NS, "held": ago, "last_slice_ns": last_ns}
        )
    found = told()
    assert found["state"] == "running"
    assert [one["held"] for one in found["records"]] == [20, 10, 5]
    assert found["records"][0]["last_slice"] is None
    assert parse_instant(found["records"][2]["last_slice"]) == now_ns - 3600 * SECOND_NS
    newer = told(after=found["records"][1]["at"])
    assert [one["held"] for one in newer["records"]] == [5]
    assert newer["state"] == "running"
    monkeypatch.setattr("queries.web.routes.engine._SILENT_S", 1)
    assert told()["state"] == "lost"
    stream_log.append_record(tmp_path / "copy", {"at_ns": now_ns, "held": 0, "ended": True})
    assert told()["state"] == "ended"
    assert client.get(f"{API}/engine/stream", params={"after": "soon"}).status_code == 400
