"""Who may what: keys, sessions, the table of scopes over every route, rates, proxies, other sites."""

import base64
import io
import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient
from starlette.types import Receive, Scope, Send

import hypergrid as hg
from hypergrid.core.errors import CannotListen, InvalidQuery
from hypergrid.core.settings import Settings, import_limits
from ingest.importing.importer import FolderImporter
from queries.boards.repository import BoardStore
from queries.jobs.admission import current_asker
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from queries.web.auth.access import COOKIE, MOST_OF_A_KEY, Access, Audit, CallerLimits, Rules
from queries.web.auth.keys import SCOPES, KeyStore
from queries.web.auth.keys import Scope as KeyScope
from queries.web.auth.scopes import Undeclared, find_rule
from queries.web.commands import rules_of
from queries.web.middleware.authentication import RateLimiter
from queries.web.middleware.request_limits import AccessLogEntry, client_address
from queries.web.routes.health import Monitoring
from queries.web.server import listen
from tests.queries.web.conftest import Clock

HOUR_NS = 3600 * 10**9
GOLDEN = Path(__file__).parents[3] / "golden" / "access.txt"


Make = Callable[..., TestClient]


@pytest.fixture
def make(
    store: KeyStore, clock: Clock, archive: hg.OpenArchive, make_runner: Callable[..., Runner], tmp_path: Path
) -> Iterator[Make]:
    """Make a client of an application with access control, by its rules."""
    standing = StandingQueries(archive, clock=clock, folder=tmp_path / "standing")
    boards = BoardStore(tmp_path / "boards.sqlite")

    def build(rules: Rules | None = None, **more: Any) -> TestClient:  # noqa: ANN401
        access = Access(store, clock, rules or Rules(keyed=CallerLimits()))
        runner, importer = make_runner(archive), FolderImporter(archive.path, import_limits(Settings()))
        app = create_app(
            runner,
            Catalogue(archive),
            services=Services(standing=standing, boards=boards, importer=importer),
            access=access,
            **more,
        )
        return TestClient(app, base_url="http://127.0.0.1", follow_redirects=False)

    yield build
    boards.close()
    standing.stop()


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def routes(app: FastAPI) -> list[tuple[str, str]]:
    """Every method and path of an application."""
    found = {(method, route.path) for route in iter_route_contexts(app.routes) for method in route.methods or ()}
    return sorted((path, method) for method, path in found if method not in ("HEAD", "OPTIONS"))


async def reached(scope: Scope, receive: Receive, send: Send) -> None:
    """Stands for every route: the door let the request through."""
    await PlainTextResponse("reached")(scope, receive, send)


# The table


def test_every_route_by_every_caller(make: Make, texts: dict[str, str]) -> None:
    client = make(Rules(keyed=CallerLimits(), anonymous=CallerLimits()))
    app: Any = client.app
    listed = routes(app)
    app.router = reached
    callers = ["no key", "wrong", "expired", "revoked", *SCOPES]
    lines = [f"{'route':<92}{'needs':<8}" + "".join(f"{one:<9}" for one in callers)]
    for path, method in listed:
        asked = path.replace("{", "").replace("}", "").replace("path:path", "a/b")
        need = find_rule(method, asked).need
        got = {}
        for one in callers:
            answer = client.request(method, asked, headers={} if one == "no key" else bearer(texts[one]))
            got[one] = answer.status_code
            assert (answer.text == "reached") == (answer.status_code == 200)
        assert got["no key"] == (200 if need == "open" else 401)
        for scope in SCOPES:
            may = need == "open" or SCOPES.index(scope) >= SCOPES.index(need)
            assert got[scope] == (200 if may else 403), (method, path, scope)
        for bad in ("wrong", "expired", "revoked"):
            assert got[bad] == (200 if need == "open" else 401), (method, path, bad)
        lines.append(f"{method:<7}{path:<85}{need!s:<8}" + "".join(f"{got[one]:<9}" for one in callers))
    told = "\n".join(line.rstrip() for line in lines) + "\n"
    assert told == GOLDEN.read_text("utf-8"), f"the access matrix is another; if that is meant, write it:\n{told}"


def test_a_route_that_is_not_in_the_table_is_reported(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], monkeypatch: pytest.MonkeyPatch
) -> None:
    routes = APIRouter()
    routes.add_api_route("/secrets", lambda: 1)
    monkeypatch.setattr("queries.web.routes.about.router", lambda *_: routes)
    with pytest.raises(Undeclared, match="GET /api/v1/secrets"):
        create_app(make_runner(archive), Catalogue(archive))


