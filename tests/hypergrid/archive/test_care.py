"""Maintenance: what grows is bounded, what is cited stays, readers have their time, and a killed one harms nothing."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import icechunk
import numpy as np
import pytest

from hypergrid.archive import DEFAULT_RETENTION, Archive, RetentionPolicy
from hypergrid.archive.disk.folder import synchronise
from hypergrid.archive.disk.retention import MARKER, _find_cutoff
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.units import Variable

Build = Callable[..., Readings]
AIR = "air_temperature"
SLICE = 120 * 10**9
AT_ONCE = RetentionPolicy(keep_s=0.0, every=10, max_snapshots=5, least_s=0.0)


def _files(archive: Archive) -> int:
    return sum(path.is_file() for path in (archive.path / "store").rglob("*"))


def _commit(archive: Archive, number: int, readings: Build) -> Archive:
    with archive.commit(batch=str(number), message="", now_ns=number) as writer:
        # Enough that chunks are files of their own.
        rows = [(f"s{n}", (20 * number + k) * SLICE, float(np.random.default_rng([number, n, k]).normal()))
                for n in range(12) for k in range(20)]  # fmt: skip
        writer.readings(readings(rows))
    return archive.latest()


def test_files_stay_bounded_and_readings_stay(archive: Archive, readings: Build) -> None:
    keeper = Archive.open(archive.path, care=AT_ONCE)
    counts = []
    for number in range(60):
        keeper = _commit(keeper, number, readings)
        counts.append(_files(archive))
    # Ten commits between, and five snapshots that stay: each leaves nine files.
    assert max(counts) < 160
    assert len(keeper.latest().snapshots) <= 12
    found = Archive.open(archive.path).read(AIR)
    assert len(found) == 60 * 240
    assert list(Archive.open(archive.path).check()) == []
    # Without maintenance the archive grows with each commit.
    for number in range(60, 80):
        _commit(archive, number, readings)
    assert _files(archive) > max(counts) + 100


def test_snapshots_stay_until_their_time_and_cited_ones_beyond(archive: Archive, readings: Build) -> None:
    one = _commit(archive, 0, readings)
    two = _commit(one, 1, readings)
    three = _commit(two, 2, readings)
    one.cite()
    one.cite()
    assert two.cited == (one.snapshot,)
    done = three.maintain(replace(DEFAULT_RETENTION, keep_s=3600.0))
    assert (done.snapshots_expired, done.objects_removed) == (0, 0)
    done = three.maintain(AT_ONCE)
    assert done.snapshots_expired > 0
    for each, count in ((one, 240), (three, 720)):
        assert len(Archive.open(archive.path, snapshot=each.snapshot).read(AIR)) == count
    with pytest.raises(NotFound, match="older ones expired unless they were cited"):
        Archive.open(archive.path, snapshot=two.snapshot)
    with pytest.raises(NotFound, match="expired, and can no longer be cited"):
        two.cite()
    # An object that was opened before knows what is left, and reads on from the newest.
    assert [each.id for each in three.snapshots] == [three.snapshot, one.snapshot]
    assert list(Archive.open(archive.path).iterate_since(one.snapshot))[-1] is None
    assert len(two.latest().read(AIR)) == 720
    with pytest.raises(NotFound, match="expired while it was read; read the newest"):
        two.read(AIR)
    three.release(one.snapshot)
    three.cite()
    with pytest.raises(NotFound, match="unknown cited snapshot"):
        three.release(one.snapshot)
    three.release(three.snapshot)
    three.cite()
    assert three.cited == (three.snapshot,)
    three.maintain(AT_ONCE)
    with pytest.raises(NotFound, match="older ones expired"):
        Archive.open(archive.path, snapshot=one.snapshot)


def test_what_a_commit_that_died_wrote_is_removed(archive: Archive, readings: Build) -> None:
    newest = _commit(archive, 0, readings)

    def die() -> None:
        with newest.commit(batch="dies", message="", now_ns=9) as writer:
            writer.readings(readings([("new", k * SLICE, float(k)) for k in range(900)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    half = archive.path / "store" / "chunks" / "ABC#1"
    half.write_bytes(b"half")
    assert len(list(newest.check(grace_s=0))) == 1
    done = newest.maintain(AT_ONCE)
    assert done.objects_removed >= 2
    assert not half.exists()
    assert list(newest.check(grace_s=0)) == []


def test_while_another_branch_is_at_work_nothing_expires(archive: Archive, readings: Build) -> None:
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(archive.path / "store")))
    one = _commit(archive, 0, readings)
    repository.create_branch("reprocess-1", one.snapshot)
    three = _commit(_commit(one, 1, readings), 2, readings)
    done = three.maintain(AT_ONCE)
    assert (done.snapshots_expired, done.held_by) == (0, ("reprocess-1",))
    assert len(three.latest().snapshots) == 4
    repository.delete_branch("reprocess-1")
    assert three.maintain(AT_ONCE).snapshots_expired > 0


def test_care_that_fails_is_told_and_tried_again_later(
    archive: Archive, readings: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper, tried = Archive.open(archive.path, care=AT_ONCE), []

    def fails(folder: Path, *_: object, **__: object) -> None:
        tried.append(folder)
        raise OSError(5, "Input/output error", "store/chunks")

    with monkeypatch.context() as broken:
        broken.setattr("hypergrid.archive.archive.maintain", fails)
        for number in range(30):
            keeper = _commit(keeper, number, readings)
    assert len(tried) == 3, "once in ten commits"
    (defect,) = keeper.check()
    assert (defect.kind, defect.where) == ("care", MARKER)
    assert "Input/output error" in defect.what
    for number in range(30, 41):
        keeper = _commit(keeper, number, readings)
    assert len(keeper.latest().snapshots) <= 12
    assert list(keeper.check()) == []


def test_what_was_committed_is_forced_to_the_disk(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.settle()
    with pytest.raises(OSError, match="No such file"):
        synchronise(archive.path / "gone")
    forced: list[None] = []
    monkeypatch.setattr("hypergrid.archive.disk.folder.ctypes.CDLL", lambda *_, **__: object())
    monkeypatch.setattr("os.sync", lambda: forced.append(None))
    archive.settle()
    assert forced == [None]


def test_a_reader_of_an_older_snapshot_has_its_time() -> None:
    now = datetime(2026, 11, 1, tzinfo=UTC)

    def ago(*seconds: float) -> list[datetime]:
        return [now - timedelta(seconds=each) for each in seconds]

    care = RetentionPolicy(keep_s=60.0, max_snapshots=4, least_s=20.0)
    # timeline: newest first, in seconds before now; which of them is the oldest that stays
    for written, oldest in (
        ([5.0], 0),
        ([5.0, 59.0, 61.0, 500.0], 2),  # the third was the newest until 59 s ago
        ([500.0, 900.0], 0),
        ([1, 10, 30, 40, 50, 55, 70], 3),  # more than four: the fourth, which was replaced 30 s ago
        ([1, 2, 3, 4, 5, 6, 30, 40, 70], 6),  # all but the newest were replaced less than 20 s ago
    ):
        stamps = ago(*written)
        assert _find_cutoff(stamps, now, care) == stamps[oldest]


def test_an_archive_that_was_just_made_can_be_discarded_after_maintenance(archive: Archive, readings: Build) -> None:
    newest = _commit(archive, 0, readings)
    newest.maintain(AT_ONCE)
    assert len(newest.latest().snapshots) == 1
    assert not newest.discard()
    assert archive.path.exists()


CARETAKER = """
import sys
from hypergrid.archive import Archive, RetentionPolicy
archive = Archive.open(sys.argv[1])
print("at work", flush=True)
while True:
    archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
