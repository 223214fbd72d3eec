"""An archive broken in each way on purpose: the check names it, and only it."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import icechunk
import numpy as np
import pytest
import zarr

from hypergrid.archive import Archive, FileEntry, Reject
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.raw_copies import RAW, keep
from hypergrid.archive.disk.snapshot_checksums import commit_session
from hypergrid.archive.integrity import Defect
from hypergrid.core.errors import NotAnArchive
from hypergrid.core.flags import TESTS
from hypergrid.core.readings import Readings
from hypergrid.core.times import parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.layers.layer import Layer

Build = Callable[..., Readings]
AIR = "air_temperature"
SLICE = 120 * 10**9
ROW = -parse_instant("1900-01-01") // SLICE
"""Number of the slice that begins in 1970."""
SHA = "ab" * 32


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive with readings of 40 series, a side table, superseded readings, tables, a layer and raw copies."""
    folder = tmp_path_factory.mktemp("checks") / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[KNOWN_VARIABLES[AIR]], now_ns=0)
    return folder


@pytest.fixture
def archive(made: Path, tmp_path: Path, readings: Build) -> Archive:
    if not (made / "raw").exists():
        _fill(Archive.open(made), readings)
    return Archive.open(shutil.copytree(made, tmp_path / "archive"))


def _fill(archive: Archive, readings: Build) -> None:
    rows = [(f"s{n}", k * SLICE, float(k), 2, k) for n in range(40) for k in range(300)]
    beside = [("s3", k * SLICE + 5, 7.0, 3, k) for k in range(0, 300, 50)]
    later = [("s3", 0, None, 9, 900), ("s3", 5, 8.0, 2, 900), ("s5", 50 * SLICE, 9.0, 2, 900)]
    for number, some in enumerate((rows + beside, later)):
        with archive.commit(batch=str(number), message="", now_ns=number) as writer:
            writer.readings(readings(some))
            if number == 0:
                writer.files([FileEntry("a.csv", SHA, 3, 1, 1, 0, 1, "m")])
                writer.rejects(
                    [
                        Reject("a.csv", 1, "", f"{np.random.default_rng(k).bytes(60).hex()}", f"reason {k}")
                        for k in range(200)
                    ]
                )
                writer.described_by({"cd" * 32: "deployment.toml"})
    values = np.arange(12.0).reshape(3, 4)
    archive.add_layer(Layer("slope", np.arange(4.0), np.arange(3.0), values, "degree"), now_ns=1)
    for sha in (SHA, "cd" * 32):
        (archive.path.parent / "abc").write_bytes(b"abc")
        keep(archive.path.parent / "abc", archive.path / RAW, sha256=sha, size_bytes=3)


def _defects(archive: Archive, **how: object) -> list[Defect]:
    return list(archive.latest().check(**how))  # type: ignore[arg-type]


def _edit(archive: Archive, change: Callable[[zarr.Group], None]) -> None:
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(str(archive.path / "store")))
    session = repository.writable_session("main")
    change(zarr.open_group(session.store, mode="r+"))
    metadata: dict[str, object] = {"time_ns": 5, "batch": "x", "slices": {}, "counts": {}}
    commit_session(archive.sums, repository, session, "main", "broken on purpose", metadata)


def test_an_archive_that_is_whole_has_no_defect(archive: Archive) -> None:
    told: list[tuple[str, float]] = []
    assert _defects(archive, progress=lambda name, done: told.append((name, done))) == []
    assert ("store", 1.0) in told
    assert (f"readings of {AIR}", 1.0) in told


def _array(name: str, row: int, column: int, value: float) -> Callable[[zarr.Group], None]:
    def change(root: zarr.Group) -> None:
        root[f"variables/{AIR}/{name}"][ROW + row, column] = value  # type: ignore[index]

    return change


