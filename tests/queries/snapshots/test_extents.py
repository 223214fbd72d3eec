"""The first and the last good reading of every series are those of the whole archive, whatever commits bring."""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.snapshots.latest import NONE_FIRST, SeriesExtents

AIR = "air_temperature"
START_NS = parse_instant("2007-10-01")
DAY_S = 86_400


def expected(archive: Archive) -> dict[str, tuple[int, int]]:
    """Return the first and the last stamp of each station, reading by reading."""
    found: dict[str, tuple[int, int]] = {}
    readings = archive.read(AIR)
    for index, stamp, flag in zip(readings.index, readings.time_ns, readings.flag, strict=True):
        if flag in (1, 2):
            name = readings.series[index].station
            first, last = found.get(name, (int(stamp), int(stamp)))
            found[name] = (min(first, int(stamp)), max(last, int(stamp)))
    return found


def held(extents: SeriesExtents, archive: Archive) -> dict[str, tuple[int, int]]:
    of = extents.read_extents(archive)[AIR]
    return {
        one.station: (int(first), int(last))
        for one, first, last in zip(archive.series(AIR), of.first_ns, of.last_ns, strict=True)
        if first != NONE_FIRST
    }


def write(archive: Archive, number: int, rows: list[tuple[str, int, int]]) -> None:
    """Commit readings: station, seconds after the start, flag."""
    names = list(dict.fromkeys(name for name, *_ in rows))
    series = tuple(Series(AIR, name, interval_s=60.0) for name in names)
    index = np.array([names.index(name) for name, *_ in rows], np.int32)
    time_ns = START_NS + np.array([at for _, at, _ in rows], np.int64) * SECOND_NS
    flag = np.array([flag for *_, flag in rows], np.uint8)
    value = np.where(flag == 9, np.nan, float(number))
    with archive.commit(batch=str(number), message="", now_ns=START_NS + number) as writer:
        writer.readings(Readings(series, index, time_ns, value, flag, time_ns + number))


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    variables = [KNOWN_VARIABLES[AIR]]
    return Archive.create(tmp_path / "archive", name="made", slice_s=60, variables=variables, now_ns=START_NS)


def test_commits_of_every_kind_and_older_snapshots(archive: Archive) -> None:
    commits = [
        [("a", 0, 1), ("b", 0, 1), ("dead", -400 * DAY_S, 2), ("dead", -390 * DAY_S, 2)],
        [("a", 3600, 1), ("a", 7200, 4), ("failed", 60, 4)],
        [("a", 0, 3), ("b", 30 * DAY_S, 2)],  # the first of a is doubtful now: the next one is it
        [("dead", -390 * DAY_S, 4), ("new", 40 * DAY_S, 1)],
        [("a", 3600, 9), ("failed", 60, 2)],  # nothing of a is left
    ]
    extents, seen = SeriesExtents(), []
    assert held(extents, archive.latest()) == {}
    for number, rows in enumerate(commits):
        write(archive, number, rows)
        newest = archive.latest()
        seen.append(newest)
        assert held(extents, newest) == expected(newest) == held(SeriesExtents(), newest)
    assert "a" not in held(extents, seen[-1])
    for older in (seen[1], seen[0], seen[4]):
        assert held(extents, older) == expected(older)


def test_random_commits_with_flags_that_are_judged_anew(archive: Archive) -> None:
    rng, extents = np.random.default_rng(3), SeriesExtents()
    for number in range(10):
        keys = {
            (f"s{rng.integers(0, 2 + number // 2)}", int(rng.integers(-40, 40)) * DAY_S // 2)
            for _ in range(int(rng.integers(1, 15)))
        }
        write(archive, number, [(*key, int(rng.choice([1, 2, 3, 4, 9]))) for key in sorted(keys)])
        if number % 3 == 2:
            stored = archive.latest().read(AIR, tests=True)
            some = stored.take_rows(rng.random(len(stored)) < 0.2)
            some.flag[:] = rng.choice([1, 2, 3, 4], len(some))
            with archive.commit(batch=f"judged {number}", message="", now_ns=START_NS) as writer:
                writer.flags(some)
        newest = archive.latest()
        assert held(extents, newest) == expected(newest)


def test_a_new_reading_costs_the_reading_of_its_slice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    write(archive, 0, [("a", at * DAY_S, 1) for at in range(200)])
    extents = SeriesExtents()
    held(extents, archive.latest())
    write(archive, 1, [("a", 200 * DAY_S, 1)])
    read, windows = Archive.read, []

    def noted(self: Archive, variable: str, **words: object) -> Readings:
        windows.append(words["window"])
        return read(self, variable, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(Archive, "read", noted)
    newest = archive.latest()
    assert held(extents, newest)["a"] == (START_NS, START_NS + 200 * DAY_S * SECOND_NS)
    held(extents, newest)
    assert [(one.stop_ns - one.start_ns) / SECOND_NS for one in windows] == [60.0]