"""


def test_maintenance_that_is_killed_harms_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    committer = [sys.executable, str(Path(__file__).with_name("committer.py")), str(folder), "s"]
    batches, rows = 0, 300
    for _ in range(3):
        writing = subprocess.Popen([*committer, str(batches), str(batches + 12), str(rows)], stdout=subprocess.PIPE)
        caring = subprocess.Popen([sys.executable, "-c", CARETAKER, str(folder)], stdout=subprocess.PIPE)
        assert caring.stdout is not None
        caring.stdout.readline()
        time.sleep(random.uniform(0.0, 0.4))
        caring.send_signal(signal.SIGKILL)
        caring.communicate()
        writing.communicate()
        assert writing.returncode == 0
        batches += 12
        archive = Archive.open(folder)
        np.testing.assert_array_equal(archive.read("v").value, np.repeat(np.arange(batches), rows))
    assert list(Archive.open(folder).check()) == []
    Archive.open(folder).maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    assert list(Archive.open(folder).check(grace_s=0)) == []
    assert (folder / MARKER).is_file()
    assert os.listdir(folder / "store" / "snapshots")


def test_readers_read_while_an_archive_is_maintained(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    committer = [sys.executable, str(Path(__file__).with_name("committer.py")), str(folder), "s", "0", "40", "200"]
    writing = subprocess.Popen(committer, stdout=subprocess.PIPE)
    caretaker = CARETAKER.replace("keep_s=0.0, every=1, max_snapshots=1", "keep_s=8.0, every=1, max_snapshots=10_000")
    caring = subprocess.Popen([sys.executable, "-c", caretaker, str(folder)], stdout=subprocess.PIPE)
    reader, most = Archive.open(folder), 0
    while writing.poll() is None:
        reader = reader.latest()
        for _ in range(3):
            # The same snapshot, again and again, while others are committed and expire.
            value = Archive.open(folder, snapshot=reader.snapshot).read("v").value
            np.testing.assert_array_equal(value, np.repeat(np.arange(len(value) // 200), 200))
        assert len(value) >= most
        most = len(value)
    caring.kill()
    caring.communicate()
    writing.communicate()
    assert most > 0
    assert len(reader.latest().read("v")) == 40 * 200
