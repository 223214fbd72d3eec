"""State beside the data: whichever bit flips, a read gives what was written, leaves the row out, or says so."""

import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

import hypergrid as hg
from hypergrid.archive.disk.row_checksums import DamagedState, find_damage, list_tables, parse_checked_line
from hypergrid.core.errors import NotFound
from hypergrid.core.settings import Settings
from queries.boards.definition import board_from_json
from queries.boards.repository import BoardStore, BoardsUnavailable
from queries.jobs.job_history import LOST, Journal
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.definition import definition_from_json
from queries.standing.repository import (
    Alert,
    CatalogueDamaged,
    CatalogueUnavailable,
    EvaluationProgress,
    EvaluationResult,
    StandingStore,
)
from queries.standing.service import StandingQueries
from queries.web.app import create_app
from queries.web.auth.access import Access, Audit
from queries.web.auth.keys import BadKey, KeysDamaged, KeyStore
from queries.web.routes.health import Monitoring
from queries.web.serving import check, damaged_rows, open_journal

NOW_NS = 1_700_000_000 * 10**9
FLIPS = 400
"""Bits that are flipped in each file, one at a time."""
Values = dict[str, Any]
"""What a file holds, by row."""


def write_keys(path: Path) -> None:
    store = KeyStore(path)
    for number in range(6):
        store.create(f"key-{number}", "query", now_ns=NOW_NS, limits={"cells": 1000.0 + number})
    store.revoke("key-2", now_ns=NOW_NS + 1)
    store.close()


def read_keys(path: Path) -> Values:
    store = KeyStore(path)
    try:
        assert store.exist, "access control must not go off"
        found = {key.id: (key, store._row(key.id)) for key in store.keys()}
        return found | {f"get {key_id}": store.get(key_id) for key_id in found}
    finally:
        store.close()


def write_jobs(path: Path) -> None:
    journal = Journal(path, now_ns=NOW_NS)
    for number in range(6):
        job = SimpleNamespace(
            id=f"job-{number}", owner="alice", token=f"t{number}", snapshot="S", created_ns=NOW_NS + number,
            document={"variable": "air_temperature", "steps": [{"op": "aggregate", "time": f"{number}h"}]},
            outline=SimpleNamespace(cells=100 + number), state="done", started_ns=NOW_NS, ended_ns=NOW_NS + 9,
            error=None,
        )  # fmt: skip
        journal.record_job(job)  # type: ignore[arg-type]
        journal.record_end(job)  # type: ignore[arg-type]
    journal.close()


def read_jobs(path: Path) -> Values:
    journal = Journal(path, now_ns=NOW_NS + 50)
    try:
        found = {job.id: job for job in journal.list_records()}
        return found | {f"find {number}": journal.find(f"job-{number}") for number in range(6)}
    finally:
        journal.close()


def write_standing(path: Path) -> None:
    store = StandingStore(path)
    for number in range(4):
        name = f"frost-{number}"
        definition = definition_from_json(
            {
                "name": name, "query": {"variable": "air_temperature", "steps": []}, "to": ["email:a@example.org"],
                "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"},
            },
            settings=None,
        )  # fmt: skip
        store.add(definition, EvaluationProgress("S1", NOW_NS), now_ns=NOW_NS)
        body = {"place": "here", "text": f"cold {number}"}
        store.keep(
            [
                EvaluationResult(
                    name, EvaluationProgress("S2", NOW_NS, NOW_NS), ((Alert(name, "raised", body, NOW_NS), None),)
                )
            ]
        )
    store.pause("frost-1", paused=True)
    store.close()


def read_standing(path: Path) -> Values:
    store = StandingStore(path)
    try:
        found: Values = {f"query {one.name}": one for one in store.entries()}
        found |= {f"alert {one.number}": one for one in store.alerts()}
        found |= {f"letter {number}": str(target) for number, target in store.list_waiting()}
        found |= {f"{one.name} {one.number}": one for n in range(4) for one in store.alerts(name=f"frost-{n}")}
        waiting = [one for n in range(4) for one in store.list_undelivered(f"frost-{n}", limit=9)]
        return found | {f"undelivered {one['number']}": one for one in waiting}
    finally:
        store.close()


def write_boards(path: Path) -> None:
    store = BoardStore(path)
    for number in range(4):
        panel = {"id": "a", "kind": "number", "last": "1h", "station": f"{number}", "variable": "air_temperature"}
        store.add_board(board_from_json({"title": f"Wall {number}", "panels": [panel]}), now_ns=NOW_NS)
        store.add_link(f"boards?board=wall-{number}", f"Wall {number}", now_ns=NOW_NS)
    store.close()


