"""The commands about an archive as a whole, as they are typed."""

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.retention import BACKUP_LOCK
from hypergrid.cli.main import main
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.units import KNOWN_VARIABLES

AIR = "air_temperature"
MINUTE = 60 * 10**9


def run(*words: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; return status, what machines and what people read."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hypergrid", *map(str, words)])
        patch.setenv("COLUMNS", "200")
        try:
            main()
        except SystemExit as leaving:
            return int(leaving.code or 0), out.getvalue(), " ".join(err.getvalue().split())
    return 0, out.getvalue(), " ".join(err.getvalue().split())


def add(archive: Archive, batch: str, first: int, stop: int, *, plus: float = 0.0) -> Archive:
    """Commit readings of two stations, a minute apart."""
    series = (Series(AIR, "a", 2.0, interval_s=60.0), Series(AIR, "b", interval_s=60.0))
    time_ns = np.tile(np.arange(first, stop) * MINUTE, 2)
    index = np.repeat(np.array([0, 1], np.int32), stop - first)
    given = Readings(series, index, time_ns, index + plus, np.full(len(index), 2, np.uint8), time_ns)
    with archive.commit(batch=batch, message=f"batch {batch}", now_ns=stop) as writer:
        writer.stations(Station(name, name, (Position(None, 7.0, 46.0, 100.0),)) for name in "ab")
        writer.readings(given)
    return archive.latest()


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    made = Archive.create(
        tmp_path / "archive", name="p", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=0
    )  # fmt: skip
    return add(add(made, "1", 0, 10), "2", 10, 12)


def test_snapshots_are_listed_in_either_way_of_naming_the_archive(archive: Archive) -> None:
    status, out, _ = run("snapshots", archive.path, "--json")
    assert (status, [row["what"] for row in json.loads(out)]) == (0, ["batch 2", "batch 1", "created"])
    assert run("snapshots", "--archive", archive.path, "--json")[1] == out
    assert "batch 2" in run("snapshots", archive.path)[1]
    status, _, told = run("snapshots")
    assert (status, "Missing argument 'ARCHIVE'" in told) == (2, True)


@pytest.mark.parametrize("how", [[], ["--exact"]])
def test_a_difference_names_slices_and_series(archive: Archive, how: list[str]) -> None:
    newest = add(archive, "3", 11, 13, plus=1.0)
    status, out, _ = run("snapshots", archive.path, "--diff", archive.snapshot, newest.snapshot, "--json", *how)
    assert status == 0
    new, replaced = json.loads(out)
    assert (new["variable"], new["how"], new["readings"]) == (AIR, "new", 2)
    assert new["slices"] == [{"from": "1970-01-01T00:12Z", "to": "1970-01-01T00:13Z"}]
    assert [(one["station"], one["height_m"]) for one in new["series"]] == [("a", 2.0), ("b", None)]
    assert (replaced["how"], replaced["readings"]) == ("replaced", 2)
    assert replaced["slices"] == [{"from": "1970-01-01T00:11Z", "to": "1970-01-01T00:12Z"}]
    shown = run("snapshots", archive.path, "--diff", archive.snapshot, newest.snapshot, *how)[1]
    assert "1: 1970-01-01T00:12Z to 1970-01-01T00:13Z" in shown
    assert "2: a 2 m, b" in shown


def test_a_difference_that_cannot_be_told_is_refused(archive: Archive) -> None:
    older = archive.snapshots[1].id
    status, _, told = run("snapshots", archive.path, "--diff", archive.snapshot, older)
    assert (status, "give the older snapshot first" in told) == (2, True)
    status, _, told = run("snapshots", archive.path, "--diff", "nothing", older)
    assert (status, "unknown snapshot 'nothing'" in told) == (2, True)
    status, _, told = run("snapshots", archive.path, "--exact")
    assert (status, "--exact goes with --diff" in told) == (2, True)


