"""Backups with a server's state: consistent while it is written, incremental, and harmless when they are restored."""

import json
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pandas
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.archive.durability.backup import MARKER, back_up, restore
from hypergrid.continuous.live import LiveQuery
from hypergrid.continuous.live.live_query import find_start
from hypergrid.continuous.live.store import LiveOptions, LiveStore
from hypergrid.continuous.records import LIVE_FILE
from hypergrid.core.errors import CannotBackUp, DamagedArchive
from hypergrid.core.times import SECOND_NS
from queries.backup_commands import secure_state
from queries.jobs.job_history import Journal
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.repository import StandingStore
from queries.web.app import create_app
from queries.web.auth.access import Access
from queries.web.auth.keys import BadKey, KeysDamaged, KeyStore
from tests.hypergrid.cli.test_archive_commands import run
from tests.queries.test_damaged_state import NOW_NS, write_audit, write_jobs, write_keys, write_standing
from tests.serving import SharedServer

STATE = [
    "server/audit.jsonl", "server/jobs.sqlite", "server/keys.sqlite", "standing/standing.sqlite",
    "continuous/continuous.sqlite",
]  # fmt: skip

WARM = "Select station, Avg(value) As mean From air_temperature [Range 2 Hours] Group By station"


@pytest.fixture
def place(archive: hg.OpenArchive, tmp_path: Path) -> Path:
    """An archive with state of every kind beside its data, and with what stays where it is."""
    path = tmp_path / "archive"
    shutil.copytree(archive.path, path, ignore=shutil.ignore_patterns("server", "standing", "continuous", "imports"))
    (path / "server").mkdir()
    (path / "standing" / "results" / "frost-0").mkdir(parents=True)
    (path / "standing" / "lock").touch()
    (path / "server" / "hypergrid.pid").write_text("1")
    write_keys(path / "server" / "keys.sqlite")
    write_jobs(path / "server" / "jobs.sqlite")
    write_audit(path / "server" / "audit.jsonl")
    write_standing(path / "standing" / "standing.sqlite")
    (path / "continuous").mkdir()
    (path / "continuous" / "tap.lock").touch()
    with closing(LiveStore(path / LIVE_FILE)) as store:
        store.add("warm", WARM, LiveOptions(find_start(archive)))
    return path


@contextmanager
def keys_of(folder: Path) -> Iterator[KeyStore]:
    store = KeyStore(folder / "server" / "keys.sqlite")
    try:
        yield store
    finally:
        store.close()


def test_state_travels_only_where_it_is_asked_for(place: Path, tmp_path: Path) -> None:
    status, _, told = run("backup", place, tmp_path / "backup")
    assert (status, "not in it, as state beside the data: continuous, server, standing" in told) == (0, True)
    assert not any((tmp_path / "backup").rglob("*.sqlite"))
    status, _, told = run("restore", tmp_path / "bare", tmp_path / "backup")
    assert (status, "keys, jobs, standing and continuous queries start empty" in told) == (0, True)
    # But for whether access needs keys: it does, and there are none.
    assert "access control stays on, so make new ones: 'hypergrid keys create'" in told
    assert [path.name for path in (tmp_path / "bare" / "server").iterdir()] == ["keys.required"]
    with keys_of(tmp_path / "bare") as store, pytest.raises(KeysDamaged, match="it is missing.*keys create.*keys off"):
        _ = store.exist


def test_an_archive_without_keys_is_restored_without_access_control(place: Path, tmp_path: Path) -> None:
    with keys_of(place) as store:
        store.remove()
    assert run("backup", place, tmp_path / "backup")[0] == 0
    assert run("restore", tmp_path / "bare", tmp_path / "backup")[0] == 0
    assert not (tmp_path / "bare" / "server").exists()


def test_a_backup_of_a_server_whose_keys_were_lost_is_restored_closed(place: Path, tmp_path: Path) -> None:
    (place / "server" / "keys.sqlite").unlink()
    assert run("backup", place, tmp_path / "backup", "--with-server")[0] == 0
    status, _, told = run("restore", tmp_path / "restored", tmp_path / "backup")
    assert (status, "keys: none came with the backup; access control stays on" in told) == (0, True)
    with keys_of(tmp_path / "restored") as store, pytest.raises(KeysDamaged, match="it is missing"):
        _ = store.exist


def test_what_goes_and_what_stays_is_told(place: Path, tmp_path: Path) -> None:
    status, _, told = run("backup", place, tmp_path / "backup", "--with-server")
    assert status == 0
    assert f"state of the server in it, of now: {', '.join(STATE)}" in told
    left_out = "continuous/tap.lock, server/hypergrid.pid, standing/lock, standing/results"
    assert f"not in it, as state beside the data: {left_out}" in told
    copies = [path for path in (tmp_path / "backup").rglob("*.*") if path.suffix in (".sqlite", ".jsonl")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in copies} == {0o600}
    assert len(copies) == len(STATE)


