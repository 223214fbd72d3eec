"""Kept continuous queries over HTTP: kept, followed by events, read in formats, corrected, removed; bad inputs."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pyarrow as pa
import pytest

import hypergrid as hg
from hypergrid.continuous.live import LiveEntry, LiveOptions, add_tap_query, open_store
from hypergrid.continuous.live.store import LiveQueriesUnavailable
from hypergrid.continuous.names import RESERVED
from hypergrid.core.settings import Settings
from hypergrid.core.times import parse_instant
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from queries.web.routes import continuous, continuous_kept
from tests.queries.standing.live import STATIONS, VARIABLES, Live
from tests.serving import SharedServer
from tests.support.standing_runner import settle

HERE = "/api/v1/continuous"
WARM = (
    "Select station, avg(value) as mean From air_temperature [Range 2 Minutes] Group By station Having avg(value) > 20"
)
HOT = "Select station, value From air_temperature Where value > 20"
KEPT = {"name": "warm", "text": WARM, "alert": {"to": ["events"]}}
NOW_NS = parse_instant("2024-01-01")


@pytest.fixture
def live(tmp_path: Path) -> Live:
    made = Live(tmp_path / "archive")
    made.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10)], variables=VARIABLES)
    return made


@pytest.fixture
def standing(live: Live) -> Iterator[StandingQueries]:
    settings = Settings(standing=3)
    with StandingQueries(hg.open(live.folder), settings, clock=lambda: NOW_NS) as made:
        yield made


@pytest.fixture
def client(
    live: Live, make_runner: Callable[..., Runner], standing: StandingQueries, shared: SharedServer
) -> Iterator[httpx.Client]:
    archive = hg.open(live.folder)
    app = create_app(make_runner(archive), Catalogue(archive), services=Services(standing=standing))
    with shared.serving(app) as address, httpx.Client(base_url=address, timeout=60) as made:
        yield made


def warm_up(live: Live, standing: StandingQueries) -> None:
    """Let station 1 be warm in one slice, and station 2 from then on."""
    cold = dict.fromkeys(STATIONS, 5.0)
    for slice_, values in ((10, {"1": 25.0, "2": 25.0}), (11, {"2": 25.0}), (12, {"2": 25.0}), (13, {"2": 25.0})):
        live.add(slice_, cold | values)
    settle(standing.runner)


def test_a_query_over_the_tap_says_that_no_program_evaluates_it(
    client: httpx.Client, live: Live, standing: StandingQueries
) -> None:
    add_tap_query(hg.open(live.folder), "hot", f"{HOT} Emit Now", LiveOptions(NOW_NS, 60.0)).close()
    settle(standing.runner)
    wanted = f"no program evaluates the queries over the tap; start 'hypergrid cql watch {live.folder.name}'"
    assert client.get(f"{HERE}/hot").json()["error"] == wanted
    assert [each["error"] for each in client.get(HERE).json()] == [wanted]


def read_events(client: httpx.Client, count: int, *, last: int | None = None) -> list[tuple[str, str, Any]]:
    """Read so many events: kind, id, data."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    events: list[tuple[str, str, Any]] = []
    fields: dict[str, str] = {}
    with client.stream("GET", f"{HERE}/warm/events", headers=headers) as answer:
        for line in answer.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                fields[name] = value
                continue
            if "data" in fields:
                events.append((fields["event"], fields.get("id", ""), json.loads(fields["data"])))
            fields = {}
            if len(events) == count:
                return events
    return events


def test_a_query_is_kept_followed_and_removed(client: httpx.Client, live: Live, standing: StandingQueries) -> None:
    made = client.post(HERE, json=KEPT)
    assert (made.status_code, made.headers["location"]) == (201, f"{HERE}/warm")
    document = made.json()
    assert (document["result"], document["keys"], document["snapshot"], document["complete"]) == (
        "relation", [0], None, False,
    )  # fmt: skip
    assert [alert["name"] for alert in document["alerts"]] == ["warm"]
    assert client.get(f"{HERE}/warm").json() == document
    settle(standing.runner)
    warm_up(live, standing)
    document = client.get(f"{HERE}/warm").json()
    assert (document["snapshot"], document["complete"], document["error"]) == (live.archive.snapshot, True, "")
    assert document["heartbeat"] > document["start"]
    assert client.get(HERE).json() == [document]
    rows = client.get(f"{HERE}/warm/rows").json()
    assert [column["name"] for column in rows["columns"]] == [
        "number", "tau", "sign", "station", "mean", "corrects", "snapshot",
    ]  # fmt: skip
    assert [(row[2], row[3]) for row in rows["rows"]] == [(1, "1"), (1, "2"), (-1, "1")]
    assert rows["columns"][4]["unit"] == "degC"
    held = client.get(f"{HERE}/warm/relation").json()
    assert (held["rows"], held["total"], held["keys"]) == ([["2", 25.0]], 1, [0])
    # The alert is where the others are.
    alerts = client.get("/api/v1/standing/alerts").json()
    assert [(alert["happening"], alert["place"], alert["continuous"]) for alert in alerts] == [
        ("raised", "1", "warm"), ("raised", "2", "warm"), ("cleared", "1", "warm"),
    ]  # fmt: skip
    (entry,) = client.get("/api/v1/standing").json()
    assert (entry["query"], entry["condition"]) == ({"continuous": "warm"}, {"kind": "continuous", "quiet": "10min"})
    assert client.delete(f"{HERE}/warm").status_code == 204
    assert client.get(HERE).json() == []
    assert client.get("/api/v1/standing").json() == []
    assert len(client.get("/api/v1/standing/alerts").json()) == 3