def test_check_says_that_an_archive_is_whole_or_what_is_wrong(archive: Archive) -> None:
    status, out, told = run("check", archive.path)
    assert (status, out, f"is whole: nothing is wrong with snapshot {archive.snapshot}" in told) == (0, "", True)
    (archive.path / "staging" / "left").mkdir(parents=True)
    status, out, _ = run("check", archive.path, "--json")
    found = json.loads(out)
    assert (status, found["snapshot"]) == (1, archive.snapshot)
    assert [(one["kind"], one["where"]) for one in found["defects"]] == [("orphan", "staging/left")]
    status, out, _ = run("check", "--archive", archive.path)
    assert (status, "staging/left" in out, "what to do" in out) == (1, True, True)


def test_check_of_an_archive_that_cannot_be_opened(archive: Archive, tmp_path: Path) -> None:
    shutil.rmtree(archive.path / "store")
    status, out, _ = run("check", archive.path, "--json")
    assert (status, "damaged archive" in json.loads(out)["defects"][0]["what"]) == (1, True)
    (archive.path / "hypergrid.json").write_text("{}")
    found, *_ = json.loads(run("check", archive.path, "--json")[1])["defects"]
    assert "restore" in found["remedy"]
    (archive.path / "hypergrid.json").write_text('{"format": "hypergrid-archive", "version": 99, "program": "7.1"}')
    status, out, told = run("check", archive.path, "--json")
    assert (status, out, "use HyperGrid 7.1 or newer" in told) == (2, "", True)
    assert run("check", tmp_path)[0] == 2


def test_check_mends_what_is_damaged_and_says_what(archive: Archive) -> None:
    assert run("check", archive.path, "--repair")[0] == 0
    assert "nothing was to be mended" in run("check", archive.path, "--repair")[2]
    (archive.path / "hypergrid.json").write_bytes(b"")
    assert run("check", archive.path)[0] == 1
    status, out, _ = run("check", archive.path, "--repair", "--json")
    assert (status, json.loads(out)["repair"]["mended"][0]["where"]) == (0, "hypergrid.json")
    status, _, told = run("check", archive.path, "--repair", "--snapshot", archive.snapshot)
    assert (status, "leave --snapshot away" in told) == (2, True)


def flip_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_backup_that_is_damaged_is_restored_only_as_such(archive: Archive, tmp_path: Path) -> None:
    run("backup", archive.path, tmp_path / "backup")
    manifest = next((tmp_path / "backup" / "store" / "manifests").iterdir())
    flip_bit(manifest)
    status, _, told = run("restore", tmp_path / "restored", tmp_path / "backup")
    assert (status, "nothing was restored" in told, (tmp_path / "restored").exists()) == (2, True, False)
    status, _, told = run("restore", tmp_path / "restored", tmp_path / "backup", "--damaged")
    assert (status, f"{manifest.name} is another" in told, "was restored as it is" in told) == (0, True, True)


def test_what_is_damaged_is_not_backed_up_and_the_former_backup_stays(archive: Archive, tmp_path: Path) -> None:
    run("backup", archive.path, tmp_path / "backup")
    chunks = archive.path / "store" / "chunks"
    before = {path.name for path in chunks.glob("*")}
    # Few readings lie in the manifest.
    add(archive, "3", 12, 4000)
    flip_bit(next(path for path in chunks.iterdir() if path.name not in before))
    status, _, told = run("backup", archive.path, tmp_path / "backup")
    assert (status, "is another than it was; the former state stays" in told) == (2, True)
    assert run("restore", tmp_path / "restored", tmp_path / "backup")[0] == 0
    assert Archive.open(tmp_path / "restored").snapshot == archive.snapshot


def test_a_first_backup_that_was_killed_is_gone_on_with(archive: Archive, tmp_path: Path) -> None:
    run("backup", archive.path, tmp_path / "whole")
    (tmp_path / "backup").mkdir()
    shutil.copytree(tmp_path / "whole" / "store", tmp_path / "backup" / "store")
    shutil.copy(tmp_path / "whole" / BACKUP_LOCK, tmp_path / "backup")
    assert run("backup", archive.path, tmp_path / "backup")[0] == 0
    assert run("restore", tmp_path / "restored", tmp_path / "backup")[0] == 0
    (tmp_path / "letters" / "store").mkdir(parents=True)
    status, _, told = run("backup", archive.path, tmp_path / "letters")
    assert (status, "holds something that is no backup" in told) == (2, True)


