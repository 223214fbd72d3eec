"""Damaged chunks of an archive of files: every value that a raw copy has comes back, and what is lost is counted."""

import csv
import json
import random
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hypergrid.archive import Archive, RetentionPolicy
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk.checksums import is_whole_chunk, write_twice
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.raw_copies import copy_path
from hypergrid.archive.durability import salvage
from hypergrid.archive.integrity import ORPHANS
from hypergrid.core.errors import ArchiveConflict, DamagedArchive
from hypergrid.core.readings import Readings
from hypergrid.layers.layer import Layer
from ingest.cli.check_commands import _show_repair
from ingest.deployment.deployment_file import deploy, read_versions
from ingest.job import ingest
from ingest.repair.restore_values import RepairReport
from ingest.repair.restore_values import repair as repair_at_once
from ingest.repair.verify_values import verify
from ingest.streaming.restart import begin_anew, replayed
from ingest.streaming.stream_commit import CHECKPOINT, DEPLOYMENTS, STREAM
from tests.hypergrid.cli.test_archive_commands import run
from tests.ingest.repair.repairing import repair
from tests.ingest.stream_loop import Loop, end
from tests.ingest.stream_loop import made as made_for_stream
from tests.ingest.streamed import everything, messages, write_deployment, write_spool

WHICH = ("series", "index", "time", "value", "flag", "arrival", "tests", "replaced")
NOW_NS = 1_200_000_000_000_000_000
SAMPLE = Path(__file__).parents[3] / "station_data" / "sample"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of the sample's day in three runs of ingest, with amendments, arrivals and flags that tests set."""
    folder = tmp_path_factory.mktemp("restoring")
    archive, files = folder / "archive", sorted((SAMPLE / "sensorscope").glob("*.txt"))
    for number, some in enumerate((files[:8], files[8:12])):
        source = folder / f"run-{number}"
        source.mkdir()
        for path in (SAMPLE / "deployment.toml", SAMPLE / "arrivals.csv", *some):
            shutil.copy(path, source)
        ingest([source], archive, now_ns=NOW_NS + number, engine="inprocess")
    source = folder / "plain"
    source.mkdir()
    with (source / "again.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["station", "time", "soil_moisture"])
        for k in range(500):
            writer.writerow(["1", f"2007-10-01T{k // 60:02d}:{k % 60:02d}:30Z", 20 + k % 7])
    ingest([source / "again.csv"], archive, now_ns=NOW_NS + 5, engine="inprocess")
    with (source / "again.csv").open("a", newline="") as file:
        writer = csv.writer(file)
        for k in range(0, 500, 5):
            writer.writerow(["1", f"2007-10-01T{k // 60:02d}:{k % 60:02d}:30Z", 30 + k % 7])
    ingest([source / "again.csv"], archive, now_ns=NOW_NS + 6, engine="inprocess")
    Archive.open(archive).add_layer(
        Layer("slope", np.arange(40.0), np.arange(30.0), np.random.default_rng(1).normal(size=(30, 40)), "degree"),
        now_ns=NOW_NS,
    )
    return archive


def values(archive: Archive) -> dict[str, tuple[Any, ...]]:
    """Return what is in force, by variable."""
    found = {}
    for name in archive.variables:
        some, replaced = archive.read(name, tests=True), archive.read(name, superseded=True)
        versions = sorted(zip(replaced.index.tolist(), replaced.time_ns.tolist(), replaced.value.tolist(), strict=True))
        found[name] = (archive.series(name), *(column.tolist() for column in _columns(some)), versions)
    return found


def _columns(some: Readings) -> tuple[Any, ...]:
    assert some.tests is not None
    value = np.where(np.isnan(some.value), -9999.0, some.value)
    return some.index, some.time_ns, value, some.flag, some.arrival_ns, some.tests


def keep_newest(archive: Path) -> None:
    """Let all snapshots but the newest expire."""
    Archive.open(archive).maintain(RetentionPolicy(keep_s=0.0, every=1, max_snapshots=1, least_s=0.0))


def wrong(archive: Path) -> list[str]:
    """Return what is wrong once older snapshots, which hold the damaged chunks still, have expired."""
    keep_newest(archive)
    return [f"{one.where} {one.what}" for one in Archive.open(archive).check(deep=True) if one.kind not in ORPHANS]


def chunks_of(archive: Path) -> list[Path]:
    """Return the files of chunks of the newest snapshot, the largest first."""
    keep_newest(archive)
    return sorted((archive / "store" / "chunks").iterdir(), key=lambda one: -one.stat().st_size)


def chunks_of_readings(archive: Path) -> list[Path]:
    """Return the files of chunks of the newest snapshot, but for those of tables."""
    chunks, found = archive / "store" / "chunks", []
    for path in chunks_of(archive):
        path.rename(aside := archive / "aside")
        root = Archive.open(archive).root
        is_of_readings = all(salvage.is_whole_table(root, name) for name in root.stored_tables)
        aside.rename(chunks / path.name)
        if is_of_readings:
            found.append(path)
    return found


def flip(path: Path, chosen: random.Random) -> bytes:
    before = path.read_bytes()
    data = bytearray(before)
    data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    assert not is_whole_chunk(bytes(data))
    return before


def prove(made: Path, folder: Path, rounds: int, at_once: int, *, seed: int) -> None:
    """Flip a bit in some chunks at once, repair, and compare every value, stamp, flag and arrival."""
    chosen = random.Random(seed)
    expected = values(Archive.open(made))
    copy = folder / "copy"
    shutil.copytree(made, copy)
    chunks = [path.name for path in chunks_of_readings(copy)]
    shutil.rmtree(copy)
    assert len(chunks) > 2 * at_once
    for _ in range(rounds):
        shutil.copytree(made, copy)
        for name in chosen.sample(chunks, at_once):
            flip(copy / "store" / "chunks" / name, chosen)
        report = repair(copy, now_ns=NOW_NS + 9)
        mended = Archive.open(copy)
        assert wrong(copy) == []
        assert report.lost == 0
        found = values(mended)
        for name, columns in expected.items():
            for which, one, other in zip(WHICH, found[name], columns, strict=True):
                assert one == other, (name, which, report)
        assert repair(copy, now_ns=NOW_NS + 10).mended == []
        shutil.rmtree(copy)


def test_every_value_that_a_raw_copy_has_comes_back(made: Path, tmp_path: Path) -> None:
    prove(made, tmp_path, 2, 4, seed=1)


@pytest.mark.soak
def test_every_value_comes_back_from_500_damaged_chunks(made: Path, tmp_path: Path) -> None:
    prove(made, tmp_path, 50, 10, seed=2)


@pytest.fixture(scope="module")
def streamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive that a stream wrote, with rows that came twice, and amendments by the stream and by files."""
    folder = tmp_path_factory.mktemp("streamed")
    sent = messages(("1", "3", "6", "9"), until_h=8.0)
    archive, deployment = made_for_stream(folder)
    deploy(archive / STREAM / DEPLOYMENTS, folder / "deployment.toml", first=1)
    changed = [replace(one, payload=one.payload.replace(b'"wind_speed": ', b'"wind_speed": 1')) for one in sent[40:60]]
    write_spool(archive / "spool", [*sent[:300], *sent[280:300], *changed], at_once=50, segment_bytes=30_000)
    end(archive)
    loop = Loop(archive, deployment)
    loop.run()
    files = folder / "files"
    files.mkdir()
    corrected = [{**json.loads(one.payload), "air_temperature": 3.5} for one in sent[100:130]]
    (files / "a.jsonl").write_text("".join(json.dumps(one) + "\n" for one in corrected))
    write_deployment(files, arrivals=False)
    ingest([files], archive, now_ns=sent[-1].arrival_ns, engine="inprocess")
    late = [replace(one, arrival_ns=sent[-1].arrival_ns + 10**10) for one in sent[300:]]
    write_spool(archive / "spool", late, at_once=50, segment_bytes=30_000)
    end(archive)
    loop.run()
    assert len(list((archive / "raw").glob("*/*.zst"))) > 3
    return archive


def test_what_streams_brought_comes_back(streamed: Path, tmp_path: Path) -> None:
    prove(streamed, tmp_path, 2, 4, seed=3)


def test_what_streams_brought_comes_back_though_all_chunks_are_damaged(streamed: Path, tmp_path: Path) -> None:
    copy, chosen = tmp_path / "copy", random.Random(5)
    shutil.copytree(streamed, copy)
    expected = {name: Archive.open(streamed).read(name) for name in ("air_temperature", "wind_speed")}
    for path in chunks_of(copy):
        # But for the tables and side rows, which no raw copy has as they are.
        if path.stat().st_size > 2000:
            flip(path, chosen)
    report = repair(copy, now_ns=NOW_NS + 9)
    assert report.lost == 0
    assert report.restored > 0
    for name, there in expected.items():
        found = Archive.open(copy).read(name)
        for column in ("index", "time_ns", "value", "arrival_ns"):
            np.testing.assert_array_equal(getattr(found, column), getattr(there, column))


def test_a_segment_that_is_damaged_is_told(streamed: Path, tmp_path: Path) -> None:
    copy, chosen = tmp_path / "copy", random.Random(6)
    shutil.copytree(streamed, copy)
    segment = next(one for one in Archive.open(copy).files() if one.name.startswith("spool/"))
    place = copy_path(copy / "raw", segment.sha256)
    place.write_bytes(place.read_bytes()[:-3])
    for path in chunks_of(copy)[:6]:
        flip(path, chosen)
    assert any(str(place) in warning for warning in repair(copy, now_ns=NOW_NS + 9).warnings)


def test_chunks_that_are_gone_come_back_and_cost_no_later_commit(made: Path, tmp_path: Path) -> None:
    """A torn copy without raw copies goes back to a snapshot before; with them nothing needs to."""
    expected = values(Archive.open(made))
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    chosen = random.Random(7)
    for path in chosen.sample(chunks_of_readings(copy), 6):
        path.write_bytes(b"") if chosen.random() < 0.5 else path.unlink()
    report = repair(copy, now_ns=NOW_NS + 9)
    assert report.lost == 0
    assert [one.where for one in report.mended if "refs" in one.where] == []
    for name, columns in values(Archive.open(copy)).items():
        for which, one, other in zip(WHICH, columns, expected[name], strict=True):
            assert one == other, (name, which, report)


def test_a_ledger_of_files_that_is_damaged_as_well_is_told(made: Path, tmp_path: Path) -> None:
    copy, chosen = tmp_path / "copy", random.Random(8)
    shutil.copytree(made, copy)
    ledger = Archive.open(copy).files()
    for path in chunks_of(copy):
        flip(path, chosen)
    report = repair(copy, now_ns=NOW_NS + 9)
    assert report.restored == 0
    assert any(f"what {len({one.sha256 for one in ledger})} raw copies are" in one for one in report.warnings)


@pytest.fixture(scope="module")
def later(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of `made` after two more runs: more readings by the same description, and amendments without one."""
    folder = tmp_path_factory.mktemp("later")
    shutil.copytree(made, folder / "archive")
    source = folder / "more"
    source.mkdir()
    files = sorted((SAMPLE / "sensorscope").glob("*.txt"))
    for path in (SAMPLE / "deployment.toml", SAMPLE / "arrivals.csv", *files[12:14]):
        shutil.copy(path, source)
    ingest([source], folder / "archive", now_ns=NOW_NS + 7, engine="inprocess")
    plain = folder / "plain"
    plain.mkdir()
    (plain / "again.csv").write_text(
        "station,time,soil_moisture\n1,2007-10-01T00:00:30Z,99\n1,2007-10-02T00:00:30Z,5\n"
    )
    ingest([plain / "again.csv"], folder / "archive", now_ns=NOW_NS + 8, engine="inprocess")
    return folder / "archive"


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of one ingest, no snapshot before, and so many files that their table has chunks of its own."""
    folder = tmp_path_factory.mktemp("single")
    source = folder / "files"
    source.mkdir()
    for path in (
        SAMPLE / "deployment.toml",
        SAMPLE / "arrivals.csv",
        *(SAMPLE / "sensorscope").glob("*.txt"),
    ):
        shutil.copy(path, source)
    ingest([source], folder / "archive", now_ns=NOW_NS, engine="inprocess")
    keep_newest(folder / "archive")
    return folder / "archive"


@pytest.mark.parametrize("most", [1, 1_000], ids=["one of a folder", "all"])
def test_a_bit_flipped_in_any_file_but_a_chunk_of_readings_costs_nothing(
    single: Path, tmp_path: Path, most: int
) -> None:
    """Each kind of file: snapshots, manifests, their checksums and spares, references, and chunks of tables."""
    archive = Archive.open(single)
    readings = set(chunks_of_readings(Path(shutil.copytree(single, tmp_path / "aside"))))
    expected = (values(archive), archive.files(), archive.described_by, archive.stations)
    logs, raw = single / "store" / "transactions", single / "raw"
    kinds = Counter[str]()
    for number, path in enumerate(sorted(single.rglob("*"))):
        where = path.relative_to(single)
        passed = path.is_dir() or not path.stat().st_size or tmp_path / "aside" / where in readings
        if passed or {logs, raw} & set(path.parents):
            continue
        kinds[where.parent.as_posix()] += 1
        if kinds[where.parent.as_posix()] > (min(2, most) if where.parent.name == "manifests" else most):
            continue
        copy = Path(shutil.copytree(single, tmp_path / f"{number}"))
        flip_bit(copy / where, random.Random(number))
        status, told, _ = run("check", copy, "--json")
        assert (status, path.name in told or "table" in told) == (1, True), (where, told)
        report = repair(copy, now_ns=NOW_NS + 9)
        assert report.mended, where
        assert not any(one.lost for one in report.mended), (where, report.mended)
        mended = Archive.open(copy)
        assert (values(mended), mended.files(), mended.described_by, mended.stations) == expected, where
        assert wrong(copy) == [], where
        shutil.rmtree(copy)
    assert {"", "checksums", "spares/manifests", "spares/snapshots", "store/chunks", "store/manifests",
            "store/snapshots"} <= {"" if kind == "." else kind for kind in kinds}  # fmt: skip


@pytest.mark.parametrize("kind", ["manifests", "snapshots", "checksums"])
def test_commits_that_cannot_be_told_any_more_are_done_again(later: Path, tmp_path: Path, kind: str) -> None:
    """What leads to the newest chunks is damaged, as are spares: main goes back, and raw copies bring the rest."""
    expected = values(Archive.open(later))
    lost = [path for path in sums_of_newest(Archive.open(later)) if path.parent.name == kind]
    assert lost
    restored = 0
    for number, path in enumerate(lost[:4]):
        copy = tmp_path / f"{number}"
        shutil.copytree(later, copy)
        shutil.rmtree(copy / "spares")
        flip_bit(copy / path.relative_to(later), random.Random(number))
        report = repair(copy, now_ns=NOW_NS + 9)
        if any("what 1 raw copies are" in one for one in report.warnings):
            # The ledger of files cannot be read, or nothing of the snapshot: then this is said.
            assert any(one.lost for one in report.mended)
            continue
        restored += 1
        for name, columns in values(Archive.open(copy)).items():
            for which, one, other in zip(WHICH, columns, expected[name], strict=True):
                assert one == other, (path, name, which, report)
        assert [one for one in wrong(copy) if "raw" in one] == []
    assert kind == "snapshots" or restored >= len(lost[:4]) // 2


def test_one_damaged_raw_copy_costs_no_more_than_itself(made: Path, tmp_path: Path) -> None:
    copy, chosen = tmp_path / "copy", random.Random(9)
    shutil.copytree(made, copy)
    entry = Archive.open(copy).files()[0]
    flip_bit(copy_path(copy / "raw", entry.sha256), random.Random(1))
    for path in chunks_of_readings(copy)[:6]:
        flip(path, chosen)
    report = repair(copy, now_ns=NOW_NS + 9)
    assert report.restored > 0
    assert any(entry.name in one and "cannot be read again" in one for one in report.warnings)


def test_a_deployment_of_a_stream_that_lost_a_bit_is_read_from_its_spare(tmp_path: Path) -> None:
    archive, deployment = made_for_stream(tmp_path)
    journal = archive / STREAM / DEPLOYMENTS
    deploy(journal, tmp_path / "deployment.toml", first=1)
    (path,) = journal.glob("*.json")
    (spare,) = journal.glob("*.spare")
    truth = read_versions(journal)[0].text
    chosen = random.Random(4)
    for damaged in (path, spare) * 20:
        before = damaged.read_bytes()
        place = chosen.randrange(len(before))
        damaged.write_bytes(before[:place] + bytes([before[place] ^ 1 << chosen.randrange(8)]) + before[place + 1 :])
        assert read_versions(journal)[0].text == truth
        damaged.write_bytes(before)
    for damaged in (path, spare):
        damaged.write_bytes(b"")
        named = [one.where for one in Archive.open(archive).check() if one.kind == "damaged"]
        assert named == [str(damaged.relative_to(archive))]
        assert [one.where for one in repair(archive, now_ns=NOW_NS).mended] == named
    path.unlink()
    assert read_versions(journal)[0].text == truth
    assert len(repair(archive, now_ns=NOW_NS).mended) == 1
    # Who wrote another was killed before its spare.
    before = spare.read_bytes()
    write_twice(path, {"text": truth + "\n", "path": "p"})
    spare.write_bytes(before)
    assert [one.where for one in repair(archive, now_ns=NOW_NS).mended] == [str(spare.relative_to(archive))]
    assert spare.read_bytes() == path.read_bytes()
    write_twice(path, {"text": truth, "path": str(tmp_path / "deployment.toml")})
    assert read_versions(journal)[0].deployment == deployment
    for damaged in (path, spare):
        damaged.write_bytes(b"{")
    with pytest.raises(DamagedArchive, match="and its spare are others than they were"):
        read_versions(journal)
    assert [one.lost for one in repair(archive, now_ns=NOW_NS).mended] == [True]
    # As an older program wrote it.
    path.write_text(json.dumps({"text": truth, "path": str(path)}))
    spare.unlink()
    assert read_versions(journal)[0].text == truth
    assert repair(archive, now_ns=NOW_NS).mended == []


@pytest.mark.parametrize("corrected_after", [3, 6])
def test_a_later_file_still_amends_what_a_stream_brought_before(tmp_path: Path, corrected_after: int) -> None:
    archive, deployment = made_for_stream(tmp_path)
    deploy(archive / STREAM / DEPLOYMENTS, tmp_path / "deployment.toml", first=1)
    sent = messages(("1", "3"), until_h=4.0)
    write_spool(archive / "spool", sent, at_once=30, segment_bytes=20_000)
    end(archive)
    loop = Loop(archive, deployment, batch_bytes=10_000)
    for _ in range(corrected_after):
        loop.step(upto=len(sent))
    before = [one.id for one in Archive.open(archive).snapshots]
    corrected = tmp_path / "corrected"
    corrected.mkdir()
    rows = [json.loads(one.payload) for one in sent[:4]]
    lines = [{"station": row["station"], "time": row["time"], "wind_speed": 77.0 + k} for k, row in enumerate(rows)]
    (corrected / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    write_deployment(corrected, arrivals=False)
    ingest([corrected], archive, now_ns=sent[len(sent) // 2].arrival_ns, engine="inprocess")
    loop.run()
    (archive / STREAM / CHECKPOINT).mkdir(parents=True)
    (archive / STREAM / CHECKPOINT / "metadata").write_text('{"id": "id"}')
    truth = everything(archive)
    assert sum(one[0] in (77.0, 78.0, 79.0, 80.0) for key, one in truth.items() if not key[2]) == 4
    # All commits are gone but some of the stream's, or all but that which made the archive; the newest can be read.
    kept = before if corrected_after == 3 else before[-1:]
    newest = [path for path in sums_of_newest(Archive.open(archive)) if path.parent.name == "manifests"]
    for one in Archive.open(archive).snapshots[1:]:
        if one.id not in kept:
            (archive / "store" / "snapshots" / one.id).write_bytes(b"")
    brought = 0
    for number, path in enumerate(newest):
        copy = Path(shutil.copytree(archive, tmp_path / f"copy-{number}"))
        (copy / path.relative_to(archive)).write_bytes(b"")
        shutil.rmtree(copy / "spares")
        report = repair(copy, now_ns=NOW_NS)
        if any("raw copies are" in one for one in report.warnings) or not report.restored:
            continue
        brought += 1
        assert begin_anew(copy)
        Loop(copy, deployment, stream="second", replayed=replayed(copy)).run()
        assert everything(copy) == truth, report
        assert verify(Archive.open(copy)).lost == []
        if brought == 2:
            break
    assert brought


def test_a_stream_whose_commits_are_gone_begins_anew(tmp_path: Path) -> None:
    archive, deployment = made_for_stream(tmp_path)
    deploy(archive / STREAM / DEPLOYMENTS, tmp_path / "deployment.toml", first=1)
    sent = messages(("1", "3", "6", "9"), until_h=4.0)
    write_spool(archive / "spool", sent, at_once=30)
    end(archive)
    Loop(archive, deployment, batch_bytes=10_000).run()
    (archive / STREAM / CHECKPOINT).mkdir(parents=True)
    (archive / STREAM / CHECKPOINT / "metadata").write_text('{"id": "id"}')
    expected = everything(archive)
    (archive / "store" / "snapshots" / Archive.open(archive).snapshot).write_bytes(b"")
    shutil.rmtree(archive / "spares")
    with wait_for_lock(archive / STREAM / "lock"), pytest.raises(ArchiveConflict, match="end it, then repair"):
        repair_at_once(archive, now_ns=NOW_NS)
    report = repair(archive, now_ns=NOW_NS)
    assert any("begins anew" in one for one in report.warnings)
    assert not (archive / "repair.json").exists()
    assert everything(archive) != expected
    assert begin_anew(archive)
    Loop(archive, deployment, stream="second", replayed=replayed(archive)).run()
    assert everything(archive) == expected


def test_a_repair_that_is_killed_is_gone_on_with(later: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = values(Archive.open(later))
    copy = tmp_path / "copy"
    shutil.copytree(later, copy)
    lost = [path for path in sums_of_newest(Archive.open(later)) if path.parent.name == "manifests"]
    names = {path.name for path in lost}

    def killed(*_some: object, **_more: object) -> int:
        raise KeyboardInterrupt

    for path in lost:
        shutil.rmtree(copy)
        shutil.copytree(later, copy)
        (copy / path.relative_to(later)).write_bytes(b"")
        shutil.rmtree(copy / "spares")
        with monkeypatch.context() as patched:
            patched.setattr("ingest.repair.restore_values.commit_again", killed)
            with pytest.raises(KeyboardInterrupt):
                repair_at_once(copy, now_ns=NOW_NS + 9)
        if json.loads((copy / "repair.json").read_text())["files"]:
            break
    else:
        pytest.fail(f"no ledger could be read without one of {names}")
    repair(copy, now_ns=NOW_NS + 10)
    assert values(Archive.open(copy)) == expected
    assert not (copy / "repair.json").exists()


def sums_of_newest(archive: Archive) -> list[Path]:
    """Return the files that lead to the chunks of the newest snapshot and of no older one."""
    sums = archive.path / "checksums"
    named = {path.name: path.read_text() for path in sums.iterdir()}
    newest = named[archive.snapshot]
    older = "".join(text for name, text in named.items() if name != archive.snapshot)
    files = [path for path in (archive.path / "store").rglob("*") if path.name in newest and path.name not in older]
    return [*(path for path in sorted(files) if path.is_file()), sums / archive.snapshot]


def flip_bit(path: Path, chosen: random.Random) -> None:
    data = bytearray(path.read_bytes())
    data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)


def test_what_no_raw_copy_has_is_counted(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    shutil.rmtree(copy / "raw")
    expected = values(Archive.open(copy))
    largest = chunks_of(copy)[0]
    flip(largest, random.Random(1))
    with pytest.raises(DamagedArchive):
        values(Archive.open(copy))
    report = repair(copy, now_ns=NOW_NS)
    assert report.restored == 0
    assert report.lost + report.kept > 0
    after = Archive.open(copy)
    assert [one for one in wrong(copy) if "raw" not in one] == []
    left = sum(after.readings(name) for name in after.variables)
    assert left == sum(len(columns[1]) for columns in expected.values()) - report.lost


def missing(before: Readings, after: Readings) -> dict[tuple[str, str], list[int]]:
    """Return the stamps that the one has and the other has not, by station and source."""
    left = {(after.series[k], stamp) for k, stamp in zip(after.index.tolist(), after.time_ns.tolist(), strict=True)}
    found: dict[tuple[str, str], list[int]] = {}
    for k, stamp in zip(before.index.tolist(), before.time_ns.tolist(), strict=True):
        if (before.series[k], stamp) not in left:
            found.setdefault((before.series[k].station, before.series[k].source), []).append(stamp)
    return found


def test_what_is_gone_is_listed_by_series_and_time(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    lost_file = next(one for one in Archive.open(copy).files() if "meteo" in one.name)
    copy_path(copy / "raw", lost_file.sha256).unlink()
    before = Archive.open(copy)
    truth = {name: before.read(name) for name in before.variables}
    is_damaged = False
    for path in chunks_of(copy):
        # Flags and stamps of the block stay, so that the cells that held readings are known.
        before_flip, root = flip(path, random.Random(1)), Archive.open(copy).root
        holes = salvage.find_damage(VariableGroup.load(root.group, "air_temperature")).holes
        is_damaged = (
            len(holes) == 1 and {"flag", "offset_ns"} <= holes[0].known.keys() and "value" not in holes[0].known
        )
        if is_damaged:
            break
        path.write_bytes(before_flip)
    assert is_damaged
    report = repair(copy, now_ns=NOW_NS)
    assert report.lost > 0
    after = Archive.open(copy)
    gone = {
        (name, *series): stamps
        for name, some in truth.items()
        for series, stamps in missing(some, after.read(name)).items()
    }
    listed = {(one.variable, one.station, one.source): one for one in report.lost_readings if one.station}
    assert listed.keys() == gone.keys()
    assert {station for _, station, _ in listed} == {lost_file.name.rpartition("-")[2].removesuffix(".txt")}
    for key, stamps in gone.items():
        assert listed[key].count == len(stamps)
        assert listed[key].first_ns <= min(stamps)
        assert max(stamps) < listed[key].stop_ns
    told = report.to_dict()["lost_readings"][0]
    assert {"variable", "station", "source", "from", "to", "count"} == told.keys()
    monkeypatch.setattr("ingest.repair.restore_values.LISTED", 2)
    bounded = RepairReport("archive")
    bounded.list_lost(report.lost_readings * 5)
    assert (len(bounded.lost_readings), bounded.lost_unlisted) == (2, 5 * len(report.lost_readings) - 2)
    _show_repair(report)
    assert "Readings that are gone" in capsys.readouterr().out


def test_a_table_is_that_of_the_snapshot_before_and_a_layer_is_told(made: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    expected = values(Archive.open(copy))
    lost = set()
    for path in chunks_of(copy)[::-1]:
        if not path.exists():
            continue
        before = flip(path, random.Random(2))
        report = repair(copy, now_ns=NOW_NS)
        lost |= {one.where for one in report.mended if one.lost}
        assert wrong(copy) == [], path
        if path.exists():
            path.write_bytes(before)
        if lost >= {"layer slope"}:
            break
    assert "layer slope" in lost
    assert values(Archive.open(copy)).keys() == expected.keys()
