"""A whole archive once more: the flags of `hypergrid quality`, whatever is killed or committed meanwhile."""

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive, Branch, diff_from_log
from hypergrid.core.errors import ArchiveConflict, HyperGridError, NotFound
from hypergrid.core.flags import MISSING, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.units import Variable
from hypergrid.formats import partitioned
from ingest.job import ingest
from ingest.reprocess import job as module
from ingest.reprocess.job import ReprocessRequest, abandon
from ingest.reprocess.reflag import parameters_of, run_quality
from station_data.generate import generate
from tests.hypergrid.cli.test_archive_commands import run
from tests.ingest.reprocess.serial import reprocess
from tests.support.archive_counts import count_content

NOW_NS = 1_200_000_000 * 10**9
NEW = """
[quality.air_temperature]
gross_range = {suspect = [-60, 8]}
spike = false
[quality.relative_humidity]
flat_line = {hours = 1.0}
[quality.wind_speed]
gross_range = false
spike = false
flat_line = false
gap = false
"""


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reprocess") / "stations"
    generate(folder, days=4, seed=78, start="2007-09-21", stations=12, formats=("sensorscope",))
    text = (folder / "deployment.toml").read_text().replace('arrivals = "arrivals.csv"\n', "")
    (folder.parent / "new.toml").write_text(text + NEW)
    return folder


@pytest.fixture(scope="module")
def ingested(network: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ingested") / "a"
    ingest([network], folder, engine="inprocess", now_ns=NOW_NS)
    # Some share a cell with another: they lie in the side table, a few of them with values that no test lets pass.
    archive = Archive.open(folder)
    for name, worst in (("air_temperature", 70.0), ("wind_speed", 200.0)):
        stored = archive.read(name)
        beside = stored.take_rows(np.flatnonzero((stored.index == 2) & (stored.flag != MISSING))[100:1900:3])
        value = np.where(np.arange(len(beside)) % 50 == 7, worst, beside.value)
        beside = replace(beside, time_ns=beside.time_ns + 37 * SECOND_NS, value=value, tests=None)
        with archive.commit(batch=f"beside {name}", message="beside", now_ns=NOW_NS) as writer:
            assert writer.readings(replace(beside, flag=np.full(len(beside), 2, np.uint8))).side > 500
    run_quality(folder, now_ns=NOW_NS)
    return folder


@pytest.fixture
def archive(ingested: Path, tmp_path: Path) -> Archive:
    return Archive.open(shutil.copytree(ingested, tmp_path / "a"))


@pytest.fixture
def other(ingested: Path, tmp_path: Path) -> Archive:
    return Archive.open(shutil.copytree(ingested, tmp_path / "b"))


@pytest.fixture
def parameters(network: Path) -> Path:
    return network.parent / "new.toml"


@pytest.fixture(autouse=True)
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "READINGS_OF_A_PART", 6_000)


class Interrupted(Exception):
    """Somebody ended the run."""


class Few:
    """Two workers that die after so many parts."""

    count = 2

    def __init__(self, parts: int, then: Callable[[], None] | None = None) -> None:
        self.left, self.then = parts, then

    def map(self, work: Callable[[Any], Any], tasks: Sequence[Any]) -> list[Any]:
        self.left -= len(tasks)
        if self.left < 0:
            if self.then is None:
                raise Interrupted
            self.then()
            self.then, self.left = None, 10**9
        return [work(task) for task in tasks]


def assert_same(one: Archive, two: Archive) -> None:
    """Every column of every variable is equal, superseded readings too."""
    one, two = one.latest(), two.latest()
    assert list(one.variables) == list(two.variables)
    assert count_content(one) == count_content(two)
    for name in one.variables:
        assert one.series(name) == two.series(name)
        for superseded in (False, True):
            a, b = (each.read(name, superseded=superseded, tests=True) for each in (one, two))
            columns = (
                ("index", "time_ns", "value", "arrival_ns")
                if superseded
                else ("index", "time_ns", "value", "arrival_ns", "flag", "tests")
            )
            for column in columns:
                np.testing.assert_array_equal(getattr(a, column), getattr(b, column), f"{name} {column}")


