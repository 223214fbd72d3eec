"""Access keys: made, shown once, kept as a hash, ended; by one process and by the command line of another."""

import errno
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.cli.main import app as command_line
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from queries.standing.service import StandingQueries
from queries.web.auth import keys
from queries.web.auth.access import Access
from queries.web.auth.keys import BadKey, KeysDamaged, KeyStore
from queries.web.serving import keep_access_closed
from tests.queries.web.conftest import Clock

HOUR_NS = 3600 * 10**9


def test_a_key_is_shown_once_and_kept_as_a_hash(store: KeyStore, clock: Clock) -> None:
    assert not store.exist
    assert not store.path.exists()
    key, text = store.create("alice", "query", now_ns=clock())
    assert store.exist
    assert store.check(text, clock()) == key
    secret = text.split("_", 2)[2]
    store.close()
    for file in store.path.parent.iterdir():
        assert secret.encode() not in file.read_bytes()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert len(text.removeprefix(f"hg_{key.id}_")) == 43  # 256 bits in base64


def test_no_two_keys_are_alike(store: KeyStore, clock: Clock) -> None:
    assert len({store.create(f"k{n}", "read", now_ns=clock())[1] for n in range(50)}) == 50


@pytest.mark.parametrize(
    "text", ["", "hg_", "hg_000000000000_" + "A" * 43, "x" * 100_000, "hg_\x00", "é" * 59, "' OR 1=1 --"]
)
def test_what_is_no_key_opens_nothing(store: KeyStore, texts: dict[str, str], clock: Clock, text: str) -> None:
    with pytest.raises(BadKey, match="not known"):
        store.check(text, clock())


def test_a_key_ends(store: KeyStore, clock: Clock) -> None:
    _, text = store.create("guest", "read", now_ns=clock(), expires_ns=clock() + HOUR_NS)
    store.check(text, clock() + HOUR_NS - 1)
    with pytest.raises(BadKey, match="'guest' has expired"):
        store.check(text, clock() + HOUR_NS)
    assert store.revoke("guest", now_ns=clock()).name == "guest"
    with pytest.raises(BadKey, match="'guest' was revoked"):
        store.check(text, clock())
    with pytest.raises(NotFound):
        store.revoke("guest", now_ns=clock())
    store.create("guest", "read", now_ns=clock())  # the name is free again


def test_another_process_sees_a_new_key_and_a_revocation_at_once(store: KeyStore, clock: Clock) -> None:
    other = KeyStore(store.path)
    assert not other.exist
    _, text = store.create("alice", "read", now_ns=clock())
    assert other.check(text, clock()).name == "alice"
    store.revoke("alice", now_ns=clock())
    with pytest.raises(BadKey):
        other.check(text, clock())
    other.close()


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, InvalidQuery),
        ({"name": "a b"}, InvalidQuery),
        ({"name": "a\n"}, InvalidQuery),
        ({"scope": "root"}, NotFound),
        ({"expires_ns": 5}, InvalidQuery),
        ({"limits": {"cell": 5}}, NotFound),
        ({"limits": {"cells": 0}}, InvalidQuery),
        ({"limits": {"cells": float("nan")}}, InvalidQuery),
    ],
)
def test_a_key_that_cannot_be_made(store: KeyStore, given: dict[str, Any], error: type[HyperGridError]) -> None:
    with pytest.raises(error):
        store.create(**{"name": "alice", "scope": "read", "now_ns": 10, **given})
    assert store.keys() == []


