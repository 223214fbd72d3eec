"""A folder is an archive completely, or not at all, and what is none stays as it is."""

import json
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.folder import MARKER
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.core.errors import ArchiveConflict, NotAnArchive
from hypergrid.core.units import Variable


def create(path: Path, **changes: object) -> Archive:
    arguments = {"name": "p", "slice_s": 60.0, "variables": [], "now_ns": 0} | changes
    return Archive.create(path, **arguments)  # type: ignore[arg-type]


def test_an_empty_folder_and_missing_parents_will_do(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert create(tmp_path / "empty").path == tmp_path / "empty"
    assert create(tmp_path / "x" / "y" / "z").name == "p"


def test_an_archive_is_not_replaced(archive: Archive) -> None:
    with pytest.raises(ArchiveConflict, match="open it"):
        create(archive.path)
    assert Archive.open(archive.path).name == "pass"


def test_something_else_is_refused_and_stays(tmp_path: Path) -> None:
    folder, file = tmp_path / "folder", tmp_path / "file"
    folder.mkdir()
    (folder / "thesis.txt").write_text("years of work")
    file.write_text("more")
    for path in (folder, file):
        for attempt in (create, Archive.open):
            with pytest.raises(NotAnArchive, match="nothing was touched"):
                attempt(path)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]
    assert os.listdir(folder) == ["thesis.txt"]


def test_a_missing_folder_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(NotAnArchive, match="does not exist"):
        Archive.open(tmp_path / "nowhere")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "is no JSON"),
        ("[1]", "is no object"),
        ('{"format": "other"}', "does not say"),
        (
            '{"format": "hypergrid-archive", "version": 99, "program": "7.1"}',
            "layout 99; this program .* reads the layouts 2 and 3; nothing was touched; use HyperGrid 7.1 or newer",
        ),
        (
            '{"format": "hypergrid-archive", "version": 1, "name": "p", "slice_ns": 1}',
            "layout 1; this program .* reads the layouts 2 and 3",
        ),
        ('{"format": "hypergrid-archive", "version": 2, "name": "p"}', "lacks"),
    ],
)
def test_a_marker_that_says_something_else_is_refused(tmp_path: Path, content: str, complaint: str) -> None:
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(NotAnArchive, match=complaint):
        Archive.open(tmp_path)


def test_a_damaged_store_is_named(archive: Archive) -> None:
    shutil.rmtree(archive.path / "store")
    with pytest.raises(NotAnArchive, match="damaged"):
        Archive.open(archive.path)


def test_an_archive_can_be_moved(archive: Archive, tmp_path: Path) -> None:
    declared = [Variable("snow", "m")]
    moved = Path(shutil.move(archive.path, tmp_path / "elsewhere"))
    again = Archive.open(moved)
    with again.commit(batch="1", message="", now_ns=1) as writer:
        writer.variables(declared)
    assert list(again.latest().variables)[-1] == "snow"
    assert again.name == json.loads((moved / MARKER).read_text())["name"]


@pytest.mark.parametrize("slice_s", [0, -1, 0.001, float("nan")])
def test_a_slice_without_length_is_refused(tmp_path: Path, slice_s: float) -> None:
    with pytest.raises(ValueError, match=r"at least 0\.01 s"):
        create(tmp_path / "archive", slice_s=slice_s)
    assert os.listdir(tmp_path) == []


def test_a_failed_creation_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        message = "no space left"
        raise OSError(message)

    monkeypatch.setattr("hypergrid.archive.disk.folder.os.rename", fail)
    with pytest.raises(OSError, match="no space"):
        create(tmp_path / "archive")
    assert os.listdir(tmp_path) == []


def test_an_archive_without_commits_is_discarded_and_another_is_not(archive: Archive) -> None:
    used = create(archive.path.parent / "used")
    with used.commit(batch="1", message="", now_ns=1) as writer:
        writer.variables([Variable("snow", "m")])
    assert not used.discard()
    assert archive.discard()
    assert os.listdir(archive.path.parent) == ["used"]
    assert list(Archive.open(used.path).variables) == ["snow"]


def test_a_process_killed_while_it_discards_leaves_what_the_next_creation_removes(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hypergrid.archive.disk.folder.shutil.rmtree", lambda *_, **__: None)
        archive.discard()
    assert not archive.path.exists()
    assert len(os.listdir(archive.path.parent)) == 1
    create(archive.path)
    assert os.listdir(archive.path.parent) == [archive.path.name]


def test_who_waits_for_a_lock_is_told_once(tmp_path: Path) -> None:
    waits: list[str] = []

    def second() -> None:
        with wait_for_lock(tmp_path / "lock", on_wait=lambda: waits.append("told")):
            waits.append("begun")

    thread = threading.Thread(target=second)
    with wait_for_lock(tmp_path / "lock", on_wait=lambda: waits.append("nobody is there")):
        thread.start()
        while not waits:
            time.sleep(0.01)
        waits.append("left")
    thread.join()
    assert waits == ["told", "left", "begun"]