def read_boards(path: Path) -> Values:
    store = BoardStore(path)
    try:
        found: Values = {f"board {one.name}": one for one in store.boards()}
        with store._lock_for_reading():
            names = [name for (name,) in store._db.execute("SELECT name FROM valid_links")]
        return found | {f"link {name}": store.link(name) for name in names}
    finally:
        store.close()


def write_audit(path: Path) -> None:
    audit = Audit(path)
    for number in range(20):
        audit.note(now_ns=NOW_NS + number, label=f"alice ({number})", what="POST /api/v1/standing", status=201)


def read_audit(path: Path) -> Values:
    contents = filter(None, map(parse_checked_line, path.read_bytes().split(b"\n")))
    return {content["who"]: content for content in contents}


@dataclass(frozen=True)
class File:
    name: str
    write: Callable[[Path], None]
    read: Callable[[Path], Values]


FILES = (
    File("keys.sqlite", write_keys, read_keys),
    File("jobs.sqlite", write_jobs, read_jobs),
    File("standing.sqlite", write_standing, read_standing),
    File("audit.jsonl", write_audit, read_audit),
    File("boards.sqlite", write_boards, read_boards),
)


def flips(data: bytes, count: int) -> Iterable[tuple[int, int]]:
    """Yield places and bits, most of them in bytes that hold something."""
    chosen = random.Random(7)
    held = [place for place, byte in enumerate(data) if byte]
    for number in range(count):
        place = chosen.choice(held) if number % 8 else chosen.randrange(len(data))
        yield place, chosen.randrange(8)


def outcome(file: File, path: Path, original: Values) -> str:
    """Return what a reader makes of a file: "same", "left out" (and found by the check), "told", or "silent"."""
    damage = list(find_damage(path))
    try:
        found = file.read(path)
    except (DamagedState, CatalogueUnavailable, BoardsUnavailable) as error:
        return "told" if str(path) in str(error) else "silent"
    changed = [key for key, value in found.items() if value is not None and original.get(key) != value]
    missing = [key for key in original if found.get(key) is None]
    if changed:
        return "silent"
    if missing:
        return "left out" if damage else "silent"
    return "same"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_no_flipped_bit_is_read_as_something_else(file: File, tmp_path: Path) -> None:
    prove(file, tmp_path, FLIPS)


@pytest.mark.soak
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_none_of_many_flipped_bits_is_read_as_something_else(file: File, tmp_path: Path) -> None:
    prove(file, tmp_path, 20_000)


def prove(file: File, folder: Path, count: int) -> None:
    whole = folder / file.name
    file.write(whole)
    data, original = whole.read_bytes(), file.read(whole)
    assert list(find_damage(whole)) == []
    outcomes: Counter[str] = Counter()
    for place, bit in flips(data, count):
        damaged = folder / "damaged" / file.name
        shutil.rmtree(damaged.parent, ignore_errors=True)
        damaged.parent.mkdir()
        flipped = bytearray(data)
        flipped[place] ^= 1 << bit
        damaged.write_bytes(flipped)
        result = outcome(file, damaged, original)
        outcomes[result] += 1
        assert result != "silent", (place, bit)
    assert outcomes["left out"] > count // 10, outcomes
    assert file.name == "audit.jsonl" or outcomes["told"] > 0, outcomes


OLDER: dict[str, tuple[str, ...]] = {
    "keys.sqlite": (
        "CREATE TABLE keys (id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, digest BLOB NOT NULL, "
        "created_ns INTEGER NOT NULL, expires_ns INTEGER, revoked_ns INTEGER, limits TEXT NOT NULL) STRICT",
    ),
    "jobs.sqlite": (
        "CREATE TABLE jobs (number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, "
        "token TEXT NOT NULL, snapshot TEXT NOT NULL, document TEXT NOT NULL, cells INTEGER NOT NULL, created_ns "
        "INTEGER NOT NULL, state TEXT NOT NULL, started_ns INTEGER, ended_ns INTEGER, error TEXT NOT NULL DEFAULT '') "
        "STRICT",
    ),
    "standing.sqlite": (
        "CREATE TABLE queries (name TEXT PRIMARY KEY, document TEXT NOT NULL, created_ns INTEGER NOT NULL, paused "
        "INTEGER NOT NULL DEFAULT 0, muted_until_ns INTEGER, progress TEXT NOT NULL) STRICT",
        "CREATE TABLE alerts (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, happening TEXT NOT NULL, "
        "at_ns INTEGER NOT NULL, muted INTEGER NOT NULL, body TEXT NOT NULL) STRICT",
        "CREATE TABLE letters (id INTEGER PRIMARY KEY AUTOINCREMENT, alert INTEGER NOT NULL, target TEXT NOT NULL, "
        "state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '') STRICT",
        "CREATE INDEX alerts_of ON alerts (name, number)",
        "CREATE INDEX letters_open ON letters (state) WHERE state IN ('waiting', 'sending')",
    ),
}
"""What the version before made: without checksums."""
LAST_VALUE = {"keys.sqlite": b"key-5", "jobs.sqlite": b"5h", "standing.sqlite": b"cold 3"}


