"""How stations are: reporting, late, dead, by stamps alone; flags counted; newer snapshots seen."""

from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import FAIL, GOOD, MISSING, SUSPECT
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.snapshots.latest import LatestValues
from queries.snapshots.station_health import HealthAssessor, SnapshotCache, StationHealth

START_NS = parse_instant("2007-10-01")
STEP_NS = 120 * SECOND_NS
NAMES = ("alive", "late", "dead", "young")


def station_health(archive: hg.OpenArchive) -> list[StationHealth]:
    """Assess the health anew."""
    return HealthAssessor().assess(archive)


def make(path: Path) -> Archive:
    made = Archive.create(
        path, name="small", slice_s=120, variables=[KNOWN_VARIABLES["air_temperature"]], now_ns=START_NS
    )
    with made.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
        writer.stations([Station(name, name, (Position(None, 7.0, 45.0, 2000.0),)) for name in NAMES])
    return made


def add(archive: Archive, stops: dict[str, int], *, begin: int = 0, batch: str = "first") -> None:
    """Commit a reading each two minutes of each station, from the `begin`-th to the one before `stop`."""
    series = tuple(Series("air_temperature", name, 2.0, interval_s=120, source="feed/t") for name in stops)
    rows = [(place, step) for place, stop in enumerate(stops.values()) for step in range(begin, stop)]
    index = np.array([place for place, _ in rows], np.int32)
    time_ns = START_NS + np.array([step for _, step in rows], np.int64) * STEP_NS
    flag = np.full(len(rows), GOOD, np.uint8)
    flag[:3] = SUSPECT, FAIL, MISSING
    value = np.where(flag == MISSING, np.nan, 1.0)
    with archive.commit(batch=batch, message=batch, now_ns=START_NS + DAY_NS) as writer:
        writer.readings(Readings(series, index, time_ns, value, flag, np.full(len(rows), START_NS + DAY_NS)))


@pytest.mark.parametrize(
    ("silent", "state"),
    # Gaps are all of 120 s: the learned interval is 360 s, death comes after 540 s.
    [(0, "reporting"), (3, "reporting"), (4, "late"), (5, "dead"), (600, "dead")],
)
def test_states_by_silence(tmp_path: Path, silent: int, state: str) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 700, "late": 700 - silent})
    found = {one.station: one for one in station_health(hg.open(tmp_path / "archive"))}
    assert found["late"].state == state
    assert found["alive"].state == "reporting"
    assert found["late"].interval_ns == 3 * STEP_NS
    assert found["late"].last_ns == START_NS + (699 - silent) * STEP_NS


def test_few_readings_tell_nothing_and_long_silence_tells_death(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 3000, "young": 5})
    found = {one.station: one for one in station_health(hg.open(tmp_path / "archive"))}
    assert found["young"].state == "dead", "nothing for two days"
    assert found["young"].interval_ns is None
    assert (found["dead"].state, found["dead"].last_ns) == ("unknown", None)


def test_flags_of_recent_readings_are_counted(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 100, "late": 100})
    found = {one.station: one for one in station_health(hg.open(tmp_path / "archive"))}
    assert (found["alive"].readings, found["alive"].missing, found["alive"].flagged) == (99, 1, 2)
    assert (found["late"].readings, found["late"].missing, found["late"].flagged) == (100, 0, 0)


def test_a_newer_snapshot_is_seen_and_the_same_one_is_not_read_again(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 100})
    health = SnapshotCache(hg.open(tmp_path / "archive"), lambda opened, _: station_health(opened))
    first = health.get_answer()
    assert health.get_answer() is first
    add(archive, {"alive": 200}, begin=100, batch="second")
    last = {one.station: one.last_ns for one in health.get_answer()}
    assert last["alive"] == START_NS + 199 * STEP_NS


def add_missing(archive: Archive, station: str, begin: int, stop: int, *, batch: str) -> None:
    """Commit a row each two minutes of one station, without a value."""
    series = (Series("air_temperature", station, 2.0, interval_s=120, source="feed/t"),)
    time_ns = START_NS + np.arange(begin, stop, dtype=np.int64) * STEP_NS
    size = len(time_ns)
    rows = Readings(
        series,
        np.zeros(size, np.int32),
        time_ns,
        np.full(size, np.nan),
        np.full(size, MISSING, np.uint8),
        time_ns + SECOND_NS,
    )
    with archive.commit(batch=batch, message=batch, now_ns=START_NS + DAY_NS) as writer:
        writer.readings(rows)


# A day is 720 rows.
@pytest.mark.parametrize(
    ("missing", "state"), [(3, "reporting"), (4, "late"), (5, "dead"), (900, "dead"), (2990, "dead")]
)
def test_a_station_that_sends_only_missing_values_does_not_report(tmp_path: Path, missing: int, state: str) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 3000, "late": 3000 - missing})
    add_missing(archive, "late", 3000 - missing, 3000, batch="missing")
    found = {one.station: one for one in station_health(hg.open(tmp_path / "archive"))}
    assert found["late"].state == state
    assert found["late"].last_ns == START_NS + (2999 - missing) * STEP_NS, "the newest value"
    assert found["late"].heard_ns == START_NS + 2999 * STEP_NS, "the newest row"
    assert found["late"].readings + found["late"].missing == 1440
    assert found["late"].missing == min(missing, 1440)
    assert found["alive"].state == "reporting"


def test_a_station_that_never_sent_a_value_is_dead(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 3000})
    add_missing(archive, "late", 0, 3000, batch="missing")
    found = {one.station: one for one in station_health(hg.open(tmp_path / "archive"))}
    assert (found["late"].state, found["late"].last_ns) == ("dead", None)
    assert found["late"].heard_ns == START_NS + 2999 * STEP_NS
    assert found["late"].variables == ("air_temperature",)


def test_values_are_counted_as_commits_come(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 700, "late": 700})
    health = SnapshotCache(hg.open(tmp_path / "archive"), lambda opened, _: station_health(opened))
    assert {one.station: one.state for one in health.get_answer()}["late"] == "reporting"
    add(archive, {"alive": 800}, begin=700, batch="second")
    add_missing(archive, "late", 700, 800, batch="third")
    found = {one.station: one for one in health.get_answer()}
    assert (found["late"].state, found["late"].last_ns) == ("dead", START_NS + 699 * STEP_NS)
    # A value that is withdrawn leaves the one before it as the newest.
    add_missing(archive, "alive", 799, 800, batch="fourth")
    assert {one.station: one for one in health.get_answer()}["alive"].last_ns == START_NS + 798 * STEP_NS


def test_health_updated_from_commits_is_that_read_anew(tmp_path: Path) -> None:
    archive = make(tmp_path / "archive")
    add(archive, {"alive": 900, "late": 700})
    opened = hg.open(tmp_path / "archive")
    newest = LatestValues(opened)
    assessor = HealthAssessor(newest)
    assert assessor.assess(opened) == station_health(opened)
    commits = [
        lambda: add(archive, {"alive": 1000, "young": 950}, begin=900, batch="readings, also of a new series"),
        lambda: add_missing(archive, "alive", 980, 1000, batch="values that are withdrawn"),
        lambda: add(archive, {"late": 720}, begin=690, batch="late readings, before the end of the window"),
        lambda: add(archive, {"alive": 5000}, begin=4000, batch="a gap, beyond the window"),
    ]
    for number, commit in enumerate(commits):
        commit()
        if number % 2:
            newest.look()
        opened = opened.latest()
        assert assessor.assess(opened) == station_health(opened), number
    assert {one.station: one.state for one in assessor.assess(opened)}["late"] == "dead"
