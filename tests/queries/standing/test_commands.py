"""`hypergrid standing …`, as it is typed: what is said, the exit status, and JSON for machines."""

import json
import os
import re
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import hypergrid as hg
from hypergrid.core.times import SECOND_NS, format_instant, parse_instant
from queries.standing.commands import standing_app
from queries.standing.repository import StandingStore
from queries.standing.service import StandingQueries
from tests.hypergrid.cli.test_archive_commands import run
from tests.queries.standing.hook import Hook
from tests.queries.standing.live import START_NS, STATIONS, Live
from tests.support.standing_runner import is_fresh, settle

AIR = {"variable": "air_temperature", "steps": []}
HOT = {"name": "hot", "query": AIR, "condition": {"kind": "threshold", "above": 20, "clear": 18}}
NOT_SERVED = "no server runs them now: nothing is evaluated or told until 'hypergrid serve {}' does"
COMMANDS = ("add", "list", "show", "pause", "resume", "mute", "acknowledge", "comment", "test", "remove", "secret")


@pytest.fixture
def written(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a document into a file."""

    def write(document: object) -> Path:
        path = tmp_path / "document.json"
        path.write_text(json.dumps(document))
        return path

    return write


@pytest.fixture
def hot(live: Live, written: Callable[..., Path]) -> Path:
    """Return an archive with a standing query `hot`."""
    assert run("standing", "add", live.folder, written(HOT))[0] == 0
    return live.folder


def done(*words: str | Path) -> Any:  # noqa: ANN401 - whatever is in the JSON
    status, out, said = run("standing", *words, "--json")
    assert (status, said) == (0, "")
    return json.loads(out)


def test_every_command_is_here() -> None:
    assert {command.name for command in standing_app.registered_commands} == set(COMMANDS)
    status, out, _ = run("standing", "--help")
    assert status == 0
    assert all(name in out for name in COMMANDS)


def test_the_secret_of_webhooks_is_shown_and_stays(live: Live) -> None:
    secret = done("secret", live.folder)["secret"]
    assert secret.startswith("whsec_")
    assert run("standing", "secret", live.folder) == (0, secret + "\n", "")


def test_a_standing_query_is_made_listed_and_shown(live: Live, written: Callable[..., Path]) -> None:
    status, out, said = run("standing", "add", live.folder, written(HOT))
    assert (status, out) == (0, "")
    assert said == f"hot stands: class alert, weight 10, to events {NOT_SERVED.format(live.folder)}"
    # A query alone takes its name from the command line; so does one that has another.
    assert done("add", live.folder, written(AIR), "--name", "calm")["class"] == "user"
    assert done("add", live.folder, written({**HOT, "weight": 4}), "--name", "hotter")["weight"] == 4
    listed = done("list", live.folder)
    assert [(one["name"], one["paused"], one["standing"]) for one in listed] == [
        ("hot", False, []), ("calm", False, []), ("hotter", False, []),
    ]  # fmt: skip
    status, out, _ = run("standing", "list", live.folder)
    assert status == 0
    assert [re.split(r"\s{2,}", line.strip()) for line in out.splitlines() if "hotter" in line] == [
        ["hotter", "alert", "4", "air_temperature", "threshold", "events", "waits for a server", "0"]
    ]


def test_a_title_makes_the_name_and_means_the_query(live: Live, written: Callable[..., Path]) -> None:
    made = done("add", live.folder, written(AIR), "--name", "Air in the Vallée")
    assert (made["name"], made["title"]) == ("air-in-the-vallee", "Air in the Vallée")
    assert "Air in the Vallée" in run("standing", "list", live.folder)[1]
    assert done("pause", live.folder, "AIR in the vallee")["paused"]
    assert done("remove", live.folder, "air-in-the-vallee")["name"] == "air-in-the-vallee"
    status, _, said = run("standing", "list", live.folder)
    assert (status, f"'hypergrid standing add {live.folder} FILE' makes one" in said) == (0, True)


def test_the_list_says_whether_a_server_runs_them(live: Live, hot: Path, make_standing: Callable[..., Any]) -> None:
    _, out, said = run("standing", "list", hot)
    assert ("waits for a server" in out, said) == (True, NOT_SERVED.format(hot))
    make_standing().start()
    _, out, said = run("standing", "list", hot)
    assert ("running" in out, said) == (True, "")
    shown = done("show", live.folder, "hot")
    assert (shown["condition"], shown["alerts"], shown["undelivered"]) == (HOT["condition"], [], [])
    status, out, _ = run("standing", "show", live.folder, "hot")
    assert (status, '"kind": "threshold"' in out, "Alerts of hot" in out) == (0, True, True)


def test_it_is_paused_and_resumed(hot: Path) -> None:
    assert run("standing", "pause", hot, "hot")[::2] == (
        0, "hot is paused; `hypergrid standing resume` goes on, with what has come meanwhile",
    )  # fmt: skip
    assert done("show", hot, "hot")["paused"]
    assert "paused" in run("standing", "list", hot)[1]
    assert run("standing", "resume", hot, "hot")[::2] == (0, "hot runs again")
    assert done("pause", hot, "hot")["paused"]
    assert not done("resume", hot, "hot")["paused"]


def test_it_is_muted_until_for_and_no_more(hot: Path) -> None:
    until = "2150-01-01T12:00Z"
    assert run("standing", "mute", hot, "hot", "--until", until)[::2] == (0, f"hot is muted until {until}")
    assert done("show", hot, "hot")["muted_until"] == "2150-01-01T12:00:00Z"
    assert "muted until 2150-01-01T12:00" in run("standing", "list", hot)[1]
    began_ns = time.time_ns()
    told = done("mute", hot, "hot", "--for", "2h")
    assert 0 <= parse_instant(told["muted_until"]) - began_ns - 7200 * SECOND_NS < 60 * SECOND_NS
    assert run("standing", "mute", hot, "hot", "--off")[::2] == (0, "hot tells again")
    assert done("show", hot, "hot")["muted_until"] is None


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "needs one of --until INSTANT, --for DURATION and --off"),
        (["--off", "--for", "2h"], "needs one of --until INSTANT"),
        (["--until", "1970-01-01"], "needs an end between now, 2.*got 1970-01-01T00:00Z"),
        (["--until", "tomorrow"], "an instant needs ISO 8601 text"),
        (["--for", "100000day"], "got a time after 2261"),
        (["--for", "-2h"], "must be above zero"),
    ],
)
def test_a_mute_that_cannot_be_says_why(hot: Path, words: list[str], told: str) -> None:
    status, out, said = run("standing", "mute", hot, "hot", *words)
    assert (status, out) == (2, "")
    assert re.search(told, said), said
    assert done("show", hot, "hot")["muted_until"] is None


def test_alerts_are_acknowledged_and_commented_on(live: Live, hot: Path) -> None:
    status, out, said = run("standing", "acknowledge", hot, "hot")
    assert (status, out, "no alert of hot stands" in said) == (2, "", True)
    live.everywhere(10, 5.0)
    live.add(10, {"1": 30.0, "2": 30.0})
    with StandingQueries(hg.open(live.folder), clock=time.time_ns) as standing:
        settle(standing.runner)
    assert run("standing", "acknowledge", hot, "hot", "--comment", "On my way")[::2] == (0, "2 of hot acknowledged")
    assert run("standing", "comment", hot, "hot", "Fan is broken", "--number", "2")[::2] == (0, "1 of hot commented on")
    assert run("standing", "acknowledge", hot, "hot", "--number", "1", "--off")[::2] == (0, "1 of hot open again")
    stands = {one["place"]: one for one in done("show", hot, "hot")["standing"]}
    assert {place: one["acknowledged"] for place, one in stands.items()} == {"1": False, "2": True}
    assert [one["comment"] for one in stands["2"]["remarks"]] == ["On my way", "Fan is broken"]
    assert all(one["author"] for one in stands["2"]["remarks"])
    assert "Fan is broken" in run("standing", "show", hot, "hot")[1]
    done("add", hot, hot.parent / "document.json", "--name", "other")
    status, _, said = run("standing", "comment", hot, "other", "x", "--number", "1")
    assert (status, "alert 1 is of hot, not of other" in said) == (2, True)
    assert run("standing", "comment", hot, "hot", "x" * 1001)[0] == 2


def test_a_test_alert_and_those_that_do_not_arrive_are_shown(live: Live, written: Callable[..., Path]) -> None:
    hook = Hook()
    (live.folder.parent / "settings.toml").write_text(f'webhook_hosts = ["{hook.host}"]\n')
    mine = written({**HOT, "to": ["events", hook.url("/a"), "email:a@b.org"]})
    status, _, said = run("standing", "add", live.folder, mine)
    assert (status, "which is not allowed" in said) == (2, True)
    assert done("add", live.folder, mine, "--settings", live.folder.parent / "settings.toml")["name"] == "hot"
    to = f"events, {hook.url('/a')}, email:a@b.org"
    assert run("standing", "test", live.folder, "hot")[::2] == (
        0, f"test alert 1 of hot is on its way to {to}; a running server sends it",
    )  # fmt: skip
    assert done("test", live.folder, "hot") == {"number": 2, "to": to.split(", ")}
    shown = done("show", live.folder, "hot")
    assert [(one["happening"], one["number"]) for one in shown["alerts"]] == [("test", 1), ("test", 2)]
    assert [(one["number"], one["to"], one["state"]) for one in shown["undelivered"]] == [
        (number, target, "waiting") for number in (1, 2) for target in (hook.url("/a"), "email:a@b.org")
    ]
    assert [one["number"] for one in done("show", live.folder, "hot", "--alerts", "1")["alerts"]] == [2]
    assert done("show", live.folder, "hot", "--alerts", "0")["alerts"] == []
    # The server of these settings has no mail server, and allows no host.
    with StandingQueries(hg.open(live.folder), clock=time.time_ns) as standing:
        while standing.notification_workers.deliver_next():
            pass
    status, out, _ = run("standing", "show", live.folder, "hot")
    assert status == 0
    assert "Alerts of hot that have not arrived" in out
    assert "refused" in out
    assert "no mail server is set" in out
    assert hook.got == []
    hook.server.shutdown()


def test_what_was_removed_stands_no_more(hot: Path) -> None:
    done("test", hot, "hot")
    assert run("standing", "remove", hot, "hot")[::2] == (0, "hot stands no more; its results and alerts stay")
    assert done("list", hot) == []
    status, _, said = run("standing", "remove", hot, "hot")
    assert (status, said) == (2, "hypergrid: unknown standing query 'hot'. There are: none")


def test_removing_tells_machines_what_stood(hot: Path) -> None:
    assert done("remove", hot, "hot")["condition"] == HOT["condition"]
    assert done("list", hot) == []


@pytest.mark.parametrize("command", COMMANDS[2:-1])
def test_an_unknown_name_or_no_archive_is_wrong_use(hot: Path, tmp_path: Path, command: str) -> None:
    more = {"mute": ["--off"], "comment": ["seen"]}.get(command, [])
    status, out, said = run("standing", command, hot, "hit", *more)
    assert (status, out) == (2, "")
    assert said == "hypergrid: unknown standing query 'hit'; did you mean 'hot'? There are: hot"
    status, _, said = run("standing", command, tmp_path / "nowhere", "hot", *more)
    assert (status, "does not exist; an archive was needed" in said) == (2, True)
    assert not (tmp_path / "nowhere").exists()
    assert run("standing", command, hot)[0] == 2


@pytest.mark.parametrize(
    ("document", "more", "told"),
    [
        (HOT, [], "a standing query 'hot' is there already"),
        ({**HOT, "name": "statistics"}, [], "cannot have the name 'statistics'"),
        ({**HOT, "query": {**AIR, "variable": "air_temp"}}, ["--name", "x"], "did you mean 'air_temperature'"),
        (AIR, [], "unknown key of a standing query 'variable'"),
        ([], [], "needs a JSON object|a JSON object"),
        ({**HOT, "name": "x", "weight": 10**400}, [], "above zero; got one beyond all numbers"),
        ({**HOT, "name": "x", "window": "180000day"}, [], "at most 36525day"),
    ],
)
def test_a_document_that_does_not_fit_is_wrong_use(
    hot: Path, written: Callable[..., Path], document: object, more: list[str], told: str
) -> None:
    status, out, said = run("standing", "add", hot, written(document), *more)
    assert (status, out) == (2, "")
    assert re.search(told, said), said
    assert [one["name"] for one in done("list", hot)] == ["hot"]


def test_a_catalogue_that_cannot_be_used_is_a_failure(hot: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = hot / "standing" / "standing.sqlite"
    monkeypatch.setattr(StandingStore, "kind", replace(StandingStore.kind, busy_s=0.2))
    holding = sqlite3.connect(path, isolation_level=None)
    holding.execute("BEGIN IMMEDIATE")
    status, _, said = run("standing", "pause", hot, "hot")
    assert (status, "has been held by another program for 0.2 s" in said) == (1, True)
    holding.close()
    assert not done("show", hot, "hot")["paused"]
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    path.write_bytes(b"no database at all" * 100)
    status, _, said = run("standing", "list", hot)
    assert (status, "cannot be read as a catalogue of standing queries" in said) == (1, True)


def test_a_running_server_takes_up_what_is_typed_and_is_alone(
    live: Live,
    make_standing: Callable[..., StandingQueries],
    written: Callable[..., Path],
    wait_until: Callable[..., None],
) -> None:
    server = make_standing()
    server.start()
    done("add", live.folder, written(HOT))
    wait_until(lambda: server.statistics().queries == 1 and is_fresh(server.runner), seconds=30)
    live.everywhere(10, 30.0)
    wait_until(lambda: len(done("show", live.folder, "hot")["alerts"]) == 4, seconds=30)
    shown = done("show", live.folder, "hot")
    assert {one["place"] for one in shown["standing"]} == set(STATIONS)
    assert shown["alerts"][0]["readings"][0]["value"] == 30.0
    status, out, _ = run("standing", "show", live.folder, "hot", "--alerts", "2")
    assert (status, out.count("live-")) == (0, 2)
    status, _, said = run("serve", "--archive", live.folder, "--port", "0")
    assert status == 1
    assert f"kept up to date by process {os.getpid()} on" in said
    assert f"since {format_instant(START_NS)}" in said
