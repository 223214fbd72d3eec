"""The way from the spool into the archive without Spark: equal to a batch ingest, however it is cut and replayed."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import ArchiveConflict, HyperGridError
from hypergrid.core.units import Variable
from ingest.batch.archive_session import check_units, locked_archive
from ingest.deployment.deployment_file import deploy, load, read_versions
from ingest.sources.spool import END, HEADER, REFUSED, TICK, Spool, SpoolRecord, durable, segments
from ingest.streaming.assembler import Assembler, StreamBatch, assemble_batch
from ingest.streaming.spool_decoder import parse_by_version
from ingest.streaming.stream_commit import Ledger, commit, ledger_of
from tests.ingest.stream_loop import Loop, end, expected, made
from tests.ingest.streamed import Message, everything, messages, write_spool


@pytest.fixture(scope="module")
def sent() -> list[Message]:
    return messages(("1", "3", "6", "9", "13", "21"), until_h=8.0)


@pytest.mark.parametrize("more", ["", '\n[stream]\njoin = "feed"\nidle_s = 30000\n'])
def test_the_archive_is_that_of_a_batch_ingest(tmp_path: Path, sent: list[Message], more: str) -> None:
    archive, deployment = made(tmp_path, more=more)
    write_spool(archive / "spool", sent, segment_bytes=150_000)
    end(archive)
    ledger = Loop(archive, deployment).run()
    assert everything(archive) == expected(tmp_path, sent)
    assert (ledger.came, ledger.stored, ledger.held) == (9 * len(sent), 9 * len(sent), 0)
    assert ledger == ledger_of(Archive.open(archive), "id")
    # A station that has never sent anything is not waited for, however long `idle_s`: its first upload amends slices.
    kept = sum(one.arrival_ns - json.loads(one.payload)["time"] * 10**9 > 120 * 10**9 for one in sent)
    assert 0 < ledger.late
    assert ledger.late <= kept or not more, "only rows that were kept back, or sent again, are late"
    entries = Archive.open(archive).files()
    assert [entry.name for entry in entries] == sorted(entry.name for entry in entries)
    assert len(entries) >= 1
    first, *others = [one for one, _ in segments(archive / "spool")]
    assert others == [], "segments that are done are raw copies"
    assert sum(entry.rows for entry in entries) == first - 1
    assert sum(entry.readings for entry in entries) == 9 * (first - 1)
    assert list(Archive.open(archive).check(deep=True)) == []


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent, segment_bytes=150_000)
    end(archive)
    random = np.random.default_rng(3)
    ledger = Loop(archive, deployment).run(is_lost=lambda attempt: attempt < 4 and bool(random.random() < 0.5))
    assert everything(archive) == expected(tmp_path, sent)
    assert (ledger.came, ledger.stored, ledger.held) == (9 * len(sent), 9 * len(sent), 0)
    assert list(Archive.open(archive).check(deep=True)) == []


def test_a_segment_goes_once_the_commit_that_used_it_is_on_the_disk(
    tmp_path: Path, sent: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:1500], segment_bytes=50_000)
    end(archive)
    on_disk: list[str] = []
    retired: list[Path] = []
    settle, unlink = Archive.settle, Path.unlink

    def settled(self: Archive) -> None:
        settle(self)
        on_disk.append(self.latest().snapshot)

    def gone(self: Path, *, missing_ok: bool = False) -> None:
        if self.parent.name == "spool":
            opened = Archive.open(archive)
            assert on_disk[-1] == opened.snapshot
            assert f"spool/{self.name}" in {entry.name for entry in opened.files()}
            retired.append(self)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Archive, "settle", settled)
    monkeypatch.setattr(Path, "unlink", gone)
    loop, end_seq = Loop(archive, deployment), durable(archive / "spool")
    while loop.after < end_seq:
        loop.step(upto=end_seq)
        # What Spark takes note of after a batch is on the disk.
        assert on_disk[-1] == Archive.open(archive).snapshot
    assert len(on_disk) == loop.number
    assert len(retired) > 1


def test_duplicates_replacements_rejects_and_late_rows_are_accounted_for(tmp_path: Path, sent: list[Message]) -> None:
    archive, deployment = made(tmp_path)
    changed = [
        Message(one.arrival_ns + 10**9, one.station, one.payload.replace(b'"wind_speed": ', b'"wind_speed": 1'))
        for one in sent[100:110]
    ]
    again = [*sent[:400], *sent[390:400], *changed, *sent[400:], *sent[:25]]
    write_spool(archive / "spool", again)
    with Spool.open(archive / "spool") as spool:
        spool.append(
            [
                SpoolRecord(10**18, "sensorscope", "pass/1/up", b"no JSON", kind=0),
                SpoolRecord(10**18, "sensorscope", "pass/7/up", b'{"time": 1191196835, "wind_speed": 3.5}', -1),
                SpoolRecord(10**18, "gone", "pass/1/up", b"{}", -1),
                SpoolRecord(10**18, "sensorscope", "a/b", b"too long\n{", kind=REFUSED),
                SpoolRecord(2 * 10**18, kind=END),
            ]
        )
    ledger = Loop(archive, deployment, batch_bytes=20_000).run()
    opened = Archive.open(archive)
    assert ledger.balance == 0
    assert ledger.came == 9 * len(again) + 1 + 3
    assert ledger.rejected == 3
    assert ledger.superseded == 10
    assert ledger.duplicates == 9 * 35 + 8 * 10
    assert ledger.stored == 9 * len(sent) + 1
    assert sum(opened.readings(name) for name in opened.variables) == ledger.stored
    rejects = opened.rejects()
    assert [(one.file, one.reason.partition(":")[0]) for one in rejects] == [
        ("pass/1/up", "bad JSON"), ("pass/1/up", "no such feed"), ("a/b", "too long"),
    ]  # fmt: skip
    # The topic names the station of a message that does not.
    assert "7" in opened.stations
    assert "7" in {series.station for series in opened.series("wind_speed")}


def test_who_loses_a_reading_commits_nothing(
    tmp_path: Path, sent: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent)
    end(archive)
    before = Archive.open(archive).snapshot
    monkeypatch.setattr(Assembler, "held_readings", property(lambda self: len(self)))
    with pytest.raises(HyperGridError, match="nothing was committed"):
        Loop(archive, deployment).step(upto=200)
    assert Archive.open(archive).snapshot == before


def test_growing_files_with_headers_and_whole_files(tmp_path: Path) -> None:
    text = """
