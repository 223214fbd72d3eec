"""Access keys: made, shown once, kept as a hash, ended; by one process and by the command line of another."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import hypergrid as hg
from hypergrid.__main__ import app as command_line
from hypergrid.errors import HyperGridError, InvalidQuery, NotFound
from queries.web.keys import BadKey, KeyStore
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
