"""Boards and short links over HTTP, the card of a link and its picture, pages in frames, and what is new."""

import html
import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import numpy as np
import pytest
from matplotlib.image import imread
from starlette.testclient import TestClient

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.settings import Settings
from hypergrid.core.times import DAY_NS, SECOND_NS, format_timestamp, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.boards.repository import BoardStore
from queries.jobs.records import QueueFull
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.latest import LatestValues
from queries.snapshots.news import ArchiveNews
from queries.web.app import Services, create_app
from queries.web.auth.access import Access, CallerLimits, Rules
from queries.web.auth.keys import KeyStore
from queries.web.commands import rules_of
from queries.web.routes import links
from tests.queries.conftest import MAP, SERIES
from tests.queries.web.conftest import Clock
from tests.serving import SharedServer
from viz.client import Client

API = "/api/v1"
PANELS = [
    {"kind": "number", "last": "1h", "station": "1", "variable": "air_temperature"},
    {"kind": "picture", "title": "Map", "last": "2h", "query": {key: MAP[key] for key in ("variable", "steps")}},
]


@pytest.fixture(autouse=True)
def patient_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pictures of links take their time beside other tests; no test hangs on the machine's speed."""
    monkeypatch.setattr(links, "PICTURE_S", 60.0)


@pytest.fixture
def boards(tmp_path: Path) -> Iterator[BoardStore]:
    made = BoardStore(tmp_path / "boards.sqlite")
    yield made
    made.close()


@pytest.fixture
def client(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], boards: BoardStore, shared: SharedServer
) -> Iterator[httpx.Client]:
    app = create_app(make_runner(archive), Catalogue(archive), services=Services(boards=boards))
    with shared.serving(app) as address, httpx.Client(base_url=address, timeout=60) as made:
        yield made


def test_the_life_of_a_board(client: httpx.Client) -> None:
    made = client.post(f"{API}/boards", json={"title": "Upper valley", "panels": PANELS})
    assert (made.status_code, made.headers["location"]) == (201, f"{API}/boards/upper-valley")
    board = made.json()
    assert client.get(made.headers["location"]).json() == board
    assert client.get(f"{API}/boards").json() == Client(str(client.base_url)).boards == [board]
    again = client.post(f"{API}/boards", json={"title": "Upper Valley"})
    assert (again.status_code, again.headers["content-type"]) == (409, "application/problem+json")
    board["panels"].reverse()
    changed = client.put(f"{API}/boards/upper-valley", json=board)
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    assert [panel["kind"] for panel in changed.json()["panels"]] == ["picture", "number"]
    late = client.put(f"{API}/boards/upper-valley", json={**board, "title": "Lower"})
    assert late.status_code == 409
    assert "read it again" in late.json()["detail"]
    for document, words in (
        ({**board, "version": 2, "name": "other"}, "needs its name"),
        ({"title": "x", "version": 2, "panels": 5}, "list"),
        ({"title": "x", "panels": []}, "needs 'version'"),
    ):
        refused = client.put(f"{API}/boards/upper-valley", json=document)
        assert (refused.status_code, words in refused.json()["detail"]) == (422, True), refused.text
    assert client.delete(f"{API}/boards/upper-valley").status_code == 204
    for method in ("GET", "DELETE"):
        assert client.request(method, f"{API}/boards/upper-valley").status_code == 404
    assert client.put(f"{API}/boards/upper-valley", json=board).status_code == 404
    assert client.post(f"{API}/boards", content=b"{", headers={"Content-Type": "application/json"}).status_code == 400


def test_a_damaged_board_says_so_and_can_be_removed(client: httpx.Client, boards: BoardStore) -> None:
    client.post(f"{API}/boards", json={"title": "Wall"}).raise_for_status()
    boards._db.execute("DROP TRIGGER boards_changed")
    boards._db.execute("UPDATE boards SET title = 'Hall'")
    damaged = client.get(f"{API}/boards/wall")
    assert (damaged.status_code, damaged.json()["title"]) == (503, "The boards and links cannot be read")
    assert "the board 'wall' is damaged in boards.sqlite; remove it" in damaged.json()["detail"]
    assert client.delete(f"{API}/boards/wall").status_code == 204
    assert client.post(f"{API}/boards", json={"title": "Wall"}).status_code == 201


def card_of(answer: httpx.Response) -> dict[str, str]:
    """Return what a service that shows links reads of a page."""
    found = re.findall(r'<meta property="(og:[\w:]+)" content="([^"]*)">', answer.text)
    return {name: html.unescape(text) for name, text in found}


