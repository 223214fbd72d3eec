"""The newest reading of every series is that of the whole archive, whatever commits bring."""

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.snapshots import latest
from queries.snapshots.latest import NEVER, LatestValues

AIR = "air_temperature"
START_NS = parse_instant("2007-10-01")


def newest(archive: hg.OpenArchive) -> dict[str, tuple[int, float, int]]:
    """Return stamp, value and flag of the newest reading of each station, read by read."""
    found: dict[str, tuple[int, float, int]] = {}
    readings = archive.store.read(AIR)
    for index, stamp, value, flag in zip(
        readings.index, readings.time_ns, readings.value, readings.flag, strict=True
    ):  # fmt: skip
        name = readings.series[index].station
        if name not in found or stamp > found[name][0]:
            found[name] = (int(stamp), float(value), int(flag))
    return found


def held(values: LatestValues) -> dict[str, tuple[int, float, int]]:
    of = values.read_newest(AIR)
    return {
        one.station: (int(stamp), float(value), int(flag))
        for one, stamp, value, flag in zip(of.series, of.time_ns, of.value, of.flag, strict=True)
        if stamp != NEVER
    }


def write(archive: Archive, number: int, rows: list[tuple[str, int, float, int]]) -> None:
    """Commit readings: station, seconds after the start, value, flag."""
    names = list(dict.fromkeys(name for name, *_ in rows))
    series = tuple(Series(AIR, name, interval_s=60.0) for name in names)
    index = np.array([names.index(name) for name, *_ in rows], np.int32)
    time_ns = START_NS + np.array([at for _, at, *_ in rows], np.int64) * SECOND_NS
    value = np.array([np.nan if flag == 9 else value for *_, value, flag in rows])
    flag = np.array([flag for *_, flag in rows], np.uint8)
    with archive.commit(batch=str(number), message="", now_ns=START_NS + number) as writer:
        writer.readings(Readings(series, index, time_ns, value, flag, time_ns + number))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    variables = [KNOWN_VARIABLES[AIR]]
    return Archive.create(tmp_path / "archive", name="made", slice_s=60, variables=variables, now_ns=START_NS)


def test_an_empty_archive_has_none(archive: Archive) -> None:
    assert held(LatestValues(hg.open(archive.path))) == {}


def test_late_new_replaced_and_missing_readings(archive: Archive) -> None:
    day_s = DAY_NS // SECOND_NS
    commits = [
        [("a", 0, 1.0, 1), ("b", 0, 2.0, 1), ("dead", -400 * day_s, 9.0, 2)],
        [("a", 120, 1.5, 1), ("a", 60, 1.2, 4)],
        [("a", 90, 7.0, 1), ("b", -60, 0.0, 1)],  # late: no newer ones
        [("a", 120, 3.5, 3)],  # replaces the newest
        [("new", 30, 4.0, 1), ("b", 600, 0.0, 9)],  # a new station, and a report without a value
        [("b", 540, 5.0, 1)],
    ]
    seconds = 0.0
    values = LatestValues(hg.open(archive.path), clock=lambda: seconds)
    for number, rows in enumerate(commits):
        write(archive, number, rows)
        seconds += 2.0
        assert not values.is_recent
        assert values.look()
        assert values.is_recent
        fresh = hg.open(archive.path)
        np.testing.assert_equal(held(values), newest(fresh))
        np.testing.assert_equal(held(LatestValues(fresh)), newest(fresh))


def test_random_commits(archive: Archive) -> None:
    rng = np.random.default_rng(8)
    values = LatestValues(hg.open(archive.path))
    for number in range(12):
        count = int(rng.integers(1, 40))
        rows = {
            (f"s{rng.integers(0, 2 + number)}", int(rng.integers(-3, 60 + 20 * number)) * 20): None
            for _ in range(count)
        }
        write(archive, number, [(*key, float(rng.normal()), int(rng.choice([1, 2, 3, 4, 9]))) for key in rows])
        values.look()
        np.testing.assert_equal(held(values), newest(hg.open(archive.path)))


def test_what_is_held_stays_at_hand_while_a_thread_reads_what_is_new(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(archive, 1, [("a", 0, 1.0, 1)])
    values = LatestValues(hg.open(archive.path))
    values.prepare()
    begun, go_on, read = threading.Event(), threading.Event(), Archive.read

    def slow(*given: Any, **options: Any) -> Readings:  # noqa: ANN401 - handed on
        begun.set()
        assert go_on.wait(60)
        return read(*given, **options)

    monkeypatch.setattr(Archive, "read", slow)
    first = values.archive.snapshot
    with values.kept_recent(every_s=0.01):
        write(archive, 2, [("a", 60, 2.0, 1)])
        assert begun.wait(60)
        with values.steady() as held_archive:
            assert held_archive.snapshot == values.read_newest(AIR).snapshot == first
        assert not values.look()
        go_on.set()
        ends = time.monotonic() + 60
        while values.archive.snapshot == first:
            assert time.monotonic() < ends
            time.sleep(0.01)
        assert held(values) == newest(hg.open(archive.path))


def test_a_thread_that_looks_goes_on_after_what_it_cannot_read(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(archive, 1, [("a", 0, 1.0, 1)])
    values = LatestValues(hg.open(archive.path))
    values.prepare()
    failed, updated = threading.Event(), latest._update_newest

    def fail_once(*given: Any) -> latest.NewestReadings:  # noqa: ANN401 - handed on
        if not failed.is_set():
            failed.set()
            message = "a chunk is cut"
            raise DamagedArchive(message)
        return updated(*given)

    monkeypatch.setattr(latest, "_update_newest", fail_once)
    write(archive, 2, [("a", 60, 2.0, 1)])
    with values.kept_recent(every_s=0.01):
        ends = time.monotonic() + 60
        while held(values) != newest(hg.open(archive.path)):
            assert time.monotonic() < ends
            time.sleep(0.01)
    assert failed.is_set()


def test_what_was_prepared_is_not_read_again(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    write(archive, 1, [("a", 0, 1.0, 2), ("b", 60, 2.0, 2)])
    values = LatestValues(hg.open(archive.path))
    values.prepare()

    def fail(*_args: object, **_options: object) -> Readings:
        raise AssertionError

    expected = newest(hg.open(archive.path))
    monkeypatch.setattr(Archive, "read", fail)
    assert held(values) == expected
