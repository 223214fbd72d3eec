"""Whole runs in this process: what arrives in the archive, what does not, and what is told."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.raw_copies import read_back
from hypergrid.core.errors import (
    ArchiveConflict,
    HyperGridError,
    InvalidDeployment,
    NotAnArchive,
    NotFound,
    Rejected,
)
from hypergrid.core.flags import MISSING, NOT_EVALUATED
from hypergrid.core.times import parse_instant
from ingest.batch.report import RunListener, check_conservation
from ingest.job import ingest

Tell = Callable[[Path], dict[str, list[tuple[object, ...]]]]


def test_every_reading_arrives_with_its_exact_time(network: Path, tmp_path: Path, now_ns: int) -> None:
    heard: list[tuple[str, float]] = []
    report = ingest(
        [network], tmp_path / "a", now_ns=now_ns, listener=RunListener(lambda name, part: heard.append((name, part)))
    )
    assert (report.stations, report.files, report.rows, report.rejects) == (3, 3, 600, {})
    assert report.readings == 5400 == report.values + report.missing == report.stored
    assert (report.engine, report.duplicates, report.superseded) == ("inprocess", 0, 0)
    archive = Archive.open(tmp_path / "a")
    assert (archive.name, archive.slice_s, archive.snapshot) == ("pass", 120.0, report.snapshot)
    slices = set()
    for station in ("1", "2", "3"):
        rows = np.loadtxt(network / f"pass-{station}.txt")
        slices |= set((rows[:, 7] // 120).tolist())
        for place, name in enumerate(("air_temperature", "surface_temperature", "solar_radiation")):
            series = archive.series(name)
            assert [one.station for one in series] == ["1", "2", "3"]
            assert series[0].source == f"sensorscope:{name}"
            index = np.array([one.station for one in series]).tolist().index(station)
            readings = archive.read(name, series=np.array([index]))
            np.testing.assert_array_equal(readings.time_ns, rows[:, 7].astype(np.int64) * 10**9)
            np.testing.assert_array_equal(readings.value, rows[:, 8 + place])
            np.testing.assert_array_equal(readings.flag == MISSING, np.isnan(rows[:, 8 + place]))
            assert not (readings.flag == NOT_EVALUATED).any()
            assert (readings.arrival_ns == now_ns).all()
    assert report.slices == len(slices)
    assert [name for name, part in heard if part == 1.0][-1] == "store"
    assert set(report.to_dict()) >= {"rows", "warnings", "seconds", "snapshot"}
    # nothing is left but the archive, and the raw files can be read again
    assert [path.name for path in (tmp_path / "a" / "staging").iterdir()] == ["lock"]
    for entry in archive.files():
        assert read_back(tmp_path / "a" / "raw", entry.sha256) == (network / entry.name).read_bytes()


def test_a_second_ingest_commits_nothing(network: Path, tmp_path: Path, now_ns: int, summarise: Tell) -> None:
    first = ingest([network], tmp_path / "a", now_ns=now_ns)
    told = summarise(tmp_path / "a")
    shutil.copy(network / "pass-1.txt", network / "same-content.txt")
    second = ingest([network], tmp_path / "a", now_ns=now_ns + 1)
    assert (second.snapshot, second.files, second.files_skipped, second.rows) == (None, 0, 4, 0)
    assert Archive.open(tmp_path / "a").snapshot == first.snapshot
    assert summarise(tmp_path / "a") == told


def test_a_file_that_grew_adds_its_new_rows(
    network: Path, tmp_path: Path, now_ns: int, make_text: Callable[..., bytes]
) -> None:
    whole = make_text("1", 200)
    (network / "pass-1.txt").write_bytes(whole[: whole.find(b"\n", 5000) + 20])
    first = ingest([network], tmp_path / "a", now_ns=now_ns)
    (network / "pass-1.txt").write_bytes(whole)
    second = ingest([network], tmp_path / "a", now_ns=now_ns)
    assert first.rejects == {"cut off": 1}
    assert second.duplicates == (first.rows - 400) * 9
    assert second.stored == (600 - first.rows) * 9


def test_arrivals_are_kept(network: Path, tmp_path: Path, now_ns: int) -> None:
    text = (network / "deployment.toml").read_text()
    (network / "deployment.toml").write_text(text.replace("interval_s = 120.0", 'arrivals = "arrivals.csv"'))
    epochs = np.loadtxt(network / "pass-2.txt", usecols=7).astype(np.int64)
    lines = [f"2,{epoch},{epoch + 17}.125" for epoch in epochs.tolist()]
    (network / "arrivals.csv").write_text("station,time,arrival\n" + "\n".join(lines[:-1]) + "\n")
    ingest([network], tmp_path / "a", now_ns=now_ns)
    readings = Archive.open(tmp_path / "a").read("rain_meter", series=np.array([1]))
    delays = readings.arrival_ns - readings.time_ns
    assert (delays[:-1] == 17_125_000_000).all()
    assert readings.arrival_ns[-1] == now_ns


FAULTY = {
    "empty.txt": (b"", [(0, "empty file: 0 bytes")], 0),
    "binary.txt": (b"\x7fELF\x00\x01", [(0, "binary: a NUL byte at byte 4")], 0),
    "cut.txt": (b"2 2007 09 20 02 00", [(1, "cut off: the file ends after 6 of 17 fields")], 1),
    "row.txt": (
        b"2 2007 09 20 02 00 02 1190246402 x 1 1 1 1 1 1 1 1\n",
        [(1, "bad number: 'x' in air_temperature")],
        1,
    ),
}


def test_bad_files_become_rejects_and_the_rest_is_ingested(network: Path, tmp_path: Path, now_ns: int) -> None:
    for name, (data, _, _) in FAULTY.items():
        (network / name).write_bytes(data)
    heard: list[str] = []
    report = ingest([network], tmp_path / "a", now_ns=now_ns, listener=RunListener(on_warning=heard.append))
    archive = Archive.open(tmp_path / "a")
    found = {reject.file: [] for reject in archive.rejects()}  # type: dict[str, list[tuple[int, str]]]
    for reject in archive.rejects():
        found[reject.file].append((reject.line, reject.reason))
    assert found == {name: rejects for name, (_, rejects, _) in FAULTY.items()}
    assert report.rejects == {"empty file": 1, "binary": 1, "cut off": 1, "bad number": 1}
    assert (report.rows, report.rows_rejected, report.cells_rejected) == (601, 1, 1)
    # The other cells of that row are those of an instant that another file has.
    assert (report.readings_rejected, report.stored, report.superseded) == (9 + 1, 5400, 8)
    assert any(text.startswith("4 rejects: ") for text in heard)
    assert list(report.warnings) == heard
    again = ingest([network], tmp_path / "a", now_ns=now_ns)
    assert (again.snapshot, again.files_skipped) == (None, 7)


@pytest.mark.parametrize("name", sorted(FAULTY))
def test_strict_refuses_any_reject_and_commits_nothing(network: Path, tmp_path: Path, now_ns: int, name: str) -> None:
    (network / name).write_bytes(FAULTY[name][0])
    with pytest.raises(Rejected, match=f"in {name}, line"):
        ingest([network], tmp_path / "deep" / "a", now_ns=now_ns, strict=True)
    assert [path.name for path in tmp_path.iterdir()] == ["network"]
    faulty = (network / name).rename(tmp_path / name)
    assert ingest([network], tmp_path / "deep" / "a", now_ns=now_ns, strict=True).stored == 5400
    before = Archive.open(tmp_path / "deep" / "a").snapshot
    faulty.rename(network / name)
    with pytest.raises(Rejected, match=f"in {name}, line"):
        ingest([network], tmp_path / "deep" / "a", now_ns=now_ns, strict=True)
    assert Archive.open(tmp_path / "deep" / "a").snapshot == before


def test_files_of_one_name_from_two_folders_are_told_apart(
    network: Path, tmp_path: Path, now_ns: int, make_text: Callable[..., bytes]
) -> None:
    for station, folder in (("1", "north"), ("2", "south")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "log.txt").write_bytes(make_text(station, 10 * int(station)) + b"spoilt\n")
    folders = [tmp_path / "north", tmp_path / "south"]
    report = ingest(folders, tmp_path / "a", deployment=network / "deployment.toml", now_ns=now_ns)
    assert (report.stored, report.rows_rejected) == (30 * 9, 2)
    archive = Archive.open(tmp_path / "a")
    assert [(entry.name, entry.rows) for entry in archive.files()] == [("north/log.txt", 10), ("south/log.txt", 20)]
    assert [(one.file, one.line) for one in archive.rejects()] == [("north/log.txt", 11), ("south/log.txt", 21)]


@pytest.mark.parametrize(
    ("text", "mapping"),
    [
        # no column that is a time: the whole file is refused
        (
            "taken,air_temperature\nday 2007/274,4\nday 2007/275,5\n",
            'time_column = "taken"\ntime_format = "day %Y/%j"',
        ),
        # rows, but no column of numbers: nothing comes of them
        ("time,air_temperature\n2007-10-01,--\n2007-10-02,--\n", 'nodata = ["--"]'),
    ],
)
def test_what_gave_nothing_is_tried_again_when_it_is_mapped(
    tmp_path: Path, now_ns: int, text: str, mapping: str
) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "buoy.csv").write_text(text)
    assert ingest([folder], tmp_path / "a", now_ns=now_ns).stored == 0
    again = ingest([folder], tmp_path / "a", now_ns=now_ns)
    assert (again.snapshot, again.files_skipped) == (None, 1)
    slice_s = Archive.open(tmp_path / "a").slice_s
    feed = f'[[feed]]\nname = "csv"\nfiles = "*.csv"\nformat = "csv"\n{mapping}\n'
    columns = '[feed.columns]\nair_temperature = {variable = "air_temperature", unit = "degC"}\n'
    network = f'[network]\nname = "lake"\nslice_s = {slice_s}\n'
    (folder / "deployment.toml").write_text(network + feed + columns)
    assert ingest([folder], tmp_path / "a", now_ns=now_ns).stored == 2
    again = ingest([folder], tmp_path / "a", now_ns=now_ns)
    assert (again.snapshot, again.files_skipped) == (None, 1)
    assert [entry.readings for entry in Archive.open(tmp_path / "a").files()] == [0, 2]
    # what gave readings is known, however it is mapped
    (folder / "deployment.toml").unlink()
    assert ingest([folder], tmp_path / "a", now_ns=now_ns).snapshot is None


def test_tables_that_go_with_the_data_are_told_and_read_where_they_are_named(tmp_path: Path, now_ns: int) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    for name in ("buoy", "stations"):
        (folder / f"{name}.csv").write_text(f"station,time,air_temperature\n{name},2007-10-01,4\n")
    (folder / "deployment.toml").write_text(
        '[network]\nname = "lake"\n[[feed]]\nname = "csv"\nfiles = "*.csv"\nformat = "csv"\n'
    )
    report = ingest([folder], tmp_path / "a", now_ns=now_ns)
    assert (report.files, report.stations) == (1, 1)
    assert any("not read: stations.csv; to read one, give its own path" in text for text in report.warnings)
    assert ingest([folder / "stations.csv"], tmp_path / "a", now_ns=now_ns).stored == 1
    (folder / "buoy.csv").unlink()
    with pytest.raises(NotFound, match=r"to read stations\.csv as data, give its own path"):
        ingest([folder], tmp_path / "b", now_ns=now_ns)


def test_a_deployment_without_coordinates_takes_no_position_away(network: Path, tmp_path: Path, now_ns: int) -> None:
    ingest([network / "pass-1.txt"], tmp_path / "a", now_ns=now_ns)
    text = (network / "deployment.toml").read_text()
    kept = [line for line in text.splitlines() if not line.startswith(("lon", "lat", "elevation_m"))]
    (network / "deployment.toml").write_text("\n".join(kept))
    ingest([network], tmp_path / "a", now_ns=now_ns)
    position = Archive.open(tmp_path / "a").stations["1"].position
    assert (position.lon, position.lat, position.elevation_m) == (7.1, 45.1, 2400.0)


def test_lines_of_rejects_count_from_the_start_of_the_file(
    network: Path, tmp_path: Path, now_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (network / "pass-1.txt").read_bytes().splitlines(keepends=True)
    lines[150] = b"spoilt\n"
    (network / "pass-1.txt").write_bytes(b"".join(lines))
    monkeypatch.setattr("ingest.batch.plan.CHUNK_BYTES", 2000)
    monkeypatch.setattr(ingest_module(), "VALUES_AT_ONCE", 500)
    ingest_report = ingest([network], tmp_path / "a", now_ns=now_ns)
    assert [(reject.file, reject.line) for reject in Archive.open(tmp_path / "a").rejects()] == [("pass-1.txt", 151)]
    assert ingest_report.stored == 599 * 9


def test_small_pieces_make_the_same_archive(
    network: Path, tmp_path: Path, now_ns: int, monkeypatch: pytest.MonkeyPatch, summarise: Tell
) -> None:
    (network / "pass-10.txt").write_bytes((network / "pass-1.txt").read_bytes().replace(b" 5", b" 6"))
    ingest([network], tmp_path / "whole", now_ns=now_ns)
    monkeypatch.setattr("ingest.batch.plan.CHUNK_BYTES", 3000)
    monkeypatch.setattr(ingest_module(), "VALUES_AT_ONCE", 700)
    ingest([network], tmp_path / "pieces", now_ns=now_ns)
    assert summarise(tmp_path / "pieces") == summarise(tmp_path / "whole")
    superseded = Archive.open(tmp_path / "whole").read("air_temperature", superseded=True)
    assert len(superseded) > 0


def ingest_module() -> object:
    return sys.modules["ingest.job"]


def test_plain_csv_needs_no_deployment(tmp_path: Path, now_ns: int) -> None:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "buoy.csv").write_text(
        "time,air_temperature,chlorophyll,remark\n" + "".join(f"2007-10-01T{h:02d}:00,{h},,fine\n" for h in range(5))
    )
    report = ingest([folder], tmp_path / "a", now_ns=now_ns)
    archive = Archive.open(tmp_path / "a")
    assert (archive.name, archive.slice_s) == ("lake", 3600.0)
    assert {name: variable.unit for name, variable in archive.variables.items()} == {
        # Nobody says that it is not in degF.
        "air_temperature": "unknown",
        "chlorophyll": "unknown",
    }
    assert np.isnan(archive.stations["buoy"].position.lon)
    readings = archive.read("air_temperature")
    assert readings.time_ns[0] == parse_instant("2007-10-01")
    assert readings.value.tolist() == [0, 1, 2, 3, 4]
    for words in ("taken as UTC", "units are unknown", "positions", "file's name: buoy.csv", "left out: remark"):
        assert sum(words in text for text in report.warnings) == 1
    # a second folder joins the archive, whatever it is called
    other = tmp_path / "pond"
    other.mkdir()
    (other / "raft.csv").write_text("station,time,chlorophyll\nraft,2007-10-01,1\n")
    assert ingest([other], tmp_path / "a", now_ns=now_ns).stored == 1


def test_a_position_that_is_known_survives_files_without_deployment(network: Path, tmp_path: Path, now_ns: int) -> None:
    ingest([network], tmp_path / "a", now_ns=now_ns)
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "x.csv").write_text("station,time,wind_speed\n1,2008-01-01,3\n")
    report = ingest([tmp_path / "more"], tmp_path / "a", now_ns=now_ns)
    assert Archive.open(tmp_path / "a").stations["1"].position.lon == 7.1
    assert any(text.endswith("wind_speed (wind_speed as m s-1, which the archive keeps)") for text in report.warnings)


def test_a_station_nobody_declared_is_told(
    network: Path, tmp_path: Path, now_ns: int, make_text: Callable[..., bytes]
) -> None:
    (network / "pass-99.txt").write_bytes(make_text("99", 3))
    report = ingest([network], tmp_path / "a", now_ns=now_ns)
    assert "stations that the deployment does not know have no position: 99" in report.warnings


def test_what_cannot_begin_is_refused_and_nothing_is_touched(network: Path, tmp_path: Path, now_ns: int) -> None:
    occupied = tmp_path / "occupied"
    occupied.mkdir()
    (occupied / "thesis.tex").write_text("precious")
    with pytest.raises(NotAnArchive):
        ingest([network], occupied, now_ns=now_ns)
    assert [path.name for path in occupied.iterdir()] == ["thesis.tex"]
    with pytest.raises(NotFound, match="no file or folder"):
        ingest([tmp_path / "nowhere"], tmp_path / "a", now_ns=now_ns)
    with pytest.raises(NotFound, match=r"nothing to ingest: no file named \*\.csv"):
        ingest([occupied], tmp_path / "a", now_ns=now_ns)
    (network / "deep").mkdir()
    (network / "deep" / "pass-1.txt").write_text("in no form that is known")
    with pytest.raises(NotFound, match="--deployment .*deployment.toml"):
        ingest([network / "deep"], tmp_path / "a", now_ns=now_ns)
    assert not (tmp_path / "a").exists()
    (network / "pass-1.txt").rename(network / "deep" / "pass-1.txt")
    report = ingest([network / "deep"], tmp_path / "a", now_ns=now_ns)
    assert any(text.startswith("a deployment file lies above them and was not used: ") for text in report.warnings)


@pytest.mark.parametrize(("old", "new"), [('name = "pass"', 'name = "col"'), ("slice_s = 120", "slice_s = 60")])
def test_another_network_does_not_mix_in(network: Path, tmp_path: Path, now_ns: int, old: str, new: str) -> None:
    ingest([network], tmp_path / "a", now_ns=now_ns)
    text = (network / "deployment.toml").read_text()
    (tmp_path / "other.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(ArchiveConflict, match=r"slices of 120 s.*describes"):
        ingest([network], tmp_path / "a", deployment=tmp_path / "other.toml", now_ns=now_ns)


def test_a_column_that_no_file_has_is_told(tmp_path: Path, now_ns: int) -> None:
    (tmp_path / "x.csv").write_text("time,Temp\n2007-10-01,1\n")
    (tmp_path / "deployment.toml").write_text(
        '[network]\nname = "n"\n[[feed]]\nname = "f"\nfiles = "*.csv"\nformat = "csv"\n'
        '[feed.columns]\nTmp = "air_temperature"\n'
    )
    with pytest.raises(InvalidDeployment, match="unknown column 'Tmp'; did you mean 'Temp'"):
        ingest([tmp_path], tmp_path / "a", now_ns=now_ns)


@pytest.mark.parametrize("where", ["stage", "store", "has_changed"])
def test_an_interruption_leaves_the_archive_as_it_was(
    network: Path, tmp_path: Path, now_ns: int, where: str, monkeypatch: pytest.MonkeyPatch, summarise: Tell
) -> None:
    ingest([network / "pass-1.txt"], tmp_path / "a", now_ns=now_ns)
    before = summarise(tmp_path / "a")

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingest_module(), where, interrupt)
        with pytest.raises(KeyboardInterrupt):
            ingest([network], tmp_path / "a", now_ns=now_ns)
    assert summarise(tmp_path / "a") == before
    assert [path.name for path in (tmp_path / "a" / "staging").iterdir()] == ["lock"]
    assert ingest([network], tmp_path / "a", now_ns=now_ns).stored == 2 * 200 * 9


def test_a_file_that_changes_while_it_is_read_is_not_committed(network: Path, tmp_path: Path, now_ns: int) -> None:
    def edit(name: str, part: float) -> None:
        if name == "parse" and part == 1.0:
            (network / "pass-1.txt").write_bytes((network / "pass-2.txt").read_bytes())

    with pytest.raises(HyperGridError, match="changed while it was read"):
        ingest([network], tmp_path / "a", now_ns=now_ns, listener=RunListener(edit))
    assert not (tmp_path / "a").exists()


def test_a_lost_reading_is_found() -> None:
    counts = {"rejected": 9, "stored": 80, "superseded": 0, "duplicates": 1}
    check_conservation(rows_in={0: (10, 9)}, **counts)
    with pytest.raises(HyperGridError, match="99 readings came and 90 were accounted for"):
        check_conservation(rows_in={0: (11, 9)}, **counts)


def test_small_inputs_start_no_spark(network: Path, tmp_path: Path, now_ns: int) -> None:
    code = (
        "import sys; from ingest.job import ingest; "
        f"ingest([{str(network)!r}], {str(tmp_path / 'a')!r}, now_ns={now_ns}); "
        "assert not [name for name in sys.modules if name.startswith(('pyspark', 'py4j'))]"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_without_java_large_inputs_are_refused_with_the_ways_out(
    network: Path, tmp_path: Path, now_ns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ingest.job.SPARK_FROM_BYTES", 10_000)
    monkeypatch.setattr("ingest.spark.session.probe", lambda executable, *, origin: None)
    # A session that other tests share needs no Java any more.
    monkeypatch.setattr("ingest.spark.session.SparkSession.getActiveSession", lambda: None)
    with pytest.raises(NotFound, match=r"Java 17 or newer.*set JAVA_HOME.*--engine inprocess"):
        ingest([network], tmp_path / "archive", now_ns=now_ns)
    assert not (tmp_path / "archive").exists()
    assert ingest([network], tmp_path / "archive", now_ns=now_ns, engine="inprocess").stored