def as_before(file: File, new: Path, old: Path) -> None:
    """Write the rows of a file into one as an older program made it."""
    with closing(sqlite3.connect(old)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        for statement in OLDER[file.name]:
            db.execute(statement)
        db.execute("ATTACH ? AS new", (str(new),))
        for table in list_tables(db):
            columns = ", ".join(row[1] for row in db.execute(f"PRAGMA main.table_info({table})"))
            db.execute(f"INSERT INTO main.{table} ({columns}) SELECT {columns} FROM new.{table} ORDER BY rowid")
        db.execute("PRAGMA user_version = 1")
        db.commit()


@pytest.mark.parametrize("file", FILES[:3], ids=lambda file: file.name)
def test_a_file_of_an_older_program_gets_checksums_when_it_is_opened(file: File, tmp_path: Path) -> None:
    new, old = tmp_path / "new.sqlite", tmp_path / file.name
    file.write(new)
    as_before(file, new, old)
    assert list(find_damage(old)) == []
    assert file.read(old) == file.read(new)
    with closing(sqlite3.connect(old)) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (2,)
        for table in list_tables(db):
            sums = [text for (text,) in db.execute(f"SELECT checksum FROM {table}")]
            assert sums
            assert all(len(text) == 8 for text in sums)
    assert file.read(old) == file.read(new)
    # From then on its values are guarded like any others.
    original, data = file.read(old), bytearray(old.read_bytes())
    data[data.rfind(LAST_VALUE[file.name])] ^= 4
    old.write_bytes(data)
    assert outcome(file, old, original) == "left out"


def test_lines_of_an_older_program_are_accepted(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_text('{"time": "2026-01-01T00:00Z", "who": "before", "what": "keys create"}\n')
    Audit(path).note(now_ns=NOW_NS, label="after", what="keys revoke")
    assert list(read_audit(path)) == ["before", "after"]
    assert json.loads(path.read_text().splitlines()[1])["what"] == "keys revoke"
    assert list(find_damage(path)) == []
    # Each bit of the line that has a checksum, the checksum's own name among them.
    data, start = path.read_bytes(), path.read_bytes().index(b"\n") + 1
    for place in range(start, len(data) - 1):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            path.write_bytes(flipped)
            assert list(find_damage(path)), (place, bit)


def damage(path: Path, before: bytes, after: bytes) -> None:
    data = path.read_bytes()
    assert before in data
    path.write_bytes(data.replace(before, after))


def test_a_damaged_row_gets_no_new_checksum(tmp_path: Path) -> None:
    path = tmp_path / "standing.sqlite"
    write_standing(path)
    damage(path, b"0 degC", b"9 degC")
    store = StandingStore(path)
    assert len(store.list_damaged()) == 4
    with pytest.raises(CatalogueDamaged, match="'frost-0' is damaged in .*standing.sqlite.*make it anew"):
        store.pause("frost-0", paused=True)
    with pytest.raises(CatalogueDamaged):
        store.entry("frost-0")
    assert store.entries() == []
    store.remove("frost-0")
    assert len(store.list_damaged()) == 3
    store.close()


def test_a_letter_of_a_damaged_alert_is_not_sent(tmp_path: Path) -> None:
    path = tmp_path / "standing.sqlite"
    write_standing(path)
    damage(path, b"cold 2", b"gold 2")
    store = StandingStore(path)
    assert [one.number for one in store.alerts()] == [1, 2, 4]
    sent = [store.mark_sending(number) for number, _ in store.list_waiting()]
    assert [None if one is None else one.alert.number for one in sent] == [1, 2, None, 4]
    assert store.count_messages() == {"refused": 1, "sending": 3}
    store.close()


def test_a_damaged_job_does_not_keep_the_others_from_ending(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    write_jobs(path)
    with closing(Journal(path, now_ns=NOW_NS)) as journal:
        journal._db.execute("UPDATE jobs SET state = 'running' WHERE number > 3")
    damage(path, b"job-4", b"job-$")
    with closing(Journal(path, now_ns=NOW_NS)) as journal:
        assert journal.lost == 2
        assert journal.list_damaged() == ["row 5 of jobs"]
        assert [(one.id, one.error) for one in journal.list_records()][:2] == [("job-5", LOST), ("job-3", LOST)]


def test_access_stays_on_when_all_keys_are_damaged(tmp_path: Path) -> None:
    path = tmp_path / "keys.sqlite"
    with closing(KeyStore(path)) as store:
        text = store.create("alice", "admin", now_ns=NOW_NS)[1]
    damage(path, b"admin", b"adlin")
    with closing(KeyStore(path)) as store:
        assert (store.exist, store.keys(), store.list_damaged()) == (True, [], ["row 1 of keys"])
        with pytest.raises(BadKey, match="not known"):
            store.check(text, NOW_NS)


@pytest.mark.parametrize("content", [b"", b"no database at all, but long enough to be looked at" * 20])
def test_a_file_of_keys_that_cannot_be_read_lets_nobody_in(
    content: bytes, tmp_path: Path, archive: hg.OpenArchive, make_runner: Callable[..., Runner]
) -> None:
    path = tmp_path / "keys.sqlite"
    path.write_bytes(content)
    store = KeyStore(path)
    with pytest.raises(KeysDamaged, match=r"keys\.sqlite cannot be read.*restore the file from a copy.*are lost"):
        store.keys()
    app = create_app(make_runner(archive), Catalogue(archive), access=Access(store, lambda: NOW_NS))
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/health/live").status_code == 200
    answers = [client.get(address) for address in ("/health/ready", "/api/v1/variables")]
    assert [answer.status_code for answer in answers] == [503, 503]
    assert all("keys" in answer.text for answer in answers)
    assert str(path) not in answers[1].text


def test_a_server_answers_without_its_file_of_jobs_and_says_so(
    tmp_path: Path, archive: hg.OpenArchive, make_runner: Callable[..., Runner]
) -> None:
    path = tmp_path / "jobs.sqlite"
    path.write_bytes(b"no database at all" * 100)
    journal, found = open_journal(path, now_ns=NOW_NS)
    assert journal is None
    app = create_app(make_runner(archive, journal=journal), Catalogue(archive), monitoring=Monitoring(damage=found))
    client = TestClient(app, base_url="http://127.0.0.1")
    assert client.get("/health/ready").status_code == 200
    told = client.get("/health").json()
    assert told["status"] == "degraded"
    assert "what became of the latest queries is forgotten" in told["troubles"]["jobs.sqlite"]


def test_a_file_of_jobs_that_fails_later_hides_old_jobs_alone(
    tmp_path: Path, archive: hg.OpenArchive, make_runner: Callable[..., Runner]
) -> None:
    write_jobs(tmp_path / "jobs.sqlite")
    journal = Journal(tmp_path / "jobs.sqlite", now_ns=NOW_NS)
    runner = make_runner(archive, journal=journal)
    assert len(runner.list_past_jobs()) == 6
    journal._db.set_authorizer(lambda *_: sqlite3.SQLITE_DENY)
    assert runner.list_past_jobs() == []
    with pytest.raises(NotFound):
        runner.job("job-1")
    journal.close()


def test_serve_check_names_damaged_state(tmp_path: Path, archive: hg.OpenArchive) -> None:
    write_keys(tmp_path / "keys.sqlite")
    settings = Settings(state=str(tmp_path), port=0)
    found = {one.what: one for one in check(archive.path, settings, None, now_ns=NOW_NS)}
    assert found["state"].is_fine
    damage(tmp_path / "keys.sqlite", b"key-3", b"key#3")
    found = {one.what: one for one in check(archive.path, settings, None, now_ns=NOW_NS)}
    assert (found["state"].is_fine, "keys.sqlite: row 4 of keys" in found["state"].message) == (False, True)


def test_damaged_rows_are_told_by_file(tmp_path: Path, archive: hg.OpenArchive) -> None:
    write_keys(tmp_path / "keys.sqlite")
    damage(tmp_path / "keys.sqlite", b"key-3", b"key#3")
    standing = StandingQueries(archive, clock=lambda: NOW_NS, folder=tmp_path / "standing")
    with closing(KeyStore(tmp_path / "keys.sqlite")) as store, standing:
        found = damaged_rows(Access(store, lambda: NOW_NS), standing, None)
    assert found == {"keys.sqlite": "damaged, and left out: row 4 of keys; see 'hypergrid check'"}
