"""Every route, against a server on loopback."""

import base64
import csv
import io
import json
import re
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import httpx
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from fastapi import FastAPI

import hypergrid as hg
from hypergrid.layers.layer import Layer
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue

Document = dict[str, Any]
Wait = Callable[..., None]


class Gate(Protocol):
    """What the fixture of this name does."""

    runs: int

    def let(self, blocks: int) -> None: ...
    def open(self) -> None: ...


def array(text: str, dtype: str, shape: list[int]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


def unpacked(content: bytes) -> tuple[Document, np.ndarray, np.ndarray]:
    """Read a binary frame as its description says: head, estimate and mask of the computed cells."""
    length = int.from_bytes(content[:8], "little")
    assert length % 8 == 0
    head = json.loads(content[8 : 8 + length])
    rows, columns = head["shape"]
    numbers = 8 + length + 8 * rows * columns
    assert len(content) == numbers + rows * columns
    estimate = np.frombuffer(content[8 + length : numbers], "<f8").reshape(rows, columns)
    return head, estimate, np.frombuffer(content[numbers:], "u1").reshape(rows, columns)


def ask(client: httpx.Client, document: Document) -> str:
    answer = client.post("/api/v1/queries", json=document)
    assert answer.status_code == 202, answer.text
    assert answer.headers["location"] == f"/api/v1/queries/{answer.json()['id']}"
    return str(answer.json()["id"])


def finish(client: httpx.Client, job_id: str, wait_until: Wait) -> Document:
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] in ("done", "failed", "cancelled"))
    return dict(client.get(f"/api/v1/queries/{job_id}").json())


def test_the_catalogue(client: httpx.Client, archive: hg.OpenArchive) -> None:
    variables = client.get("/api/v1/variables").json()
    assert [(one["name"], one["unit"]) for one in variables] == [("air_temperature", "degC")]
    stations = client.get("/api/v1/stations")
    assert stations.headers["content-type"] == "application/geo+json"
    features = {feature["id"]: feature for feature in stations.json()["features"]}
    assert features["1"]["geometry"] == {"type": "Point", "coordinates": [7.1772, 45.8672, 2400.0]}
    assert features["6"]["geometry"] is None
    snapshots = client.get("/api/v1/snapshots").json()
    assert client.get("/api/v1/snapshots?limit=1").json() == snapshots[:1]
    assert client.get("/api/v1/snapshots?limit=0").status_code == 422
    assert snapshots[0]["id"] == archive.snapshot
    assert snapshots[0]["message"] == "first readings"
    functions = client.get("/api/v1/functions").json()
    assert {"convert", "aggregate", "interpolate", "merge"} == functions.keys()
    assert "ordinary_kriging" in [row["name"] for row in functions["interpolate"]]
    assert [p["name"] for row in functions["convert"] if row["name"] == "valid_range" for p in row["parameters"]] == [
        "low",
        "high",
    ]
    assert client.get("/api/v1/saved").json() == {"hourly": {"variable": "air_temperature", "steps": []}}


def test_layers_are_listed(client: httpx.Client, archive: hg.OpenArchive, tmp_path: Path) -> None:
    assert client.get("/api/v1/layers").json() == []
    copy = hg.open(shutil.copytree(archive.path, tmp_path / "copy"))
    catalogue = Catalogue(copy)
    ground = Layer("elevation", x=[7.1, 7.2], y=[45.8, 45.9], values=[[1.0, 2.0], [3.0, 4.0]], description="made")
    copy.store.add_layer(ground, now_ns=copy.snapshots[0].time_ns)
    (listed,) = catalogue.layers()
    assert (listed["name"], listed["unit"], listed["rows"], listed["columns"]) == ("elevation", "m", 2, 2)
    np.testing.assert_allclose(
        [listed[edge] for edge in ("west", "south", "east", "north")], [7.05, 45.75, 7.25, 45.95]
    )
    assert (listed["description"], listed["token"]) == ("made", ground.token)


TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:.,]*(Z|[+-][0-9:]+)?")
RFC_3339 = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z")


def times_in(answer: Any) -> set[str]:  # noqa: ANN401 - whatever JSON holds
    """Return the texts in an answer that are times; what was asked, and how it was made, is told as it was written."""
    if isinstance(answer, dict):
        own = {name: one for name, one in answer.items() if name not in ("query", "hypergrid:provenance")}
        return {time for one in own.values() for time in times_in(one)}
    if isinstance(answer, list):
        return {time for one in answer for time in times_in(one)}
    return {answer} if isinstance(answer, str) and TIME.fullmatch(answer) else set()