def test_rows_that_are_not_kept_any_more_are_gone_and_say_so(
    client: httpx.Client, live: Live, standing: StandingQueries
) -> None:
    assert client.post(HERE, json=KEPT | {"keep": "6h"}).status_code == 422
    document = client.post(HERE, json=KEPT | {"keep": "1day"}).json()
    assert (document["keep_s"], document["kept_from"], document["too_late_windows"]) == (86_400.0, None, 0)
    warm_up(live, standing)
    rows = client.get(f"{HERE}/warm/rows").json()["rows"]
    # Station 2 stays warm for days.
    cold = dict.fromkeys(STATIONS, 5.0) | {"2": 25.0}
    for first in range(14, 2200, 700):
        live.add_all([(slice_, cold) for slice_ in range(first, first + 700)])
        settle(standing.runner)
    document = client.get(f"{HERE}/warm").json()
    assert document["kept_from"] > "2007-10-02"
    again = client.get(f"{HERE}/warm/rows").json()["rows"]
    assert [row[2:5] for row in again] == [[1, "2", 25.0]]
    assert again[0][0] < 0
    assert client.get(f"{HERE}/warm/rows", params={"newest": True, "limit": 1}).json()["rows"] == again
    assert client.get(f"{HERE}/warm/rows", params={"after": again[0][0]}).json()["rows"] == []
    gone = client.get(f"{HERE}/warm/rows", params={"after": rows[0][0]})
    assert (gone.status_code, gone.json()["title"]) == (410, "These rows are no longer kept")
    assert "begin again after number 0" in gone.json()["detail"]
    kinds = [(kind, data.get("row")) for kind, _, data in read_events(client, 3, last=rows[0][0])]
    assert kinds == [("dropped", None), ("row", ["2", 25.0]), ("progress", None)]
    assert client.post(f"{HERE}/warm/keep", json={"keep": "30days"}).json()["keep_s"] == 30 * 86_400.0
    assert client.post(f"{HERE}/warm/keep", json={"keep": "always"}).json()["keep_s"] is None
    for wrong in ({"keep": "1h"}, {"keep": None}, {}, {"keep": "1day", "for": 2}, {"keep": 5}):
        assert client.post(f"{HERE}/warm/keep", json=wrong).status_code == 422
    assert client.post(f"{HERE}/none/keep", json={"keep": "1day"}).status_code == 404
    (only,) = read_events(client, 1, last=again[0][0])
    assert (only[0], only[2]["kept_from"]) == ("progress", document["kept_from"])


def test_rows_are_resumed_by_number_in_all_formats(client: httpx.Client, live: Live, standing: StandingQueries) -> None:
    client.post(HERE, json=KEPT)
    settle(standing.runner)
    warm_up(live, standing)
    numbers = [row[0] for row in client.get(f"{HERE}/warm/rows").json()["rows"]]
    for after, number in zip([0, *numbers], numbers, strict=False):
        (row,) = client.get(f"{HERE}/warm/rows", params={"after": after, "limit": 1}).json()["rows"]
        assert row[0] == number
    newest = client.get(f"{HERE}/warm/rows", params={"newest": True, "limit": 2}).json()["rows"]
    assert [row[0] for row in newest] == numbers[-2:]
    as_json = client.get(f"{HERE}/warm/rows").json()["rows"]
    text = client.get(f"{HERE}/warm/rows", params={"f": "csv"}).text
    read = pd.read_csv(io.StringIO(text), dtype={"station": str})
    assert read["number"].tolist() == numbers
    table = pa.ipc.open_stream(client.get(f"{HERE}/warm/rows", params={"f": "arrow"}).content).read_all()
    assert table.column("station").to_pylist() == [row[3] for row in as_json]
    assert table.schema.field("mean").metadata == {b"unit": b"degC"}
    # What holds is what entered and has not left.
    assert client.get(f"{HERE}/warm/relation", params={"f": "csv"}).text.split() == ["station,mean", "2,25.0"]


