"""Continuous queries over HTTP: names, explanations, errors with their position, back-tests in all formats."""

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import hypergrid as hg
from hypergrid.continuous.archive_query import ContinuousArchive, open_inputs
from hypergrid.core.errors import NotFound, TooLarge
from queries.continuous.examples import EXAMPLES
from queries.continuous.records import BacktestLimits, BacktestQuestion
from queries.continuous.service import ContinuousQueries
from queries.jobs.admission import Asker, Limits, TooManyQueries, act_as
from queries.jobs.records import QueueFull, ResultGone
from queries.jobs.runner import Runner
from tests.queries.conftest import START_NS

WARM = "Select station, value From air_temperature Where value > 9"
MEAN = "Select station, avg(value) as mean From air_temperature [Range 1 Hour] Group By station Having avg(value) > 9"
STRETCH = {"from": "2007-10-01T00:00Z", "to": "2007-10-01T04:00Z"}


def explain(client: httpx.Client, text: str) -> httpx.Response:
    return client.post("/api/v1/continuous/explain", json={"text": text})


def test_the_catalogue_has_names_with_units_and_examples_that_bind(client: httpx.Client) -> None:
    catalogue = client.get("/api/v1/continuous/catalogue").json()
    sources = {item["name"]: item for item in catalogue["sources"]}
    assert {"air_temperature", "readings", "obs", "stations", "neighbours"} <= sources.keys()
    assert (sources["readings"]["kind"], sources["stations"]["kind"]) == ("stream", "relation")
    value = next(part for part in sources["air_temperature"]["attributes"] if part["name"] == "value")
    assert value == {"name": "value", "kind": "number", "unit": "degC"}
    assert {item["name"] for item in catalogue["functions"]} >= {"avg", "quantile", "distance_m"}
    # The archive has neither rain nor gateways: the variant without them is offered, or none.
    offered = {item["number"]: item["text"] for item in catalogue["examples"]}
    assert sorted(offered) == [3, 4, 5, 8]
    assert "gateway" not in offered[5]
    for text in offered.values():
        assert explain(client, text).status_code == 200
    assert len({row.number for row in EXAMPLES}) == 12


def test_the_catalogue_has_forms_that_bind_once_they_are_filled_in(client: httpx.Client) -> None:
    forms = {form["name"]: form for form in client.get("/api/v1/continuous/catalogue").json()["forms"]}
    # The archive has no rain.
    assert list(forms) == ["silent", "stuck", "drift"]
    for form in forms.values():
        text = form["text"]
        for number, field in enumerate(form["fields"], start=2):
            assert field["label"]
            assert field["first"] > 0
            text = text.replace("{" + field["name"] + "}", str(number))
        answer = explain(client, text)
        assert answer.status_code == 200, answer.text
        assert answer.json()["result"] == "relation"


def test_an_explanation_has_defaults_windows_and_the_plan_as_a_graph(client: httpx.Client) -> None:
    answer = explain(client, MEAN).json()
    assert answer["result"] == "relation"
    assert answer["columns"] == [
        {"name": "station", "kind": "text", "unit": None},
        {"name": "mean", "kind": "number", "unit": "degC"},
    ]
    assert answer["keys"] == [0]
    assert any("R8" in sentence for sentence in answer["defaults"])
    (window,) = answer["windows"]
    assert window["interval"] == "(t - 1 h, t]"
    assert answer["projected_bytes"] == round(window["projected_bytes"]) > 0
    nodes = {node["id"]: node for node in answer["plan"]["nodes"]}
    operators = [node["operator"] for node in nodes.values()]
    assert {"stream", "window", "aggregate"} <= set(operators)
    # A tree: each node but the root is read once, and elements flow from the stream to the root.
    assert sorted(edge["from"] for edge in answer["plan"]["edges"]) == sorted(nodes.keys() - {0})
    assert "(t - 1 h, t]" in answer["explanation"]


def test_equal_parts_of_a_plan_are_one_node(client: httpx.Client) -> None:
    text = (
        "Select a.station From air_temperature [Range 1 Day] a, air_temperature [Range 1 Day] b Where a.slice = b.slice"
    )
    plan = explain(client, text).json()["plan"]
    (stream,) = (node["id"] for node in plan["nodes"] if node["operator"] == "stream")
    (join,) = (node["id"] for node in plan["nodes"] if node["operator"] == "join")
    assert all(edge["from"] != join or edge["to"] == 0 for edge in plan["edges"])
    assert sum(edge["to"] == join for edge in plan["edges"]) == 2
    assert all(edge["to"] != stream for edge in plan["edges"])