def _attribute(name: str, change: Callable[[dict], object]) -> Callable[[zarr.Group], None]:  # type: ignore[type-arg]
    def edit(root: zarr.Group) -> None:
        group = root[f"variables/{AIR}"]
        content = dict(group.attrs)[name]
        group.attrs[name] = change(content)  # type: ignore[arg-type]

    return edit


def _side(**columns: float) -> Callable[[zarr.Group], None]:
    """Append a row to the side table."""
    row = {"series": 3, "time_ns": 100 * SLICE + 9, "value": 1.0, "flag": 2, "arrival_ns": 0, "superseded": 0} | columns

    def change(root: zarr.Group) -> None:
        for name, value in row.items():
            array = root[f"variables/{AIR}/side/{name}"]
            array.append(np.array([value], array.dtype))  # type: ignore[union-attr]
        group = root[f"variables/{AIR}"]
        counts = dict(group.attrs)["counts"]
        group.attrs["side"] = [[-(2**62), 2**62]]
        counts["superseded" if row["superseded"] else "readings"] += 1  # type: ignore[index,call-overload,operator]
        group.attrs["counts"] = counts

    return change


def _append(root: zarr.Group) -> None:
    root[f"variables/{AIR}/side/value"].append(np.array([1.0]))  # type: ignore[union-attr]


def _layer(root: zarr.Group) -> None:
    root["layers/slope/values"][0, 0] = 99.0  # type: ignore[index]


