"""A byte that was flipped on the disk: no reading is another than it was, and the check names the file."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from hypergrid.archive import Archive, FileEntry, Reject, RetentionPolicy
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk import checksums
from hypergrid.archive.disk.checksums import compute_sum, read_checked, read_sums, write_checked, write_sums
from hypergrid.archive.disk.folder import MARKER
from hypergrid.archive.disk.snapshot_checksums import PENDING
from hypergrid.archive.durability import salvage
from hypergrid.archive.integrity import check_files
from hypergrid.core.errors import DamagedArchive, HyperGridError
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.core.times import Window, format_instant
from hypergrid.core.units import Variable
from hypergrid.layers.layer import Layer
from tests.support.archive_counts import count_content

Build = Callable[..., Readings]
AIR = "air_temperature"
SLICE = 120 * 10**9


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("checksums") / "archive"


@pytest.fixture
def archive(made: Path, tmp_path: Path, readings: Build) -> Archive:
    """An archive with every kind of file: several commits, a cited snapshot, a layer, tables, a side table."""
    if not made.exists():
        _make(made, readings)
    return Archive.open(shutil.copytree(made, tmp_path / "archive"))


def _make(folder: Path, readings: Build) -> None:
    variables = [Variable(AIR, "degC"), Variable("wind_speed", "m s-1")]
    archive = Archive.create(folder, name="p", slice_s=120, variables=variables, now_ns=0)
    generator = np.random.default_rng(7)
    for number in range(3):
        values = generator.normal(size=4000).round(2).tolist()
        rows = [(f"s{k % 40}", (number * 100 + k // 40) * SLICE + k % 7, v, 2, k) for k, v in enumerate(values)]
        beside = [("s3", (number * 100 + k) * SLICE + 11, 7.0, 3, k) for k in range(0, 100, 10)]
        again = [("s3", number * 100 * SLICE + 11, 8.0, 2, 9)]
        with archive.commit(batch=str(number), message=f"number {number}", now_ns=number) as writer:
            writer.stations([Station("s3", "third", (Position(None, 7.0, 46.0, 900.0),))])
            writer.readings(readings(rows + beside))
            writer.readings(readings(again))
            writer.files([FileEntry(f"{number}.csv", _keep_raw(folder, bytes([number]) * 500), 500, 1, 1, 0, 1, "m")])
            writer.rejects([Reject("a.csv", k, "", generator.bytes(60).hex(), f"reason {k}") for k in range(100)])
        if number == 1:
            archive.latest().cite()
    archive.add_layer(Layer("slope", np.arange(4.0), np.arange(3.0), np.ones((3, 4)), "degree"), now_ns=9)
    archive.maintain(RetentionPolicy(keep_s=3600.0))


def _keep_raw(folder: Path, content: bytes) -> str:
    sha256 = hashlib.sha256(content).hexdigest()
    path = folder / "raw" / sha256[:2] / f"{sha256}.zst"
    path.parent.mkdir(parents=True)
    with pa.CompressedOutputStream(str(path), "zstd") as packed:
        packed.write(content)
    return sha256


def everything(folder: Path) -> list[Any]:
    """Return all that an archive answers."""
    archive = Archive.open(folder)
    found: list[Any] = [
        archive.name,
        archive.slice_s,
        dict(archive.stations),
        count_content(archive),
        dict(archive.cited_by),
    ]
    found += [(one.id, one.time_ns, one.message, json.dumps(dict(one.metadata), sort_keys=True))
              for one in archive.snapshots]  # fmt: skip
    for name, variable in archive.variables.items():
        found += [variable, archive.series(name), archive.extent(name)]
        for superseded in (False, True):
            some = archive.read(name, superseded=superseded, tests=True)
            found += [np.asarray(column).tobytes() for column in (
                some.index, some.time_ns, some.value, some.flag, some.arrival_ns, some.tests
            )]  # fmt: skip
    found += [archive.rejects(), archive.files()]
    found += [(name, layer.token, layer.values.tobytes()) for name, layer in archive.layers.items()]
    cited = Archive.open(folder, snapshot=archive.cited[0])
    return [*found, cited.read(AIR).value.tobytes()]


def _flip(path: Path, chosen: random.Random) -> bytes:
    """Flip a bit of a file; return what it held."""
    before = path.read_bytes()
    data = bytearray(before)
    data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    return before


def _unpacked(path: Path) -> bytes:
    try:
        with pa.CompressedInputStream(str(path), "zstd") as packed:
            return bytes(packed.read())
    except OSError:
        return b"unreadable"


def _kind(path: Path, folder: Path) -> str:
    parts = path.relative_to(folder).parts[:-1]
    return "/".join(parts[:1] if parts[:1] == ("raw",) else parts[:2])


def _answer(folder: Path) -> list[Any] | Exception:
    try:
        return everything(folder)
    except (HyperGridError, OSError) as error:
        return error


def _named(folder: Path) -> set[str]:
    """Return the files that a check names, whether or not the archive opens."""
    try:
        found = list(Archive.open(folder).check(deep=True))
    except DamagedArchive as error:
        files = {one.where for one in check_files(folder, lambda _what, _done: None)}
        return files | ({MARKER} if MARKER in str(error) else set())
    return {one.where for one in found}


def prove(archive: Archive, flips: int, *, seed: int) -> None:
    """Flip bits, one at a time, in files of all kinds: no value that is read is another, and the check names each."""
    folder, chosen = archive.path, random.Random(seed)
    expected = everything(folder)
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size]
    kinds = sorted({_kind(path, folder) for path in files})
    assert {"checksums", "store/chunks", "store/manifests", "store/snapshots", "store/transactions"} < set(kinds)
    refused = 0
    for number in range(flips):
        kind = kinds[number % len(kinds)]
        path = chosen.choice([one for one in files if _kind(one, folder) == kind])
        packed = _unpacked(path) if kind == "raw" else b""
        before = _flip(path, chosen)
        told = _answer(folder)
        assert told == expected or isinstance(told, HyperGridError | OSError), path
        refused += isinstance(told, Exception)
        named, found = str(path.relative_to(folder)), _named(folder)
        is_same = kind == "raw" and _unpacked(path) == packed
        assert is_same or named in found, (named, found)
        path.write_bytes(before)
    # Which files are hit depends on their names, which are drawn anew in each archive.
    assert refused > flips / 5
    assert everything(folder) == expected
    assert list(Archive.open(folder).check(deep=True)) == []


def test_a_flipped_bit_is_never_a_reading(archive: Archive) -> None:
    prove(archive, 40, seed=1)


@pytest.mark.soak
def test_500_flipped_bits_are_no_readings(archive: Archive) -> None:
    prove(archive, 500, seed=2)


def test_each_damaged_chunk_is_told_by_what_it_held(archive: Archive) -> None:
    newest = archive.read(AIR)
    path = max((archive.path / "store" / "chunks").iterdir(), key=lambda one: one.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    other = next(name for name in archive.variables if name != AIR)
    told = rf"of {AIR} from 19.* to 19.*, stations s0, s1, .* and 24 more cannot be read.* other times or .*--repair"
    with pytest.raises(DamagedArchive, match=told):
        Archive.open(archive.path).read(AIR)
    # All else answers.
    assert len(Archive.open(archive.path).read(other)) == 0
    some = Archive.open(archive.path).read(AIR, series=np.arange(32, 40))
    np.testing.assert_array_equal(some.value, newest.take_rows(newest.index >= 32).value)


def test_readings_beside_slices_that_are_damaged_are_told_by_their_times(archive: Archive, readings: Build) -> None:
    values = np.random.default_rng(1).normal(size=2000).tolist()
    with archive.commit(batch="beside", message="", now_ns=9) as writer:
        writer.readings(readings([(f"s{k % 40}", k // 40 * SLICE + 50, v, 2, 9) for k, v in enumerate(values)]))
    group = VariableGroup.load(archive.latest().root.group, AIR)
    assert group.spans is not None
    for path in sorted((archive.path / "store" / "chunks").iterdir()):
        before = _flip(path, random.Random(1))
        found = salvage.find_damage(VariableGroup.load(Archive.open(archive.path).root.group, AIR))
        if found.side_rows is not None:
            break
        path.write_bytes(before)
    else:
        pytest.fail("rows beside slices lie in no file of their own")
    (first_ns, last_ns), *_ = group.spans.tolist()
    told = f"of readings beside the slices of {AIR} from {format_instant(first_ns)} to {format_instant(last_ns)} cannot"
    with pytest.raises(DamagedArchive, match=told):
        Archive.open(archive.path).read(AIR, tests=True)
    later = Window(last_ns + 1, 300 * SLICE)
    assert len(Archive.open(archive.path).read(AIR, window=later, tests=True)) > 100


def test_a_commit_builds_on_nothing_that_is_damaged(archive: Archive, readings: Build) -> None:
    manifest = max((archive.path / "store" / "manifests").iterdir(), key=lambda one: one.stat().st_mtime_ns)
    _flip(manifest, random.Random(1))
    with (
        pytest.raises(DamagedArchive, match=f"{manifest.name} is another than it was"),
        archive.latest().commit(batch="new", message="", now_ns=1) as writer,
    ):
        writer.readings(readings([("s1", 0, 1.0, 2, 0)]))


@pytest.mark.parametrize("kind", ["checksums", "store/chunks", "store/manifests", "store/snapshots", ""])
def test_files_that_were_emptied_are_errors_and_named(kind: str, archive: Archive) -> None:
    expected = everything(archive.path)
    files = sorted(one for one in (archive.path / kind).iterdir() if one.is_file() and one.stat().st_size)
    for path in files[:: 1 + len(files) // 10]:
        before = path.read_bytes()
        path.write_bytes(b"")
        told = _answer(archive.path)
        assert told == expected or "icechunk" not in str(told).lower()
        assert str(path.relative_to(archive.path)) in _named(archive.path)
        path.write_bytes(before)


def test_an_archive_whose_newest_snapshot_is_not_named_is_damaged(archive: Archive) -> None:
    shutil.rmtree(archive.path / "store" / "refs")
    with pytest.raises(DamagedArchive, match="does not name its newest snapshot; 'hypergrid check"):
        archive.latest()
    shutil.rmtree(archive.path / "store" / "chunks", ignore_errors=True)
    with pytest.raises(DamagedArchive):
        Archive.open(archive.path)


def test_json_that_was_written_by_hand_is_read_and_what_was_changed_is_not(tmp_path: Path) -> None:
    path = tmp_path / "some.json"
    write_checked(path, {"name": "µ", "number": 1.5, "list": [1, None]})
    assert read_checked(path) == {"name": "µ", "number": 1.5, "list": [1, None]}
    path.write_text(path.read_text().replace("1.5", "1.6"))
    with pytest.raises(DamagedArchive, match=r"some\.json is another than it was"):
        read_checked(path)
    path.write_text('{"name": "by hand"}')
    assert read_checked(path, by_hand=True) == {"name": "by hand"}
    with pytest.raises(DamagedArchive):
        read_checked(path)


def test_checksums_come_back_and_a_list_of_them_is_checked_itself(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_bytes(name.encode() * 1000)
    sums = [compute_sum(tmp_path, name) for name in ("one", "two")]
    write_sums(tmp_path / "sums", sums)
    assert read_sums(tmp_path / "sums") == sums
    assert [one.size for one in sums] == [3000, 3000]
    for cut in range((tmp_path / "sums").stat().st_size):
        (tmp_path / "cut").write_bytes((tmp_path / "sums").read_bytes()[:cut])
        with pytest.raises(DamagedArchive, match="cut"):
            read_sums(tmp_path / "cut")
    # CRC-32C of "123456789", as RFC 3720 has it.
    assert checksums.checksum(b"123456789") == "e3069283"


def test_what_an_expiry_that_was_killed_left_is_taken_over(archive: Archive, readings: Build) -> None:
    sums = archive.sums
    assert sums is not None
    (sums.folder / PENDING).touch()
    # Icechunk writes the oldest snapshot that it leaves anew.
    archive.storage.open().expire_snapshots(datetime.now(UTC))
    assert [one.id for one in Archive.open(archive.path).snapshots][:1] == [archive.snapshot]
    with archive.latest().commit(batch="new", message="", now_ns=1) as writer:
        writer.readings(readings([("s1", 0, 1.0, 2, 0)]))
    assert not sums.is_pending
    assert list(sums.find_damaged()) == []