@pytest.mark.parametrize(
    ("text", "position", "suggestion"),
    [
        ("Select station, valu From air_temperature", (1, 17, 4), "value"),
        ("Select a.statio From air_temperature [Now] a", (1, 8, 8), "a.station"),
        ("Select by_nw.station From air_temperature [Now] as by_now", (1, 8, 13), "by_now.station"),
        ("Select station\nFrom air_temperatur [Now]", (2, 6, 14), "air_temperature"),
        ("Select station From air_temperature [Range 1 Hours Slide 0 Minutes]", (1, 58, 1), None),
        ("Select averag(value) From air_temperature", (1, 8, 6), None),
    ],
)
def test_a_fault_has_its_position_and_what_may_be_meant(
    client: httpx.Client, text: str, position: tuple[int, int, int], suggestion: str | None
) -> None:
    answer = explain(client, text)
    body = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert body["type"] == "urn:hypergrid:problem:invalid-cql"
    assert (body["line"], body["column"]) == position[:2]
    if suggestion is not None:
        assert (body["length"], body["suggestion"]) == (position[2], suggestion)
        lines = text.split("\n")
        line = lines[body["line"] - 1]
        start = body["column"] - 1
        lines[body["line"] - 1] = line[:start] + suggestion + line[start + body["length"] :]
        assert explain(client, "\n".join(lines)).status_code == 200
    assert body["problem"] in body["detail"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({}, "needs text"),
        ({"text": 3}, "needs text"),
        ({"text": WARM, "from": 3}, "needs an instant"),
        ({"text": WARM, "from": "soon"}, "soon"),
        ({"text": WARM, "order": "size"}, "unknown order"),
        ({"text": WARM, "until": "now"}, "unknown key"),
        ({"text": WARM, "from": STRETCH["to"], "to": STRETCH["from"]}, "end after its start"),
        ({"text": WARM, "from": "1900-01-01T00:00Z"}, "days"),
    ],
)
def test_what_cannot_be_run_is_refused_with_a_reason(client: httpx.Client, document: dict[str, Any], said: str) -> None:
    answer = client.post("/api/v1/continuous/backtest", json=document)
    assert answer.status_code in (413, 422), answer.text
    assert said in answer.json()["detail"]


def test_a_back_test_is_followed_and_its_rows_are_those_of_python(
    client: httpx.Client, archive: hg.OpenArchive, wait_until: Callable[..., None]
) -> None:
    answer = client.post("/api/v1/continuous/backtest", json={"text": MEAN, **STRETCH})
    assert answer.status_code == 202
    url = answer.headers["location"]
    assert answer.json()["links"]["self"] == url
    wait_until(lambda: client.get(url).json()["state"] == "done")
    state = client.get(url).json()
    assert (state["fraction"], state["error"], state["result"]) == (1.0, None, "relation")
    expected = ContinuousArchive(open_inputs(archive)).query(MEAN).run(STRETCH["from"], STRETCH["to"])
    assert state["rows"] == len(expected) > 0

    document = client.get(f"{url}/rows").json()
    assert [column["name"] for column in document["columns"]] == ["tau", "sign", "station", "mean"]
    assert document["keys"] == [2]
    rows = pd.DataFrame(document["rows"], columns=["tau", "sign", "station", "mean"])
    assert pd.to_datetime(rows["tau"], format="ISO8601").to_list() == expected["tau"].to_list()
    assert rows["mean"].to_list() == expected["mean"].to_list()
    assert rows["sign"].to_list() == expected["sign"].to_list()

    read = {
        "text/csv": lambda content: pd.read_csv(
            io.BytesIO(content), dtype={"station": str}, float_precision="round_trip"
        ),
        "application/vnd.apache.parquet": lambda content: pq.read_table(io.BytesIO(content)).to_pandas(),
        "application/vnd.apache.arrow.stream": lambda content: pa.ipc.open_stream(content).read_all().to_pandas(),
    }
    for media_type, parse in read.items():
        got = client.get(f"{url}/rows", headers={"Accept": media_type})
        assert got.headers["content-type"].startswith(media_type)
        table = parse(got.content)
        assert table["station"].to_list() == expected["station"].to_list()
        assert table["mean"].to_list() == expected["mean"].to_list()
    table = pa.ipc.open_stream(client.get(f"{url}/rows?f=arrow").content).read_all()
    assert table.schema.field("mean").metadata == {b"unit": b"degC"}
    assert client.get(f"{url}/rows?f=xls").status_code == 404


