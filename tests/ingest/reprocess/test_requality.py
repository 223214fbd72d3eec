"""Quality on the way in, and once more with other parameters: files to flags, by Python and by the command line."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.cli.main import main
from hypergrid.core.clock_errors import ClockError
from hypergrid.core.errors import ArchiveConflict, InvalidDeployment, NotFound
from hypergrid.core.flags import FAIL, TESTS
from ingest.job import IngestReport, ingest
from ingest.reprocess import reflag
from ingest.reprocess.reflag import run_quality
from station_data.generate import generate
from tests.support.archive_counts import count_content

NOW_NS = 1_200_000_000 * 10**9
DAYS = 3


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quality") / "stations"
    generate(folder, days=DAYS, seed=77, start="2007-09-21", stations=24, formats=("sensorscope",))
    return folder


@pytest.fixture(scope="module")
def ingested(network: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, IngestReport]:
    folder = tmp_path_factory.mktemp("ingested") / "a"
    return folder, ingest([network], folder, engine="inprocess", now_ns=NOW_NS)


@pytest.fixture
def archive(ingested: tuple[Path, IngestReport], tmp_path: Path) -> Archive:
    return Archive.open(shutil.copytree(ingested[0], tmp_path / "a"))


def _deployment(network: Path, folder: Path, more: str) -> Path:
    text = (network / "deployment.toml").read_text().replace('arrivals = "arrivals.csv"\n', "")
    path = folder / "new.toml"
    path.write_text(text + more)
    return path


def test_the_same_tests_once_more_change_nothing(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    # In small pieces, which see what lies around them.
    monkeypatch.setattr(reflag, "READINGS_AT_ONCE", 9_000)
    report = run_quality(archive.path, now_ns=NOW_NS)
    assert (report.changed, report.snapshot, report.before) == (0, None, report.after)
    skipped = [name for name, counts in report.after.items() if counts.get("isolated")]
    assert report.skipped == ({"air_temperature": {"isolated": len(skipped)}} if skipped else {})
    assert report.to_dict()["skipped"] == report.skipped
    assert report.readings == sum(one["readings"] for one in count_content(archive).values())
    assert archive.latest().snapshot == archive.snapshot


def test_other_parameters_are_another_snapshot_of_the_same_values(
    archive: Archive, network: Path, tmp_path: Path
) -> None:
    more = """