def test_an_archive_that_a_stream_writes_into_is_not_repaired(archive: Archive) -> None:
    lock = archive.path / "stream" / "lock"
    lock.parent.mkdir()
    with wait_for_lock(lock):
        status, _, told = run("check", archive.path, "--repair")
    assert (status, "a stream writes into" in told) == (1, True)
    assert run("check", archive.path, "--repair")[0] == 0


def test_a_backup_is_restored(archive: Archive, tmp_path: Path) -> None:
    status, out, _ = run("backup", archive.path, tmp_path / "backup", "--json")
    assert (status, json.loads(out)["snapshot"]) == (0, archive.snapshot)
    assert "were there" in run("backup", archive.path, tmp_path / "backup")[2]
    status, _, told = run("restore", tmp_path / "restored", tmp_path / "backup")
    assert (status, f"at snapshot {archive.snapshot}" in told) == (0, True)
    assert len(Archive.open(tmp_path / "restored").read(AIR)) == len(archive.read(AIR))
    status, _, told = run("backup", archive.path, archive.path)
    assert (status, "a folder of its own" in told) == (2, True)


def test_export_writes_readings(archive: Archive, tmp_path: Path) -> None:
    words = ("export", archive.path, "-o", tmp_path / "out.csv", "--station", "a", "--from", "1970-01-01T00:02Z")
    status, out, _ = run(*words, "--to", "1970-01-01T00:05Z", "--json")
    summary = json.loads(out)
    assert (status, summary["readings"], summary["snapshot"]) == (0, 3, archive.snapshot)
    lines = (tmp_path / "out.csv").read_text().splitlines()
    assert lines[1] == "a,1970-01-01T00:02:00Z,air_temperature,0,degC,2,,1970-01-01T00:02:00Z"
    assert len(lines) == 4
    status, _, told = run("export", "--archive", archive.path, "-o", tmp_path / "out.nc", "--variable", AIR)
    assert (status, "24 readings of snapshot" in told) == (0, True)
    status, out, _ = run(
        "export", archive.path, "-o", tmp_path / "then.csv", "--as-of", "1970-01-01T00:05:30Z", "--flag", "2", "--json"
    )
    assert (status, json.loads(out)["readings"]) == (0, 12)
    status, _, told = run("export", archive.path, "-o", tmp_path / "out.xls")
    assert (status, "unknown ending" in told) == (2, True)


def test_cited_snapshots_survive_maintenance(archive: Archive, tmp_path: Path) -> None:
    run("export", archive.path, "-o", tmp_path / "out.csv", "--json")
    exported = archive.snapshot
    newest = add(add(archive, "3", 12, 14), "4", 14, 16)
    assert run("snapshots", archive.path, "--cite", archive.snapshots[1].id)[0] == 0
    status, out, _ = run("maintain", archive.path, "--keep", "1ns", "--json")
    done = json.loads(out)
    assert status == 0
    assert (done["snapshots_expired"], done["objects_removed"] > 0, done["held_by"]) == (4, True, [])
    listed = json.loads(run("snapshots", archive.path, "--json")[1])
    assert [(row["snapshot"], row["cited"]) for row in listed] == [
        (newest.snapshot, False),
        (exported, True),
        (archive.snapshots[1].id, True),
    ]
    assert Archive.open(archive.path, snapshot=exported).readings(AIR) == 24
    status, _, told = run("snapshots", archive.path, "--diff", exported, newest.snapshot)
    assert (status, "they expired" in told) == (2, True)
    (change,) = json.loads(run("snapshots", archive.path, "--diff", exported, newest.snapshot, "--exact", "--json")[1])
    assert (change["how"], change["readings"]) == ("new", 8)
    assert run("snapshots", archive.path, "--release", exported)[0] == 0
    status, _, told = run("maintain", archive.path, "--keep", "1ns")
    assert (status, "2 snapshots are left, 1 cited" in told or "3 snapshots are left, 1 cited" in told) == (0, True)
    status, _, told = run("export", archive.path, "-o", tmp_path / "again.csv", "--snapshot", exported)
    assert (status, "older ones expired unless they were cited" in told) == (2, True)
    assert run("snapshots", archive.path, "--release", "nothing")[0] == 2
