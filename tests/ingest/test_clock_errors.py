"""Clock errors that a deployment states are kept with the archive, whichever way its readings come."""

from pathlib import Path

import pytest

import hypergrid as hg
from hypergrid.core.clock_errors import ClockError
from ingest.job import ingest
from ingest.reprocess.reflag import run_quality
from ingest.reprocess.remap import remap
from tests.ingest.stream_loop import Loop, end, made
from tests.ingest.streamed import everything, messages, write_spool

DAY_NS = 86_400 * 10**9
DESCRIBED = """
[network]
name = "valley"
[[feed]]
name = "table"
files = "*.csv"
format = "csv"
[feed.columns]
t = {variable = "air_temperature", unit = "degC"}
"""
BOUND = (ClockError(None, 90.0),)


def describe(folder: Path, *lines: str) -> Path:
    path = folder / "deployment.toml"
    path.write_text("\n".join([DESCRIBED, *(["[quality.clock_error_s]", *lines] if lines else [])]), "utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    rows = [f"{station},2007-10-01T{hour:02}:00:00,{hour}" for hour in range(3) for station in ("a", "b")]
    (files / "one.csv").write_text("station,time,t\n" + "\n".join(rows) + "\n", "utf-8")
    return files


def test_a_clock_error_needs_no_new_reading(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "archive"
    describe(folder)
    ingest([folder], path, engine="inprocess", now_ns=DAY_NS)
    first = hg.open(path)
    assert "clock_errors" not in first.store.root.group.attrs
    describe(folder, "a = 90")
    report = ingest([folder], path, engine="inprocess", now_ns=2 * DAY_NS)
    assert report.snapshot == hg.open(path).snapshot != first.snapshot
    assert hg.open(path).store.clock_errors == {"a": BOUND}
    ingest([folder], path, engine="inprocess", now_ns=3 * DAY_NS)
    assert hg.open(path).snapshot == report.snapshot, "what is stated already is not committed again"
    # A deployment that does not mention the station, and reading the files again, take nothing back.
    deployment = describe(folder)
    ingest([folder], path, engine="inprocess", now_ns=4 * DAY_NS)
    remap(path, now_ns=5 * DAY_NS)
    assert hg.open(path).store.clock_errors == {"a": BOUND}
    describe(folder, "a = 0", "b = 90")
    run_quality(path, deployment=deployment, now_ns=6 * DAY_NS)
    assert hg.open(path).store.clock_errors == {"a": (ClockError(None, 0.0),), "b": BOUND}
    describe(folder, "b = 30")
    remap(path, deployment=deployment, now_ns=7 * DAY_NS)
    assert hg.open(path).store.clock_errors["b"] == (ClockError(None, 30.0),)


def test_a_clock_error_comes_with_the_first_readings(folder: Path, tmp_path: Path) -> None:
    describe(folder, "b = 90")
    ingest([folder], tmp_path / "archive", engine="inprocess", now_ns=DAY_NS)
    archive = hg.open(tmp_path / "archive")
    result = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()
    assert result.attrs["hypergrid_clock_cells"] == "2007-10-01T00:00Z to 2007-10-01T02:00Z"
    made = hg.lineage(result, {"time": "2007-10-01T01:00", "station": "b"}, archive)
    assert made.uncertain[["clock_error_s", "used"]].to_numpy().tolist() == [[90.0, True], [90.0, False]]
    assert "(b: 90 s): 1 readings of this cell may belong to another, and 1 of others to this one" in made.describe()
    exact = hg.lineage(result, {"time": "2007-10-01T01:00", "station": "a"}, archive)
    assert not len(exact.uncertain)


def test_a_stream_keeps_clock_errors_and_every_reading(tmp_path: Path) -> None:
    sent, archives = messages(["3", "7", "9"], until_h=3.0), []
    for name, more in (("right", ""), ("wrong", '\n[quality.clock_error_s]\n"7" = 300\n')):
        (tmp_path / name).mkdir()
        archive, deployment = made(tmp_path / name, more=more)
        write_spool(archive / "spool", sent)
        end(archive)
        loop = Loop(archive, deployment)
        ledger = loop.run()
        assert ledger.held == 0
        archives.append(archive)
    right, wrong = archives
    assert everything(right) == everything(wrong)
    assert hg.open(right).store.clock_errors == {}
    assert hg.open(wrong).store.clock_errors == {"7": (ClockError(None, 300.0),)}