def test_every_time_in_an_answer_has_seconds(
    client: httpx.Client, gate: Gate, map_query: Document, series_query: Document, wait_until: Wait
) -> None:
    gate.open()
    jobs = [ask(client, document) for document in (map_query, series_query)]
    for job_id in jobs:
        finish(client, job_id, wait_until)
    addresses = [
        "snapshots", "latest", "queries", "stations/health", "engine", "engine/stream", "series?f=covjson",
        *(f"queries/{jobs[0]}/{part}" for part in ("frame", "cell?row=1&column=2", "result?f=covjson")),
        f"queries/{jobs[0]}", f"queries/{jobs[1]}/series",
    ]  # fmt: skip
    found = {address: times_in(client.get(f"/api/v1/{address}").json()) for address in addresses}
    found["explain"] = times_in(client.post("/api/v1/queries/explain", json=map_query).json())
    for text in ("latest?f=csv", "series", f"queries/{jobs[0]}/result?f=csv"):
        rows = csv.reader(client.get(f"/api/v1/{text}").text.splitlines())
        found[text] = times_in([cell for row in rows for cell in row])
    for address, times in found.items():
        assert all(RFC_3339.fullmatch(time) for time in times), (address, times)
    assert {address for address, times in found.items() if not times} <= {"engine", "engine/stream"}