def test_it_gives_the_flags_of_quality(archive: Archive, other: Archive, parameters: Path) -> None:
    expected = run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1)
    report = reprocess(archive.path, ReprocessRequest(quality=parameters), now_ns=NOW_NS + 1)
    assert report.judged is not None
    assert (report.judged.changed, report.judged.readings) == (expected.changed, expected.readings)
    assert report.judged.changed > 0
    assert report.judged.skipped == expected.skipped
    assert report.judged.parts >= 2 * len(archive.variables)
    assert_same(archive, other)
    newest = archive.latest()
    assert newest.snapshot == report.judged.snapshot
    assert newest.quality == other.latest().quality
    # One commit on main, that tells what it changed; no branch is left.
    assert [one.id for one in newest.snapshots] == [newest.snapshot, *(one.id for one in archive.snapshots)]
    assert newest.snapshots[0].metadata["slices"] == other.latest().snapshots[0].metadata["slices"]
    assert sum(change.readings or 0 for change in diff_from_log(newest, archive.snapshot)) == expected.changed
    assert Branch.names(archive) == ()
    assert list(newest.check()) == []


def test_counters_that_fall_are_judged_as_by_quality(archive: Archive, other: Archive, parameters: Path) -> None:
    for one in (archive, other):
        stored = one.read("rain_meter")
        rows = np.flatnonzero(stored.index == 1)[300:2300]
        fallen = stored.take_rows(rows)
        # Up to 40 mm and down by a millimetre, every seventh time: not near zero, so no reset.
        value = 40.0 + np.arange(len(rows)) % 7 * 0.2
        fallen = replace(fallen, value=value, arrival_ns=fallen.arrival_ns + 10**12, tests=None)
        with one.commit(batch="falls", message="falls", now_ns=NOW_NS + 1) as writer:
            writer.readings(replace(fallen, flag=np.full(len(rows), 2, np.uint8)))
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 2)
    reprocess(archive.path, ReprocessRequest(quality=parameters), now_ns=NOW_NS + 2)
    assert_same(archive, other)
    judged = archive.latest().read("rain_meter", tests=True)
    assert np.count_nonzero((judged.tests_or_none_set() >> TESTS.index("counter_fall")) & 1) > 200


def test_the_same_parameters_change_nothing(archive: Archive) -> None:
    report = reprocess(archive.path, ReprocessRequest(), now_ns=NOW_NS + 1)
    assert report.judged is not None
    assert (report.judged.changed, report.judged.snapshot, report.judged.before) == (0, None, report.judged.after)
    assert archive.latest().snapshot == archive.snapshot
    assert Branch.names(archive) == ()


def test_a_second_start_goes_on(archive: Archive, other: Archive, parameters: Path) -> None:
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1)
    for parts in (4, 8):
        with pytest.raises(Interrupted):
            reprocess(archive.path, ReprocessRequest(quality=parameters), workers=Few(parts), now_ns=NOW_NS + 1)
        assert archive.latest().snapshot == archive.snapshot
        # While it is not ended, what it began at does not expire.
        assert archive.maintain().held_by == Branch.names(archive) != ()
    report = reprocess(archive.path, ReprocessRequest(quality=parameters), now_ns=NOW_NS + 1)
    assert report.judged is not None
    assert report.judged.resumed == 12
    assert_same(archive, other)


def _late(archive: Archive) -> None:
    """Commit what comes meanwhile: a late spike, a replaced value, a new station, a new variable, a reject of none."""
    archive = archive.latest()
    series = archive.series("air_temperature")
    window = archive.extent("air_temperature")
    assert window is not None
    stored = archive.read("air_temperature")
    row = np.flatnonzero(stored.index == 3)[200:204]
    given = stored.take_rows(row)
    replaced = replace(given, value=given.value + 40.0, arrival_ns=given.arrival_ns + 10**12, tests=None)
    again = replace(replaced, value=given.value - 40.0, arrival_ns=given.arrival_ns + 2 * 10**12)
    humid = archive.read("relative_humidity")
    saturated = humid.take_rows(np.flatnonzero(humid.index == 2)[300:400])
    saturated = replace(saturated, value=np.full(100, 100.0), flag=np.full(100, 2, np.uint8), tests=None)
    step = 120 * SECOND_NS
    time_ns = window.stop_ns + np.arange(50) * step
    fresh = Readings(
        (*series, Series("air_temperature", "new", interval_s=120.0)),
        np.repeat(np.array([0, len(series)], np.int32), 50),
        np.tile(time_ns, 2),
        np.r_[np.linspace(5.0, 9.0, 50), np.full(50, 99.0)],
        np.full(100, 2, np.uint8),
        np.tile(time_ns + 1, 2),
    )
    with archive.commit(batch="late", message="late", now_ns=NOW_NS + 2) as writer:
        writer.stations([Station("new", "new", (Position(None, 7.17, 45.87, 2400.0),))])
        writer.variables([Variable("snow_height", "m", "", "")])
        for readings in (replaced, again, saturated, fresh):
            writer.readings(readings)
        snow = Series("snow_height", "new")
        writer.readings(
            Readings((snow,), np.zeros(50, np.int32), time_ns, np.ones(50), np.full(50, 2, np.uint8), time_ns)
        )