def test_events_are_resumed_and_corrections_say_so(client: httpx.Client, live: Live, standing: StandingQueries) -> None:
    client.post(HERE, json=KEPT)
    settle(standing.runner)
    warm_up(live, standing)
    events = read_events(client, 4)
    assert [kind for kind, _, _ in events] == ["row", "row", "row", "progress"]
    assert [data["row"] for kind, _, data in events if kind == "row"] == [["1", 25.0], ["2", 25.0], ["1", 25.0]]
    assert events[-1][2]["complete"] is True
    last = int(events[2][1])
    before = live.archive.snapshot
    live.add(10, {"1": 5.0})
    settle(standing.runner)
    kinds = [(kind, data.get("sign"), data.get("corrects")) for kind, _, data in read_events(client, 3, last=last)]
    assert kinds == [("correction", -1, before), ("correction", 1, before), ("progress", None, None)]
    *_, alert = client.get("/api/v1/standing/alerts").json()
    assert (alert["happening"], alert["place"]) == ("withdrawn", "1")
    assert client.get(f"{HERE}/warm").json()["late_windows"] == 1


def test_a_stream_of_events_ends_with_its_query(client: httpx.Client, standing: StandingQueries) -> None:
    client.post(HERE, json=KEPT)
    with client.stream("GET", f"{HERE}/warm/events") as answer:
        lines = answer.iter_lines()
        assert next(line for line in lines if line.startswith("event")) == "event: progress"
        standing.remove("warm")
        standing.kept.remove("warm")
        assert "event: removed" in list(lines)