[quality.air_temperature]
gross_range = {suspect = [-60, 8]}
spike = false
[quality.wind_speed]
gross_range = false
spike = false
flat_line = false
gap = false
"""
    report = run_quality(archive.path, deployment=_deployment(network, tmp_path, more), now_ns=NOW_NS + 1)
    newest = archive.latest()
    assert report.snapshot == newest.snapshot != archive.snapshot
    assert newest.snapshots[0].metadata["flags"] == report.changed > 0
    assert set(newest.snapshots[0].metadata["slices"]) == {"air_temperature", "wind_speed"}
    for name in archive.variables:
        old, new = archive.read(name, tests=True), newest.read(name, tests=True)
        np.testing.assert_array_equal(old.value, new.value)
        np.testing.assert_array_equal(old.arrival_ns, new.arrival_ns)
        assert len(newest.read(name, superseded=True)) == 0
        if name == "air_temperature":
            warm = (new.value > 8.0) & (new.flag != 9)
            assert (new.flag[warm] >= 3).all()
            assert not ((new.tests_or_none_set() >> TESTS.index("spike")) & 1).any()
        elif name == "wind_speed":
            assert set(new.flag.tolist()) == {2, 9}
        else:
            np.testing.assert_array_equal(old.flag, new.flag)
    kept = newest.quality["air_temperature"]
    assert kept["gross_range"]["suspect"] == [-60.0, 8.0]  # type: ignore[index]
    assert "spike" not in kept  # type: ignore[operator]
    assert sum(one.get("gross_range", 0) for one in report.after.values()) > 1000
    # Without a file, the archive's own parameters hold: nothing changes.
    again = run_quality(archive.path, now_ns=NOW_NS + 2)
    assert (again.changed, again.snapshot) == (0, None)


def test_one_variable_alone(archive: Archive, network: Path, tmp_path: Path) -> None:
    more = "\n[quality.air_temperature]\ngross_range = {suspect = [-60, 8]}\n[quality.wind_speed]\nspike = false\n"
    path = _deployment(network, tmp_path, more)
    run_quality(archive.path, deployment=path, variables=("wind_speed",), now_ns=NOW_NS)
    newest = archive.latest()
    assert set(newest.snapshots[0].metadata["slices"]) <= {"wind_speed"}
    assert newest.quality["air_temperature"] == archive.quality["air_temperature"]
    with pytest.raises(NotFound, match="did you mean 'wind_speed'"):
        run_quality(archive.path, variables=("wind_sped",), now_ns=NOW_NS)


def test_what_cannot_be_used_commits_nothing(archive: Archive, network: Path, tmp_path: Path) -> None:
    path = _deployment(network, tmp_path, "\n[quality.wind_speed]\nspike = {suspect = -3}\n")
    with pytest.raises(InvalidDeployment, match="quality.wind_speed.spike.suspect"):
        run_quality(archive.path, deployment=path, now_ns=NOW_NS)
    path = _deployment(network, tmp_path, "")
    path.write_text(path.read_text().replace("[network]\nname = ", "[network]\nname = 'other' #"))
    with pytest.raises(ArchiveConflict, match="is of network"):
        run_quality(archive.path, deployment=path, now_ns=NOW_NS)
    assert archive.latest().snapshot == archive.snapshot


def test_a_clock_is_told_and_corrected_only_when_told(
    ingested: tuple[Path, IngestReport], network: Path, tmp_path: Path
) -> None:
    folder, report = ingested
    [told] = [text for text in report.warnings if "solar noon" in text]
    station = told.split()[3]
    assert f'likely +02:00 from the declared zone; mend the timezone of its feed, or give "{station}" = -2' in told
    path = _deployment(network, tmp_path, f'\n[quality.clock_shift_h]\n"{station}" = -2\n')
    mended = ingest([network], tmp_path / "b", deployment=path, engine="inprocess", now_ns=NOW_NS)
    assert not [text for text in mended.warnings if "solar noon" in text]
    before, after = Archive.open(folder), Archive.open(tmp_path / "b")
    for name in ("solar_radiation", "air_temperature"):
        number = [one.station for one in before.series(name)].index(station)
        old, new = (one.read(name, series=np.array([number])) for one in (before, after))
        np.testing.assert_array_equal(old.time_ns - 7200 * 10**9, new.time_ns)
        np.testing.assert_array_equal(old.value, new.value)
    others = [n for n, one in enumerate(before.series("air_temperature")) if one.station != station]
    old, new = (one.read("air_temperature", series=np.array(others)) for one in (before, after))
    np.testing.assert_array_equal(old.time_ns, new.time_ns)


def test_a_clock_that_is_off_is_bounded_on_request(archive: Archive, network: Path, tmp_path: Path) -> None:
    assert archive.clock_errors == {}
    path = _deployment(network, tmp_path, "\n[quality]\nbound_clocks = true\n")
    [warning] = run_quality(archive.path, deployment=path, now_ns=NOW_NS).warnings
    bound = {warning.split()[3]: (ClockError(None, 3 * 3600.0),)}
    assert archive.latest().clock_errors == bound
    # A batch ingest does the same, and a bound that is stated counts.
    ingest([network], tmp_path / "b", deployment=path, engine="inprocess", now_ns=NOW_NS)
    assert Archive.open(tmp_path / "b").clock_errors == bound
    [station] = bound
    path = _deployment(
        network, tmp_path, f'\n[quality]\nbound_clocks = true\n[quality.clock_error_s]\n"{station}" = 7500\n'
    )
    run_quality(archive.path, deployment=path, now_ns=NOW_NS)
    assert archive.latest().clock_errors == {station: (ClockError(None, 7500.0),)}


def test_an_ingest_tells_what_it_found(ingested: tuple[Path, IngestReport], network: Path, tmp_path: Path) -> None:
    folder, report = ingested
    assert (
        sum(sum(one.get(word, 0) for word in ("good", "suspect", "fail", "missing")) for one in report.quality.values())
        == report.readings
    )
    archive = Archive.open(folder)
    failed = sum(int((archive.read(name).flag == FAIL).sum()) for name in archive.variables)
    assert sum(one.get("fail", 0) for one in report.quality.values()) == failed > 0
    assert dict(archive.quality["rain_meter"])["gross_range"]["fail"] == [0.0, 20_000.0]  # type: ignore[call-overload]
    off = _deployment(network, tmp_path, "\n[quality]\nrun = false\n")
    without = ingest([network], tmp_path / "b", deployment=off, engine="inprocess", now_ns=NOW_NS)
    assert set(Archive.open(tmp_path / "b").read("air_temperature").flag.tolist()) == {2, 9}
    assert dict(Archive.open(tmp_path / "b").quality) == {}
    assert without.stored == report.stored


def test_the_command_line_shows_before_and_after(
    archive: Archive,
    network: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = _deployment(network, tmp_path, "\n[quality.air_temperature]\ngross_range = {suspect = [-60, 8]}\n")

    def run(*more: str) -> int:
        monkeypatch.setattr(sys, "argv", ["hypergrid", "quality", str(archive.path), *more])
        with pytest.raises(SystemExit) as left:
            main()
        return int(str(left.value.code or 0))

    assert run("--deployment", str(path), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["changed"] > 0
    assert told["snapshot"] == archive.latest().snapshot
    assert set(told["before"]) == set(told["after"]) == set(archive.stations)
    assert run("--variable", "air_temperature") == 0
    shown = capsys.readouterr().out
    assert "Before: " in shown
    assert "After: " in shown
    assert "gross_range" in shown
    assert archive.latest().snapshot == told["snapshot"]
    assert run("--variable", "nothing") == 2