def test_what_is_committed_meanwhile_stays_and_is_judged(archive: Archive, other: Archive, parameters: Path) -> None:
    _late(other)
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 3)
    report = reprocess(
        archive.path, ReprocessRequest(quality=parameters), workers=Few(8, lambda: _late(archive)), now_ns=NOW_NS + 3
    )
    assert_same(archive, other)
    newest = archive.latest()
    assert report.judged is not None
    assert [one.message for one in newest.snapshots][1] == "late"
    assert newest.quality == other.latest().quality
    assert (
        count_content(newest)["air_temperature"]["superseded"] > count_content(archive)["air_temperature"]["superseded"]
    )
    assert list(newest.check()) == []


def test_a_station_that_moved_meanwhile_is_judged_where_it_stands(
    archive: Archive, other: Archive, parameters: Path
) -> None:
    def move(which: Archive = archive) -> None:
        station = next(iter(which.stations.values()))
        place = replace(station.position, elevation_m=station.position.elevation_m + 900.0)
        with which.commit(batch="move", message="move", now_ns=NOW_NS + 2) as writer:
            writer.stations([Station(station.id, station.name, (place,))])

    move(other)
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 3)
    reprocess(archive.path, ReprocessRequest(quality=parameters), workers=Few(8, move), now_ns=NOW_NS + 3)
    assert_same(archive, other)


def test_stations_that_no_neighbours_test_are_counted(archive: Archive, other: Archive, parameters: Path) -> None:
    """One without a position, one without an elevation, one far off, each in several parts of the run."""
    before = run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1).skipped
    isolated = before.get("air_temperature", {}).get("isolated", 0)
    stored = archive.read("air_temperature")
    like = stored.take_rows(np.flatnonzero(stored.index == 0))
    places = [Position(None, 7.17, 45.87, np.nan), Position(None, 40.0, 45.87, 2400.0)]
    for one in (archive, other):
        with one.commit(batch="more", message="more", now_ns=NOW_NS + 1) as writer:
            writer.stations([Station(key, key, (place,)) for key, place in zip(("flat", "far"), places, strict=True)])
            for key in ("nowhere", "flat", "far"):
                series = replace(like.series[0], station=key)
                writer.readings(replace(like, series=(series,), tests=None))
    expected = run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 2)
    report = reprocess(archive.path, ReprocessRequest(quality=parameters), now_ns=NOW_NS + 2)
    assert report.judged is not None
    assert report.judged.skipped == expected.skipped
    counted = report.judged.skipped["air_temperature"]
    assert (counted["no_position"], counted["no_elevation"]) == (1, 1)
    assert counted["isolated"] == isolated + 1
    assert report.to_dict()["judged"]["skipped"] == report.judged.skipped


def test_some_variables_and_some_time(archive: Archive, other: Archive, parameters: Path) -> None:
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1)
    window = Window.parse("2007-09-22T01:00:10", "2007-09-24T07:03")
    report = reprocess(
        archive.path,
        ReprocessRequest(quality=parameters, variables=("air_temperature",), window=window),
        now_ns=NOW_NS + 1,
    )
    newest, full = archive.latest(), other.latest()
    assert report.judged is not None
    assert set(report.judged.before) == {"air_temperature"}
    old, new, every = (one.read("air_temperature", tests=True) for one in (archive, newest, full))
    inside = (new.time_ns >= window.start_ns) & (new.time_ns < window.stop_ns)
    assert new.time_ns.min() < window.start_ns < window.stop_ns < new.time_ns.max()
    np.testing.assert_array_equal(new.flag, np.where(inside, every.flag, old.flag))
    assert report.judged.readings == inside.sum()
    assert report.judged.changed == (new.flag != old.flag).sum() > 0
    # Of a part of the time they are not the parameters of the archive.
    assert newest.quality == archive.quality
    np.testing.assert_array_equal(newest.read("wind_speed").flag, archive.read("wind_speed").flag)


def test_who_asks_wrongly_is_told(archive: Archive, parameters: Path, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="unknown variable 'air'"):
        reprocess(archive.path, ReprocessRequest(variables=("air",)), now_ns=NOW_NS)
    alien = tmp_path / "alien.toml"
    alien.write_text(parameters.read_text().replace("slice_s = 120", "slice_s = 60"))
    with pytest.raises(ArchiveConflict):
        reprocess(archive.path, ReprocessRequest(quality=alien), now_ns=NOW_NS)
    assert Branch.names(archive) == ()