[network]
name = "two"
slice_s = 60
[[feed]]
name = "table"
files = "*.csv"
format = "csv"
timezone = "UTC"
[feed.columns]
T = {variable = "air_temperature", unit = "degF"}
"""
    (tmp_path / "deployment.toml").write_text(text)
    deployment = load(tmp_path / "deployment.toml")
    with locked_archive(tmp_path / "archive", deployment, now_ns=1, on_wait=lambda: None):
        pass
    header = b"station,time,T\n"
    with Spool.open(tmp_path / "archive" / "spool") as spool:
        for count in range(3):
            line = f"7,2020-01-01T00:0{count}:00Z,{50 + count}\nspoilt,{count}\n".encode()
            spool.append(
                [
                    SpoolRecord(10**18 + count, "table", "a/x.csv", header, 1, kind=1),
                    SpoolRecord(10**18 + count, "table", "a/x.csv", line, 2 + 2 * count),
                ]
            )
        spool.append([SpoolRecord(2 * 10**18, kind=END)])
    Loop(tmp_path / "archive", deployment).run()
    opened = Archive.open(tmp_path / "archive")
    read = opened.read("air_temperature")
    assert np.allclose(read.value, (np.arange(50, 53) - 32) / 1.8)
    assert read.arrival_ns.tolist() == [10**18, 10**18 + 1, 10**18 + 2]
    assert [(one.file, one.line) for one in opened.rejects()] == [("a/x.csv", 3), ("a/x.csv", 5), ("a/x.csv", 7)]


def test_groups_that_a_deployment_no_longer_has_are_closed_and_stay_accounted_for(
    tmp_path: Path, sent: list[Message]
) -> None:
    archive, deployment = made(tmp_path)
    write_spool(archive / "spool", sent[:200])
    middle = durable(archive / "spool")
    with Spool.open(archive / "spool") as spool:
        spool.append([SpoolRecord(2 * 10**18, kind=TICK)])
    journal, path = tmp_path / "journal", tmp_path / "deployment.toml"
    deploy(journal, path, first=1)
    path.write_text(path.read_text() + '\n[stream]\njoin = "feed"\n')
    deploy(journal, path, first=middle + 1)
    states, ledgers = dict[str, Assembler](), list[Ledger]()
    for number, (after, upto) in enumerate([(0, middle), (middle, durable(archive / "spool"))]):
        found = []
        for piece in (
            one for part in parse_by_version(archive / "spool", after, upto, read_versions(journal)) for one in part
        ):
            assembler = states.setdefault(piece.group, Assembler(deployment.slice_s))
            found.append(assemble_batch(assembler, piece, [1]))
        opened = Archive.open(archive)
        ledgers.append(commit(opened, StreamBatch("id", number, found), deployment, now_ns=1).ledger)
    assert ledgers[0].held > 0
    assert (ledgers[1].came, ledgers[1].held, ledgers[1].balance) == (9 * 200, 0, 0)


def test_units_other_than_the_archives_are_refused(tmp_path: Path) -> None:
    archive, deployment = made(tmp_path)
    check_units(Archive.open(archive), deployment)
    other = replace(deployment, variables=(Variable("air_temperature", "degF"),))
    with pytest.raises(ArchiveConflict, match="keeps 'air_temperature' in"):
        check_units(Archive.open(archive), other)


def test_a_unit_that_does_not_convert_refuses_its_readings_alone(tmp_path: Path) -> None:
    path = tmp_path / "deployment.toml"
    path.write_text(
        '[network]\nname = "n"\nslice_s = 60\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\n'
        'header_lines = 2\nunit_line = 2\ncolumns = {T = "air_temperature", W = "wind_speed"}\n'
    )
    deployment = load(path)
    archive = tmp_path / "archive"
    with locked_archive(archive, deployment, now_ns=1, on_wait=lambda: None):
        pass
    header = b"station,time,T,W\n,,degF,kPa\n"
    with Spool.open(archive / "spool") as spool:
        for minute in range(4):
            line = f"A,2007-10-01T00:0{minute}:00Z,50,{minute}\n".encode()
            spool.append(
                [
                    SpoolRecord(10**18, "f", "a.csv", header, 1, HEADER),
                    SpoolRecord(10**18, "f", "a.csv", line, minute + 3),
                ]
            )
    end(archive)
    ledger = Loop(archive, deployment).run()
    assert (ledger.came, ledger.stored, ledger.rejected, ledger.balance) == (8, 4, 4, 0)
    found = Archive.open(archive)
    np.testing.assert_allclose(found.read("air_temperature").value, 10.0)
    assert len(found.rejects()) == 4
    assert all("kPa" in reject.reason and reject.column.startswith("W") for reject in found.rejects())