def test_the_next_backup_copies_state_that_changed_alone(place: Path, tmp_path: Path) -> None:
    first = back_up(place, tmp_path / "backup", now_ns=1, with_server=True)
    again = back_up(place, tmp_path / "backup", now_ns=2, with_server=True)
    assert list(first.state) == list(again.state) == STATE
    # The reference, which is written anew.
    assert again.files_copied == 1
    with keys_of(place) as store:
        store.create("late", "read", now_ns=NOW_NS)
    third = back_up(place, tmp_path / "backup", now_ns=3, with_server=True)
    assert (third.files_copied, third.files_removed) == (1 + len(STATE), len(STATE))
    # Where it is not asked for, the copy of an earlier run stays, and is told.
    kept = back_up(place, tmp_path / "backup", now_ns=4)
    assert (kept.state, kept.state_made) == ((), third.state_made)
    restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    with keys_of(tmp_path / "restored") as store:
        assert "late" in [key.name for key in store.keys()]


def test_no_key_of_a_backup_opens_anything_after_it_is_restored(
    place: Path, tmp_path: Path, archive: hg.OpenArchive
) -> None:
    with keys_of(place) as store:
        texts = [store.create(name, "admin", now_ns=NOW_NS)[1] for name in ("kept", "revoked-later")]
        assert run("backup", place, tmp_path / "backup", "--with-server")[0] == 0
        store.revoke("revoked-later", now_ns=NOW_NS)
    status, _, told = run("restore", tmp_path / "restored", tmp_path / "backup")
    assert status == 0
    made = json.loads((tmp_path / "backup" / MARKER).read_text())["state"]["made"]
    assert "keys: 7 revoked; access control stays on, so make new ones" in told
    assert "standing queries: 3 paused, with their webhooks and mails" in told
    assert "4 waiting alerts will not be sent" in told
    assert "audit log: as it was" in told
    listed = run("keys", "list", tmp_path / "restored")[1]
    assert f"revoked: restored from a backup of {made}; make new ones" in " ".join(listed.split())
    with keys_of(tmp_path / "restored") as store:
        assert store.exist
        assert {key.state(NOW_NS) for key in store.keys()} == {"revoked"}
        for text in texts:
            with pytest.raises(BadKey, match="was revoked .restored from a backup"):
                store.check(text, NOW_NS)
        fresh = store.create("fresh", "read", now_ns=NOW_NS)[1]
        app = create_app(Runner(archive), Catalogue(archive), access=Access(store, lambda: NOW_NS))
        with SharedServer().running() as shared, shared.serving(app) as address:
            shown: list[str | None] = [None, *texts, fresh]
            headers = [{} if text is None else {"Authorization": f"Bearer {text}"} for text in shown]
            got = [httpx.get(f"{address}/api/v1/variables", headers=one).status_code for one in headers]
    assert got == [401, 401, 401, 200]
    audits = [(folder / "server" / "audit.jsonl").read_bytes() for folder in (place, tmp_path / "restored")]
    assert audits[0] == audits[1]


def test_jobs_come_back_ended_and_standing_queries_paused(place: Path, tmp_path: Path) -> None:
    journal = Journal(place / "server" / "jobs.sqlite", now_ns=NOW_NS)
    journal._db.execute("UPDATE jobs SET state = 'running', ended_ns = NULL WHERE id = 'job-3'")
    back_up(place, tmp_path / "backup", now_ns=NOW_NS, with_server=True)
    journal.close()
    done = restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    assert "jobs: 1 unfinished, now failed; post them again" in done.notes
    journal = Journal(tmp_path / "restored" / "server" / "jobs.sqlite", now_ns=NOW_NS + 1)
    noted = {one.id: one for one in journal.list_records()}
    journal.close()
    assert noted["job-3"].state == "failed"
    assert noted["job-3"].error == f"the archive was restored from a backup of {done.state_made}; post it again"
    assert noted["job-2"].state == "done"
    store = StandingStore(tmp_path / "restored" / "standing" / "standing.sqlite")
    assert all(one.paused for one in store.entries())
    assert store.count_messages() == {"refused": 4}
    assert len(store.alerts()) == 4
    store.close()
    assert list(Archive.open(tmp_path / "restored").check(deep=True)) == []