def shape_of(content: bytes) -> tuple[int, ...]:
    return tuple(imread(io.BytesIO(content), format="png").shape)


def test_a_link_of_a_question_shows_its_picture(client: httpx.Client, runner_calls: list[str]) -> None:
    address = f"explore?{urlencode({'q': json.dumps(MAP), 'view': 'map', 'time': '3'})}"
    made = client.post(f"{API}/links", json={"address": f"#{address}"})
    assert made.status_code == 201
    link = made.json()
    assert client.get(made.headers["location"]).json()["address"] == address
    assert client.post(f"{API}/links", json={"address": address}).json() == link
    page = client.get(f"/l/{link['name']}")
    assert page.headers["content-type"].startswith("text/html")
    card = card_of(page)
    assert "air temperature" in card["og:title"].lower()
    assert card["og:image"] == f"{client.base_url}/l/{link['name']}.png"
    assert f"url=../#link?name={link['name']}" in page.text
    assert "variogram" not in page.text
    picture = client.get(f"/l/{link['name']}.png")
    assert picture.headers["content-type"] == "image/png"
    assert min(shape_of(picture.content)[:2]) > 400
    assert runner_calls == ["submit"]
    same = client.get(f"/l/{link['name']}.png", headers={"If-None-Match": picture.headers["etag"]})
    assert same.status_code == 304
    assert client.get(f"/l/{link['name']}.png").content == picture.content
    assert runner_calls == ["submit"]
    assert client.delete(f"{API}/links/{link['name']}").status_code == 204
    for path in (f"/l/{link['name']}", f"/l/{link['name']}.png", f"{API}/links/{link['name']}"):
        assert client.get(path).status_code == 404