def test_a_run_can_be_abandoned(archive: Archive, parameters: Path) -> None:
    with pytest.raises(Interrupted):
        reprocess(archive.path, ReprocessRequest(quality=parameters), workers=Few(2), now_ns=NOW_NS + 1)
    assert "was begun and not ended" in reprocess(archive.path, ReprocessRequest(), now_ns=NOW_NS + 1).warnings[0]
    (name,) = Branch.names(archive)
    assert name.startswith(module.BRANCHES)
    with module._exclusive_run(archive, lambda: None):
        status, _, shown = run("reprocess", archive.path, "--abandon")
    assert (status, "is at work" in shown) == (1, True)
    assert run("reprocess", archive.path, "--abandon")[0] == 0
    assert (abandon(archive.path), Branch.names(archive)) == ((), ())
    with module._exclusive_run(archive, lambda: None), pytest.raises(HyperGridError, match="is at work"):
        abandon(archive.path)


RUN = """
import sys
from pathlib import Path
from typing import Any
from ingest.reprocess import job
from tests.ingest.reprocess.serial import reprocess
job.READINGS_OF_A_PART = 6_000
tell = lambda *told: print(*told, flush=True)
reprocess(sys.argv[1], job.ReprocessRequest(quality=Path(sys.argv[2])), now_ns=int(sys.argv[3]), progress=tell)
"""


def test_killed_anywhere_it_ends_in_the_same_flags(archive: Archive, other: Archive, parameters: Path) -> None:
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1)
    random = np.random.default_rng(6)
    command = [sys.executable, "-c", RUN, str(archive.path), str(parameters), str(NOW_NS + 1)]
    kills, killed, ended = 0, 0, False
    while not ended:
        running = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert running.stdout is not None
        # From when it judges: else most kills would hit its start.
        running.stdout.readline()
        if kills < 4:
            time.sleep(random.uniform(0.0, 0.8))
            running.send_signal(signal.SIGKILL)
            kills += 1
        running.stdout.read()
        ended = running.wait() == 0
        killed += running.returncode == -signal.SIGKILL
    assert killed >= 2, "else the runs ended before they were killed"
    assert_same(archive, other)
    assert Branch.names(archive) == ()
    assert list(archive.latest().check(grace_s=10**6)) == []


def test_surfaces_go_on_where_they_were(
    archive: Archive, other: Archive, parameters: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned, "READINGS_OF_A_PIECE", 3_400)
    asked = [tmp_path / "hourly.json", tmp_path / "windy.json"]
    hourly = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}
    windy = {**hourly, "variable": "wind_speed"}
    for path, document in zip(asked, (hourly, windy), strict=True):
        path.write_text(json.dumps(document))
    run_quality(other.path, deployment=parameters, now_ns=NOW_NS + 1)
    request = module.ReprocessRequest(quality=parameters, queries=tuple(asked), out=tmp_path / "out")
    ask = partial(reprocess, archive.path, request, now_ns=NOW_NS + 1)
    # It is killed at the flags, in the first surface, and in the second: what comes late is in none of them.
    whole = len(module.ReflagJob(parameters_of(archive, parameters)[0], (), None).partitions(archive))
    for parts in (4, whole - 4 + 4, 6):
        with pytest.raises(Interrupted):
            ask(workers=Few(parts))
    assert (tmp_path / "out").is_dir()
    judged = archive.latest()
    assert judged.snapshot != archive.snapshot
    _late(archive)
    late = archive.latest().snapshot
    report = ask(workers=Few(1000))
    assert archive.latest().snapshot == late
    assert [one.snapshot for one in report.surfaces] == [judged.snapshot] * 2
    assert report.judged is not None
    assert report.judged.resumed == whole == report.judged.parts
    assert report.surfaces[0].resumed > 0
    assert report.surfaces[0].pieces > report.surfaces[0].resumed
    for one, document in zip(report.surfaces, (hourly, windy), strict=True):
        cells = hg.open(other.path).query(document).compute()[document["variable"]]
        with xr.open_dataset(one.out) as found:
            np.testing.assert_array_equal(found[document["variable"]].values, cells.values)
        assert (one.cells, one.missing) == (cells.size, int(cells.isnull().sum()))
        assert hg.again(one.out, hg.open(archive.path)).confirmed
    assert [path.name for path in (archive.path / module.FOLDER).iterdir()] == ["lock"]
