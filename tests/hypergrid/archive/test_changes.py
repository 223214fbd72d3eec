"""What changed between two snapshots, told by commits and found in the readings."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from hypergrid.archive import Archive, Change, compare_snapshots, diff_from_log
from hypergrid.archive.arrays.records import MAX_RUNS
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

Build = Callable[..., Readings]
AIR = "air_temperature"
SLICE = 120 * 10**9


def _commit(archive: Archive, batch: str, *given: Readings, flags: Readings | None = None) -> Archive:
    with archive.commit(batch=batch, message=batch, now_ns=1) as writer:
        for one in given:
            writer.readings(one)
        if flags is not None:
            writer.flags(flags)
    return archive.latest()


def _shown(changes: tuple[Change, ...]) -> list[tuple[object, ...]]:
    """Write changes as rows: variable, kind, readings, runs in slices (stop not included), stations."""
    return [
        (
            one.variable,
            one.kind,
            one.readings,
            [(w.start_ns // SLICE, w.stop_ns // SLICE) for w in one.runs],
            [s.station for s in one.series],
        )
        for one in changes
    ]


def test_both_tell_what_changed_and_how(archive: Archive, readings: Build) -> None:
    at = [n * SLICE for n in range(20)]
    first = _commit(archive, "1", readings([(s, at[n], 1.0) for s in "abc" for n in range(10)]))
    # Two runs of new slices, one in a series of its own; readings that replace others; one in the side table.
    second = _commit(
        first, "2", readings([("b", at[10], 1.0), ("b", at[11], 1.0), ("d", at[15], 2.0), ("a", at[3], 5.0)])
    )
    third = _commit(second, "3", readings([("c", at[4] + 7, 1.0), ("b", at[11], 4.0)]))
    judged = third.read(AIR).take_rows(np.array([0, 1, 5]))
    fourth = _commit(third, "4", flags=replace(judged, flag=np.full(3, 3, np.uint8)))
    expected = [
        (AIR, "new", 4, [(4, 5), (10, 12), (15, 16)], ["b", "c", "d"]),
        (AIR, "replaced", 2, [(3, 4), (11, 12)], ["a", "b"]),
        (AIR, "flags", 3, [(0, 2), (5, 6)], ["a"]),
    ]
    assert _shown(diff_from_log(fourth, first.snapshot)) == expected
    # Between the two snapshots the reading that was new and then replaced is new.
    expected[1] = (AIR, "replaced", 1, [(3, 4)], ["a"])
    assert _shown(compare_snapshots(first, fourth)) == expected
    assert diff_from_log(fourth, fourth.snapshot) == compare_snapshots(fourth, fourth) == ()
    assert _shown(diff_from_log(second, first.snapshot))[0] == (AIR, "new", 3, [(10, 12), (15, 16)], ["b", "d"])
    # Read backwards, readings are gone.
    assert [row[1:3] for row in _shown(compare_snapshots(fourth, first))] == [
        ("replaced", 1),
        ("flags", 3),
        ("gone", 4),
    ]


def test_what_only_arrived_again_or_has_other_tests_is_told(archive: Archive, readings: Build) -> None:
    first = _commit(archive, "1", readings([("a", 0, 1.0, 4, 5)]))
    other = replace(first.read(AIR), tests=np.array([4], np.uint16))
    second = _commit(first, "2", flags=other)
    assert _shown(compare_snapshots(first, second)) == [(AIR, "flags", 1, [(0, 1)], ["a"])]
    assert _shown(diff_from_log(second, first.snapshot)) == [(AIR, "flags", 1, [(0, 1)], ["a"])]


def test_many_runs_are_told_as_few_that_hold_them(archive: Archive, readings: Build) -> None:
    # A hundred slices, each two from the next, but for one gap of a thousand.
    stamps = [(2 * n + (1000 if n > 40 else 0)) * SLICE for n in range(100)]
    newest = _commit(archive, "1", readings([("a", stamp, 1.0) for stamp in stamps]))
    (change,) = diff_from_log(newest, archive.snapshot)
    assert len(change.runs) == MAX_RUNS
    assert all(any(w.start_ns <= stamp < w.stop_ns for w in change.runs) for stamp in stamps)
    assert Window(81 * SLICE, 1082 * SLICE).intersect(change.runs[20]) is None
    assert sum(w.stop_ns - w.start_ns for w in change.runs) < 300 * SLICE
    (exact,) = compare_snapshots(archive, newest)
    assert len(exact.runs) == exact.readings == 100


def test_commits_that_are_not_between_are_named(archive: Archive, readings: Build) -> None:
    newest = _commit(archive, "1", readings([("a", 0, 1.0)]))
    with pytest.raises(NotFound, match="give the older snapshot first"):
        diff_from_log(archive, newest.snapshot)


def test_variables_that_are_new_are_compared(archive: Archive, readings: Build) -> None:
    newest = _commit(archive, "1", readings([("a", 0, 1.0)], variable="watermark"))
    assert [(one.variable, one.kind) for one in compare_snapshots(archive, newest)] == [("watermark", "new")]