@pytest.fixture
def runner_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give what the runner was asked, a word each."""
    calls: list[str] = []
    submit = Runner.submit

    def counted(runner: Runner, *given: Any, **options: Any) -> Any:  # noqa: ANN401
        calls.append("submit")
        return submit(runner, *given, **options)

    monkeypatch.setattr(Runner, "submit", counted)
    return calls


def test_the_picture_of_a_board_follows_its_panels(client: httpx.Client, runner_calls: list[str]) -> None:
    board = client.post(f"{API}/boards", json={"title": "Wall & hall", "panels": PANELS}).json()
    name = client.post(f"{API}/links", json={"address": "boards?board=wall-hall"}).json()["name"]
    card = card_of(client.get(f"/l/{name}"))
    assert card["og:title"] == "Wall & hall"
    assert "2 panels" in card["og:description"]
    first = client.get(f"/l/{name}.png").content
    assert client.get(f"/l/{name}.png").content == first
    assert len(runner_calls) == 1
    # Only the number of a station is left.
    client.put(f"{API}/boards/wall-hall", json={**board, "panels": board["panels"][:1]})
    assert client.get(f"/l/{name}.png").content != first
    assert len(runner_calls) == 2
    # Without the board there is no result to draw, but stations.
    client.delete(f"{API}/boards/wall-hall")
    assert min(shape_of(client.get(f"/l/{name}.png").content)[:2]) > 400
    assert len(runner_calls) == 2


def test_a_link_to_a_panel_shows_that_one(client: httpx.Client, runner_calls: list[str]) -> None:
    board = client.post(f"{API}/boards", json={"title": "Wall & hall", "panels": PANELS}).json()
    names = [
        client.post(f"{API}/links", json={"address": f"boards?board=wall-hall&panel={panel}"}).json()["name"]
        for panel in (*(panel["id"] for panel in board["panels"]), "none")
    ]
    # A panel without a title has that of its board; so has one that is gone, whose page says so.
    titles = [card_of(client.get(f"/l/{name}"))["og:title"] for name in names]
    assert (titles[0], titles[1]) == ("Wall & hall", "Map")
    number, picture, _ = (client.get(f"/l/{name}.png").content for name in names)
    assert number != picture
    assert len(runner_calls) == 2


def test_a_picture_that_takes_long_is_that_of_the_stations(
    gate: Any,  # noqa: ANN401 - of the folder above
    archive: hg.OpenArchive,
    make_runner: Callable[..., Runner],
    boards: BoardStore,
    shared: SharedServer,
    monkeypatch: pytest.MonkeyPatch,
    runner_calls: list[str],
) -> None:
    monkeypatch.setattr(links, "PICTURE_S", 0.3)
    app = create_app(make_runner(gate), Catalogue(archive), services=Services(boards=boards))
    with shared.serving(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        asked = urlencode({"q": json.dumps(MAP)})
        name = client.post(f"{API}/links", json={"address": f"explore?{asked}", "title": "Later"}).json()["name"]
        early = client.get(f"/l/{name}.png")
        assert (early.status_code, early.headers["cache-control"]) == (200, "no-store")
        gate.open()
        monkeypatch.setattr(links, "PICTURE_S", 60.0)
        complete = client.get(f"/l/{name}.png")
        assert "etag" in complete.headers
        assert complete.content != early.content
        # The first request's query went on.
        assert runner_calls == ["submit"]


def test_a_picture_that_fails_is_tried_again(
    client: httpx.Client, boards: BoardStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"explore?{urlencode({'q': json.dumps(MAP)})}"
    name = client.post(f"{API}/links", json={"address": address}).json()["name"]

    def refuse(*_given: Any, **_options: Any) -> None:  # noqa: ANN401
        raise QueueFull("many queries wait")

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "submit", refuse)
        failed = client.get(f"/l/{name}.png")
        assert (failed.status_code, failed.headers["cache-control"]) == (200, "no-store")
        assert "etag" not in failed.headers
        # A page without a picture keeps that of the stations.
        none = client.post(f"{API}/links", json={"address": "stations?station=1"}).json()["name"]
        assert "etag" in client.get(f"/l/{none}.png").headers
    drawn = client.get(f"/l/{name}.png")
    assert "etag" in drawn.headers
    assert drawn.content != failed.content


def test_with_keys_a_card_says_nothing_without_one(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], boards: BoardStore, store: KeyStore, clock: Clock
) -> None:
    _, text = store.create("reader", "read", now_ns=clock())
    rules = Rules(keyed=CallerLimits(), embed_origins=("https://maps.example",))
    app = create_app(
        make_runner(archive), Catalogue(archive), services=Services(boards=boards), access=Access(store, clock, rules)
    )
    link = boards.add_link("stations?station=1", "Secret place", now_ns=clock())
    client = TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)
    bare, unknown = client.get(f"/l/{link.name}"), client.get("/l/nothing")
    assert card_of(bare) == card_of(unknown) == {"og:title": "HyperGrid", "og:type": "website"}
    assert "Secret" not in bare.text
    assert bare.text.replace(link.name, "nothing") == unknown.text
    assert client.get(f"/l/{link.name}.png").status_code == 401
    keyed = {"X-API-Key": text}
    assert card_of(client.get(f"/l/{link.name}", headers=keyed))["og:title"] == "Secret place"
    # The page of a station has no picture of its own.
    assert shape_of(client.get(f"/l/{link.name}.png", headers=keyed).content)
    assert client.post(f"{API}/links", json={"address": "explore"}, headers=keyed).status_code == 403


def test_only_embedded_pages_may_be_framed(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], boards: BoardStore
) -> None:
    def ancestors(path: str, rules: Rules) -> tuple[str, bool]:
        app = create_app(
            make_runner(archive),
            Catalogue(archive),
            services=Services(boards=boards),
            access=Access(None, lambda: 0, rules),
        )
        headers = TestClient(app, base_url="http://127.0.0.1", follow_redirects=False).get(path).headers
        return headers["content-security-policy"].rpartition("frame-ancestors ")[2], "x-frame-options" in headers

    allowed = Rules(embed_origins=("https://maps.example", "http://hall.example:81"))
    assert ancestors("/?embed=1", Rules()) == ("'self'", False)
    assert ancestors("/?embed=1", allowed) == ("'self' https://maps.example http://hall.example:81", False)
    for path in ("/", "/?embed=0", "/?x=1&embed=1", f"{API}/boards?embed=1", "/l/x", f"{API}/variables"):
        assert ancestors(path, allowed) == ("'none'", True), path
    app = create_app(make_runner(archive), Catalogue(archive), services=Services(boards=boards))
    moved = TestClient(app, base_url="http://127.0.0.1", follow_redirects=False).get("/embed/abc")
    assert (moved.status_code, moved.headers["location"]) == (307, "../?embed=1#link?name=abc")


@pytest.mark.parametrize("origin", ["*", "https://a/", "https://*.a", "null", "https://a; script-src *", "https://a,b"])
def test_origins_that_would_open_more(origin: str) -> None:
    with pytest.raises(InvalidQuery, match="embed_origins"):
        rules_of(Settings(embed_origins=(origin,)), "127.0.0.1")


def growing(folder: Path) -> Callable[..., None]:
    """Make an archive of two variables, and return what commits a reading of each named station [(station, day)]."""
    known = [KNOWN_VARIABLES[name] for name in ("air_temperature", "wind_speed")]
    made = Archive.create(folder, name="small", slice_s=60.0, variables=known, now_ns=parse_instant("2007-10-01"))
    with made.commit(batch="stations", message="stations", now_ns=parse_instant("2007-10-01")) as writer:
        writer.stations([Station(name, name, (Position(None, 7.0, 45.0 + n, 0.0),)) for n, name in enumerate("abc")])

    def commit(variable: str, *rows: tuple[str, float], batch: str) -> None:
        series = tuple(Series(variable, station, 2.0, interval_s=60.0, source="f/x") for station, _ in rows)
        stamps = np.array([parse_instant("2007-10-01") + round(day * DAY_NS) for _, day in rows])
        index = np.arange(len(rows), dtype=np.int32)
        flags = np.full(len(rows), NOT_EVALUATED, np.uint8)
        with Archive.open(folder).commit(batch=batch, message=batch, now_ns=parse_instant("2007-10-02")) as writer:
            writer.readings(Readings(series, index, stamps, np.ones(len(rows)), flags, stamps))

    return commit


def test_news_name_what_changed_and_where_readings_end(tmp_path: Path) -> None:
    commit = growing(tmp_path / "archive")
    archive = hg.open(tmp_path / "archive")
    news = ArchiveNews(LatestValues(archive, clock=iter(range(0, 10_000, 10)).__next__))
    first = news.read_news()
    assert (first.changed, dict(first.ends)) == (None, {})
    commit("air_temperature", ("a", 1.0), ("b", 1.2), batch="1")
    second = news.read_news(first.id)
    assert second.changed == ("air_temperature",)
    assert second.to_json()["newest"] == {"air_temperature": "2007-10-02T04:48:00Z"}
    assert second.to_json()["ends"] == {"air_temperature": "2007-10-02T04:49:00Z"}
    assert news.read_news(second.id).changed == ()
    commit("wind_speed", ("a", 1.5), batch="2")
    # The clock of one station runs a month ahead.
    commit("air_temperature", ("a", 1.5), ("c", 31.0), batch="3")
    third = news.read_news(second.id)
    assert third.changed == ("air_temperature", "wind_speed")
    end_ns = parse_instant("2007-10-02T12:01Z")
    assert {name: end.end_ns for name, end in third.ends.items()} == {"air_temperature": end_ns, "wind_speed": end_ns}
    assert news.read_news("unknown").changed is None
    with Archive.open(tmp_path / "archive").commit(batch="4", message="moved", now_ns=end_ns) as writer:
        writer.stations([Station("a", "A", (Position(None, 7.5, 45.0, 0.0),))])
    assert news.read_news(third.id).changed is None


def test_news_are_sent_once(client: httpx.Client, archive: hg.OpenArchive) -> None:
    answer = client.get(f"{API}/snapshots/newest")
    assert answer.json()["id"] == archive.snapshot
    stop_ns = archive.store.extent("air_temperature").stop_ns  # type: ignore[union-attr]
    assert answer.json()["ends"] == {"air_temperature": format_timestamp(stop_ns // SECOND_NS * SECOND_NS)}
    since = {"since": archive.snapshot}
    known = client.get(f"{API}/snapshots/newest", params=since)
    assert known.json()["changed"] == []
    again = client.get(f"{API}/snapshots/newest", params=since, headers={"If-None-Match": known.headers["etag"]})
    assert again.status_code == 304


def test_readings_of_a_station_are_a_query_for_the_server(client: httpx.Client) -> None:
    # A board whose only panel is a series has a picture, too, as has one of a query that answers with series.
    for number, panel in enumerate(
        ({"kind": "series", "last": "3h", "station": "2", "variable": "air_temperature"},
         {"kind": "picture", "last": "6h", "query": SERIES})
    ):  # fmt: skip
        name = client.post(f"{API}/boards", json={"title": f"Board {number}", "panels": [panel]}).json()["name"]
        link = client.post(f"{API}/links", json={"address": f"boards?board={name}"}).json()["name"]
        picture = client.get(f"/l/{link}.png")
        assert "etag" in picture.headers
        assert shape_of(picture.content)
