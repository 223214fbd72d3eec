"""Stored values against raw copies: what is another, or gone, is found and comes back, and nothing else is told."""

import gzip
import json
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import Slices, Tile
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk.raw_copies import copy_path
from hypergrid.cli.main import main
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.flags import ABSENT
from ingest.deployment.deployment_file import Deployment, deploy
from ingest.job import ingest
from ingest.repair import verify_values
from ingest.repair.verify_values import RawComparisonReport, verify
from ingest.reprocess.reading_diff import RemapReport, find_readings
from ingest.reprocess.remap import remap
from ingest.streaming.stream_commit import DEPLOYMENTS, STREAM
from tests.ingest.repair.repairing import repair
from tests.ingest.stream_loop import Loop, end
from tests.ingest.stream_loop import made as made_for_stream
from tests.ingest.streamed import everything, messages, write_spool
from tests.ingest.valley import COLUMNS, deployment_text

NOW_NS = 1_790_000_000 * 10**9
ROWS = 400
KELVIN = COLUMNS.replace('"degC"', '"K"')


def run(folder: Path, archive: Path, number: int, *, offset: float = 0.0, shift: str = "", twice: bool = False) -> None:
    """Ingest a file of each station, half of whose stamps another number has, too."""
    source = folder / f"run-{number}"
    source.mkdir()
    (source / "deployment.toml").write_text(deployment_text(shift=shift))
    for station in "AB":
        stamps = np.datetime64("2024-07-01T00:00") + 5 * np.arange(ROWS) + 5 * ROWS // 2 * number
        rows = [f"{stamp},{offset + k / 10:.1f},{50 + (k + ord(station)) % 7}" for k, stamp in enumerate(stamps)]
        rows[7] = f"{stamps[7]},,"
        # A logger that gives a row twice, with another value.
        rows += [f"{stamps[20]},99.5,51"] if twice else []
        (source / f"{station}.csv").write_text("time,T,RH\n" + "\n".join(rows) + "\n")
    ingest([source], archive, engine="inprocess", now_ns=NOW_NS + number)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of three runs, of which each amends half of the one before, and one has rows twice."""
    folder = tmp_path_factory.mktemp("verifying")
    for number in range(3):
        run(folder, folder / "archive", number, offset=number, twice=number == 1)
    return folder / "archive"


@pytest.fixture
def archive(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "archive"))


def in_force(folder: Path) -> int:
    opened = Archive.open(folder)
    return sum(opened.readings(name) for name in opened.variables)


def change_cells(folder: Path, change: Callable[[Tile], None], name: str = "air_temperature") -> None:
    """Do to the cells of a variable what only a defect of a program could."""

    def changed(group: VariableGroup, _slices: Slices) -> None:
        assert group.extent is not None
        rows, columns = slice(group.extent[0], group.extent[1] + 1), slice(0, len(group.series))
        tile = group.cells.read(rows, columns)
        change(tile)
        group.cells.write(rows, columns, tile)

    with Archive.open(folder).commit(batch="defect", message="defect", now_ns=NOW_NS + 9) as writer:
        writer.mend(name, changed)


def amend_four(archive: Path) -> None:
    """Replace four readings from Python."""
    opened = Archive.open(archive)
    some = opened.read("air_temperature").take_rows(slice(50, 54))
    some.value[:] = 33.0
    with opened.commit(batch="amended", message="amended", now_ns=NOW_NS + 8) as writer:
        writer.readings(some)


def read_anew_beside_amended(archive: Path, folder: Path) -> RemapReport:
    """Replace four readings from Python, then read all files anew as if they were in kelvin."""
    amend_four(archive)
    (folder / "new.toml").write_text(deployment_text(columns=KELVIN))
    return remap(archive, deployment=folder / "new.toml", now_ns=NOW_NS + 9)


def test_every_reading_of_files_that_amend_one_another_is_found(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Many windows, as of an archive of years.
    monkeypatch.setattr(verify_values, "VALUES_AT_ONCE", 300)
    found = verify(Archive.open(archive))
    assert found == RawComparisonReport(readings=in_force(archive))
    assert found.readings == 2 * 2 * 2 * ROWS


def test_values_that_are_others_are_named_and_put_right(archive: Path) -> None:
    truth = everything(archive)

    def wrong(tile: Tile) -> None:
        tile.value[100:110, 0] = 77.0

    change_cells(archive, wrong)
    assert list(Archive.open(archive).check(deep=True)) == []
    found = verify(Archive.open(archive))
    assert (found.readings, found.other) == (in_force(archive) - 10, 10)
    (defect,) = found.defects()
    assert defect.where == "air_temperature of station A (logger:T)"
    assert defect.what == (
        "10 readings of raw copies are not stored, the first at 2024-07-01T16:40Z: 1.0 there, 77.0 in the archive"
    )
    report = repair(archive, now_ns=NOW_NS + 10, deep=True)
    assert (report.restored, report.lost) == (10, 0)
    kept = Archive.open(archive).read("air_temperature", superseded=True)
    assert np.count_nonzero(kept.value == 77.0) == 10
    mended = everything(archive)
    assert {key: mended[key] for key in truth if not key[2]} == {key: truth[key] for key in truth if not key[2]}
    assert verify(Archive.open(archive)) == RawComparisonReport(readings=in_force(archive))
    assert list(Archive.open(archive).check(deep=True)) == []
    assert repair(archive, now_ns=NOW_NS + 11, deep=True).snapshot is None


def test_readings_that_are_gone_come_back_with_those_that_they_replaced(archive: Path) -> None:
    truth = everything(archive)

    def gone(tile: Tile) -> None:
        tile.value[60:90, 1], tile.flag[60:90, 1] = np.nan, ABSENT

    def forget(group: VariableGroup, _slices: Slices) -> None:
        (superseded,) = group.side.read("superseded")
        kept = np.ones(len(superseded), np.bool_)
        kept[np.flatnonzero(superseded)[:150]] = False
        group.keep_side_rows(kept)
        group.superseded -= 150
        group.readings -= 30

    change_cells(archive, gone)
    with Archive.open(archive).commit(batch="forget", message="defect", now_ns=NOW_NS + 9) as writer:
        writer.mend("air_temperature", forget)
    found = verify(Archive.open(archive))
    assert sum(one.count for one in found.lost) == 180
    assert {one.series.variable for one in found.lost} == {"air_temperature"}
    report = repair(archive, now_ns=NOW_NS + 10, deep=True)
    assert report.restored == 180
    assert everything(archive) == truth
    assert list(Archive.open(archive).check(deep=True)) == []


def test_what_was_amended_from_python_is_counted_and_left_alone(archive: Path) -> None:
    amend_four(archive)
    truth = everything(archive)
    found = verify(Archive.open(archive))
    assert (found.readings, found.other, found.lost) == (in_force(archive) - 4, 4, [])
    assert repair(archive, now_ns=NOW_NS + 10, deep=True).snapshot is None
    assert everything(archive) == truth


def test_a_file_that_was_read_anew_is_compared_as_it_was_read_last(archive: Path, tmp_path: Path) -> None:
    report = read_anew_beside_amended(archive, tmp_path)
    assert report.replaced > 0
    assert report.kept > 0
    found = verify(Archive.open(archive))
    assert found.lost == []
    assert found.other > 0


@pytest.mark.parametrize("shifts", [("", "B = 2.0"), ("B = -3.0", "B = 2.0"), ("A = 26.0", "")])
def test_each_run_is_read_by_the_shift_of_clocks_that_held_then(tmp_path: Path, shifts: tuple[str, str]) -> None:
    archive = tmp_path / "archive"
    for number, shift in enumerate(shifts):
        run(tmp_path, archive, number, offset=number, shift=f"[quality.clock_shift_h]\n{shift}" if shift else "")
    truth = everything(archive)
    assert verify(Archive.open(archive)) == RawComparisonReport(readings=in_force(archive))

    def gone(tile: Tile) -> None:
        tile.value[:], tile.flag[:] = np.nan, ABSENT

    change_cells(archive, gone)
    repair(archive, now_ns=NOW_NS + 10, deep=True)
    found = everything(archive)
    assert {key: one for key, one in found.items() if not key[2]} == {k: one for k, one in truth.items() if not k[2]}


def test_a_stream_is_compared_as_far_as_none_of_its_rows_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = messages(["2", "3"], until_h=5.0)
    archive, deployment = made_for_stream(tmp_path)
    deploy(archive / STREAM / DEPLOYMENTS, deployment.path, first=1)
    write_spool(archive / "spool", sent, at_once=30, segment_bytes=10_000)
    end(archive)
    loop = Loop(archive, deployment, batch_bytes=12_000)
    done = loop.step(upto=len(sent))
    while not done.ledger.held or not done.ledger.stored:
        done = loop.step(upto=len(sent))
    found = verify(Archive.open(archive))
    assert found.waiting_from == done.ledger.first_held
    assert found.lost == []
    assert 0 < found.readings <= in_force(archive)
    loop.run()
    monkeypatch.setattr("ingest.repair.stream_history.MOST_HELD", 500)
    assert verify(Archive.open(archive)) == RawComparisonReport(readings=in_force(archive))

    def wrong(tile: Tile) -> None:
        tile.value[tile.flag != ABSENT] += 1.0

    name = max(Archive.open(archive).variables, key=Archive.open(archive).readings)
    truth = everything(archive)
    change_cells(archive, wrong, name)
    assert sum(one.count for one in verify(Archive.open(archive)).lost) > 100
    repair(archive, now_ns=NOW_NS + 10, deep=True)
    mended = everything(archive)
    assert {key: mended[key][0] for key in truth if not key[2]} == {key: truth[key][0] for key in truth if not key[2]}


def test_the_command_says_how_much_was_compared_and_what_is_lost(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["hypergrid", "check", str(archive), "--deep", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    def wrong(tile: Tile) -> None:
        tile.value[100:110] = 77.0

    assert status() == 0
    assert f"{in_force(archive):,} readings in force are what raw copies say" in capsys.readouterr().err
    change_cells(archive, wrong)
    assert status("--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["values"]["other"] == 20
    assert [one["kind"] for one in told["defects"]] == ["values", "values"]
    assert status("--repair", "--json") == 0
    (mended,) = json.loads(capsys.readouterr().out)["repair"]["mended"]
    assert mended["what"] == "20 readings of raw copies were not stored, and are now"


def run_check(archive: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Run `check --deep`; return its status, and what people read."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["hypergrid", "check", str(archive), "--deep"])
        patch.setenv("COLUMNS", "800")
        with pytest.raises(SystemExit) as ended:
            main()
    written = capsys.readouterr()
    # Cells of a table go over several lines.
    lines = (written.out + written.err).splitlines()
    return int(ended.value.code or 0), " ".join(" ".join(lines).replace("│", " ").split())


def test_a_comparison_that_damage_prevents_is_a_defect(
    archive: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Archive.open(archive)
    (description,) = opened.described_by
    copy_path(archive / "raw", description).unlink()
    status, told = run_check(archive, capsys)
    assert status == 1
    assert "its raw copy is gone, so that none of them can be compared" in told
    assert "nothing tells how these files were read" in told
    shutil.rmtree(archive)

    def damaged(*_some: object, **_more: object) -> None:
        message = "the table of files is damaged"
        raise DamagedArchive(message)

    run(archive.parent, archive, 7)
    with monkeypatch.context() as patch:
        patch.setattr("ingest.repair.verify_values.parse_raw_copies", damaged)
        status, told = run_check(archive, capsys)
    assert (status, "is whole" in told) == (1, False)
    assert "not compared" in told
    with monkeypatch.context() as patch:
        patch.setattr("ingest.repair.verify_values._ValueComparison._compare", damaged)
        status, told = run_check(archive, capsys)
    assert (status, "is whole" in told) == (1, False)
    assert "it was not compared: the table of files is damaged" in told


def test_what_is_not_compared_by_design_is_said_with_the_result(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as older:
        older.setattr(Deployment, "mapping_of", lambda _self, _feed: "of an older program")
        run(tmp_path, tmp_path / "archive", 0)
    status, told = run_check(tmp_path / "archive", capsys)
    assert status == 0
    assert "; not all values were compared, as was said above" in told


def test_segments_that_cannot_be_read_are_told_by_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    archive, deployment = made_for_stream(tmp_path)
    deploy(archive / STREAM / DEPLOYMENTS, deployment.path, first=1)
    write_spool(archive / "spool", messages(["2"], until_h=2.0), at_once=30)
    end(archive)
    Loop(archive, deployment).run()
    assert run_check(archive, capsys)[0] == 0
    (segment,) = (archive / "spool").glob("*.spool")
    segment.write_bytes(segment.read_bytes()[:-1])
    status, told = run_check(archive, capsys)
    assert (status, "is whole" in told) == (1, False)
    assert "of a stream cannot be read again" in told
    assert f"spool/{segment.name}" in told


def test_what_is_committed_while_values_are_compared_stays(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(tile: Tile) -> None:
        tile.value[100:105, 0] = 77.0

    change_cells(archive, wrong)
    opened = Archive.open(archive)
    amended = opened.read("air_temperature").take_rows(slice(20, 400))
    amended = amended.take_rows(amended.value != 77.0)
    amended = replace(amended, value=np.where(np.isnan(amended.value), np.nan, amended.value + 50.0))
    compared = []

    def verified(some: Archive, **more: object) -> RawComparisonReport:
        found = verify(some, **more)  # type: ignore[arg-type]
        if not compared:
            with opened.commit(batch="meanwhile", message="meanwhile", now_ns=NOW_NS + 9) as writer:
                writer.readings(amended)
        compared.append(found)
        return found

    monkeypatch.setattr("ingest.repair.restore_values.verify", verified)
    repair(archive, now_ns=NOW_NS + 10, deep=True)
    assert len(compared) == 2
    now = Archive.open(archive).read("air_temperature")
    assert np.count_nonzero(now.value == 77.0) == 0
    assert np.array_equal(now.value[find_readings(now, amended)], amended.value, equal_nan=True)


def test_only_what_is_lost_is_stored(archive: Path, tmp_path: Path) -> None:
    """Readings of a file that was read anew gave way; that one beside them is lost brings none of them back."""
    read_anew_beside_amended(archive, tmp_path)
    gave_way = verify(Archive.open(archive)).gave_way
    assert gave_way > 0

    def gone(tile: Tile) -> None:
        tile.value[10, 0], tile.flag[10, 0] = np.nan, ABSENT

    change_cells(archive, gone)
    report = repair(archive, now_ns=NOW_NS + 10, deep=True)
    assert report.restored == 1
    assert np.count_nonzero(Archive.open(archive).read("air_temperature").value == 33.0) == 4
    assert verify(Archive.open(archive)).gave_way == gave_way


@pytest.mark.parametrize("name", ["A.csv.gz", "several.zip"])
def test_files_that_came_packed_are_compared(tmp_path: Path, name: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    (source / "deployment.toml").write_text(deployment_text())
    text = "time,T,RH\n" + "".join(f"2024-07-01T00:{k:02d},{k}.5,60\n" for k in range(60))
    if name.endswith(".gz"):
        (source / name).write_bytes(gzip.compress(text.encode()))
    else:
        with zipfile.ZipFile(source / name, "w") as packed, warnings.catch_warnings(action="ignore"):
            packed.writestr("B.csv", text)
            packed.writestr("B.csv", text.replace(".5", ".6"))
    ingest([source], tmp_path / "archive", engine="inprocess", now_ns=NOW_NS)
    assert in_force(tmp_path / "archive") == 120
    assert verify(Archive.open(tmp_path / "archive")) == RawComparisonReport(readings=120)


def test_a_damaged_raw_copy_costs_what_it_holds(archive: Path) -> None:
    entry = Archive.open(archive).files()[0]
    copy_path(archive / "raw", entry.sha256).write_bytes(b"")
    found = verify(Archive.open(archive))
    assert found.lost == []
    assert 0 < found.other < in_force(archive) // 2
    assert not found.is_complete
    (failed,) = found.defects()
    assert failed.kind == "not compared"
    assert f"{entry.name} cannot be read again" in failed.what


def test_an_older_ledger_that_does_not_tell_which_shift_held_is_not_guessed_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    with monkeypatch.context() as older:
        older.setattr(Deployment, "mapping_of", lambda _self, feed: feed.token())
        run(tmp_path, archive, 0)
        run(tmp_path, archive, 1, offset=1.0, shift="[quality.clock_shift_h]\nB = 2.0")
    found = verify(Archive.open(archive))
    assert (found.readings, found.lost) == (0, [])
    assert any("nothing tells how these files were read" in one for one in found.warnings)
    assert (found.is_complete, list(found.defects())) == (False, [])
    assert repair(archive, now_ns=NOW_NS + 10, deep=True).snapshot is None


def test_an_older_snapshot_is_compared_with_the_files_that_it_has(archive: Path) -> None:
    opened = Archive.open(archive)
    older = next(one for one in opened.snapshots[1:] if len(opened.at_snapshot(one.id).files()) == 4)
    found = opened.at_snapshot(older.id)
    assert verify(found) == RawComparisonReport(readings=sum(found.readings(name) for name in found.variables))
    assert list(found.check(deep=True)) == []