def test_what_is_not_in_the_table_cannot_be_reached(make: Make, texts: dict[str, str]) -> None:
    client = make()
    app: Any = client.app
    app.add_api_route("/later", lambda: 1, methods=["GET"])
    assert client.get("/later", headers=bearer(texts["admin"])).status_code == 404
    answer = client.put("/api/v1/queries", headers=bearer(texts["admin"]))
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST, GET")


# Who asks


def test_without_keys_access_is_open_and_the_first_key_closes_it(make: Make, store: KeyStore, clock: Clock) -> None:
    client = make()
    assert client.get("/api/v1/variables").status_code == 200
    assert client.get("/api/v1/session").json()["scope"] == "admin"
    _, text = store.create("alice", "read", now_ns=clock())
    answer = client.get("/api/v1/variables")
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="hypergrid"')
    assert "keys create" in answer.json()["detail"]
    assert client.get("/api/v1/variables", headers=bearer(text)).status_code == 200
    assert client.get("/api/v1/variables", headers={"X-API-Key": text}).status_code == 200
    assert client.get("/api/v1/variables", headers=bearer(text) | {"X-API-Key": text}).status_code == 200
    store.revoke("alice", now_ns=clock())
    assert client.get("/api/v1/variables", headers=bearer(text)).status_code == 401
    assert client.get("/api/v1/variables").status_code == 401