def test_keys_on_the_command_line(archive: hg.OpenArchive, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(f'state = "{tmp_path}"\n')
    place = ["--archive", str(archive.path), "--settings", str(tmp_path / "s.toml")]

    def run(*words: str) -> str:
        done = CliRunner().invoke(command_line, ["keys", *words, *place], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    text = run("create", "alice", "--scope", "write", "--expires", "30day", "--limit", "cells=500").strip()
    made = json.loads(run("create", "bob", "--json"))
    store = KeyStore(tmp_path / "keys.sqlite")
    assert store.check(text, made_ns := store.keys()[0].created_ns).limits == {"cells": 500}
    assert store.keys()[0].expires_ns == made_ns + 30 * 24 * HOUR_NS
    assert store.check(made["key"], made_ns).scope == "query"
    run("revoke", "alice")
    listed = run("list", "--json")
    assert [(one["name"], one["state"]) for one in json.loads(listed)] == [("alice", "revoked"), ("bob", "valid")]
    assert text not in listed
    noted = (tmp_path / "audit.jsonl").read_text()
    assert [json.loads(line)["what"] for line in noted.splitlines()] == ["keys create", "keys create", "keys revoke"]
    assert text.split("_", 2)[2] not in noted
    store.close()


# What is left of the files of an installation that had keys: the file of keys, and the marker.
DAMAGED: dict[str, tuple[bytes | None, bool]] = {
    "vanished": (None, True),
    "empty": (b"", True),
    "empty, of an installation without a marker": (b"", False),
    "cut": (b"SQLite format 3\0", True),
    "garbage": (b"no database at all" * 300, True),
    "garbage, without a marker": (b"no database at all" * 300, False),
}


@pytest.mark.parametrize(("content", "has_marker"), DAMAGED.values(), ids=DAMAGED)
def test_keys_that_cannot_be_read_open_nothing(
    store: KeyStore, texts: dict[str, str], clock: Clock, *, content: bytes | None, has_marker: bool
) -> None:
    assert store.marker.exists()
    store.close()
    store.path.unlink()
    if content is not None:
        store.path.write_bytes(content)
    if not has_marker:
        store.marker.unlink()
    for one in (store, KeyStore(store.path)):
        for access in (Access(one, clock), Access(one, clock, required=True)):
            with pytest.raises(KeysDamaged, match="nobody is let in; restore the file.*keys create.*keys off"):
                access.identify_caller(key=texts["admin"], session=None)
            with pytest.raises(KeysDamaged):
                access.identify_caller(key=None, session=None)


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 300])
def test_a_start_marks_an_installation_that_has_keys_also_damaged_ones(
    store: KeyStore, texts: dict[str, str], clock: Clock, content: bytes | None
) -> None:
    assert texts
    store.marker.unlink()
    if content is None:
        keep_access_closed(Access(store, clock))
    else:
        store.close()
        store.path.write_bytes(content)
        with pytest.raises(KeysDamaged):
            keep_access_closed(Access(store, clock))
    assert store.marker.exists()
    store.close()
    store.path.unlink()
    with pytest.raises(KeysDamaged, match="it is missing"):
        keep_access_closed(Access(KeyStore(store.path), clock))


def test_a_marker_that_cannot_be_written_keeps_nobody_from_serving(
    store: KeyStore, texts: dict[str, str], clock: Clock, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def refuse(_folder: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store.marker.unlink()
    monkeypatch.setattr(keys, "keep_access_control", refuse)
    keep_access_closed(Access(store, clock))
    assert "stays on only as long as" in caplog.text
    assert Access(store, clock).identify_caller(key=texts["admin"], session=None).scope == "admin"


def test_no_marker_is_made_where_there_never_was_a_key(tmp_path: Path, clock: Clock) -> None:
    store = KeyStore(tmp_path / "server" / "keys.sqlite")
    access = Access(store, clock)
    keep_access_closed(access)
    assert (access.is_on, list(tmp_path.iterdir())) == (False, [])


def test_a_running_server_sees_keys_vanish_and_come_back(
    store: KeyStore, texts: dict[str, str], clock: Clock, tmp_path: Path
) -> None:
    store.check(texts["admin"], clock())
    shutil.copy(store.path, tmp_path / "copy")
    store.path.unlink()
    with pytest.raises(KeysDamaged, match="it is missing"):
        store.check(texts["admin"], clock())
    shutil.copy(tmp_path / "copy", store.path)
    assert store.check(texts["admin"], clock()).name == "admin"
    # New keys in place of lost ones.
    store.path.unlink()
    fresh = KeyStore(store.path).create("fresh", "read", now_ns=clock())[1]
    assert store.check(fresh, clock()).name == "fresh"
    with pytest.raises(BadKey):
        store.check(texts["admin"], clock())


def test_access_control_is_turned_off_on_purpose_alone(archive: hg.OpenArchive, tmp_path: Path, clock: Clock) -> None:
    place = shutil.copytree(archive.path, tmp_path / "archive", ignore=shutil.ignore_patterns("server", "standing"))
    path = place / "server" / "keys.sqlite"

    def run(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(command_line, ["keys", words[0], str(place), *words[1:]])
        return done.exit_code, str(done.exception or "") + done.stderr

    assert run("create", "alice")[0] == 0
    assert "add --yes" in run("off")[1]
    assert Access(KeyStore(path), clock).is_on
    with StandingQueries(hg.open(place), clock=clock) as standing:
        standing.start()
        status, told = run("off", "--yes")
        assert (status != 0, "is running; stop it" in told) == (True, True)
    path.write_bytes(b"")
    status, told = run("off", "--yes")
    assert (status, "access control is off: all keys were removed" in told) == (0, True)
    assert [one.name for one in path.parent.iterdir()] == ["audit.jsonl"]
    assert not Access(KeyStore(path), clock).is_on
    assert "off already" in run("off", "--yes")[1]
