"""Files, feeds, chunks and raw copies."""

import os
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hypergrid.archive.disk.raw_copies import copy_path, hash_of, keep, read_back, sweep
from hypergrid.core.errors import NotFound
from ingest.deployment.deployment_file import Deployment, from_mapping, load
from ingest.formats import FORMATS, Layout, ReadOptions, Unreadable
from ingest.sources.folder import SourceFile, cut, discover, find_deployment, has_changed, layout_of, parse, read

LAYOUT = Layout(("time", "a"), ("a",), (), ReadOptions(), "s", 0, 0)


@pytest.fixture
def deployment(deployment_text: str) -> Deployment:
    return from_mapping(tomllib.loads(deployment_text))


def source(path: Path, data: bytes) -> SourceFile:
    path.write_bytes(data)
    status = path.stat()
    return SourceFile(path, path.name, "sensorscope", len(data), status.st_mtime_ns, hash_of(path, len(data)))


def test_files_are_matched_by_name_and_others_are_told(tmp_path: Path, deployment: Deployment) -> None:
    for name in ("b.txt", "deep/a.txt", "deployment.toml", "note.md", ".hidden.txt", ".git/x.txt", "archive/raw/r.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    # a path given twice counts once
    found = discover([tmp_path, tmp_path / "b.txt"], deployment, exclude=tmp_path / "archive")
    assert [file.name for file in found.files] == ["b.txt", "deep/a.txt"]
    assert found.ignored == ("note.md",)
    assert find_deployment([tmp_path / "deep", tmp_path]) == tmp_path / "deployment.toml"
    assert find_deployment([tmp_path / "b.txt"]) == tmp_path / "deployment.toml"
    assert find_deployment([tmp_path / "deep"]) is None
    with pytest.raises(NotFound, match="no file or folder"):
        discover([tmp_path / "nowhere"], deployment)


def test_files_of_one_name_are_told_apart_by_as_many_folders_as_it_takes(
    tmp_path: Path, deployment: Deployment
) -> None:
    for name in ("p/a/x.txt", "q/a/x.txt", "q/a/y.txt", "r/b/x.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)

    def names(*paths: str) -> list[str]:
        return [file.name for file in discover([tmp_path / path for path in paths], deployment).files]

    assert names("q/a", "r/b") == ["a/x.txt", "y.txt", "b/x.txt"]
    assert names("q/a/x.txt", "r/b/x.txt") == ["a/x.txt", "b/x.txt"]
    assert names("p/a", "q/a") == ["p/a/x.txt", "q/a/x.txt", "y.txt"]
    # the second becomes "a/x.txt", as the first is called already
    assert names("p", "q/a", "r/b") == ["p/a/x.txt", "q/a/x.txt", "y.txt", "b/x.txt"]


def test_names_are_told_apart_up_to_the_root(
    tmp_path: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.txt").write_text("1")
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "x.txt").write_text("2")
    monkeypatch.chdir(tmp_path / "deep")
    found = discover([Path(), Path("../x.txt")], deployment)
    assert [file.name for file in found.files] == ["deep/x.txt", f"{tmp_path.name}/x.txt"]


FEED = '[network]\nname = "n"\n[[feed]]\nname = "f"\nformat = "csv"\n'


@pytest.mark.parametrize(
    ("feed", "place", "expected", "told"),
    [
        ('files = "*.csv"', "elsewhere", ["arrivals.csv", "b.csv", "faults.csv", "stations.csv"], ()),
        ('files = "*.csv"', "beside", ["b.csv"], ("arrivals.csv", "faults.csv", "stations.csv")),
        # those that the deployment names need no word: as arrivals, or as data
        ('files = "*.csv"\narrivals = "arrivals.csv"', "beside", ["b.csv"], ("faults.csv", "stations.csv")),
        ('files = "stations.csv"', "beside", ["stations.csv"], ()),
        # and those that no feed would read neither
        ('files = "b*.csv"', "beside", ["b.csv"], ()),
    ],
)
def test_tables_that_go_with_the_data(
    tmp_path: Path, feed: str, place: str, expected: list[str], told: tuple[str, ...]
) -> None:
    for name in ("b.csv", "arrivals.csv", "stations.csv", "faults.csv"):
        (tmp_path / name).write_text("x")
    (tmp_path / "deployment.toml").write_text(FEED + feed)
    described = load(tmp_path / "deployment.toml")
    if place == "elsewhere":
        (tmp_path / "deployment.toml").unlink()
        (tmp_path / "elsewhere").mkdir()
        described = replace(described, path=tmp_path / "elsewhere" / "deployment.toml")
    found = discover([tmp_path], described)
    assert [file.name for file in found.files] == expected
    assert found.companions == told


def test_a_file_that_is_given_itself_is_data(tmp_path: Path) -> None:
    (tmp_path / "arrivals.csv").write_text("x")
    (tmp_path / "deployment.toml").write_text(FEED + 'files = "*.csv"\narrivals = "arrivals.csv"')
    described = load(tmp_path / "deployment.toml")
    for paths in ([tmp_path / "arrivals.csv"], [tmp_path, tmp_path / "arrivals.csv"]):
        assert [file.name for file in discover(paths, described).files] == ["arrivals.csv"]
    assert discover([tmp_path], described).files == ()


@pytest.mark.parametrize("chunk_bytes", [1, 7, 8, 9, 50, 1000])
@pytest.mark.parametrize("data", [b"1234567\n" * 9, b"1\n" * 9 + b"22", b"x", b"\n", b"12345678901234567890\n1\n"])
def test_chunks_are_whole_lines_and_leave_nothing_out(tmp_path: Path, chunk_bytes: int, data: bytes) -> None:
    chunks = cut(source(tmp_path / "s", data), 0, LAYOUT, "csv", chunk_bytes=chunk_bytes, first=5)
    parts = [read(chunk) for chunk in chunks]
    assert b"".join(parts) == data
    assert all(part.endswith(b"\n") for part in parts[:-1])
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [chunk.number for chunk in chunks] == list(range(5, 5 + len(chunks)))


@pytest.mark.parametrize(("data", "reason"), [(b"", "empty file"), (b" \n\n", "empty file"), (b"ab\0c", "binary")])
def test_files_that_cannot_be_read_at_all(tmp_path: Path, deployment: Deployment, data: bytes, reason: str) -> None:
    with pytest.raises(Unreadable, match=reason):
        layout_of(source(tmp_path / "s.txt", data), deployment.feeds[0])


def test_a_line_without_end_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match="no end of line"):
        cut(source(tmp_path / "s", b"x" * 3_000_000), 0, LAYOUT, "csv", chunk_bytes=100, first=0)


def test_a_file_that_grew_has_not_changed_and_one_that_was_edited_has(tmp_path: Path) -> None:
    file = source(tmp_path / "s", b"1\n2\n")
    assert not has_changed(file)
    (tmp_path / "s").write_bytes(b"1\n2\n3\n")
    assert not has_changed(file)
    (tmp_path / "s").write_bytes(b"1\n9\n3\n")
    os.utime(tmp_path / "s", ns=(1, 1))
    assert has_changed(file)
    (tmp_path / "s").unlink()
    assert has_changed(file)


def test_raw_copies_are_kept_once_and_read_back(tmp_path: Path) -> None:
    data = bytes(range(256)) * 100
    (tmp_path / "s").write_bytes(data + b"grown since")
    sha256 = hash_of(tmp_path / "s", len(data))
    raw = tmp_path / "raw"
    copy = keep(tmp_path / "s", raw, sha256=sha256, size_bytes=len(data))
    assert copy == copy_path(raw, sha256) == keep(tmp_path / "s", raw, sha256=sha256, size_bytes=len(data))
    assert read_back(raw, sha256) == data
    (copy.parent / ".partial-1-x").write_bytes(b"half")
    sweep(raw)
    assert list(raw.rglob("*.zst")) == [copy]
    assert len(list(copy.parent.iterdir())) == 1


def test_no_chunk_ends_within_an_hour_that_comes_twice(tmp_path: Path) -> None:
    begin, stop = (np.datetime64(f"2007-10-{day}", "s").astype(np.int64) for day in (27, 30))
    instants = np.arange(begin, stop, 20)
    clocks = pd.to_datetime(instants, unit="s", utc=True).tz_convert("Europe/Zurich").strftime("%Y-%m-%d %H:%M:%S")
    data = ("time,a\n" + "".join(f"{clock},1\n" for clock in clocks)).encode()
    options = ReadOptions(timezone="Europe/Zurich")
    layout = FORMATS["csv"].layout(data, "s", options)
    found = cut(source(tmp_path / "s", data), 0, layout, "csv", chunk_bytes=7_000, first=0)
    parsed = [parse(chunk) for chunk in found]
    assert len(found) > 20
    assert [bad for part in parsed for bad in part.bad] == []
    np.testing.assert_array_equal(np.concatenate([part.time_ns for part in parsed]), instants * 10**9)


def test_a_raw_copy_has_its_name_once_its_content_is_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.csv").write_bytes(b"station,time,t\n" * 1000)
    forced: list[int] = []
    synchronise, replace = os.fsync, Path.replace

    def forces(file: int) -> None:
        synchronise(file)
        forced.append(os.fstat(file).st_ino)

    def named(self: Path, target: Path) -> Path:
        assert forced == [self.stat().st_ino]
        return replace(self, target)

    monkeypatch.setattr(os, "fsync", forces)
    monkeypatch.setattr(Path, "replace", named)
    sha256 = hash_of(tmp_path / "a.csv", 15_000)
    keep(tmp_path / "a.csv", tmp_path / "raw", sha256=sha256, size_bytes=15_000)
    assert read_back(tmp_path / "raw", sha256) == b"station,time,t\n" * 1000
    assert len(forced) == 1


def test_what_is_packed_twice_under_one_name_is_numbered(tmp_path: Path) -> None:
    tables = from_mapping({"network": {"name": "n"}, "feed": [{"name": "c", "files": "*.csv", "format": "csv"}]})
    with zipfile.ZipFile(tmp_path / "z.zip", "w") as packed:
        for name in ("a.csv", "../a.csv", "b.csv", "x/a.csv", "/a.csv"):
            packed.writestr(name, "x")
    shown = ["z.zip/a.csv", "z.zip/a.csv (2)", "z.zip/b.csv", "z.zip/x/a.csv", "z.zip/a.csv (3)"]
    assert [file.name for file in discover([tmp_path], tables).files] == shown
