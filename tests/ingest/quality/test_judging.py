"""Readings that come in pieces have the flags of readings that come together."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.flags import GOOD, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.units import KNOWN_VARIABLES
from ingest.deployment.quality_overrides import DEFAULTS, QualityOverrides
from ingest.deployment.quality_settings import BuddyCheck, FlatLine
from ingest.quality.flagging import QualityFlagger
from ingest.quality.incremental import merge_stored_and_new

STEP_NS = 600 * 10**9
START_NS = int(np.datetime64("2021-03-01", "ns").astype(np.int64))
STATIONS = {
    str(n): Station(str(n), str(n), (Position(None, 7.0 + 0.01 * (n % 3), 46.0 + 0.01 * (n // 3), 1000.0 + 10 * n),))
    for n in range(8)
}
QUALITY = QualityOverrides(
    variables=(
        (
            "air_temperature",
            replace(
                DEFAULTS["air_temperature"],
                flat_line=FlatLine(hours=3.0, fail_hours=8.0, readings=6),
                buddy_check=BuddyCheck(least_spread=1.0, per_m=-0.0065, neighbours=4),
            ),
        ),
    )
)


def _network(seed: int, days: int = 3) -> Readings:
    """Eight stations every ten minutes, with spikes, flat lines, gaps, one station that is off for hours."""
    generator = np.random.default_rng(seed)
    size = days * 144
    value = 8.0 + 4.0 * np.sin(np.arange(size) / 23.0) + np.round(generator.normal(0.0, 0.2, (8, size)), 2)
    value[1, generator.integers(0, size, 6)] += 12.0
    for series, first, length in ((2, 40, 30), (3, 120, 90), (4, size - 25, 25)):
        value[series, first : first + length] = value[series, first]
    value[5, 200:260] += 9.0
    value[6, generator.integers(0, size, 4)] = -200.0
    value[7, 150:152] = np.nan
    keep = generator.random((8, size)) > 0.02
    keep[0, 100:150] = False
    series, step = np.nonzero(keep)
    stamps = START_NS + step * STEP_NS
    chosen = value[series, step]
    flag = np.where(np.isnan(chosen), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings(
        tuple(Series("air_temperature", str(n)) for n in range(8)),
        series.astype(np.int32),
        stamps,
        chosen,
        flag,
        stamps,
    )


def _archive(folder: Path) -> Archive:
    variables = [KNOWN_VARIABLES["air_temperature"]]
    return Archive.create(folder, name="n", slice_s=600, variables=variables, now_ns=0)


def _store(archive: Archive, given: Readings, batch: object, quality: QualityOverrides = QUALITY) -> QualityFlagger:
    inspector = QualityFlagger(quality, STATIONS, 600.0)
    with archive.commit(batch=str(batch), message="", now_ns=1) as writer:
        inspector.store(writer, KNOWN_VARIABLES["air_temperature"], given, lambda _: None)
    return inspector


def _flags(archive: Archive) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    found = archive.latest().read("air_temperature", tests=True)
    order = np.lexsort((found.time_ns, [int(found.series[n].station) for n in found.index]))
    return found.flag[order], found.tests_or_none_set()[order]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    archive = _archive(tmp_path_factory.mktemp("whole") / "a")
    _store(archive, _network(1), 0)
    flag, tests = _flags(archive)
    for test in ("gross_range", "spike", "flat_line", "buddy_check"):
        assert ((tests >> TESTS.index(test)) & 1).any(), test
    assert {GOOD, SUSPECT, MISSING} <= set(flag.tolist())
    return flag, tests


@pytest.mark.parametrize("way", ["hours", "stations", "backwards", "at random", "twice", "one by one"])
def test_pieces_have_the_flags_of_the_whole(
    way: str, whole: tuple[NDArray[np.uint8], NDArray[np.uint16]], tmp_path: Path
) -> None:
    given = _network(1)
    hour = (given.time_ns - START_NS) // (7 * 3600 * 10**9)
    rng = np.random.default_rng(5)
    parts = {
        "hours": [given.take_rows(hour == one) for one in np.unique(hour)],
        "stations": [given.take_rows(given.index == one) for one in range(8)],
        "backwards": [given.take_rows(hour == one) for one in np.unique(hour)[::-1]],
        "at random": [given.take_rows(np.sort(rows)) for rows in np.array_split(rng.permutation(len(given)), 6)],
        "one by one": [
            given.take_rows(stamp == one)
            for stamp in [np.maximum(given.time_ns, START_NS + 350 * STEP_NS)]
            for one in np.unique(stamp)
        ],
        "twice": [given.take_rows(hour <= 6), given.take_rows(hour >= 4)],
    }[way]
    archive = _archive(tmp_path / "a")
    gaps = sum(
        one.get("gaps", 0)
        for number, part in enumerate(parts)
        for one in _store(archive, part, number).summary.count_by_station().values()
    )
    # Station 0 is silent for eight hours; what comes in between, or comes again, sees another pause or none.
    assert gaps == 1 or way in ("backwards", "at random")
    flag, tests = _flags(archive)
    np.testing.assert_array_equal(flag, whole[0])
    np.testing.assert_array_equal(tests, whole[1])
    assert len(archive.latest().read("air_temperature", superseded=True)) == 0


@pytest.mark.parametrize("way", ["hours", "backwards", "at random"])
def test_pieces_of_counters_that_fall_have_the_flags_of_the_whole(way: str, tmp_path: Path) -> None:
    """As a stream stores them, and as they come late: a fall is found across the bounds of pieces too."""
    rng = np.random.default_rng(3)
    shown = 40.0 + np.cumsum(np.where(rng.random((4, 300)) < 0.1, 0.2, 0.0), axis=1)
    for series in range(4):
        for at in rng.integers(20, 300, 8):
            shown[series, at:] -= [0.2, 1.0, 12.0, shown[series, at]][int(rng.integers(4))]
    series, step = np.nonzero(rng.random(shown.shape) > 0.05)
    stamps = START_NS + step * STEP_NS
    names = tuple(Series("rain_meter", str(n)) for n in range(4))
    flag = np.full(len(stamps), NOT_EVALUATED, np.uint8)
    given = Readings(names, series.astype(np.int32), stamps, np.maximum(shown[series, step], 0.0), flag, stamps)
    tests = QualityOverrides(variables=(("rain_meter", replace(DEFAULTS["rain_meter"], faulty_zeros=None)),))
    hour = step // 42
    parts = {
        "hours": [given.take_rows(hour == one) for one in np.unique(hour)],
        "backwards": [given.take_rows(hour == one) for one in np.unique(hour)[::-1]],
        "at random": [given.take_rows(np.sort(rows)) for rows in np.array_split(rng.permutation(len(given)), 6)],
    }[way]
    flags = []
    for name, pieces in (("whole", [given]), ("pieces", parts)):
        variables = [KNOWN_VARIABLES["rain_meter"]]
        archive = Archive.create(tmp_path / name, name="n", slice_s=600, variables=variables, now_ns=0)
        for number, piece in enumerate(pieces):
            with archive.commit(batch=str(number), message="", now_ns=1) as writer:
                QualityFlagger(tests, STATIONS, 600.0).store(writer, variables[0], piece, lambda _: None)
        held = archive.latest().read("rain_meter", tests=True)
        order = np.lexsort((held.time_ns, [int(held.series[n].station) for n in held.index]))
        flags.append((held.flag[order], held.tests_or_none_set()[order]))
    assert np.count_nonzero((flags[0][1] >> TESTS.index("counter_fall")) & 1) > 5
    np.testing.assert_array_equal(flags[1][0], flags[0][0])
    np.testing.assert_array_equal(flags[1][1], flags[0][1])


def test_what_comes_later_revises_what_was_there(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a")
    stamps = START_NS + np.arange(60) * STEP_NS
    value = np.r_[np.linspace(3.0, 4.0, 20), np.full(40, 4.25)]
    given = Readings(
        (Series("air_temperature", "0"),), np.zeros(60, np.int32), stamps, value, np.full(60, 2, np.uint8), stamps
    )
    _store(archive, given.take_rows(slice(0, 30)), "first")
    assert set(archive.latest().read("air_temperature").flag.tolist()) == {GOOD}
    later = _store(archive, given.take_rows(slice(30, 60)), "second")
    newest = archive.latest()
    # The ten readings of the flat line that came first were good as far as one could know.
    assert later.revised == 10
    assert newest.read("air_temperature").flag.tolist() == [GOOD] * 20 + [SUSPECT] * 40
    assert newest.snapshots[0].metadata["flags"] == 10
    assert newest.snapshots[0].metadata["slices"]["air_temperature"]["first_ns"] == int(stamps[20])


def test_those_that_are_isolated_are_counted(tmp_path: Path) -> None:
    given = _network(1)
    far = {**STATIONS, "7": Station("7", "7", (Position(None, 9.0, 46.0, 1000.0),))}
    archive = _archive(tmp_path / "a")
    inspector = QualityFlagger(QUALITY, far, 600.0)
    with archive.commit(batch="b", message="", now_ns=1) as writer:
        inspector.store(writer, KNOWN_VARIABLES["air_temperature"], given, lambda _: None)
    counted = inspector.summary.count_by_station()
    assert counted["7"]["isolated"] == np.count_nonzero(given.index == 7)
    assert not any("isolated" in counted[name] for name in STATIONS if name != "7")


def test_a_reading_that_replaces_another_is_judged_in_its_place(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a")
    stamps = START_NS + np.arange(5) * STEP_NS
    series, flag = (Series("air_temperature", "0"),), np.full(5, 2, np.uint8)
    good = np.array([3.0, 3.1, 3.2, 3.3, 3.4])
    bad = np.array([3.0, 3.1, 15.0, 3.3, 3.4])
    _store(archive, Readings(series, np.zeros(5, np.int32), stamps, bad, flag, stamps), 1)
    assert archive.latest().read("air_temperature").flag.tolist() == [1, 1, 4, 1, 1]
    _store(archive, Readings(series, np.zeros(5, np.int32), stamps, good, flag, stamps), 2)
    newest = archive.latest()
    assert newest.read("air_temperature").flag.tolist() == [1] * 5
    old = newest.read("air_temperature", superseded=True, tests=True)
    assert (old.value.tolist(), old.flag.tolist()) == ([15.0], [4])
    assert old.tests_or_none_set().tolist() == [1 << TESTS.index("spike")]


def test_parameters_are_kept_beside_those_of_variables_that_do_not_come(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a")
    air, wind = ({name: KNOWN_VARIABLES[name]} for name in ("air_temperature", "wind_speed"))
    others = []
    for number, (quality, variables) in enumerate(
        [(QUALITY, air), (QUALITY, wind), (QUALITY, air), (QualityOverrides(), air)]
    ):
        inspector = QualityFlagger(quality, STATIONS, 600.0)
        with archive.latest().commit(batch=str(number), message="", now_ns=1) as writer:
            inspector.keep(writer, variables)
        others.append(set(inspector.others))
    assert dict(archive.latest().quality) == QualityOverrides().to_json({**air, **wind})
    assert others == [{"air_temperature"}, {"wind_speed"}, set(), {"air_temperature"}]


def test_without_tests_readings_stay_as_they_come(tmp_path: Path) -> None:
    archive = _archive(tmp_path / "a")
    given = _network(2)
    inspector = _store(archive, given, 1, QualityOverrides(run=False))
    np.testing.assert_array_equal(archive.latest().read("air_temperature").flag, given.flag)
    assert inspector.summary.count_by_station()["7"]["missing"] == int((given.flag[given.index == 7] == MISSING).sum())


def test_together_keeps_the_last_of_each_stamp() -> None:
    def build(rows: list[tuple[str, int, float]]) -> Readings:
        names = sorted({row[0] for row in rows})
        stamps, value = np.array([row[1] for row in rows]), np.array([row[2] for row in rows])
        index = np.array([names.index(row[0]) for row in rows], np.int32)
        series = tuple(Series("v", name) for name in names)
        return Readings(series, index, stamps, value, np.full(len(rows), 2, np.uint8), stamps).sort_rows()

    old = replace(build([("a", 1, 1.0), ("a", 2, 2.0), ("c", 1, 5.0)]), flag=np.array([3, 1, 4], np.uint8))
    new = build([("a", 1, 1.0), ("a", 2, 9.0), ("b", 1, 4.0), ("b", 1, 4.5), ("c", 3, 6.0)])
    context, came = merge_stored_and_new(old, new)
    names = [context.series[n].station for n in context.index]
    rows = list(zip(names, context.time_ns.tolist(), context.value.tolist(), context.flag.tolist(), strict=True))
    assert sorted(rows) == [("a", 1, 1.0, 3), ("a", 2, 9.0, 2), ("b", 1, 4.5, 2), ("c", 1, 5.0, 4), ("c", 3, 6.0, 2)]
    assert came.repeats.tolist() == [0, -1, -1, -1, -1]
    assert context.value[came.row].tolist() == [1.0, 9.0, 4.5, 4.5, 6.0]
    assert sorted(np.array(rows, object)[came.is_new][:, 2].tolist()) == [4.5, 6.0, 9.0]
