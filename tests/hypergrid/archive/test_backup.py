"""Backups that are made while others commit: each restores whole, and the next copies what is new alone."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from hypergrid.archive import Archive, Branch, FileEntry, RetentionPolicy, S3Store
from hypergrid.archive.disk.retention import BACKING_UP
from hypergrid.archive.durability.backup import MARKER, back_up, restore
from hypergrid.archive.durability.repair import repair_files
from hypergrid.core.errors import (
    ArchiveConflict,
    CannotBackUp,
    DamagedArchive,
    HyperGridError,
    NotAnArchive,
    OldLayout,
)
from hypergrid.core.readings import Readings
from hypergrid.core.units import Variable
from tests.hypergrid.archive.test_repair import flip
from tests.hypergrid.archive.test_upgrade import fixture_of

Build = Callable[..., Readings]
ROWS = 200


@pytest.fixture
def archive(tmp_path: Path, readings: Build) -> Archive:
    made = Archive.create(tmp_path / "archive", name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    for number in range(3):
        _commit(made, number, readings)
    made.latest().cite()
    return made.latest()


def _commit(archive: Archive, number: int, readings: Build, rows: int = ROWS) -> None:
    with archive.commit(batch=str(number), message="", now_ns=number) as writer:
        writer.readings(
            readings([("s", (number * rows + k) * 120 * 10**9, float(number), 2, 1) for k in range(rows)], variable="v")
        )


def prove(folder: Path, backups: int, commits: int) -> None:
    """Back up again and again while a process commits: each backup is whole batches, and restores to them."""
    archive = folder / "archive"
    Archive.create(archive, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    script = Path(__file__).with_name("committer.py")
    command = [sys.executable, str(script), str(archive), "s", "0", str(commits), str(ROWS), "ledger"]
    committing = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert committing.stdout is not None
    committing.stdout.readline()
    whole = []
    for number in range(backups):
        done = back_up(archive, folder / "backup", now_ns=number)
        # Commits go on while a backup is made, and wait while it is looked at: else they would end before the last.
        committing.send_signal(signal.SIGSTOP)
        restored = folder / f"restored-{number}"
        restore(folder / "backup", restored)
        opened = Archive.open(restored)
        assert opened.snapshot == done.snapshot
        value = opened.read("v").value
        assert len(value) == opened.readings("v")
        np.testing.assert_array_equal(value, np.repeat(np.arange(len(value) // ROWS), ROWS))
        assert [entry.name for entry in opened.files()] == [f"s-{k}.csv" for k in range(len(value) // ROWS)]
        # A raw copy may be there whose commit the backup does not have; none may lack.
        assert [defect for defect in opened.check(deep=True) if defect.kind != "orphan"] == []
        whole.append(len(value) // ROWS)
        # It is an archive like any other.
        with opened.commit(batch="more", message="", now_ns=9) as writer:
            writer.variables([Variable("w")])
        shutil.rmtree(restored)
        committing.send_signal(signal.SIGCONT)
        wanted = (number + 1) * commits // (backups + 1)
        while committing.poll() is None and Archive.open(archive).readings("v") // ROWS < wanted:
            pass
    committing.communicate()
    assert committing.returncode == 0
    assert whole == sorted(whole)
    assert len(set(whole)) == backups
    assert Archive.open(archive).readings("v") == commits * ROWS
    assert Branch.names(Archive.open(archive)) == ()


def test_backups_during_commits_restore_whole(tmp_path: Path) -> None:
    prove(tmp_path, 4, 40)


@pytest.mark.soak
def test_20_backups_during_600_commits_restore_whole(tmp_path: Path) -> None:
    prove(tmp_path, 20, 600)


def test_the_second_backup_copies_what_is_new_alone(archive: Archive, tmp_path: Path, readings: Build) -> None:
    first = back_up(archive.path, tmp_path / "backup", now_ns=1)
    again = back_up(archive.path, tmp_path / "backup", now_ns=2)
    assert first.files_there == 0
    # The references, which are written anew.
    assert (again.files_copied, again.bytes_copied < 200) == (2, True)
    before = {path.relative_to(archive.path) for path in archive.path.rglob("*") if path.is_file()}
    _commit(archive, 3, readings)
    new = [path for path in archive.path.rglob("*") if path.is_file() and path.relative_to(archive.path) not in before]
    third = back_up(archive.path, tmp_path / "backup", now_ns=3)
    assert third.bytes_copied <= sum(path.stat().st_size for path in new) + 200
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = Archive.open(tmp_path / "restored")
    np.testing.assert_array_equal(restored.read("v").value, archive.latest().read("v").value)
    assert dict(restored.cited_by) == dict(archive.cited_by)
    cited = Archive.open(tmp_path / "restored", snapshot=restored.cited[0])
    assert len(cited.read("v")) == 3 * ROWS


def test_what_a_commit_that_died_left_keeps_no_backup_from_being_made(archive: Archive, tmp_path: Path) -> None:
    chunks = archive.path / "store" / "chunks"
    (chunks / "0123456789ABCDEFGHJK").write_bytes(b"half of it")
    (chunks / "of somebody else").write_bytes(b"")
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert list(Archive.open(tmp_path / "restored").check(deep=True)) == []
    assert len(list((tmp_path / "restored" / "store" / "chunks").iterdir())) == len(list(chunks.iterdir())) - 2


def test_what_expired_goes_from_the_backup_too(archive: Archive, tmp_path: Path, readings: Build) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    for number in range(3, 8):
        _commit(archive, number, readings)
    archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    done = back_up(archive.path, tmp_path / "backup", now_ns=2)
    assert done.files_removed > 0
    for kind in ("chunks", "manifests", "snapshots"):
        there, copied = (set(os.listdir(root / "store" / kind)) for root in (archive.path, tmp_path / "backup"))
        assert copied <= there
    restore(tmp_path / "backup", tmp_path / "restored")
    assert list(Archive.open(tmp_path / "restored").check(deep=True)) == []
    assert len(Archive.open(tmp_path / "restored").read("v")) == 8 * ROWS


def test_nothing_expires_while_a_backup_is_made(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []

    def look(_self: object) -> None:
        held.extend(archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0)).held_by)

    monkeypatch.setattr("hypergrid.archive.durability.backup._BackupRun._copy_raw", look)
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    assert [name.startswith(BACKING_UP) for name in held] == [True]
    assert archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0)).held_by == ()


def test_a_backup_that_is_killed_leaves_the_former_one_and_no_branch_for_long(
    archive: Archive, tmp_path: Path, readings: Build
) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    _commit(archive, 3, readings)
    kills = (
        "import os, sys, signal, pathlib, hypergrid.archive.durability.backup as b\n"
        "b._BackupRun._publish = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "b.back_up(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), now_ns=2)"
    )
    ended = subprocess.run([sys.executable, "-c", kills, archive.path, tmp_path / "backup"], check=False)
    assert ended.returncode == -9
    restore(tmp_path / "backup", tmp_path / "former")
    assert len(Archive.open(tmp_path / "former").read("v")) == 3 * ROWS
    assert Branch.names(Archive.open(archive.path))
    back_up(archive.path, tmp_path / "backup", now_ns=3)
    assert Branch.names(Archive.open(archive.path)) == ()
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(Archive.open(tmp_path / "restored").read("v")) == 4 * ROWS


def test_a_damaged_file_is_not_copied_and_the_former_backup_stays(
    archive: Archive, tmp_path: Path, readings: Build
) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    before = {path.name for path in (archive.path / "store" / "chunks").iterdir()}
    _commit(archive, 3, readings, rows=2000)
    path = next(one for one in (archive.path / "store" / "chunks").iterdir() if one.name not in before)
    data = bytearray(path.read_bytes())
    data[9] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedArchive, match=f"{path.name} is another than it was; the former state stays"):
        back_up(archive.path, tmp_path / "backup", now_ns=2)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(Archive.open(tmp_path / "restored").read("v")) == 3 * ROWS


@pytest.mark.parametrize("kind", ["store/chunks", "store/manifests", "store/snapshots", "checksums"])
def test_a_damaged_backup_is_not_restored(kind: str, archive: Archive, tmp_path: Path) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    path = next((tmp_path / "backup" / kind).iterdir())
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(DamagedArchive, match="is another than it was, or gone; nothing was restored; .* --damaged"):
        restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
    done = restore(tmp_path / "backup", tmp_path / "restored", damaged=True)
    assert [f"{kind}/{path.name} is another" in note for note in done.notes] == [True, False]
    assert f"hypergrid check {tmp_path / 'restored'} --repair" in done.notes[-1]
    repair_files(tmp_path / "restored")
    assert Archive.open(tmp_path / "restored").snapshot == archive.snapshot


@pytest.mark.parametrize("name", ["backup.json", "backup.spare"])
def test_a_backup_of_which_the_marker_lost_a_bit_is_restored(archive: Archive, tmp_path: Path, name: str) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    (tmp_path / "backup" / name).write_bytes(b"")
    restore(tmp_path / "backup", tmp_path / "restored")
    assert not list((tmp_path / "restored").glob("backup.*"))
    assert back_up(archive.path, tmp_path / "backup", now_ns=2).snapshot == archive.snapshot
    (tmp_path / "backup" / "backup.json").write_bytes(b"")
    (tmp_path / "backup" / "backup.spare").write_bytes(b"")
    with pytest.raises(DamagedArchive, match="and its spare are others than they were; back up once more"):
        restore(tmp_path / "backup", tmp_path / "again")


def test_a_damaged_chunk_that_cited_snapshots_alone_hold_is_left_out_and_told(
    archive: Archive, tmp_path: Path, readings: Build
) -> None:
    before = {path.name for path in (archive.path / "store" / "chunks").iterdir()}
    _commit(archive, 3, readings, rows=2000)
    cited = archive.latest()
    cited.cite()
    new = [path for path in (archive.path / "store" / "chunks").iterdir() if path.name not in before]
    for number in range(4, 6):
        _commit(archive, number, readings, rows=2000)
    sums = archive.latest().sums
    assert sums is not None
    held = next(path for path in new if not sums.is_of_newest(path.name))
    assert any(sums.is_of_newest(path.name) for path in (archive.path / "store" / "chunks").iterdir())
    flip(held)
    (defect,) = [one for one in archive.latest().check() if one.kind == "damaged"]
    release = f"hypergrid snapshots {archive.path} --release {cited.snapshot}"
    assert release in defect.remedy
    done = back_up(archive.path, tmp_path / "backup", now_ns=1)
    (note,) = done.notes
    assert held.name in note
    assert release in note
    restore(tmp_path / "backup", tmp_path / "restored")
    restored = Archive.open(tmp_path / "restored")
    np.testing.assert_array_equal(restored.read("v").value, archive.latest().read("v").value)
    archive.release(cited.snapshot)
    archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    assert list(archive.latest().check()) == []


def test_targets_that_cannot_be_are_refused_and_left_alone(archive: Archive, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    for target, complaint in (
        (archive.path, "outside of"),
        (archive.path / "below", "outside of"),
        (tmp_path, "outside of"),
        (other, "holds something that is no backup"),
        (other / "thesis.txt", "is no folder"),
    ):
        with pytest.raises(CannotBackUp, match=complaint):
            back_up(archive.path, target, now_ns=1)
    assert os.listdir(other) == ["thesis.txt"]
    assert not (archive.path / "below").exists()
    second = Archive.create(tmp_path / "second", name="other", slice_s=60, variables=[], now_ns=0)
    with pytest.raises(CannotBackUp, match="is an archive itself"):
        back_up(archive.path, second.path, now_ns=1)
    back_up(second.path, tmp_path / "backup", now_ns=1)
    with pytest.raises(CannotBackUp, match=r"is a backup of .*second, another archive"):
        back_up(archive.path, tmp_path / "backup", now_ns=1)
    with pytest.raises(NotAnArchive):
        back_up(tmp_path / "nowhere", tmp_path / "third", now_ns=1)
    assert not (tmp_path / "third").exists()


def test_an_archive_in_a_bucket_and_one_of_an_older_layout_are_refused(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(OldLayout, match="hypergrid upgrade"):
        back_up(fixture_of(2, tmp_path / "old"), tmp_path / "backup", now_ns=1)
    assert not (tmp_path / "backup").exists()
    in_bucket = Archive(archive._opened, archive.snapshot)
    in_bucket.store = S3Store("networks", "alps/pass")
    from hypergrid.archive.durability.backup import _refuse_target  # noqa: PLC0415 - no server is needed to be refused

    with pytest.raises(CannotBackUp, match=r"lie in s3://networks/alps/pass.*let the store keep versions"):
        _refuse_target(in_bucket, tmp_path / "backup")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_a_full_disk_leaves_the_former_backup(archive: Archive, tmp_path: Path, readings: Build) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no disk can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        back_up(archive.path, disk / "backup", now_ns=1)
        (disk / "filler").write_bytes(b"\0" * 700_000)
        generator = np.random.default_rng(1)
        rows = [("s", k * 10**9 * 120 + 10**15, float(v), 2, 1) for k, v in enumerate(generator.normal(size=60_000))]
        with archive.commit(batch="large", message="", now_ns=9) as writer:
            writer.readings(readings(rows, variable="v"))
        with pytest.raises(CannotBackUp, match="cannot be written: No space left on device; what was there stays"):
            back_up(archive.path, disk / "backup", now_ns=2)
        restore(disk / "backup", tmp_path / "restored")
        assert len(Archive.open(tmp_path / "restored").read("v")) == 3 * ROWS
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a folder to be read only")
def test_an_archive_that_can_only_be_read_is_backed_up(archive: Archive, tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    place.mkdir()
    mounted = subprocess.run(["mount", "--bind", archive.path, place], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"nothing can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        subprocess.run(["mount", "-o", "remount,ro,bind", place], check=True)
        back_up(place, tmp_path / "backup", now_ns=1)
        restore(tmp_path / "backup", tmp_path / "restored")
        assert len(Archive.open(tmp_path / "restored").read("v")) == 3 * ROWS
        with pytest.raises(CannotBackUp, match="Read-only file system"):
            back_up(tmp_path / "restored", place / "backup", now_ns=1)
    finally:
        subprocess.run(["umount", place], check=True)


def test_what_is_no_backup_is_not_restored_and_nothing_is_written_over(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(CannotBackUp, match=f"it has no {MARKER}"):
        restore(archive.path, tmp_path / "restored")
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    with pytest.raises(ArchiveConflict, match="an archive is at"):
        restore(tmp_path / "backup", archive.path)
    full = tmp_path / "full"
    full.mkdir()
    (full / "thesis.txt").write_text("mine")
    with pytest.raises(HyperGridError, match="holds something"):
        restore(tmp_path / "backup", full)
    with pytest.raises(NotAnArchive):
        Archive.open(tmp_path / "backup")


@pytest.mark.parametrize("lacking", ["store/chunks", "store/manifests", "store/refs/branch.main", "checksums", "raw"])
def test_a_backup_that_lacks_a_file_is_not_restored_but_as_a_damaged_one(
    archive: Archive, tmp_path: Path, lacking: str, readings: Build
) -> None:
    content = b"time,value"
    digest = hashlib.sha256(content).hexdigest()
    raw = Path("raw") / digest[:2] / f"{digest}.zst"
    (archive.path / raw).parent.mkdir(parents=True)
    with pa.CompressedOutputStream(str(archive.path / raw), "zstd") as packed:
        packed.write(content)
    with archive.commit(batch="file", message="", now_ns=9) as writer:
        writer.files([FileEntry("a.csv", digest, len(content), 1, 1, 0, 9, "")])
    _commit(archive, 3, readings, rows=2000)
    sums = archive.latest().sums
    assert sums is not None
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    files = (tmp_path / "backup" / lacking).iterdir()
    if lacking == "raw":
        gone = tmp_path / "backup" / raw
    else:
        gone = next(path for path in files if lacking != "store/chunks" or sums.is_of_newest(path.name))
    gone.unlink()
    with pytest.raises(DamagedArchive, match="nothing was restored; .* --damaged"):
        restore(tmp_path / "backup", tmp_path / "restored")
    done = restore(tmp_path / "backup", tmp_path / "restored", damaged=True)
    assert "was restored as it is" in done.notes[0]
    assert "--repair" in done.notes[-1]


def test_a_chunk_that_the_archive_lost_stays_in_the_former_backup(
    archive: Archive, tmp_path: Path, readings: Build
) -> None:
    _commit(archive, 3, readings, rows=2000)
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    sums = archive.latest().sums
    assert sums is not None
    gone = next(path for path in (archive.path / "store" / "chunks").iterdir() if sums.is_of_newest(path.name))
    gone.unlink()
    with pytest.raises(DamagedArchive, match="chunks of the newest snapshot .* are gone; the former backup stays"):
        back_up(archive.path, tmp_path / "backup", now_ns=2)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(Archive.open(tmp_path / "restored").read("v")) == 3 * ROWS + 2000


def test_state_of_other_rooms_is_left_out_and_told(archive: Archive, tmp_path: Path) -> None:
    for name in ("server", "standing", "reprocess"):
        (archive.path / name).mkdir()
        (archive.path / name / "state").write_text("secret")
    done = back_up(archive.path, tmp_path / "backup", now_ns=1)
    assert done.left_out == ("reprocess", "server", "standing")
    assert not list((tmp_path / "backup").rglob("state"))


def test_an_archive_that_was_moved_is_the_same(archive: Archive, tmp_path: Path) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    moved = archive.path.rename(tmp_path / "moved")
    assert back_up(moved, tmp_path / "backup", now_ns=2).files_there > 0


def test_what_lost_a_bit_in_the_backup_is_copied_again(archive: Archive, tmp_path: Path) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    for kind in ("chunks", "manifests"):
        path = next((tmp_path / "backup" / "store" / kind).iterdir())
        path.write_bytes(path.read_bytes()[:-1] + b"\0\0")
        path.write_bytes(path.read_bytes()[:-1])
    back_up(archive.path, tmp_path / "backup", now_ns=2)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(Archive.open(tmp_path / "restored").read("v")) == 3 * ROWS


def test_a_raw_copy_that_lost_a_bit_in_the_backup_is_copied_again(archive: Archive, tmp_path: Path) -> None:
    content = b"time,value\n" * 50
    digest = hashlib.sha256(content).hexdigest()
    raw = archive.path / "raw" / digest[:2] / f"{digest}.zst"
    raw.parent.mkdir(parents=True)
    with pa.CompressedOutputStream(str(raw), "zstd") as packed:
        packed.write(content)
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    unchanged = back_up(archive.path, tmp_path / "backup", now_ns=2)
    copy = tmp_path / "backup" / raw.relative_to(archive.path)
    flipped = bytearray(copy.read_bytes())
    flipped[len(flipped) // 2] ^= 4
    copy.write_bytes(flipped)
    assert back_up(archive.path, tmp_path / "backup", now_ns=3).files_copied == unchanged.files_copied + 1
    assert copy.read_bytes() == raw.read_bytes()
    restore(tmp_path / "backup", tmp_path / "restored")


@pytest.mark.parametrize("target", ["backup", "backup/inside", ""])
def test_a_backup_is_not_restored_onto_itself(archive: Archive, tmp_path: Path, target: str) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CannotBackUp, match="needs a folder of its own, outside of"):
        restore(tmp_path / "backup", tmp_path / target)
    assert sorted(tmp_path.rglob("*")) == before


def test_another_archive_of_the_same_name_is_refused(archive: Archive, tmp_path: Path) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    other = Archive.create(tmp_path / "other", name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    with pytest.raises(CannotBackUp, match="another archive"):
        back_up(other.path, tmp_path / "backup", now_ns=2)


def test_a_backup_that_ends_while_references_move_restores(
    archive: Archive, tmp_path: Path, readings: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(archive.path, tmp_path / "backup", now_ns=1)
    archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    _commit(archive, 3, readings)

    def end(*_some: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("hypergrid.archive.durability.backup.write_twice", end)
        with pytest.raises(KeyboardInterrupt):
            back_up(archive.path, tmp_path / "backup", now_ns=2)
    restore(tmp_path / "backup", tmp_path / "restored")
    assert len(Archive.open(tmp_path / "restored").read("v")) == 4 * ROWS
    assert list(Archive.open(tmp_path / "restored").check(deep=True)) == []