def test_a_stream_of_events_goes_on_after_an_error(
    client: httpx.Client, live: Live, standing: StandingQueries, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.post(HERE, json=KEPT)
    warm_up(live, standing)
    entry = standing.kept.entry
    failures = iter([LiveQueriesUnavailable("it is locked")])

    def fail_once(name: str) -> LiveEntry:
        for failure in failures:
            raise failure
        return entry(name)

    store = open_store(live.folder)

    def write(text: str) -> None:
        with store._transaction():  # noqa: SLF001
            store._db.execute("UPDATE queries SET text = ? WHERE name = 'warm'", (text,))  # noqa: SLF001

    write(WARM.replace("air_temperature", "snow_depth"))
    with client.stream("GET", f"{HERE}/warm/events") as answer:
        lines = answer.iter_lines()
        state = next_progress(lines)
        assert "snow_depth" in state["error"]
        assert state["snapshot"] is not None
        monkeypatch.setattr(standing.kept, "entry", fail_once)
        assert next_progress(lines) == state | {"error": "it is locked"}
        write(WARM)
        # What the query gave comes once it fits again.
        assert next(line for line in lines if line == "event: row")
    store.close()


def next_progress(lines: Iterator[str]) -> dict[str, Any]:
    next(line for line in lines if line == "event: progress")
    return dict(json.loads(next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")))


# What is posted, and the status and words of the answer.
BAD: list[tuple[Any, int, str]] = [
    ({"text": HOT}, 422, "name of a continuous query"),
    ({"name": "Warm", "text": HOT}, 422, "lower-case"),
    ({"name": "backtest", "text": HOT}, 422, "which pages have"),
    ({"name": "hot"}, 422, "needs text"),
    ({"name": "hot", "text": HOT, "order": "time"}, 422, "unknown key"),
    ({"name": "hot", "text": HOT, "start": "yesterday"}, 422, "yesterday"),
    (
        {"name": "hot", "text": HOT, "idle": "0s"},
        422,
        "'idle' of the continuous query 'hot': a duration must be above",
    ),
    ({"name": "hot", "text": HOT, "disorder": "-1s"}, 422, "'disorder' of the continuous query 'hot'"),
    ({"name": "hot", "text": HOT, "disorder": 0}, 422, "needs a number and a unit"),
    ({"name": "hot", "text": HOT, "start": 3}, 422, "start needs an instant"),
    ({"name": "hot", "text": "Select station From stations"}, 422, "needs a stream or a surface of the archive"),
    ({"name": "hot", "text": HOT, "alert": True}, 422, "is an object"),
    ({"name": "hot", "text": HOT, "alert": {"below": 3}}, 422, "unknown key of the alert"),
    ({"name": "hot", "text": HOT, "alert": {"to": ["archive"]}}, 422, "kept with it"),
    ({"name": "hot", "text": HOT, "alert": {"to": ["webhook:https://example.org/"]}}, 422, "webhook_hosts"),
    ({"name": "hot", "text": HOT, "alert": {"quiet": "soon"}}, 422, "soon"),
]


@pytest.mark.parametrize(("document", "status", "words"), BAD)
def test_bad_documents_are_refused_and_nothing_is_kept(
    client: httpx.Client,
    document: Any,  # noqa: ANN401
    status: int,
    words: str,
) -> None:
    answer = client.post(HERE, json=document)
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text
    assert client.get(HERE).json() == []
    assert client.get("/api/v1/standing").json() == []


def test_a_text_that_is_no_query_is_refused_with_its_position(client: httpx.Client) -> None:
    answer = client.post(HERE, json={"name": "hot", "text": "Select station, valu From air_temperature"})
    problem = answer.json()
    assert answer.status_code == 422
    assert (problem["line"], problem["column"], problem["length"], problem["suggestion"]) == (1, 17, 4, "value")
    large = client.post(HERE, json={"name": "hot", "text": HOT + " " * 70_000})
    assert large.status_code in (422, 413)


def test_taken_and_unknown_names_and_too_many_are_refused(client: httpx.Client) -> None:
    assert client.post(HERE, json=KEPT).status_code == 201
    taken = client.post(HERE, json={"name": "warm", "text": HOT})
    assert (taken.status_code, "kept already" in taken.json()["detail"]) == (409, True)
    frost = {
        "name": "frost",
        "query": {"variable": "air_temperature", "steps": []},
        "condition": {"kind": "threshold", "below": 0},
    }
    assert client.post("/api/v1/standing", json=frost).status_code == 201
    # The alert would be a standing query of the same name.
    taken = client.post(HERE, json={"name": "frost", "text": HOT, "alert": {}})
    assert (taken.status_code, "standing query 'frost'" in taken.json()["detail"]) == (409, True)
    for number in range(2):
        assert client.post(HERE, json={"name": f"hot{number}", "text": HOT}).status_code == 201
    many = client.post(HERE, json={"name": "hot2", "text": HOT})
    assert (many.status_code, "allows 3" in many.json()["detail"]) == (422, True)
    for address in ("cold", "cold/rows", "cold/relation", "cold/events"):
        answer = client.get(f"{HERE}/{address}")
        assert (answer.status_code, "unknown kept continuous query" in answer.json()["detail"]) == (404, True)
    assert client.delete(f"{HERE}/cold").status_code == 404
    stream = client.get(f"{HERE}/hot0/relation")
    assert (stream.status_code, "is a stream" in stream.json()["detail"]) == (400, True)
    for parameters in ({"after": "x"}, {"after": -1}, {"limit": 0}, {"limit": 1_000_000}, {"f": "xlsx"}):
        answer = client.get(f"{HERE}/warm/rows", params=parameters)
        assert 400 <= answer.status_code < 500, parameters


def test_standing_routes_that_need_a_surface_refuse_a_continuous_query(client: httpx.Client) -> None:
    follow = {"name": "also", "query": {"continuous": "warm"}, "condition": {"kind": "continuous"}}
    answer = client.post("/api/v1/standing", json=follow)
    assert (answer.status_code, "kept continuous query" in answer.json()["detail"]) == (422, True)
    client.post(HERE, json=KEPT)
    # A second alert with other receivers.
    assert client.post("/api/v1/standing", json=follow).status_code == 201
    assert [alert["name"] for alert in client.get(f"{HERE}/warm").json()["alerts"]] == ["warm", "also"]
    assert client.post("/api/v1/standing/preview", json=follow).status_code == 422
    assert client.get("/api/v1/standing/also/result").status_code == 409
    for wrong in (
        follow | {"condition": {"kind": "threshold", "above": 3}},
        follow | {"query": {"variable": "air_temperature"}},
        follow | {"window": "1h"},
    ):
        assert client.post("/api/v1/standing", json=wrong | {"name": "other"}).status_code == 422
    assert client.delete(f"{HERE}/warm").status_code == 204
    assert client.get("/api/v1/standing").json() == []


def test_names_of_earlier_programs_name_downloads(client: httpx.Client, live: Live) -> None:
    """The command line took any name before."""
    client.post(HERE, json={"name": "hot", "text": HOT})
    store = open_store(live.folder)
    with store._transaction():  # noqa: SLF001
        store._db.execute("UPDATE queries SET name = 'Ärger €' WHERE name = 'hot'")  # noqa: SLF001
    store.close()
    answer = client.get(f"{HERE}/Ärger €/rows", params={"f": "csv"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-disposition"] == (
        "attachment; filename*=UTF-8''continuous_%C3%84rger%20%E2%82%AC.csv"
    )


def test_pages_of_continuous_queries_are_reserved(standing: StandingQueries) -> None:
    routes = [*continuous_kept.router(standing).routes, *continuous.router(None).routes]  # type: ignore[arg-type]
    paths = [route.path.split("/") for route in routes]  # type: ignore[attr-defined]
    assert {path[2] for path in paths if len(path) > 2 and not path[2].startswith("{")} == set(RESERVED)