def test_continuous_queries_go_on_after_the_results_that_they_gave(place: Path, tmp_path: Path) -> None:
    with closing(LiveStore(place / LIVE_FILE)) as store:
        query = LiveQuery(hg.open(place), store, "warm")
        # Half of the way, so that the restored one has its state to go on from.
        half = query.step(longest_ns=6 * 3600 * SECOND_NS)
        back_up(place, tmp_path / "backup", now_ns=NOW_NS, with_server=True)
        while query.step():
            pass
        want = query.rows()
    done = restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    assert "continuous queries: 1, resuming after their last results" in done.notes
    with closing(LiveStore(tmp_path / "restored" / LIVE_FILE)) as store:
        restored = LiveQuery(hg.open(tmp_path / "restored"), store, "warm")
        assert 0 < len(restored.rows()) == half < len(want)
        while restored.step():
            pass
        pandas.testing.assert_frame_equal(restored.rows(), want)


def test_state_is_consistent_while_a_server_writes(place: Path, tmp_path: Path) -> None:
    ended = threading.Event()
    catalogue = StandingStore(place / "standing" / "standing.sqlite")

    def write() -> None:
        number = 0
        with keys_of(place) as store:
            while not ended.is_set():
                number += 1
                store.create(f"many-{number}", "read", now_ns=NOW_NS)
                # Both or neither, in one transaction.
                with catalogue._transaction():
                    for name in ("frost-2", "frost-3"):
                        catalogue._db.execute("UPDATE queries SET created_ns = ? WHERE name = ?", (number, name))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for number in range(5):
            back_up(place, tmp_path / "backup", now_ns=number, with_server=True)
            restored = tmp_path / f"restored-{number}"
            restore(tmp_path / "backup", restored, secure=secure_state)
            store = StandingStore(restored / "standing" / "standing.sqlite")
            assert store.entry("frost-2").created_ns == store.entry("frost-3").created_ns
            assert store.list_damaged() == []
            store.close()
            with keys_of(restored) as keys:
                assert keys.list_damaged() == []
    finally:
        ended.set()
        writing.join()
        catalogue.close()


def test_state_that_was_damaged_in_the_backup_is_not_restored(place: Path, tmp_path: Path) -> None:
    back_up(place, tmp_path / "backup", now_ns=1, with_server=True)
    (copy,) = (tmp_path / "backup").glob("state-*/server/keys.sqlite")
    data = bytearray(copy.read_bytes())
    data[-50] ^= 1
    copy.write_bytes(data)
    with pytest.raises(DamagedArchive, match=r"keys\.sqlite is another than it was; nothing was restored"):
        restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    assert not (tmp_path / "restored").exists()
    back_up(place, tmp_path / "backup", now_ns=2, with_server=True)
    restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)


def test_keys_are_not_restored_by_who_would_not_revoke_them(place: Path, tmp_path: Path) -> None:
    back_up(place, tmp_path / "backup", now_ns=1, with_server=True)
    with pytest.raises(CannotBackUp, match=r"holds keys, which must be revoked.*secure_state"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_file_that_is_damaged_as_a_whole_leaves_the_former_backup(place: Path, tmp_path: Path) -> None:
    back_up(place, tmp_path / "backup", now_ns=1, with_server=True)
    (place / "server" / "jobs.sqlite").write_bytes(b"no database at all" * 100)
    status, _, told = run("backup", place, tmp_path / "backup", "--with-server")
    assert (status, "jobs.sqlite file is not a database" in told, "leave --with-server away" in told) == (2, True, True)
    restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    assert back_up(place, tmp_path / "backup", now_ns=2).state_made is not None


def test_a_damaged_row_is_told_and_stays_unusable(place: Path, tmp_path: Path) -> None:
    with keys_of(place) as store:
        text = store.create("flipped", "read", now_ns=NOW_NS)[1]
    path = place / "server" / "keys.sqlite"
    path.write_bytes(path.read_bytes().replace(b"flipped", b"flippee"))
    status, out, _ = run("check", place, "--json")
    found = [(one["kind"], one["where"]) for one in json.loads(out)["defects"]]
    assert (status, found) == (1, [("state", "server/keys.sqlite: row 7 of keys")])
    assert "row 7 of keys" in run("keys", "list", place)[2]
    status, _, told = run("backup", place, tmp_path / "backup", "--with-server")
    assert (status, "warning: row 7 of keys in server/keys.sqlite does not match its checksum" in told) == (0, True)
    restore(tmp_path / "backup", tmp_path / "restored", secure=secure_state)
    with keys_of(tmp_path / "restored") as store, pytest.raises(BadKey, match="not known"):
        store.check(text, NOW_NS)


def test_state_in_another_folder_goes_along(place: Path, tmp_path: Path) -> None:
    (place / "server").rename(tmp_path / "elsewhere")
    (tmp_path / "s.toml").write_text(f'state = "{tmp_path / "elsewhere"}"\n')
    status, out, _ = run(
        "backup", place, tmp_path / "backup", "--with-server", "--settings", tmp_path / "s.toml", "--json"
    )
    assert (status, json.loads(out)["state"]) == (0, STATE)
