"""A served archive with files that are gone, cut, or full of something else: it says so, and opens to nobody."""

import fcntl
import json
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from fastapi import FastAPI

import hypergrid as hg
from hypergrid.core.errors import DamagedArchive, HyperGridError
from hypergrid.core.settings import Settings
from queries.jobs.job_history import Journal
from queries.standing.repository import CatalogueDamaged, StandingStore
from queries.web.auth.keys import KeysDamaged, KeyStore
from queries.web.middleware.request_limits import stderr_handler
from queries.web.routes import health
from queries.web.serving import application
from tests.queries.conftest import MAP, SERIES
from tests.queries.test_damaged_state import write_jobs, write_standing
from tests.serving import SharedServer

KEYS, JOBS, STANDING = "server/keys.sqlite", "server/jobs.sqlite", "standing/standing.sqlite"
HEAD = "store/refs/branch.main/ref.json"
DATA = (
    "variables", "stations", "latest", "series?variable=air_temperature", "snapshots", "queries", "standing",
    "standing/alerts", "../../edr/collections", "../../edr/collections/stations/items",
)  # fmt: skip


def remove(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def scribble(path: Path) -> None:
    path.write_bytes(b"no file of HyperGrid" * 500)


def misname(path: Path) -> None:
    """Have the head name a snapshot that there is none of."""
    path.write_text(json.dumps({"snapshot": json.loads(path.read_text())["snapshot"][::-1]}))


LOGGED = re.compile(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00 ERROR \S+: request \S+: ")
"""Begin of a line on standard error: the time in UTC, the level, where it comes from, and the request."""


class Damage(NamedTuple):
    files: str
    """Those that are damaged, as a pattern below the archive."""
    make: Callable[[Path], None]
    status: str
    """What `health` says of a server that ran before."""
    answers: str
    """What becomes of its data: all are answered, or some, or none are."""
    start: type[HyperGridError] | str
    """Why a server does not start, or what its `health` says."""


TABLE: dict[str, Damage] = {
    "head gone": Damage(HEAD, remove, "failing", "some", DamagedArchive),
    "head cut": Damage(HEAD, cut, "failing", "some", DamagedArchive),
    "head empty": Damage(HEAD, empty, "failing", "some", DamagedArchive),
    "head names a missing snapshot": Damage(HEAD, misname, "failing", "some", "failing"),
    # What the server has read of them it has in memory; readiness reads the disk.
    "manifests gone": Damage("store/manifests/*", remove, "failing", "all", "failing"),
    "manifests cut": Damage("store/manifests/*", cut, "failing", "all", "failing"),
    "chunks gone": Damage("store/chunks/*", remove, "failing", "some", "failing"),
    "chunks cut": Damage("store/chunks/*", cut, "failing", "some", "failing"),
    "chunks empty": Damage("store/chunks/*", empty, "failing", "some", "failing"),
    "keys gone": Damage(KEYS, remove, "failing", "none", KeysDamaged),
    "keys empty": Damage(KEYS, empty, "failing", "none", KeysDamaged),
    "keys cut": Damage(KEYS, cut, "failing", "none", KeysDamaged),
    "keys garbage": Damage(KEYS, scribble, "failing", "none", KeysDamaged),
    "jobs empty": Damage(JOBS, empty, "ok", "all", "degraded"),
    "jobs cut": Damage(JOBS, cut, "ok", "all", "degraded"),
    "jobs garbage": Damage(JOBS, scribble, "ok", "all", "degraded"),
    # SQLite has what it read in memory, and looks at the file when it starts.
    "standing queries empty": Damage(STANDING, empty, "ok", "all", CatalogueDamaged),
    "standing queries cut": Damage(STANDING, cut, "ok", "all", CatalogueDamaged),
    "standing queries garbage": Damage(STANDING, scribble, "ok", "all", CatalogueDamaged),
}
SMALL = (
    "head cut",
    "head names a missing snapshot",
    "manifests gone",
    "chunks empty",
    "keys gone",
    "standing queries garbage",
)
"""Those that are tried outside `make soak`."""
CASES = [pytest.param(one, id=name, marks=() if name in SMALL else pytest.mark.soak) for name, one in TABLE.items()]


class Served(NamedTuple):
    """A server with keys, and who asks it."""

    path: Path
    app: FastAPI
    client: httpx.Client
    """With a key of scope admin."""
    anonymous: httpx.Client


@pytest.fixture
def place(archive: hg.OpenArchive, tmp_path: Path) -> tuple[Path, str]:
    """An archive with state of every kind beside its data, and a key."""
    path = tmp_path / "archive"
    shutil.copytree(archive.path, path, ignore=shutil.ignore_patterns("server", "standing"))
    (path / "server").mkdir()
    (path / "standing").mkdir()
    with closing(KeyStore(path / KEYS)) as store:
        key = store.create("admin", "admin", now_ns=time.time_ns())[1]
    write_jobs(path / JOBS)
    write_standing(path / STANDING)
    return path, key


@pytest.fixture
def serve(place: tuple[Path, str], shared: SharedServer, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Any]:
    monkeypatch.setattr(health, "KEPT_S", 0.0)

    @contextmanager
    def served() -> Iterator[Served]:
        path, key = place
        with ExitStack() as stack:
            app = stack.enter_context(application(path, Settings()))
            base = f"{stack.enter_context(shared.serving(app))}/api/v1/"
            client = httpx.Client(base_url=base, headers={"X-API-Key": key}, timeout=60)
            anonymous = httpx.Client(base_url=base, timeout=60)
            yield Served(path, app, stack.enter_context(client), stack.enter_context(anonymous))

    return served


def asked(served: Served) -> list[httpx.Response]:
    """Ask for data of every kind, and for a query."""
    answers = [served.client.get(address) for address in DATA]
    return [*answers, served.client.post("queries?wait=30s", json=SERIES)]


def examine(served: Served, caplog: pytest.LogCaptureFixture) -> tuple[str, list[int]]:
    """Return what `health` says, and the statuses of answers with data; each is looked at."""
    caplog.clear()
    answers = asked(served)
    for answer in answers:
        records = [one for one in caplog.records if answer.headers["x-request-id"] in one.getMessage()]
        assert len(records) == (answer.status_code >= 500), (answer.url, answer.text, caplog.text)
        for line in map(stderr_handler().format, records):
            assert LOGGED.match(line), line
            assert answer.headers["x-request-id"] in line.splitlines()[0]
    probes = [served.client.get(f"../../{probe}") for probe in ("health/live", "health/ready", "health", "metrics")]
    strangers = [served.anonymous.get(address) for address in (*DATA, "../../health", "../../metrics")]
    assert not any(answer.is_success for answer in strangers)
    for answer in (*answers, *probes, *strangers):
        assert str(served.path.parent) not in answer.text
    assert probes[0].status_code == 200
    # Where nobody is let in, nobody may read it either.
    found = probes[2].json()["status"] if probes[2].is_success else "failing"
    assert probes[1].status_code == (503 if found == "failing" else 200), probes[2].text
    return found, [answer.status_code for answer in answers]


LONG: dict[str, Any] = SERIES | {"steps": MAP["steps"][:1] * 90 + SERIES["steps"]}
"""A query whose document does not fit into what a file of SQLite has free."""


def fill(kind: type[Journal | StandingStore], monkeypatch: pytest.MonkeyPatch) -> None:
    """Have SQLite grow a file no further, as on a full disk."""
    names = {Journal: "record_job", StandingStore: "add"}
    write = getattr(kind, names[kind])

    def written(store: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401 - as of any store
        store._db.execute("PRAGMA max_page_count = 1")
        return write(store, *args, **options)

    monkeypatch.setattr(kind, names[kind], written)


def damage(path: Path, one: Damage) -> None:
    for file in sorted(path.glob(one.files)):
        one.make(file)


@pytest.mark.parametrize("one", CASES)
def test_damage_to_a_running_server(serve: Callable[[], Any], one: Damage, caplog: pytest.LogCaptureFixture) -> None:
    with serve() as served:
        assert examine(served, caplog) == ("ok", [200] * (len(DATA) + 1))
        damage(served.path, one)
        status, statuses = examine(served, caplog)
        failed = sum(status >= 500 for status in statuses)
        answers = "all" if not failed else "none" if failed == len(statuses) else "some"
        assert (status, answers) == (one.status, one.answers)


@pytest.mark.parametrize("one", CASES)
def test_damage_before_a_server_starts(
    serve: Callable[[], Any], place: tuple[Path, str], one: Damage, caplog: pytest.LogCaptureFixture
) -> None:
    damage(place[0], one)
    if not isinstance(one.start, str):
        with pytest.raises(one.start), serve():
            pass
        return
    with serve() as served:
        status, statuses = examine(served, caplog)
        assert status == one.start
        assert (max(statuses) >= 500) == (status == "failing")


def test_data_are_read_while_another_process_holds_the_locks(
    serve: Callable[[], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with (
        serve() as served,
        (served.path / "lock").open("rb") as lock,
        closing(sqlite3.connect(served.path / KEYS)) as db,
    ):
        fcntl.flock(lock, fcntl.LOCK_EX)
        db.execute("BEGIN IMMEDIATE")
        assert examine(served, caplog) == ("ok", [200] * (len(DATA) + 1))


@pytest.mark.parametrize("file", [JOBS, STANDING])
def test_data_are_read_while_another_process_holds_state(
    serve: Callable[[], Any], file: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StandingStore, "kind", replace(StandingStore.kind, busy_s=0.2))
    with serve() as served, closing(sqlite3.connect(served.path / file)) as db:
        db.execute("BEGIN EXCLUSIVE")
        # A query that waited until its note can be made, as long as SQLite waits by default, would not be answered.
        served.client.timeout = 20.0
        assert examine(served, caplog) == ("ok", [200] * (len(DATA) + 1))
        assert ("could not be noted: database is locked" in caplog.text) == (file == JOBS)
        added = served.client.post("standing", json={"name": "frost", "query": SERIES, "to": ["events"]})
        assert (added.status_code, "held by another program" in added.text) == (
            (201, False) if file == JOBS else (503, True)
        )
        assert str(served.path.parent) not in added.text
        db.rollback()
        assert (
            served.client.post("standing", json={"name": "ice", "query": SERIES, "to": ["events"]}).status_code == 201
        )


def test_a_full_disk_leaves_data_served_and_writes_say_why(
    serve: Callable[[], Any], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as served:
        monkeypatch.setattr(health, "LEAST_FREE_BYTES", 1 << 60)
        for store in (Journal, StandingStore):
            fill(store, monkeypatch)
        assert examine(served, caplog) == ("degraded", [200] * (len(DATA) + 1))
        assert "make room" in served.client.get("../../health").json()["troubles"]["disk"]
        refused = served.client.post("standing", json={"name": "frost", "query": LONG, "to": ["events"]})
        assert (refused.status_code, "disk is full" in refused.text) == (503, True)
        assert served.client.post("queries?wait=30s", json=LONG).status_code == 200
        assert "could not be noted: database or disk is full" in caplog.text
