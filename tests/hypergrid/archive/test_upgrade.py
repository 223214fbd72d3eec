"""Archives of each older layout: they open, answer what they answered, and become archives of today's layout."""

import json
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from hypergrid.archive import LAYOUT, Archive, RetentionPolicy
from hypergrid.archive.disk.folder import MARKER, READABLE, read_identity
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.durability.upgrade import WORKING, WRITERS, upgrade
from hypergrid.core.errors import ArchiveConflict, DamagedArchive, OldLayout
from ingest.repair.restore_values import upgrade_compared
from tests.archives.make import HERE, answers

OLDER = [version for version in READABLE if version != LAYOUT]
NOW_NS = 1_800_000_000_000_000_000
RUN = (
    "import sys, pathlib, ingest.repair.restore_values as u, ingest.repair.verify_values\n"
    "print('begun', flush=True)\n"
    "u.upgrade_compared(pathlib.Path(sys.argv[1]), now_ns=5)"
)
"""As the command does it: with the comparison of values with raw copies, which is killed as well."""


def fixture_of(layout: int, folder: Path) -> Path:
    """Unpack the archive of a layout."""
    with tarfile.open(HERE / f"layout_{layout}.tar.xz") as packed:
        packed.extractall(folder, filter="data")
    return folder / "archive"


def recorded_answers(layout: int) -> dict[str, Any]:
    """Return what the program of a layout answered; values to twelve digits: the last depend on the CPU."""
    found: dict[str, Any] = json.loads((HERE / f"layout_{layout}.json").read_text())
    for answered in found.values():
        values = [float.fromhex(value) for value in answered["q1"]]
        answered["q1"] = pytest.approx(values, rel=1e-12, abs=0, nan_ok=True)
    return found


def without_ids(answered: dict[str, Any]) -> dict[str, Any]:
    """Return what does not change with the newest snapshot's id."""
    newest = {key: value for key, value in answered["newest"].items() if key not in ("snapshot", "token")}
    return {**answered, "newest": newest}


def test_there_is_a_fixture_of_every_layout() -> None:
    assert [path.name for path in sorted(HERE.glob("layout_*.xz"))] == [f"layout_{one}.tar.xz" for one in READABLE]


@pytest.mark.parametrize("layout", READABLE)
def test_an_archive_of_each_layout_answers_what_it_answered(layout: int, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    assert answers(archive) == recorded_answers(layout)
    assert list(Archive.open(archive).check(deep=True)) == []


@pytest.mark.parametrize("layout", OLDER)
def test_an_older_layout_is_read_and_not_written(layout: int, tmp_path: Path) -> None:
    archive = Archive.open(fixture_of(layout, tmp_path))
    with pytest.raises(
        OldLayout, match=rf"of layout {layout}, .*'hypergrid upgrade .*archive' gives it layout {LAYOUT}"
    ):
        with archive.commit(batch="b", message="", now_ns=1):
            pass
    with pytest.raises(OldLayout):
        archive.maintain()
    archive.cite()
    assert archive.snapshot in Archive.open(archive.path).cited


@pytest.mark.parametrize("layout", OLDER)
def test_an_upgrade_changes_no_answer_and_keeps_what_was_cited(layout: int, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    steps: list[str] = []
    done = upgrade(archive, now_ns=NOW_NS, progress=lambda what, _share: steps.append(what))
    assert (done.layout_before, done.layout, done.changed, done.resumed) == (layout, LAYOUT, True, False)
    assert {"copy", "checksums"} < set(steps)
    assert without_ids(answers(archive)) == without_ids(recorded_answers(layout))
    opened = Archive.open(archive)
    assert opened.snapshot == done.snapshot
    assert list(opened.check(deep=True)) == []
    # What was committed before is listed, and can be asked.
    assert recorded_answers(layout)["newest"]["snapshot"] in [one.id for one in opened.snapshots]
    assert answers(archive)["cited"] == recorded_answers(layout)["cited"]
    again = upgrade(archive, now_ns=NOW_NS)
    assert (again.changed, again.snapshot) == (False, done.snapshot)
    # The former snapshots expire like all others, and with them the chunks without checksums.
    cited = opened.cited[0]
    opened.maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))
    assert {one.id for one in Archive.open(archive).snapshots} == {done.snapshot, cited}
    assert answers(archive)["cited"] == recorded_answers(layout)["cited"]
    assert list(Archive.open(archive).check(deep=True, grace_s=0)) == []


