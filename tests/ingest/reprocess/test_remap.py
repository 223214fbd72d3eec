"""Raw files once more: what the new description says otherwise is amended, and nothing else."""

import json
import shutil
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive, Reject, Writer
from hypergrid.cli.main import main
from hypergrid.core.errors import ArchiveConflict, InvalidQuery, NotFound
from hypergrid.core.flags import MISSING
from hypergrid.formats.readings.selection import SelectedReadings, Selection
from ingest.job import ingest
from ingest.reprocess.remap import remap
from queries.snapshots.latest import NEVER, newest_of
from queries.snapshots.station_health import assess_quality
from tests.ingest.valley import COLUMNS, deployment_text
from tests.support.archive_counts import count_content

NOW_NS = 1_790_000_000 * 10**9
LATER_NS = NOW_NS + 3600 * 10**9
ROWS = 300


def _deployment(folder: Path, columns: str = COLUMNS, *, more: str = "", run: str = "false", name: str = "new") -> Path:
    path = folder / f"{name}.toml"
    path.write_text(deployment_text(columns=columns, run=run, feed=f"interval_s = 600.0\n{more}"))
    return path


@pytest.fixture
def stations(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    folder.mkdir()
    random = np.random.default_rng(8)
    for number, name in enumerate(("A", "B")):
        stamps = np.datetime64("2024-07-01T00:00") + 10 * np.arange(ROWS)
        day = np.arange(ROWS) / 144.0
        warm = (40.0 + 8 * number + 12.0 * np.sin(2 * np.pi * day) + random.normal(0, 0.3, ROWS)).round(2)
        humid = (60.0 + 20.0 * np.cos(2 * np.pi * day) + random.normal(0, 1.0, ROWS)).round(1)
        rows = [f"{stamp},{t},{rh}" for stamp, t, rh in zip(stamps, warm, humid, strict=True)]
        rows[7] = f"{stamps[7]},-999,{humid[7]}"
        (folder / f"{name}.csv").write_text("time,T,RH\n" + "\n".join(rows) + "\n")
    return folder


def _ingested(stations: Path, tmp_path: Path, columns: str = COLUMNS, **more: str) -> Path:
    shutil.copy(_deployment(tmp_path, columns, name="old", **more), stations / "deployment.toml")
    ingest([stations], tmp_path / "a", engine="inprocess", now_ns=NOW_NS)
    return tmp_path / "a"


def _fresh(stations: Path, tmp_path: Path, deployment: Path) -> Archive:
    """Return what a new archive would be, read by the new description from the beginning."""
    shutil.copy(deployment, stations / "deployment.toml")
    ingest([stations], tmp_path / "fresh", engine="inprocess", now_ns=LATER_NS)
    return Archive.open(tmp_path / "fresh")


def assert_same_values(remapped: Archive, fresh: Archive) -> None:
    """Every value of one is in the other, with its flag; what is missing beside them was withdrawn."""
    for name in fresh.variables:
        ours, theirs = (one.read(name, tests=True) for one in (remapped, fresh))
        place = {series: number for number, series in enumerate(fresh.series(name))}
        known = np.array([place.get(series, -1) for series in ours.series])[ours.index]
        alive = ours.flag != MISSING
        assert (known[alive] >= 0).all()
        told = [
            sorted(zip(*columns, strict=True))
            for columns in (
                (known[alive], ours.time_ns[alive], ours.value[alive], ours.flag[alive]),
                (theirs.index, theirs.time_ns, theirs.value, theirs.flag),
            )
        ]
        told[1] = [row for row in told[1] if row[3] != MISSING]
        assert told[0] == told[1]


def test_a_unit_that_was_wrong(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path, run="true")
    before = Archive.open(folder)
    new = _deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"'), run="true")
    report = remap(folder, deployment=new, now_ns=LATER_NS)
    archive = before.latest()
    assert (report.files, report.files_left, report.snapshot) == (2, 0, archive.snapshot)
    assert (report.same, report.replaced, report.added, report.withdrawn) == (2 * ROWS, 2 * ROWS, 0, 0)
    assert_same_values(archive, _fresh(stations, tmp_path, new))
    assert count_content(archive)["air_temperature"]["superseded"] == report.superseded == 2 * ROWS
    np.testing.assert_array_equal(
        np.sort(archive.read("air_temperature", superseded=True).value), np.sort(before.read("air_temperature").value)
    )
    # Humidity was right: not a reading of it changed, and what had been believed can be read.
    np.testing.assert_array_equal(archive.read("relative_humidity").arrival_ns, NOW_NS)
    then = archive.as_of(LATER_NS - 1).read("air_temperature")
    np.testing.assert_array_equal(then.value, before.read("air_temperature").value)
    assert list(archive.check(deep=True)) == []


def test_once_more_changes_nothing(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    new = _deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"'))
    remap(folder, deployment=new, now_ns=LATER_NS)
    snapshot = Archive.open(folder).snapshot
    for deployment in (new, None):
        report = remap(folder, deployment=deployment, now_ns=LATER_NS + 1)
        assert (report.same, report.snapshot, report.replaced, report.withdrawn) == (4 * ROWS, None, 0, 0)
    # Nor does an ingest of the same files, as they are described now.
    shutil.copy(new, stations / "deployment.toml")
    again = ingest([stations], folder, engine="inprocess", now_ns=LATER_NS + 2)
    assert (again.files_skipped, again.snapshot) == (2, None)
    assert not [text for text in again.warnings if "another description" in text]
    assert Archive.open(folder).snapshot == snapshot


def test_back_to_what_it_was(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    old = Archive.open(folder)
    remap(folder, deployment=_deployment(tmp_path, more='timezone = "+02:00"\n'), now_ns=LATER_NS)
    report = remap(folder, deployment=tmp_path / "old.toml", now_ns=LATER_NS + 1)
    assert report.withdrawn == 2 * 2 * 12
    now = old.latest()
    assert_same_values(now, old)


def test_a_zone_that_was_wrong(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    new = _deployment(tmp_path, more='timezone = "+02:00"\n')
    report = remap(folder, deployment=new, now_ns=LATER_NS)
    archive = Archive.open(folder)
    # The last two hours, twelve rows, have no reading any more; the two before the first have some.
    assert report.withdrawn == 2 * 2 * 12
    assert report.added == 2 * 2 * 12
    assert_same_values(archive, _fresh(stations, tmp_path, new))
    assert list(archive.check(deep=True)) == []


def test_a_column_that_was_another_variable_or_series(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    columns = """
[feed.columns]
T = {variable = "surface_temperature", unit = "degC", height_m = 0.0}
RH = {variable = "relative_humidity", height_m = 2.0}
"""
    report = remap(folder, deployment=_deployment(tmp_path, columns), now_ns=LATER_NS)
    archive = Archive.open(folder)
    assert (report.added, report.withdrawn, report.replaced) == (4 * ROWS, 4 * ROWS, 0)
    assert set(archive.variables) == {"air_temperature", "relative_humidity", "surface_temperature"}
    assert count_content(archive)["air_temperature"]["values"] == 0
    assert_same_values(archive, _fresh(stations, tmp_path, _deployment(tmp_path, columns)))
    renamed = (("relative_humidity", "RH"), ("air_temperature", "T"))
    assert sorted(report.empty_series) == sorted(
        f"{name}:{station}:logger:{column}" for name, column in renamed for station in ("A", "B")
    )
    assert "series that nothing gives any more are not listed any more" in " ".join(report.warnings)
    # Of each station the series that is left is the only one, so that nothing has to be selected.
    assert [item.height_m for item in archive.list_series("relative_humidity").values()] == [2.0, 2.0]
    assert count_content(archive)["relative_humidity"]["series"] == 2
    assert not archive.list_series("air_temperature")
    opened = hg.open(folder)
    assert set(opened.variables) == {"relative_humidity", "surface_temperature"}
    for ask in (
        opened["air_temperature"].aggregate("mean", time="1h").compute,
        partial(hg.suggest, opened, "air_temperature"),
    ):
        with pytest.raises(InvalidQuery, match="'air_temperature' has no series any more: a remapping withdrew all 2"):
            ask()
    plain = hg.open(folder)["relative_humidity"].aggregate("mean", time="1h").compute()
    assert plain["value"].size == 2 * plain.sizes["time"]
    mean = hg.open(folder)["relative_humidity"].select(height_m=2.0).aggregate("mean", time="1h").compute()
    assert np.isfinite(mean["value"].values).all()


def test_series_that_were_withdrawn_before_are_listed_no_more(
    stations: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _ingested(stations, tmp_path)
    new = _deployment(tmp_path, COLUMNS.replace("air_temperature", "surface_temperature"))
    # As remappings were before they hid what they withdrew.
    with monkeypatch.context() as former:
        former.setattr(Writer, "withdraw", lambda *_, **__: None)
        remap(folder, deployment=new, now_ns=LATER_NS)
    before = Archive.open(folder)
    assert len(before.list_series("air_temperature")) == 2
    report = remap(folder, deployment=new, now_ns=LATER_NS + 1)
    assert report.empty_series == ("air_temperature:A:logger:T", "air_temperature:B:logger:T")
    assert not before.latest().list_series("air_temperature")
    assert len(before.latest().list_series("relative_humidity")) == 2
    assert remap(folder, deployment=new, now_ns=LATER_NS + 2).snapshot is None


def test_stations_and_rejects_that_hold_no_more_are_not_listed(stations: Path, tmp_path: Path) -> None:
    with (stations / "A.csv").open("a") as file:
        file.write("2024-07-31T00:00,n/v,50.0\n31.7.2024,1.0,2.0\n")
    more = 'station = "{}"\n'
    folder = _ingested(stations, tmp_path, more=more.format("mast"))
    old = Archive.open(folder)
    assert [reject.column for reject in old.rejects()] == ["T", "time"]
    # A stream of a file of this name had one, too.
    streamed = Reject("A.csv", 999, "T", "n/v", "not a number")
    with old.commit(batch="stream", message="", now_ns=NOW_NS + 1) as writer:
        writer.rejects([streamed])
    old = old.latest()
    new = _deployment(tmp_path, more='nodata = ["n/v"]\n')
    report = remap(folder, deployment=new, now_ns=LATER_NS)
    now = old.latest()
    # The station that both files were taken for is gone, and so is the cell that is missing now.
    assert set(old.stations) == {"A", "B", "mast"}
    assert set(now.stations) == {"A", "B"}
    assert (report.rejects_withdrawn, [reject.column for reject in now.rejects()]) == (1, ["time", "T"])
    assert now.rejects()[-1] == streamed
    listed = {now.series("air_temperature")[number].station for number in now.list_series("air_temperature")}
    assert listed == {"A", "B"}
    # Nor have latest values, health and exports any of it.
    newest = newest_of(now, "air_temperature", newest_of(old, "air_temperature"))
    dead = np.delete(np.arange(3), list(now.list_series("air_temperature")))
    assert (newest.time_ns[dead] == NEVER).all()
    assert (np.delete(newest.time_ns, dead) != NEVER).all()
    assert {quality.station for quality in assess_quality(now)} == {"A", "B"}
    assert set(SelectedReadings(now, Selection()).stations) == {"A", "B"}
    # What was believed before can be read with all that it had.
    then = now.as_of(LATER_NS - 1)
    assert set(then.stations) == {"A", "B", "mast"}
    assert len(then.rejects()) == 3
    assert len(then.list_series("air_temperature")) == len(then.series("air_temperature"))
    # Back again, the series are listed again: they have values.
    remap(folder, deployment=tmp_path / "old.toml", now_ns=LATER_NS + 1)
    back = old.latest()
    assert set(back.stations) == {"A", "B", "mast"}
    listed = {back.series("air_temperature")[number].station for number in back.list_series("air_temperature")}
    assert listed == {"mast"}
    assert len(back.rejects()) == 3
    assert list(back.check(deep=True)) == []


def test_no_data_that_were_taken_for_values(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    new = _deployment(tmp_path, more='nodata = ["-999"]\n')
    report = remap(folder, deployment=new, now_ns=LATER_NS)
    assert (report.replaced, report.withdrawn, report.added) == (2, 0, 0)
    assert count_content(Archive.open(folder))["air_temperature"]["missing"] == 2


def test_files_without_a_description(stations: Path, tmp_path: Path) -> None:
    ingest([stations], tmp_path / "a", engine="inprocess", now_ns=NOW_NS)
    archive = Archive.open(tmp_path / "a")
    text = _deployment(tmp_path).read_text()
    described = tmp_path / "described.toml"
    described.write_text(text.replace('name = "valley"', f'name = "{archive.name}"'))
    with pytest.raises(NotFound, match="keeps no description of its files"):
        remap(archive.path, now_ns=LATER_NS)
    report = remap(archive.path, deployment=described, now_ns=LATER_NS)
    assert (report.added, report.withdrawn) == (4 * ROWS, 4 * ROWS)
    # What the files had no unit for is in variables of their own.
    assert count_content(Archive.open(tmp_path / "a"))["air_temperature"]["values"] == 2 * ROWS


def test_what_others_wrote_stays(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    archive = Archive.open(folder)
    some = archive.read("air_temperature").take_rows(np.arange(20, 25))
    corrected = replace(some, value=some.value + 1.0, arrival_ns=some.arrival_ns + 5, tests=None)
    beyond = replace(some, time_ns=some.time_ns + 10**15, tests=None)
    with archive.commit(batch="by hand", message="by hand", now_ns=NOW_NS + 5) as writer:
        writer.readings(corrected)
        writer.readings(beyond)
    report = remap(folder, deployment=_deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"')), now_ns=LATER_NS)
    assert (report.kept, report.replaced) == (5, 2 * ROWS - 5)
    now = archive.latest().read("air_temperature")
    for given in (corrected, beyond):
        rows = np.isin(now.time_ns, given.time_ns) & (now.index == 0)
        np.testing.assert_array_equal(now.value[rows], given.value)


def test_what_came_by_streams_stays(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    archive = Archive.open(folder)
    first = archive.files()[0]
    # A segment that has the form of a file is none.
    with archive.commit(batch="segment", message="segment", now_ns=NOW_NS + 5) as writer:
        writer.files([replace(first, name="spool/segment-0000000000000001.spool")])
    report = remap(folder, deployment=_deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"')), now_ns=LATER_NS)
    assert (report.files, report.replaced) == (1, ROWS)
    assert "what came by streams (1 segments) stays as it is: only files are read again" in report.warnings


def test_later_files_go_before_earlier_ones(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    text = (stations / "A.csv").read_text().splitlines()
    text[50:60] = [f"{line.split(',')[0]},33.3,44.4" for line in text[50:60]]
    (stations / "0-again").mkdir()
    (stations / "0-again" / "A.csv").write_text("\n".join(text) + "\n")
    ingest([stations], folder, engine="inprocess", now_ns=NOW_NS + 1)
    new = _deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"'))
    before = Archive.open(folder).read("air_temperature")
    report = remap(folder, deployment=new, now_ns=LATER_NS)
    after = Archive.open(folder).read("air_temperature")
    assert (report.files, report.replaced, report.kept) == (3, 2 * ROWS, 0)
    np.testing.assert_allclose(after.value, (before.value - 32.0) / 1.8)


def test_conflicts_and_mistakes_are_told(stations: Path, tmp_path: Path) -> None:
    folder = _ingested(stations, tmp_path)
    snapshot = Archive.open(folder).snapshot
    unit = '[[variable]]\nname = "air_temperature"\nunit = "K"\n'
    kelvin = _deployment(tmp_path, COLUMNS + unit, name="kelvin")
    with pytest.raises(ArchiveConflict, match="keeps 'air_temperature' in 'degC'"):
        remap(folder, deployment=kelvin, now_ns=LATER_NS)
    slices = tmp_path / "slices.toml"
    slices.write_text(_deployment(tmp_path).read_text().replace("slice_s = 600", "slice_s = 60"))
    with pytest.raises(ArchiveConflict, match="describes 'valley' with 60 s"):
        remap(folder, deployment=slices, now_ns=LATER_NS)
    none = tmp_path / "none.toml"
    none.write_text(_deployment(tmp_path).read_text().replace('"*.csv"', '"*.dat"'))
    with pytest.raises(NotFound, match="no feed of .* gives a reading from the 2 raw files"):
        remap(folder, deployment=none, now_ns=LATER_NS)
    some = tmp_path / "some.toml"
    some.write_text(_deployment(tmp_path).read_text().replace('"*.csv"', '"A.csv"').replace("1200.0", "1300.0"))
    report = remap(folder, deployment=some, now_ns=LATER_NS)
    assert (report.files, report.files_left, report.withdrawn) == (1, 1, 0)
    assert "files that give no reading as described now stay as they are: B.csv" in report.warnings
    assert "stations stand elsewhere now, as the description says: A" in report.warnings
    assert not [path for path in (folder / "staging").iterdir() if path.is_dir()]
    assert snapshot in [one.id for one in Archive.open(folder).snapshots]


def test_the_command(
    stations: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _ingested(stations, tmp_path)
    new = _deployment(tmp_path, COLUMNS.replace('"degC"', '"degF"'))

    def run(*arguments: object) -> tuple[int | str | None, str, str]:
        monkeypatch.setattr(sys, "argv", ["hypergrid", "ingest", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        told = capsys.readouterr()
        return ended.value.code, told.out, told.err

    code, out, _ = run(folder, "--remap", "--deployment", new, "--json")
    assert code in (0, None)
    assert json.loads(out)["replaced"] == 2 * ROWS
    code, out, err = run(folder, "--remap")
    assert code in (0, None)
    assert "2 raw files" in out
    assert "nothing was committed" in err
    for wrong, said in (((folder, stations, "--remap"), "leave PATHS"), ((), "needs ARCHIVE and PATHS")):
        code, _, err = run(*wrong)
        assert code == 2
        assert said in err