def test_who_waits_gets_the_rows_at_once(client: httpx.Client) -> None:
    answer = client.post("/api/v1/continuous/backtest?wait=60s&f=csv", json={"text": WARM, **STRETCH})
    assert answer.status_code == 200
    assert answer.text.splitlines()[0] == "tau,sign,station,value"
    stream = client.get(answer.headers["location"]).json()
    assert (stream["result"], stream["state"]) == ("stream", "done")


def test_by_arrival_readings_come_when_they_arrived(client: httpx.Client) -> None:
    asked = {"text": WARM, "order": "arrival", **STRETCH}
    document = client.post("/api/v1/continuous/backtest?wait=60s", json=asked).json()
    assert document["order"] == "arrival"
    assert len(document["rows"]) > 0


def test_unknown_back_tests_are_404(client: httpx.Client) -> None:
    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/rows")):
        assert client.request(method, f"/api/v1/continuous/backtest/none{path}").status_code == 404


@contextmanager
def turn_of_another_thread(runner: Runner) -> Iterator[None]:
    """Hold the turn in a thread that does nothing: work of this one would give way to others."""
    begun, ending = threading.Event(), threading.Event()

    def hold() -> None:
        with runner.turn():
            begun.set()
            ending.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert begun.wait(60.0)
        yield
    finally:
        ending.set()
        thread.join()


def test_a_back_test_waits_for_its_turn_and_can_be_stopped(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner]
) -> None:
    runner = make_runner(archive)
    queries = ContinuousQueries(archive, runner, BacktestLimits(open=2), clock=lambda: START_NS)
    question = BacktestQuestion(WARM, START_NS, START_NS + 3600 * 10**9)
    with turn_of_another_thread(runner):
        first = queries.submit(question)
        with act_as(Asker("alice", Limits(queries=1))):
            second = queries.submit(question)
            with pytest.raises(TooManyQueries, match="1 of your back-tests wait or run, and 1 may"):
                queries.submit(question)
        with pytest.raises(QueueFull, match="2 back-tests wait or run, and 2 may"):
            queries.submit(question)
        assert queries.backtest(first.id).state == "queued"
        assert queries.cancel(first.id).state == "cancelled"
        assert queries.wait(second.id, 0.05).state == "queued"
    assert queries.wait(second.id, 60.0).state == "done"
    assert queries.backtest(first.id).state == "cancelled"
    queries.stop()
    with pytest.raises(QueueFull, match="stopping"):
        queries.submit(question)


@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (BacktestLimits(stretch_ns=3600 * 10**9), "2 days, above the 0 allowed"),
        (BacktestLimits(elements=10), "elements to read, above the 10 allowed"),
    ],
)
def test_too_large_a_back_test_is_refused_before_it_starts(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], limits: BacktestLimits, said: str
) -> None:
    queries = ContinuousQueries(archive, make_runner(archive), limits)
    with pytest.raises(TooLarge, match=said):
        queries.submit(BacktestQuestion(WARM))
    with (
        act_as(Asker("alice", Limits(bytes=10))),
        pytest.raises(TooLarge, match="bytes of memory, above the 10 allowed"),
    ):
        ContinuousQueries(archive, make_runner(archive)).submit(BacktestQuestion(MEAN))


def test_too_many_rows_end_a_back_test_with_both_numbers(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner]
) -> None:
    queries = ContinuousQueries(archive, make_runner(archive), BacktestLimits(rows=5))
    backtest = queries.submit(BacktestQuestion("Select * From air_temperature"))
    assert queries.wait(backtest.id, 60.0).state == "failed"
    with pytest.raises(TooLarge, match="above the 5 allowed; choose a shorter stretch"):
        queries.rows(backtest.id)


def test_old_rows_make_room_for_new_ones(archive: hg.OpenArchive, make_runner: Callable[..., Runner]) -> None:
    queries = ContinuousQueries(archive, make_runner(archive), BacktestLimits(remembered=2, kept_bytes=1))
    numbers = []
    for _ in range(4):
        numbers.append(queries.submit(BacktestQuestion(WARM)).id)
        assert queries.wait(numbers[-1], 60.0).state == "done"
    assert len(queries.rows(numbers[-1]).frame) > 0
    with pytest.raises(ResultGone, match="dropped to make room"):
        queries.rows(numbers[-2])
    with pytest.raises(NotFound, match="is forgotten"):
        queries.rows(numbers[0])