@pytest.mark.parametrize("user", ["", "anybody"])
def test_a_key_may_be_the_password_of_basic_authentication(make: Make, texts: dict[str, str], user: str) -> None:
    client = make()
    words = base64.b64encode(f"{user}:{texts['read']}".encode()).decode()
    assert client.get("/api/v1/variables", headers={"Authorization": f"Basic {words}"}).status_code == 200
    other = base64.b64encode(f"{user}:{texts['wrong']}".encode()).decode()
    assert client.get("/api/v1/variables", headers={"Authorization": f"basic {other}"}).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "Basic abc",
        "Basic",
        "Basic YWJj",
        "Basic YWJjOg==",
        "Basic ////",
        "Bearer",
        "Bearer ",
        "bearer  ",
        "hg_1",
        "Bearer \xe9",
    ],
)
def test_headers_that_show_no_key(make: Make, texts: dict[str, str], header: str) -> None:
    answer = make().get("/api/v1/variables", headers={"Authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_two_different_keys_are_refused(make: Make, texts: dict[str, str]) -> None:
    answer = make().get("/api/v1/variables", headers=bearer(texts["admin"]) | {"X-API-Key": texts["read"]})
    assert answer.status_code == 401
    assert "two different" in answer.json()["detail"]


def test_those_without_a_key_may_read_where_that_is_allowed(make: Make, texts: dict[str, str]) -> None:
    client = make(Rules(anonymous_read=True))
    assert client.get("/api/v1/variables").status_code == 200
    assert client.post("/api/v1/queries", json={"variable": "air_temperature"}).status_code == 401
    assert client.get("/api/v1/variables", headers=bearer(texts["wrong"])).status_code == 401


def test_the_limits_of_a_caller_reach_the_scheduler(
    make: Make, store: KeyStore, clock: Clock, map_query: dict[str, Any]
) -> None:
    _, small = store.create("small", "query", now_ns=clock(), limits={"cells": 100, "seconds": 5})
    _, large = store.create("large", "query", now_ns=clock())
    client = make()
    answer = client.post("/api/v1/queries", json=map_query, headers=bearer(small))
    assert answer.status_code == 413
    assert (answer.json()["projected"], answer.json()["allowed"]) == (480, 100)
    assert "coarser" in answer.json()["detail"]
    assert client.post("/api/v1/queries", json=map_query, headers=bearer(large)).status_code == 202
    assert current_asker().owner == ""


def test_queries_belong_to_the_key_that_asked(
    make: Make, texts: dict[str, str], store: KeyStore, clock: Clock, map_query: dict[str, Any]
) -> None:
    _, other = store.create("other", "query", now_ns=clock())
    client = make()
    mine = client.post("/api/v1/queries", json=map_query, headers=bearer(texts["query"])).json()["id"]
    listed = {name: client.get("/api/v1/queries", headers=bearer(text)).json() for name, text in
              (("mine", texts["query"]), ("other", other), ("admin", texts["admin"]))}  # fmt: skip
    assert {name: [job["id"] for job in jobs] for name, jobs in listed.items()} == {
        "mine": [mine], "other": [], "admin": [mine],
    }  # fmt: skip
    assert client.delete(f"/api/v1/queries/{mine}", headers=bearer(other)).status_code == 403
    assert client.delete(f"/api/v1/queries/{mine}", headers=bearer(texts["query"])).status_code == 200


def test_a_proxy_before_a_server_without_keys_is_refused(make: Make) -> None:
    """It listens on loopback, but whoever reaches the proxy would reach it."""
    client = make()
    for header in ("X-Forwarded-For", "Forwarded", "X-Real-IP", "X-Forwarded-Proto"):
        answer = client.get("/api/v1/variables", headers={header: "1.2.3.4"})
        assert answer.status_code == 403
        assert "keys create" in answer.json()["detail"]
    assert client.get("/api/v1/variables").status_code == 200


def test_where_letters_go_is_told_to_those_who_may_change_it(make: Make, texts: dict[str, str]) -> None:
    client = make()
    document = {"name": "frost", "query": {"variable": "air_temperature", "steps": []},
                "to": ["events", "email:warden@example.org"]}  # fmt: skip
    client.post("/api/v1/standing", json=document, headers=bearer(texts["write"])).raise_for_status()
    # The letter is never sent here, so it is told among those that have not arrived.
    client.post("/api/v1/standing/frost/test", headers=bearer(texts["write"])).raise_for_status()
    (waiting,) = client.get("/api/v1/standing/frost", headers=bearer(texts["operate"])).json()["undelivered"]
    assert (waiting["to"], waiting["state"], waiting["error"]) == ("email", "waiting", "")
    for path in ("/api/v1/standing/frost", "/api/v1/standing"):
        told = {scope: client.get(path, headers=bearer(texts[scope])).text for scope in ("operate", "query", "write")}
        assert ["warden" in told[scope] for scope in ("operate", "query", "write")] == [False, False, True]


# Browsers


def log_in(client: TestClient, text: str, **headers: str) -> Any:  # noqa: ANN401
    return client.post("/api/v1/session", json={"key": text}, headers=headers)


def test_a_browser_logs_in_and_out(make: Make, texts: dict[str, str]) -> None:
    client = make()
    answer = log_in(client, texts["write"])
    assert answer.json() | {"ends": ""} == {
        "name": "write", "scope": "write", "by": "session", "access_control": True, "imports": True, "ends": "",
    }  # fmt: skip
    cookie = answer.headers["set-cookie"]
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=43200"} <= set(cookie.split("; "))
    assert "Secure" not in cookie
    assert texts["write"] not in cookie
    assert client.get("/api/v1/variables").status_code == 200
    assert client.get("/api/v1/variables").headers["vary"] == "Authorization, Cookie, X-API-Key"
    assert client.get("/api/v1/session").json()["scope"] == "write"
    value = client.cookies[COOKIE]
    assert client.delete("/api/v1/session", headers={"Origin": "http://127.0.0.1"}).status_code == 204
    client.cookies.set(COOKIE, value)
    assert client.get("/api/v1/variables").status_code == 401


def test_a_session_ends_with_its_time_and_with_its_key(
    make: Make, texts: dict[str, str], store: KeyStore, clock: Clock
) -> None:
    client = make(Rules(session_s=3600))
    log_in(client, texts["read"])
    value = client.cookies[COOKIE]
    clock.ns += HOUR_NS - 1
    assert client.get("/api/v1/variables").status_code == 200
    clock.ns += 1
    client.cookies.set(COOKIE, value)
    assert client.get("/api/v1/variables").status_code == 401
    log_in(client, texts["read"])
    store.revoke("read", now_ns=clock())
    assert client.get("/api/v1/variables").status_code == 401


def test_logging_in_again_and_again_ends_no_session_of_another_key(
    store: KeyStore, texts: dict[str, str], clock: Clock
) -> None:
    access = Access(store, clock)
    _, other, _ = access.log_in(texts["admin"])
    values = [access.log_in(texts["read"])[1] for _ in range(2 * MOST_OF_A_KEY)]
    scopes = [access.identify_caller(key=None, session=value).scope for value in (other, *values)]
    assert scopes == ["admin"] + [None] * MOST_OF_A_KEY + ["read"] * MOST_OF_A_KEY


@pytest.mark.parametrize("body", [{"key": "hg_1"}, {"key": 5}, {}, {"key": "x", "y": 1}, []])
def test_logins_that_fail(make: Make, texts: dict[str, str], body: object) -> None:
    answer = make().post("/api/v1/session", json=body)
    assert answer.status_code in (401, 422)
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-type"] == "application/problem+json"


# What a browser says of where a request comes from, and whether a session may change something then.
@pytest.mark.parametrize(
    ("headers", "may"),
    [
        ({"Origin": "http://127.0.0.1"}, True),
        ({"Sec-Fetch-Site": "same-origin"}, True),
        ({"Sec-Fetch-Site": "none"}, True),
        ({}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://127.0.0.1.evil.example"}, False),
        ({"Origin": "http://127.0.0.1:81"}, False),
        ({"Origin": ""}, False),
        ({"Origin": "http://[evil"}, False),
        ({"Origin": "http://evil@127.0.0.1"}, False),
        ({"Sec-Fetch-Site": "same-site"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "https://maps.example"}, False),
    ],
)
def test_another_site_cannot_use_a_session(
    make: Make,
    texts: dict[str, str],
    headers: dict[str, str],
    may: bool,  # noqa: FBT001
) -> None:
    client = make(Rules(origins=("https://maps.example",)))
    log_in(client, texts["write"])
    assert client.delete("/api/v1/queries/none", headers=headers).status_code == (404 if may else 403)


def test_another_site_cannot_reach_a_server_without_access_control(make: Make) -> None:
    client = make()
    assert client.delete("/api/v1/queries/none", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client.delete("/api/v1/queries/none", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert client.delete("/api/v1/queries/none").status_code == 404


def test_pages_of_other_sites_ask_with_a_key_where_they_are_named(make: Make, texts: dict[str, str]) -> None:
    client = make(Rules(origins=("https://maps.example",)))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    named = client.options("/api/v1/queries", headers=asked | {"Origin": "https://maps.example"})
    assert named.headers["access-control-allow-origin"] == "https://maps.example"
    assert "access-control-allow-credentials" not in named.headers
    other = client.options("/api/v1/queries", headers=asked | {"Origin": "https://evil.example"})
    assert other.status_code == 400
    assert "access-control-allow-origin" not in other.headers
    site = {"Origin": "https://maps.example"} | bearer(texts["write"])
    answer = client.delete("/api/v1/queries/none", headers=site)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, "https://maps.example")
    plain = make()
    assert plain.options("/api/v1/queries", headers=asked | {"Origin": "https://maps.example"}).status_code == 405
    assert "access-control-allow-origin" not in plain.get("/health/live", headers=site).headers


# Rates, proxies, the log


def test_a_bucket_fills_at_its_rate() -> None:
    rates = RateLimiter(maximum=2)
    assert [rates.take("a", 10, 0.0) for _ in range(20)] == [0.0] * 20
    assert rates.take("a", 10, 0.0) == pytest.approx(0.1)
    assert rates.take("b", 10, 0.0) == 0.0
    assert rates.take("a", 10, 0.1) == 0.0
    assert rates.take("a", 10, 0.1) > 0
    rates.take("c", 10, 0.2)
    assert rates.take("b", 1, 0.2) == 0.0  # forgotten, so full again
    slow = [rates.take("d", 0.5, float(second)) == 0.0 for second in range(20)]
    assert sum(slow) == 5 + 19 // 2  # five at once, then one every two seconds


def test_too_many_requests_are_told_when_to_come_back(
    make: Make, texts: dict[str, str], store: KeyStore, clock: Clock
) -> None:
    _, slow = store.create("slow", "read", now_ns=clock(), limits={"requests_per_s": 1})
    client = make(Rules(keyed=CallerLimits(), anonymous=CallerLimits(1.0, 10)))
    answers = [client.get("/api/v1/variables", headers=bearer(slow)) for _ in range(8)]
    assert [answer.status_code for answer in answers][:6] == [200] * 5 + [429]
    assert answers[5].headers["retry-after"] == "1"
    assert client.get("/api/v1/variables", headers=bearer(texts["read"])).status_code == 200
    wrong = [client.get("/api/v1/variables", headers=bearer(texts["wrong"])).status_code for _ in range(8)]
    assert wrong[:6] == [401] * 5 + [429]


def test_the_files_of_a_page_are_not_counted(make: Make, texts: dict[str, str]) -> None:
    assert texts, "without keys nothing is counted"
    # A request that may not be open at all stands for one more than may be.
    client = make(Rules(keyed=CallerLimits(), anonymous=CallerLimits(1.0, 0)))
    assert client.get("/static/1.js").status_code == 404
    assert client.get("/api/v1/session").status_code == 429
    client = make(Rules(keyed=CallerLimits(), anonymous=CallerLimits(1.0, 10)))
    # There is no page here, but the door knows its addresses.
    files = [client.get(f"/static/{number}.js").status_code for number in range(30)]
    assert files == [404] * 30
    sessions = [client.get("/api/v1/session").status_code for _ in range(6)]
    assert sessions == [200] * 5 + [429], "what asks for more than a file is counted"


@pytest.mark.parametrize(
    ("peer", "forwarded", "proto", "expected"),
    [
        ("10.0.0.9", "1.2.3.4", "https", ("10.0.0.9", "http")),  # nobody trusts it
        ("10.0.0.1", "1.2.3.4", "https", ("1.2.3.4", "https")),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "https", ("1.2.3.4", "https")),  # what it was told by others is not believed
        ("10.0.0.1", "1.2.3.4, 10.0.0.2", "http", ("1.2.3.4", "http")),  # two proxies
        ("10.0.0.1", "nonsense", "gopher", ("10.0.0.1", "http")),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4:80", "https", ("10.0.0.1", "https")),  # before it anything may stand
        ("10.0.0.1", "6.6.6.6|1.2.3.4", "http|https", ("1.2.3.4", "https")),  # a proxy that adds headers of its own
        ("::ffff:10.0.0.1", "::ffff:1.2.3.4", "https", ("1.2.3.4", "https")),  # a socket for both
        ("::ffff:1.2.3.4", "6.6.6.6", "https", ("1.2.3.4", "http")),
        ("10.0.0.1", "", "", ("10.0.0.1", "http")),
        ("2001:db8:1:2:3:4:5:6", "", "", ("2001:db8:1:2::/64", "http")),
    ],
)
def test_only_trusted_proxies_say_whence_a_request_comes(
    peer: str, forwarded: str, proto: str, expected: tuple[str, str]
) -> None:
    headers = [(b"x-forwarded-for", one.encode()) for one in forwarded.split("|")]
    headers += [(b"x-forwarded-proto", one.encode()) for one in proto.split("|")]
    scope = {"type": "http", "client": (peer, 1), "scheme": "http", "headers": headers}
    assert client_address(scope, ("10.0.0.1", "10.0.0.2")) == expected


def test_below_a_proxy_with_tls_and_a_path(make: Make, texts: dict[str, str], map_query: dict[str, Any]) -> None:
    client = make(Rules(root_path="/stations", trusted_proxies=("testclient",)))
    secure = {"X-Forwarded-Proto": "https"}
    cookie = log_in(client, texts["query"], **secure).headers["set-cookie"]
    assert {"Secure", "Path=/stations"} <= set(cookie.split("; "))
    for before in ("", "/stations"):  # proxies strip the path, or leave it
        answer = client.post(f"{before}/api/v1/queries", json=map_query, headers=bearer(texts["query"]))
        here = f"/stations/api/v1/queries/{answer.json()['id']}"
        assert answer.headers["location"] == answer.json()["links"]["self"] == here
        assert client.get(here, headers=bearer(texts["query"])).status_code == 200
    described = client.get("/stations/openapi.json", headers=bearer(texts["read"]))
    assert described.json()["servers"] == [{"url": "/stations"}]
    assert client.get("/stationsapi/v1/variables", headers=bearer(texts["query"])).status_code == 404


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"root_path": "/a/../b"}, "root_path"),
        ({"origins": ("*",)}, "exact origins"),
        ({"origins": ("https://a/",)}, "exact origins"),
        ({"origins": ("https://*.a",)}, "exact origins"),
        ({"origins": ("null",)}, "exact origins"),
    ],
)
def test_settings_of_access_that_do_not_fit(given: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        rules_of(Settings(**given), "127.0.0.1")


def test_changes_are_noted_and_no_secret_is_told_anywhere(
    make: Make, texts: dict[str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logging.getLogger("httpx").setLevel(logging.WARNING)  # which tells the address that this test asks for
    served: list[AccessLogEntry] = []
    client = make(audit=Audit(tmp_path / "audit.jsonl"), monitoring=Monitoring(listeners=[served.append]))
    named = {"X-Request-ID": "mine-1"}
    client.post("/api/v1/standing/frost/pause", headers=bearer(texts["write"]) | named)
    client.get(f"/api/v1/variables?key={texts['admin']}", headers=bearer(texts["admin"]))
    client.get("/api/v1/variables", headers=bearer(texts["wrong"]))
    log_in(client, texts["read"])
    (noted,) = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert noted["what"] == "POST /api/v1/standing/frost/pause"
    assert noted["who"].startswith("write (")
    assert (noted["status"], noted["request"]) == (404, "mine-1")
    assert [one.status for one in served] == [404, 400, 401, 200]
    told = io.StringIO()
    print(served, caplog.text, noted, file=told)
    for text in texts.values():
        assert text.split("_", 2)[2] not in told.getvalue()


def test_remarks_of_operators_are_noted_and_queries_are_not(
    make: Make, texts: dict[str, str], tmp_path: Path, map_query: dict[str, Any]
) -> None:
    client = make(audit=Audit(tmp_path / "audit.jsonl"))
    client.post("/api/v1/standing/alerts/1/comment", json={"text": "seen"}, headers=bearer(texts["operate"]))
    client.post("/api/v1/queries/explain", json=map_query, headers=bearer(texts["query"])).raise_for_status()
    (noted,) = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert (noted["what"], noted["who"].partition(" ")[0]) == ("POST /api/v1/standing/alerts/1/comment", "operate")


def test_changes_that_are_refused_to_somebody_known_are_noted(
    make: Make, texts: dict[str, str], tmp_path: Path
) -> None:
    client = make(audit=Audit(tmp_path / "audit.jsonl"))
    client.post("/api/v1/standing/frost/pause")
    assert not (tmp_path / "audit.jsonl").exists()
    client.post("/api/v1/standing/frost/pause", headers=bearer(texts["read"]))
    client.post("/api/v1/standing/frost/pause", headers=bearer(texts["write"]) | {"Origin": "https://evil.org"})
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(one["who"].partition(" ")[0], one["status"]) for one in lines] == [("read", 403), ("write", 403)]


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.X_", True), ("a b", False), ("x" * 65, False), ("", False), ("a\x0b", False)]
)
def test_the_id_of_a_request_is_echoed_where_it_is_one(make: Make, given: str, kept: bool) -> None:  # noqa: FBT001
    told = make().get("/health/live", headers={"X-Request-ID": given}).headers["x-request-id"]
    assert (told == given) == kept
    assert told.isascii()


# Where it listens


def test_it_listens_elsewhere_only_where_there_are_keys(store: KeyStore, clock: Clock) -> None:
    access = Access(store, clock, required=True)
    with pytest.raises(CannotListen, match="keys create"):
        listen("0.0.0.0", 0, access)
    _, _ = store.create("alice", "read", now_ns=clock())
    listen("0.0.0.0", 0, access).close()
    with pytest.raises(CannotListen):  # an application that would let everybody in once the file is gone
        listen("0.0.0.0", 0, Access(store, clock))
    store.revoke("alice", now_ns=clock())
    with pytest.raises(CannotListen):
        listen("0.0.0.0", 0, access)


def test_scopes_hold_one_another() -> None:
    order: tuple[KeyScope, ...] = ("read", "operate", "query", "write", "admin")
    assert order == SCOPES
    assert find_rule("POST", "/api/v1/queries").need == "query"


def test_who_reads_without_a_key_sees_data_and_nothing_of_the_server(make: Make, texts: dict[str, str]) -> None:
    assert texts  # there are keys, so that access control is on
    client = make(Rules(anonymous_read=True, anonymous=CallerLimits()))
    for path in ("variables", "stations", "latest?variable=air_temperature", "stations/health"):
        assert client.get(f"/api/v1/{path}").status_code == 200
    for path in ("/metrics", "/api/v1/rejects", "/api/v1/engine", "/api/v1/standing", "/api/v1/standing/alerts"):
        answer = client.get(path)
        assert (answer.status_code, "operate" in answer.json()["detail"]) == (401, True), path