def test_a_new_saved_query_is_seen_at_once_and_a_broken_one_is_logged_once(
    client: httpx.Client, saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (saved / "new.json").write_text('{"variable": "air_temperature"}', "utf-8")
    assert "new" in client.get("/api/v1/saved").json()
    (saved / "broken.json").write_text("{", "utf-8")
    for _ in range(2):
        assert set(client.get("/api/v1/saved").json()) == {"hourly", "new"}
        assert client.get("/edr/collections").status_code == 200
    assert [one.getMessage() for one in caplog.records if "broken.json" in one.getMessage()] == [
        "the saved query broken.json is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1); mend or remove the file"
    ]


def test_health_and_description(client: httpx.Client, app: FastAPI) -> None:
    health = client.get("/health").json()
    assert health["status"] == "ok"
    assert health["queries"]["queued"] == 0
    described = client.get("/openapi.json").json()["paths"]
    expected = {
        "/health", "/api/v1/variables", "/api/v1/stations", "/api/v1/snapshots", "/api/v1/functions", "/api/v1/saved",
        "/api/v1/layers", "/api/v1/session", "/health/live", "/health/ready", "/metrics",
        "/api/v1/queries", "/api/v1/queries/explain", "/api/v1/queries/{job_id}", "/api/v1/queries/{job_id}/events",
        "/api/v1/queries/{job_id}/frame", "/api/v1/queries/{job_id}/series", "/api/v1/queries/{job_id}/result",
    }  # fmt: skip
    assert expected <= set(described)


def test_explain_runs_nothing(client: httpx.Client, gate: Gate, map_query: Document) -> None:
    outline = client.post("/api/v1/queries/explain", json=map_query).json()
    assert outline["cells"] == 4 * 10 * 12
    assert outline["projected_bytes"] > 0
    assert "ordinary_kriging" in outline["explanation"]
    assert outline["surface"]["dims"] == ["lat", "lon"]
    assert outline["surface"]["times"][0] == "2007-10-01T00:00:00Z"
    assert outline["surface"]["units"] == "degC"
    assert gate.runs == 0


def test_frames_while_it_runs_and_when_it_is_done(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = ask(client, map_query)
    address = f"/api/v1/queries/{job_id}"
    too_early = client.get(f"{address}/frame")
    assert too_early.status_code == 409
    gate.let(3)
    wait_until(lambda: client.get(address).json()["fraction"] > 0)
    early = client.get(f"{address}/frame", params={"time": 2}).json()
    computed = array(early["computed"], "u1", early["shape"])
    assert early["shape"] == [10, 12]
    assert early["time"] == "2007-10-01T02:00:00Z"
    assert 0 < computed.mean() < 1
    estimate = array(early["estimate"], "<f8", early["shape"])
    assert np.isfinite(estimate).all()
    assert client.get(f"{address}/result").status_code == 409
    # A form that never is comes before a result that is not yet.
    assert client.get(f"{address}/result?f=xls").status_code == 404
    gate.open()
    body = finish(client, job_id, wait_until)
    assert body["state"] == "done"
    late = client.get(f"{address}/frame", params={"time": 2}).json()
    dataset = xr.open_dataset(io.BytesIO(client.get(f"{address}/result").content), engine="h5netcdf")
    np.testing.assert_array_equal(array(late["values"], "<f8", late["shape"]), dataset["air_temperature"][2])
    np.testing.assert_allclose(late["lat"], dataset["lat"])
    np.testing.assert_allclose(late["lon"], dataset["lon"])
    assert body["value_range"] == [float(dataset["air_temperature"].min()), float(dataset["air_temperature"].max())]


def test_a_binary_frame_holds_what_the_one_in_json_holds(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = ask(client, map_query)
    address = f"/api/v1/queries/{job_id}/frame"
    # A single block: no other one may come between the two frames.
    gate.let(1)
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["fraction"] > 0)
    for ended in (False, True):
        if ended:
            gate.open()
            finish(client, job_id, wait_until)
        as_json = client.get(address, params={"time": 1}).json()
        packed = client.get(address, params={"time": 1, "f": "binary"})
        assert packed.headers["content-type"] == "application/octet-stream"
        head, estimate, computed = unpacked(packed.content)
        assert head == {name: as_json[name] for name in ("shape", "time_index", "time", "fraction", "error")}
        assert (head["fraction"] == 1) is ended
        np.testing.assert_array_equal(estimate, array(as_json["estimate"], "<f8", as_json["shape"]))
        np.testing.assert_array_equal(computed, array(as_json["computed"], "u1", as_json["shape"]))
        values = array(as_json["values"], "<f8", as_json["shape"])
        np.testing.assert_array_equal(np.where(computed == 1, estimate, np.nan), values)
        # The client of HTTP has undone what compression there was; arrays of a map gain too little by it.
        assert "content-encoding" not in packed.headers
    assert client.get(address, params={"f": "xml"}).status_code == 422


def test_results_in_every_format(client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    gate.open()
    job_id = ask(client, map_query)
    finish(client, job_id, wait_until)
    answers = {
        f: client.get(f"/api/v1/queries/{job_id}/result", params={"f": f}) for f in ("netcdf", "csv", "png", "zarr")
    }
    assert {answer.status_code for answer in answers.values()} == {200}
    assert all("attachment" in answer.headers["content-disposition"] for answer in answers.values())
    dataset = xr.open_dataset(io.BytesIO(answers["netcdf"].content), engine="h5netcdf")
    assert dataset["air_temperature"].dims == ("time", "lat", "lon")
    table = pd.read_csv(io.BytesIO(answers["csv"].content))
    assert len(table) == 4 * 10 * 12
    np.testing.assert_allclose(table["value"].sum(), float(dataset["air_temperature"].sum()))
    assert answers["png"].content.startswith(b"\x89PNG")
    assert zipfile.ZipFile(io.BytesIO(answers["zarr"].content)).testzip() is None


def test_series(client: httpx.Client, gate: Gate, series_query: Document, wait_until: Wait) -> None:
    gate.open()
    job_id = ask(client, series_query)
    finish(client, job_id, wait_until)
    table = client.get(f"/api/v1/queries/{job_id}/series").json()
    values = array(table["values"], "<f8", table["shape"])
    assert table["stations"] == ["1", "2", "3", "4", "5"]
    assert values.shape == (12, 5)
    dataset = xr.open_dataset(io.BytesIO(client.get(f"/api/v1/queries/{job_id}/result").content), engine="h5netcdf")
    np.testing.assert_array_equal(values, dataset["air_temperature"])
    assert client.get(f"/api/v1/queries/{job_id}/frame").status_code == 400


def test_zones_are_a_table_by_name(client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    gate.open()
    grid = next(step["grid"] for step in map_query["steps"] if step["op"] == "interpolate")
    made = hg.grid(**grid)
    (west, south), (east, north) = ((float(made.x.bounds[at]), float(made.y.bounds[at])) for at in ((0, 0), (-1, 1)))
    ring = [[west, south], [east, south], [east, north], [west, south]]
    zones = {"type": "Feature", "properties": {"name": "half"}, "geometry": {"type": "Polygon", "coordinates": [ring]}}
    asked = {**map_query, "steps": [*map_query["steps"], {"op": "aggregate", "function": "mean", "zones": zones}]}
    job_id = ask(client, asked)
    finish(client, job_id, wait_until)
    table = client.get(f"/api/v1/queries/{job_id}/series").json()
    assert table["stations"] == ["half"]
    assert np.isfinite(array(table["values"], "<f8", table["shape"])).all()
    of_a_file = {"op": "aggregate", "function": "mean", "zones": {"file": "/etc/x"}}
    # A file of the server's, however it is named.
    for broken in (of_a_file, {**of_a_file, "zones": "/etc/hostname"}):
        answer = client.post("/api/v1/queries", json={**asked, "steps": [*map_query["steps"], broken]})
        assert answer.status_code == 422
        assert "a file can be named by hg.zones and in a query file only" in answer.json()["detail"]


def test_frames_of_levels_and_a_table_of_bands(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    before, interpolation = map_query["steps"][:-1], map_query["steps"][-1]
    grid = {**interpolation["grid"], "z": {"edges": [2000, 2300, 2500]}}
    params = {**interpolation["params"], "trend": {"lapse_rate": -6.5}}
    job_id = ask(client, {**map_query, "steps": [*before, {**interpolation, "grid": grid, "params": params}]})
    address = f"/api/v1/queries/{job_id}"
    gate.let(3)
    wait_until(lambda: client.get(address).json()["fraction"] > 0)
    early = client.get(f"{address}/frame", params={"time": 1, "level": 1}).json()
    assert early["shape"] == [10, 12]
    gate.open()
    finish(client, job_id, wait_until)
    late = client.get(f"{address}/frame", params={"time": 1, "level": 1}).json()
    dataset = xr.open_dataset(io.BytesIO(client.get(f"{address}/result").content), engine="h5netcdf")
    assert late["z"] == [2150.0, 2400.0]
    assert late["level_m"] == 2400.0
    np.testing.assert_array_equal(array(late["values"], "<f8", late["shape"]), dataset["air_temperature"][1, 1])
    computed = array(early["computed"], "u1", early["shape"]) == 1
    np.testing.assert_array_equal(
        array(early["values"], "<f8", early["shape"])[computed], dataset["air_temperature"].values[1, 1][computed]
    )
    beyond = client.get(f"{address}/frame", params={"level": 2})
    assert beyond.status_code == 404
    assert "levels 0 to 1; got 2" in beyond.json()["detail"]
    bands = {"op": "aggregate", "function": "mean", "z": {"edges": [2300, 2400, 2500]}}
    job_id = ask(client, {**map_query, "steps": [*before, bands]})
    finish(client, job_id, wait_until)
    table = client.get(f"/api/v1/queries/{job_id}/series").json()
    assert table["stations"] == ["2300 to 2400 m", "2400 to 2500 m"]
    values = array(table["values"], "<f8", table["shape"])
    assert np.isnan(values[:, 0]).all()
    assert np.isfinite(values[:, 1]).all()


def test_series_of_a_map_are_refused(client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait) -> None:
    gate.open()
    job_id = ask(client, map_query)
    finish(client, job_id, wait_until)
    assert client.get(f"/api/v1/queries/{job_id}/series").status_code == 400


def test_a_query_is_stopped(
    client: httpx.Client, gate: Gate, runner: Runner, map_query: Document, wait_until: Wait
) -> None:
    job_id = ask(client, map_query)
    gate.let(2)
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["fraction"] > 0)
    assert client.delete(f"/api/v1/queries/{job_id}").json()["state"] == "cancelled"
    gate.let(1)
    wait_until(lambda: runner.statistics().running == 0)
    assert client.get(f"/api/v1/queries/{job_id}").json()["fraction"] < 1
    assert client.get(f"/api/v1/queries/{job_id}/result").status_code == 409


def test_two_clients_share_a_run_and_stop_apart(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    with httpx.Client(base_url=client.base_url, timeout=60) as second_client:
        first, second = ask(client, map_query), ask(second_client, map_query)
        assert first != second
        client.delete(f"/api/v1/queries/{first}")
        gate.open()
        assert finish(second_client, second, wait_until)["state"] == "done"
    assert gate.runs == 1
    listed = {job["id"]: job["state"] for job in client.get("/api/v1/queries").json()}
    assert [job["id"] for job in client.get("/api/v1/queries?limit=1").json()] == list(listed)[:1]
    assert listed == {first: "cancelled", second: "done"}


def test_an_evicted_result_is_gone_and_that_is_said(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    gate.open()
    jobs = []
    for day in ("01T05", "01T06", "01T07"):
        document = {**map_query, "clip": {"time": ["2007-10-01T00:00Z", f"2007-10-{day}:00Z"]}}
        jobs.append(ask(client, document))
        finish(client, jobs[-1], wait_until)
    answer = client.get(f"/api/v1/queries/{jobs[0]}/result")
    assert answer.status_code == 410
    assert "make room" in answer.json()["detail"]
    assert client.get(f"/api/v1/queries/{jobs[0]}").json()["kept"] is False
    assert client.get(f"/api/v1/queries/{jobs[2]}/result").status_code == 200
    assert client.get("/health").json()["queries"]["evicted"] == 1


@pytest.mark.parametrize("address", ["/", "/api/v1/variables", "/api/v1/queries/none", "/health"])
def test_every_answer_has_the_security_headers(client: httpx.Client, address: str) -> None:
    headers = client.get(address).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self';" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("series?sation=1", "unknown parameter 'sation'; did you mean 'station'?"),
        ("latest?variables=air_temperature", "unknown parameter 'variables'; did you mean 'variable'?"),
        ("variables?limit=5", "unknown parameter 'limit'"),
        ("queries/none/result?format=csv", "unknown parameter 'format'"),
    ],
)
def test_a_parameter_that_nobody_knows_is_refused(client: httpx.Client, address: str, words: str) -> None:
    answer = client.get(f"/api/v1/{address}")
    assert answer.status_code == 400
    assert words in answer.json()["detail"]