BROKEN = {
    # what is done: the kinds of what is told, and a part of it
    "a flag that does not exist": (_array("flag", 4, 35, 7), ["flags"], "1 readings have a flag that does not exist"),
    "NaN without its flag": (_array("value", 4, 35, np.nan), ["flags"], "are NaN without the flag 9"),
    "a missing one with a value": (_array("value", 0, 3, 1.0), ["flags"], "or have it and a value"),
    "a value without a flag": (_array("value", 400, 3, 1.0), ["flags"], "1 cells have a value and no flag"),
    "a stamp outside its slice": (_array("offset_ns", 4, 35, SLICE), ["times"], "1 stamps lie outside their slice"),
    "a cell that vanished": (_array("flag", 5, 35, 0), ["flags", "counts"], "says 12,006 readings; there are 12,005"),
    "a cell beside which one lies": (_array("flag", 50, 3, 0), ["flags", "times", "counts"], "belong beside no cell"),
    "a cell that was superseded": (_array("offset_ns", 50, 5, 1), ["times"], "belong beside no cell"),
    "a count": (
        _attribute("counts", lambda c: {**c, "missing": 4}), ["counts"],
        "says 4 readings without a value; there are 1",
    ),
    "an extent": (_attribute("extent", lambda e: [e[0], e[1] + 1]), ["counts"], "hold readings;"),
    "chunks that are not listed": (
        _attribute("chunks", lambda c: [[c[0][0] - 5, c[0][0] - 4]]), ["counts", "times"],
        "stored and not listed",
    ),
    "a stamp twice beside": (_side(time_ns=50 * SLICE + 5), ["times"], "1 stamps of a series are there twice"),
    "a stamp in a cell and beside": (_side(time_ns=50 * SLICE), ["times"], "or repeat one"),
    "beside an empty cell": (_side(time_ns=500 * SLICE), ["times"], "belong beside no cell"),
    "beside no chunk": (_side(time_ns=500_000 * SLICE), ["times"], "lie where no cells are said to be"),
    "superseded by nothing": (_side(superseded=1), ["times"], "belong beside no cell"),
    "of no series": (_side(series=77), ["times"], "1 rows are of series that do not exist"),
    "a mark that is none": (_side(superseded=2), ["flags", "counts"], "neither superseded nor not"),
    "a flag beside": (_side(flag=9), ["flags", "counts"], "or have it and a value"),
    "columns of two lengths": (_append, ["table"], "its columns have different lengths"),
    "times of the side table": (_attribute("side", lambda s: [[s[0][0] + 1, s[0][1]]]), ["table"], "rows lie outside"),
    "a layer": (_layer, ["layer"], "is not the one that was added"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_in_the_store_is_named(archive: Archive, name: str) -> None:
    change, kinds, told = BROKEN[name]
    _edit(archive, change)
    found = _defects(archive)
    assert {one.kind for one in found} == set(kinds), found
    assert any(told in one.what for one in found), found
    assert all(one.remedy and one.where for one in found)


def test_tests_that_do_not_exist_are_named(archive: Archive) -> None:
    judged = archive.read(AIR).take_rows(np.array([7]))
    with archive.commit(batch="j", message="", now_ns=1) as writer:
        writer.flags(replace(judged, flag=np.array([3], np.uint8), tests=np.array([4], np.uint16)))
    assert _defects(archive) == []
    _edit(archive, _array("flag_tests", 7, 0, 1 << len(TESTS)))
    (found,) = _defects(archive)
    assert (found.kind, "name a test that does not exist" in found.what) == ("flags", True)


def test_chunks_that_are_gone_or_cannot_be_unpacked_are_named(archive: Archive) -> None:
    chunks = sorted((archive.path / "store" / "chunks").iterdir(), key=lambda path: -path.stat().st_size)
    for path in chunks[:3]:
        path.unlink()
    found = _defects(archive)
    with pytest.raises(NotAnArchive, match="'hypergrid check .*' names what is lost"):
        archive.latest().read(AIR)
    assert "unreadable" in {one.kind for one in found} <= {"unreadable", "table"}
    assert all("restore the archive from a copy" in one.remedy for one in found if one.kind == "unreadable")
    assert all("brings back what raw copies hold, or their spare" in one.remedy for one in found if one.kind == "table")
    for path in chunks:
        path.write_bytes(b"\0" * 100)
    found = _defects(archive)
    assert {"damaged", "table"} <= {one.kind for one in found}


def test_raw_copies_and_the_ledger_are_compared(archive: Archive) -> None:
    place = archive.path / "raw" / "ab" / f"{SHA}.zst"
    stranger = archive.path / "raw" / "ef" / f"{'ef' * 32}.zst"
    stranger.parent.mkdir()
    place.rename(stranger)
    lost, orphan = _defects(archive)
    assert (lost.kind, lost.where, SHA in lost.remedy) == ("lost", "a.csv", True)
    assert (orphan.kind, orphan.where) == ("orphan", f"raw/ef/{stranger.name}")


def test_contents_of_raw_copies_are_read_where_asked(archive: Archive) -> None:
    # The names of the copies are no hashes of "abc", which only who reads them sees.
    assert _defects(archive) == []
    found = _defects(archive, deep=True)
    assert [one.what for one in found] == ["its content is another than when it was ingested"] * 2
    (archive.path / "raw" / "ab" / f"{SHA}.zst").write_bytes(b"no zstd")
    assert "cannot be read" in _defects(archive, deep=True)[0].what


def test_what_killed_runs_left_is_named(archive: Archive) -> None:
    (archive.path / "staging" / "batch-1").mkdir(parents=True)
    (archive.path / "raw" / "ab" / ".partial-12-x").touch()
    found = _defects(archive)
    assert [(one.kind, one.where) for one in found] == [
        ("orphan", "staging/batch-1"),
        ("orphan", "raw/ab/.partial-12-x"),
    ]
    # What a run that is at work uses is none.
    with wait_for_lock(archive.path / "staging" / "lock"):
        assert _defects(archive) == []


def test_objects_of_a_commit_that_died_are_named(archive: Archive, readings: Build) -> None:
    def die() -> None:
        with archive.commit(batch="dies", message="", now_ns=9) as writer:
            writer.readings(readings([("new", k * SLICE, float(k)) for k in range(900)]))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        die()
    assert _defects(archive) == []
    (found,) = _defects(archive, grace_s=0)
    assert (found.kind, found.where) == ("orphan", "store")
    assert "belong to no snapshot" in found.what
    assert "hypergrid maintain" in found.remedy
