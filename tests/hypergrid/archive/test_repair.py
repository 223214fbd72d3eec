"""Copies that were torn, and files that lost a bit: one command brings back what is whole, and tells what is lost."""

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive, FileEntry, RetentionPolicy
from hypergrid.archive.arrays.records import Repair
from hypergrid.archive.disk.checksums import read_sums
from hypergrid.archive.disk.folder import MARKER
from hypergrid.archive.durability.repair import repair_files
from hypergrid.archive.durability.salvage import is_whole_table
from hypergrid.archive.integrity import ORPHANS
from hypergrid.core.errors import DamagedArchive, HyperGridError, NotAnArchive, OldLayout
from hypergrid.core.readings import Readings
from hypergrid.core.units import Variable
from tests.hypergrid.archive.test_upgrade import fixture_of

Build = Callable[..., Readings]
ROWS = 200


@pytest.fixture
def archive(tmp_path: Path, readings: Build) -> Archive:
    made = Archive.create(tmp_path / "archive", name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    for number in range(4):
        with made.commit(batch=str(number), message=f"number {number}", now_ns=number) as writer:
            rows = [("s", (number * ROWS + k) * 120 * 10**9, float(number), 2, 1) for k in range(ROWS)]
            writer.readings(readings(rows, variable="v"))
        if number == 1:
            made.latest().cite()
    return made.latest()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def batches(archive: Archive) -> int:
    """Return how many batches an archive holds, each whole."""
    value = archive.read("v").value
    np.testing.assert_array_equal(value, np.repeat(np.arange(len(value) // ROWS), ROWS))
    assert len(value) == archive.readings("v")
    return len(value) // ROWS


def wrong(archive: Archive) -> list[str]:
    return [f"{one.where} {one.what}" for one in archive.check(deep=True) if one.kind not in ORPHANS]


def copy_slowly(source: Path, copy: Path, chosen: random.Random, pause: Callable[[], None]) -> None:
    """Copy an archive as a program over a network does: folder by folder, in any order, while files come and go."""
    folders = [source, *(path for path in source.rglob("*") if path.is_dir())]
    chosen.shuffle(folders)
    for folder in folders:
        place = copy / folder.relative_to(source)
        place.mkdir(parents=True, exist_ok=True)
        for path in sorted(folder.iterdir()):
            if path.is_file():
                with suppress(FileNotFoundError):
                    shutil.copyfile(path, place / path.name)
        if folder.parent in (source, source / "store"):
            pause()


def _wait_for_a_commit(archive: Path, committing: subprocess.Popen[bytes]) -> None:
    before = Archive.open(archive).snapshot
    while committing.poll() is None and Archive.open(archive).snapshot == before:
        time.sleep(0.005)


def prove(folder: Path, copies: int, *, seed: int = 0) -> None:
    """Make plain copies while a process commits; each is brought to its newest whole snapshot."""
    folder.mkdir(exist_ok=True)
    archive = folder / "archive"
    Archive.create(archive, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    script = Path(__file__).with_name("committer.py")
    command = [sys.executable, str(script), str(archive), "s", "0", "100000", str(ROWS)]
    committing = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert committing.stdout is not None
    committing.stdout.readline()
    torn = 0
    for number in range(copies):
        copy = folder / f"copy-{number}"
        least = Archive.open(archive).readings("v") // ROWS
        copy_slowly(archive, copy, random.Random(seed + number), partial(_wait_for_a_commit, archive, committing))
        try:
            whole = Archive.open(copy)
            torn += bool(wrong(whole))
        except HyperGridError:
            torn += 1
        repair_files(copy)
        mended = Archive.open(copy)
        assert wrong(mended) == []
        assert batches(mended) >= least
        with mended.commit(batch="more", message="", now_ns=9) as writer:
            writer.variables([Variable("w")])
        mended.maintain()
        shutil.rmtree(copy)
    assert committing.poll() is None
    committing.kill()
    committing.communicate()
    assert torn > copies / 2


def test_plain_copies_made_during_commits_are_brought_to_a_whole_snapshot(tmp_path: Path) -> None:
    prove(tmp_path, 4)


@pytest.mark.soak
def test_100_plain_copies_made_during_some_600_commits_are_brought_to_a_whole_snapshot(tmp_path: Path) -> None:
    # Ten archives, each young: the time that a copy takes grows with the number of commits.
    for number in range(10):
        prove(tmp_path / f"{number}", 10, seed=100 * number)
        shutil.rmtree(tmp_path / f"{number}")


def test_an_archive_that_is_whole_is_left_as_it_is(archive: Archive) -> None:
    before = {path: path.read_bytes() for path in archive.path.rglob("*") if path.is_file()}
    assert repair_files(archive.path) == []
    assert {path: path.read_bytes() for path in archive.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("name", "told"),
    [
        (MARKER, "its copy, took its place"),
        ("checksums/hypergrid.json", "written anew"),
        ("maintained.json", "the next maintenance writes it"),
    ],
)
def test_small_files_are_mended_from_their_copies(archive: Archive, name: str, told: str) -> None:
    archive.maintain()
    flip(archive.path / name)
    (done,) = repair_files(archive.path)
    assert (done.where, done.lost) == (name, False)
    assert told in done.what
    assert wrong(Archive.open(archive.path)) == []
    assert batches(Archive.open(archive.path)) == 4


def test_a_damaged_reference_of_main_leads_to_the_newest_snapshot(archive: Archive) -> None:
    for content in (b"", b'{"snapshot":"', b'{"snapshot":"00000000000000000000"}'):
        (archive.path / "store" / "refs" / "branch.main" / "ref.json").write_bytes(content)
        (done,) = repair_files(archive.path)
        assert archive.snapshot in done.what
        assert Archive.open(archive.path).snapshot == archive.snapshot
        assert wrong(Archive.open(archive.path)) == []


def test_a_damaged_tag_cites_its_snapshot_again(archive: Archive) -> None:
    cited = archive.cited
    (tag,) = (archive.path / "store" / "refs").glob("tag.*")
    (tag / "ref.json").write_bytes(b"{}")
    (done,) = repair_files(archive.path)
    assert f"names snapshot {cited[0]} again" in done.what
    assert Archive.open(archive.path).cited == cited


@pytest.mark.parametrize("kind", ["snapshots", "manifests"])
@pytest.mark.parametrize("spare", ["whole", "damaged"])
def test_what_leads_to_the_newest_snapshot_comes_back_or_is_lost_with_it(
    archive: Archive, kind: str, spare: str
) -> None:
    sums = archive.sums
    assert sums is not None
    before = {one.name for one in read_sums(sums.folder / archive.snapshots[1].id)}
    new = next(
        one.name
        for one in read_sums(sums.folder / archive.snapshot)
        if one.name.startswith(kind) and one.name not in before
    )
    flip(archive.path / "store" / new)
    if spare == "damaged":
        flip(archive.path / "spares" / new)
    with pytest.raises(DamagedArchive):
        batches(Archive.open(archive.path))
    done = repair_files(archive.path)
    if spare == "whole":
        assert [(one.where, one.lost) for one in done] == [(f"store/{new}", False)]
        assert Archive.open(archive.path).snapshot == archive.snapshot
        assert (batches(Archive.open(archive.path)), wrong(Archive.open(archive.path))) == (4, [])
        return
    assert any(one.lost and archive.snapshots[1].id in one.what for one in done)
    mended = Archive.open(archive.path)
    assert mended.snapshot == archive.snapshots[1].id
    assert batches(mended) == 3
    assert wrong(mended) == []


def test_a_chunk_that_is_gone_costs_the_snapshots_that_hold_it(archive: Archive) -> None:
    sums = archive.sums
    assert sums is not None
    newest = max((sums.store / "chunks").iterdir(), key=lambda one: one.stat().st_mtime_ns)
    newest.unlink()
    repair_files(archive.path)
    assert batches(Archive.open(archive.path)) == 3
    assert wrong(Archive.open(archive.path)) == []


def test_history_ends_after_a_snapshot_that_is_damaged(archive: Archive, readings: Build) -> None:
    old = archive.snapshots[1].id
    flip(archive.path / "store" / "snapshots" / old)
    with pytest.raises(DamagedArchive):
        _ = Archive.open(archive.path).snapshots
    done = repair_files(archive.path)
    assert Repair(f"store/snapshots/{old}", "is not whole; history ends after it", lost=True) in done
    mended = Archive.open(archive.path)
    assert mended.snapshot == archive.snapshot
    assert [one.id for one in mended.snapshots][0] == archive.snapshot
    assert batches(mended) == 4
    mended.maintain()
    assert wrong(mended) == []


def test_damaged_checksums_are_taken_anew(archive: Archive) -> None:
    for snapshot in (archive.snapshot, archive.cited[0]):
        flip(archive.path / "checksums" / snapshot)
        (done,) = repair_files(archive.path)
        assert (done.where, "taken anew" in done.what) == (f"checksums/{snapshot}", True)
        assert wrong(Archive.open(archive.path)) == []
        assert batches(Archive.open(archive.path)) == 4


def test_a_log_that_nothing_reads_costs_nothing(archive: Archive) -> None:
    flip(archive.path / "store" / "transactions" / archive.snapshot)
    (done,) = repair_files(archive.path)
    assert "nothing reads it" in done.what
    assert batches(Archive.open(archive.path)) == 4
    assert wrong(Archive.open(archive.path)) == []


def test_each_file_that_is_emptied_is_mended_or_told(archive: Archive, tmp_path: Path) -> None:
    chosen, kinds = random.Random(3), ("snapshots", "manifests", "transactions", "refs", "checksums")
    files = [path for path in sorted(archive.path.rglob("*")) if path.is_file() and path.stat().st_size]
    for kind in kinds:
        for path in chosen.sample([one for one in files if kind in one.parts], 2):
            copy = tmp_path / "copy"
            shutil.copytree(archive.path, copy)
            (copy / path.relative_to(archive.path)).write_bytes(b"")
            done = repair_files(copy)
            assert done, path
            assert wrong(Archive.open(copy)) == [], path
            assert batches(Archive.open(copy)) in (0, 1, 2, 3, 4)
            assert batches(Archive.open(copy)) == 4 or any(one.lost for one in done)
            shutil.rmtree(copy)


def test_what_cannot_be_mended_is_refused(archive: Archive, tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive):
        repair_files(tmp_path / "nowhere")
    with pytest.raises(OldLayout):
        repair_files(fixture_of(2, tmp_path / "old"))
    (archive.path / MARKER).write_bytes(b"")
    (archive.path / "checksums" / MARKER).write_bytes(b"")
    with pytest.raises(NotAnArchive, match="and so is its copy"):
        repair_files(archive.path)


def test_an_archive_without_a_whole_snapshot_says_so(archive: Archive) -> None:
    for path in (archive.path / "store" / "snapshots").iterdir():
        path.write_bytes(b"")
    shutil.rmtree(archive.path / "spares")
    with pytest.raises(DamagedArchive, match="has no snapshot that is whole; restore a backup"):
        repair_files(archive.path)


def test_a_chunk_that_is_gone_costs_no_more_than_it_held(archive: Archive, readings: Build) -> None:
    # All but the cited snapshot expire; then a chunk of one reading goes, far from all others.
    with archive.commit(batch="far", message="far", now_ns=9) as writer:
        writer.readings(readings([("s", 10**17, 9.0, 2, 1)], variable="v"))
    before = {path.name for path in (archive.path / "store" / "chunks").iterdir()}
    with archive.commit(batch="more", message="more", now_ns=10) as writer:
        rows = [("s", (k + 100_000_000) * 10**9, float(k % 97) / 7, 2, 1) for k in range(3000)]
        writer.readings(readings(rows, variable="v"))
    archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    newest = Archive.open(archive.path)
    assert len(newest.snapshots) == 2
    chunks = [path for path in (archive.path / "store" / "chunks").iterdir() if path.name in before]
    min(chunks, key=lambda one: one.stat().st_size).unlink()
    repair_files(archive.path)
    assert Archive.open(archive.path).snapshot == newest.snapshot


@pytest.mark.parametrize(
    "ends",
    ["icechunk.Repository.garbage_collect", "hypergrid.archive.disk.snapshot_checksums.SnapshotChecksums.settle"],
)
def test_what_a_maintenance_that_was_killed_left_is_whole(
    ends: str, archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    def end(*_some: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ends, end)
        with pytest.raises(KeyboardInterrupt):
            archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    assert wrong(Archive.open(archive.path)) == []
    assert [one for one in repair_files(archive.path) if one.lost] == []
    assert batches(Archive.open(archive.path)) == 4
    assert wrong(Archive.open(archive.path)) == []


def die_in_maintenance(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all snapshots but the newest expire, and the process end before what became of that is written down."""

    def die(*_some: object, **_more: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("icechunk.Repository.garbage_collect", die)
        with pytest.raises(KeyboardInterrupt):
            archive.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    assert (archive.path / "checksums" / "maintaining").exists()


@pytest.mark.parametrize("seed", range(12))
def test_a_bit_flipped_after_a_maintenance_that_was_killed_is_named_and_mended(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    archive.release(archive.cited[0])
    die_in_maintenance(archive, monkeypatch)
    assert wrong(Archive.open(archive.path)) == []
    path = archive.path / "store" / "snapshots" / archive.snapshot
    data = bytearray(path.read_bytes())
    data[random.Random(seed).randrange(len(data))] ^= 1 << (seed % 8)
    path.write_bytes(data)
    with pytest.raises(DamagedArchive, match=f"{path.name} is another than it was"):
        Archive.open(archive.path).read("v")
    repair_files(archive.path)
    assert (batches(Archive.open(archive.path)), wrong(Archive.open(archive.path))) == (4, [])


@pytest.mark.parametrize("damage", ["snapshot gone", "reference emptied"])
def test_spares_stay_though_the_newest_snapshot_cannot_be_told(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    die_in_maintenance(archive, monkeypatch)
    if damage == "snapshot gone":
        (archive.path / "store" / "snapshots" / archive.snapshot).unlink()
    else:
        (archive.path / "store" / "refs" / "branch.main" / "ref.json").write_bytes(b"")
    done = repair_files(archive.path)
    assert [one for one in done if one.lost and "branch" in one.where] == []
    assert (batches(Archive.open(archive.path)), wrong(Archive.open(archive.path))) == (4, [])


def test_spares_of_an_older_snapshot_do_not_take_main_back(archive: Archive, readings: Build) -> None:
    """As after a commit of an older program, which keeps none."""
    spares = archive.path / "spares"
    shutil.copytree(spares, archive.path / "aside")
    with archive.commit(batch="more", message="", now_ns=9) as writer:
        writer.readings(readings([("s", 10**17, 9.0, 2, 1)], variable="v"))
    shutil.rmtree(spares)
    (archive.path / "aside").rename(spares)
    assert any(one.where.startswith("spares/") for one in archive.latest().check())
    (archive.path / "store" / "refs" / "branch.main" / "ref.json").write_bytes(b"")
    done = repair_files(archive.path)
    assert any("does not name a snapshot" in one.what for one in done)
    assert len(Archive.open(archive.path).read("v")) == 4 * ROWS + 1
    assert wrong(Archive.open(archive.path)) == []


@pytest.mark.parametrize("damage", ["emptied", "gone"])
def test_a_spare_that_is_damaged_is_named_and_written_anew(archive: Archive, damage: str) -> None:
    path = next((archive.path / "spares" / "manifests").iterdir())
    path.write_bytes(b"") if damage == "emptied" else path.unlink()
    assert [one.where for one in archive.check()] == [f"spares/manifests/{path.name}"]
    assert [one.where for one in repair_files(archive.path)] == [f"spares/manifests/{path.name}"]
    assert list(archive.check()) == []


@pytest.mark.parametrize("damage", ["flipped", "emptied", "gone"])
def test_a_table_of_spare_rows_that_is_damaged_stops_no_commit(archive: Archive, damage: str) -> None:
    entries = [FileEntry(f"f{k}.csv", f"{random.Random(k).getrandbits(256):064x}", np.int64(1), 1, 1, 0, 9, "")
               for k in range(30)]  # fmt: skip
    before = {path.name for path in (archive.path / "store" / "chunks").iterdir()}
    with archive.commit(batch="files", message="", now_ns=9) as writer:
        writer.files(entries)
    chunks = archive.path / "store" / "chunks"
    found = 0
    for path in [path for path in chunks.iterdir() if path.name not in before]:
        content = path.read_bytes()
        path.unlink()
        if is_whole_table(Archive.open(archive.path).root, "spare"):
            path.write_bytes(content)
            continue
        found += 1
        if damage != "gone":
            path.write_bytes(content)
        if damage == "flipped":
            flip(path)
        elif damage == "emptied":
            path.write_bytes(b"")
        break
    assert found
    with Archive.open(archive.path).commit(batch="more", message="", now_ns=9) as writer:
        writer.files([FileEntry("g.csv", "0" * 64, 1, 1, 1, 0, 9, "")])
    root = Archive.open(archive.path).root
    assert root.read_spare("files") == root.read_rows("files")
    assert len(root.files()) == 31
