"""Flags by station and test, and rejects by reason, against counts one by one."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive, Reject
from hypergrid.core.flags import FAIL, GOOD, MEANINGS, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import DAY_NS, SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.snapshots.station_health import (
    EXAMPLES,
    MOST_KEPT,
    SnapshotCache,
    assess_quality,
    reject_kinds,
    rejects_csv,
)

START_NS = parse_instant("2007-10-01")
STEP_NS = 3600 * SECOND_NS
STATIONS = ("a", "b", "c")
HOURS = 24 * 9


def readings(variable: str, hours: int, generator: np.random.Generator) -> Readings:
    """Two heights of each station, with flags and tests at random."""
    series = tuple(
        Series(variable, name, height, interval_s=3600, source="f/t") for name in STATIONS[:2] for height in (2.0, 10.0)
    )
    index = np.repeat(np.arange(len(series), dtype=np.int32), hours)
    time_ns = np.tile(START_NS + np.arange(hours) * STEP_NS, len(series))
    flag = generator.choice(np.array(sorted(MEANINGS), np.uint8), len(index))
    bits = generator.integers(1, 1 << len(TESTS), len(index)).astype(np.uint16)
    tests = np.where(np.isin(flag, (SUSPECT, FAIL)), bits, 0).astype(np.uint16)
    value = np.where(flag == MISSING, np.nan, generator.normal(size=len(index)))
    return Readings(series, index, time_ns, value, flag, np.full(len(index), START_NS + 20 * DAY_NS), tests)


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    names = ("air_temperature", "wind_speed", "solar_radiation")
    made = Archive.create(
        tmp_path / "archive",
        name="n",
        slice_s=3600,
        variables=[KNOWN_VARIABLES[name] for name in names],
        now_ns=START_NS,
    )
    generator = np.random.default_rng(3)
    with made.commit(batch="first", message="first", now_ns=START_NS) as writer:
        writer.stations([Station(name, name, (Position(None, 7.0, 45.0, 2000.0),)) for name in STATIONS])
        for name, hours in (("air_temperature", HOURS), ("wind_speed", 30)):
            written = readings(name, hours, generator)
            writer.readings(written)
            writer.flags(written)
    return made.latest()


@pytest.mark.parametrize("days", [None, 1, 2, 30])
def test_counts_are_those_of_the_readings_one_by_one(archive: Archive, days: int | None) -> None:
    found = {(one.station, one.variable): one for one in assess_quality(archive, days)}
    assert set(found) == {(station, name) for station in "ab" for name in ("air_temperature", "wind_speed")}
    for (station, variable), one in found.items():
        read = archive.read(variable, tests=True)
        assert read.tests is not None
        last = max(read.time_ns.tolist())
        flags: dict[str, int] = {}
        tests: dict[str, int] = {}
        for row in range(len(read)):
            is_mine = read.series[read.index[row]].station == station
            if not is_mine or (days is not None and read.time_ns[row] <= last - days * DAY_NS):
                continue
            word = MEANINGS[int(read.flag[row])]
            flags[word] = flags.get(word, 0) + 1
            for bit, name in enumerate(TESTS):
                if int(read.tests[row]) >> bit & 1:
                    tests[name] = tests.get(name, 0) + 1
        assert (one.flags, one.tests, one.readings) == (flags, tests, sum(flags.values()))


def test_flags_of_a_network_that_nobody_judged(tmp_path: Path) -> None:
    made = Archive.create(
        tmp_path / "archive", name="n", slice_s=3600, variables=[KNOWN_VARIABLES["air_temperature"]], now_ns=START_NS
    )
    assert assess_quality(made) == []
    series = (Series("air_temperature", "a", 2.0, interval_s=3600, source="f/t"),)
    columns = np.zeros(3, np.int32), START_NS + np.arange(3) * STEP_NS, np.ones(3)
    flag = np.array([GOOD, NOT_EVALUATED, NOT_EVALUATED], np.uint8)
    with made.commit(batch="first", message="first", now_ns=START_NS) as writer:
        writer.readings(Readings(series, *columns, flag, columns[1]))
    (one,) = assess_quality(made.latest())
    assert (one.flags, one.tests) == ({"good": 1, "not_evaluated": 2}, {})


REJECTS = [
    *(Reject("a.txt", line, "T", "x", "no number: 'x'") for line in range(1, 9)),
    Reject("b.txt", 0, "", "", "unreadable: it is a picture"),
    *(Reject("b.txt", line, "", "=cmd()", "fields: 3 for 17") for line in (4, 5)),
]


def test_rejects_by_what_their_reasons_begin_with() -> None:
    kinds = reject_kinds(REJECTS)
    assert [(one.kind, one.count, sorted(one.files)) for one in kinds] == [
        ("no number", 8, ["a.txt"]),
        ("fields", 2, ["b.txt"]),
        ("unreadable", 1, ["b.txt"]),
    ]
    assert kinds[0].examples == REJECTS[:EXAMPLES]
    assert sum(one.count for one in kinds) == len(REJECTS)


def test_rejects_as_csv_are_no_formulas() -> None:
    rows = list(csv.DictReader(io.StringIO(rejects_csv(REJECTS).decode())))
    assert len(rows) == len(REJECTS)
    assert (rows[0]["file"], rows[0]["line"], rows[0]["reason"]) == ("a.txt", "1", "no number: 'x'")
    assert rows[-1]["text"] == "'=cmd()"


def test_an_answer_is_worked_out_once_a_snapshot(archive: Archive) -> None:
    asked: list[int | None] = []

    def work(_opened: hg.OpenArchive, days: int | None) -> list[int]:
        asked.append(days)
        return []

    answers = SnapshotCache(hg.open(archive.path), work)
    for days in (1, 1, None, 1, None):
        assert answers.get_answer(days) == []
    assert asked == [1, None]
    with archive.commit(batch="more", message="more", now_ns=START_NS) as writer:
        writer.rejects(REJECTS)
    answers.get_answer(1)
    answers.get_answer(1)
    assert asked == [1, None, 1]
    for days in range(2, MOST_KEPT + 2):
        answers.get_answer(days)
    assert len(answers._held) == MOST_KEPT
    answers.get_answer(1)
    assert asked[-1] == 1, "the oldest one is gone"