@pytest.mark.parametrize("layout", OLDER)
def test_chunks_of_the_former_layout_are_compared_with_what_they_were(layout: int, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    old = {path.name for path in (archive / "store" / "chunks").iterdir()}
    upgrade(archive, now_ns=NOW_NS)
    cited = Archive.open(archive).cited[0]
    path = max((archive / "store" / "chunks" / name for name in old), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)
    assert [one.where for one in Archive.open(archive).check()] == [f"store/chunks/{path.name}"]
    # In a process of its own, which has not compared it yet.
    ask = (
        "import sys, hypergrid.archive as s; s.Archive.open(sys.argv[1], snapshot=sys.argv[2]).read('air_temperature')"
    )
    asked = subprocess.run([sys.executable, "-c", ask, archive, cited], capture_output=True, text=True, check=False)
    assert f"{path.name} is another than it was" in asked.stderr
    assert without_ids(answers_of_newest(archive)) == without_ids(answers_of(recorded_answers(layout)))


def answers_of_newest(archive: Path) -> dict[str, Any]:
    """Return what the newest snapshot has, without asking the one that is cited."""
    readings = Archive.open(archive).read("air_temperature")
    return {"newest": {"readings": len(readings)}}


def answers_of(answered: dict[str, Any]) -> dict[str, Any]:
    """Return the same of what was answered."""
    return {"newest": {"readings": answered["newest"]["readings"]}}


def prove_kills(folder: Path, layout: int, kills: int, *, seed: int) -> None:
    """Kill upgrades at random moments, one after the other; the archive always answers, and the last run ends."""
    archive, chosen = fixture_of(layout, folder), random.Random(seed)
    expected, killed = without_ids(recorded_answers(layout)), 0
    whole = folder / "whole"
    shutil.copytree(archive, whole)
    _, longest = _run(whole, 60.0)
    for _ in range(5 * kills):
        killed += _run(archive, chosen.uniform(0.0, longest))[0]
        if read_identity(archive).version == LAYOUT:
            assert without_ids(answers(archive)) == expected
            shutil.rmtree(archive)
            fixture_of(layout, folder)
        else:
            assert answers(archive)["cited"] == expected["cited"]
            assert without_ids(answers(archive)) == expected
        if killed == kills:
            break
    assert upgrade_compared(archive, now_ns=NOW_NS).upgraded.layout == LAYOUT
    assert without_ids(answers(archive)) == expected
    assert WORKING not in Archive.open(archive).storage.open().list_branches()
    assert list(Archive.open(archive).check(deep=True)) == []
    assert killed == kills


def _run(archive: Path, after_s: float) -> tuple[bool, float]:
    """Upgrade in a process of its own that is killed after some time; return whether it was, and how long it took [s].

    Time counts from the moment at which the process begins to upgrade.
    """
    running = subprocess.Popen([sys.executable, "-c", RUN, str(archive)], stdout=subprocess.PIPE)
    assert running.stdout is not None
    running.stdout.readline()
    begun = time.monotonic()
    try:
        assert running.wait(after_s) == 0
    except subprocess.TimeoutExpired:
        running.send_signal(signal.SIGKILL)
        return running.wait() == -signal.SIGKILL, time.monotonic() - begun
    else:
        return False, time.monotonic() - begun
    finally:
        running.stdout.close()


@pytest.mark.parametrize("layout", OLDER)
def test_an_upgrade_that_is_killed_is_gone_on_with(layout: int, tmp_path: Path) -> None:
    prove_kills(tmp_path, layout, 3, seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("layout", OLDER)
def test_ten_kills_of_an_upgrade(layout: int, tmp_path: Path) -> None:
    prove_kills(tmp_path, layout, 10, seed=2)


@pytest.mark.parametrize("layout", OLDER)
@pytest.mark.parametrize("step", range(4))
def test_an_upgrade_that_ends_between_two_steps_is_gone_on_with(
    layout: int, step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = fixture_of(layout, tmp_path)
    stops = ["_examine", "Sums.adopt", "write_identity", "delete_branch"]

    class Ends(Exception):
        pass

    def end(*_some: object, **_more: object) -> None:
        raise Ends

    with monkeypatch.context() as patched:
        if step == 0:
            patched.setattr("hypergrid.archive.durability.upgrade._UpgradeRun._examine", end)
        elif step == 1:
            patched.setattr("hypergrid.archive.disk.snapshot_checksums.SnapshotChecksums.adopt", end)
        elif step == 2:
            patched.setattr("hypergrid.archive.durability.upgrade.write_identity", end)
        else:
            patched.setattr("icechunk.Repository.delete_branch", end)
        with pytest.raises(Ends):
            upgrade(archive, now_ns=NOW_NS)
    assert without_ids(answers(archive)) == without_ids(recorded_answers(layout)), stops[step]
    done = upgrade(archive, now_ns=NOW_NS)
    assert done.resumed
    assert WORKING not in Archive.open(archive).storage.open().list_branches()
    assert without_ids(answers(archive)) == without_ids(recorded_answers(layout))
    assert list(Archive.open(archive).check(deep=True)) == []


@pytest.mark.parametrize("layout", OLDER)
@pytest.mark.parametrize("lock", WRITERS)
def test_nothing_is_upgraded_under_who_writes(layout: int, lock: str, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    (archive / lock).parent.mkdir(exist_ok=True)
    with wait_for_lock(archive / lock), pytest.raises(ArchiveConflict, match="is at work .* end it, then upgrade"):
        upgrade(archive, now_ns=NOW_NS)
    assert read_identity(archive).version == layout
    assert upgrade(archive, now_ns=NOW_NS).changed


@pytest.mark.parametrize("layout", OLDER)
def test_what_cannot_be_read_is_not_upgraded_and_stays(layout: int, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    path = max((archive / "store" / "chunks").iterdir(), key=lambda one: one.stat().st_size)
    path.write_bytes(path.read_bytes()[:100])
    marker = (archive / MARKER).read_bytes()
    with pytest.raises(DamagedArchive, match=f"stays at layout {layout}"):
        upgrade(archive, now_ns=NOW_NS)
    assert (archive / MARKER).read_bytes() == marker


@pytest.mark.parametrize("layout", OLDER)
def test_what_the_driver_was_writing_when_it_died_is_passed_over(layout: int, tmp_path: Path) -> None:
    archive = fixture_of(layout, tmp_path)
    for kind in ("snapshots", "chunks", "manifests"):
        (archive / "store" / kind / "0123456789ABCDEFGHJK#1").write_bytes(b"half")
    assert upgrade(archive, now_ns=NOW_NS).changed
    assert without_ids(answers(archive)) == without_ids(recorded_answers(layout))
