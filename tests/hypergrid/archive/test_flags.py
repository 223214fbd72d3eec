"""Flags of stored readings: a judgement that may change, while the readings stay."""

from collections.abc import Callable
from dataclasses import replace

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from hypergrid.archive import Archive
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

Build = Callable[..., Readings]
Rows = Callable[[Readings], list[tuple[object, ...]]]
MINUTE = 60 * 10**9


def _store(archive: Archive, given: Readings, batch: str = "b") -> None:
    with archive.commit(batch=batch, message="", now_ns=1) as writer:
        writer.readings(given)


def _judge(archive: Archive, given: Readings, batch: str = "judged") -> int:
    with archive.commit(batch=batch, message="", now_ns=2) as writer:
        return writer.flags(given)


def test_other_flags_change_no_reading(archive: Archive, readings: Build, rows: Rows) -> None:
    # The second and the third share a cell, so that the third lies in the side table.
    given = readings([("a", 0, 1.0, 2, 5), ("a", 2 * MINUTE, 2.0, 2, 6), ("a", 3 * MINUTE, 3.0, 2, 7)])
    _store(archive, given)
    before = archive.latest()
    judged = replace(before.read("air_temperature"), flag=np.array([1, 4, 3], np.uint8))
    judged = replace(judged, tests=np.array([0, 4, 8], np.uint16))
    assert _judge(archive, judged) == 3
    after = archive.latest()
    found = after.read("air_temperature", tests=True)
    assert rows(found) == [
        ("a", 0, 1.0, 1, 5),
        ("a", 2 * MINUTE, 2.0, 4, 6),
        ("a", 3 * MINUTE, 3.0, 3, 7),
    ]
    assert found.tests is not None
    assert found.tests.tolist() == [0, 4, 8]
    assert len(after.read("air_temperature", superseded=True)) == 0
    assert before.read("air_temperature").flag.tolist() == [2, 2, 2]
    newest = after.snapshots[0]
    assert newest.metadata["flags"] == 3
    assert newest.metadata["counts"]["stored"] == 0
    span = newest.metadata["slices"]["air_temperature"]
    assert (span["first_ns"], span["last_ns"], span["series"]) == (0, 2 * MINUTE, 1)
    # Said once more, nothing changes, and nothing is committed.
    assert _judge(archive, judged, "again") == 0
    assert archive.latest().snapshot == after.snapshot


def test_what_is_not_stored_or_has_no_value_keeps_what_it_has(archive: Archive, readings: Build, rows: Rows) -> None:
    _store(archive, readings([("a", 0, float("nan"), 9, 5), ("a", 4 * MINUTE, 2.0, 2, 6)]))
    absent = readings(
        [("a", 0, 1.0, 4, 5), ("a", MINUTE, 1.0, 4, 5), ("b", 0, 1.0, 4, 0), ("a", 4 * MINUTE, 1.0, 3, 6)]
    )
    assert _judge(archive, absent) == 1
    assert rows(archive.latest().read("air_temperature")) == [("a", 0, None, 9, 5), ("a", 4 * MINUTE, 2.0, 3, 6)]
    assert [one.station for one in archive.latest().series("air_temperature")] == ["a"]


def test_tests_are_written_with_the_readings_and_move_with_them(archive: Archive, readings: Build) -> None:
    first = readings([("a", 0, 1.0, 4, 5), ("a", MINUTE, 1.5, 3, 5), ("b", 0, 2.0, 1, 5)])
    _store(archive, replace(first, tests=np.array([1, 4, 0], np.uint16)))
    found = archive.latest().read("air_temperature", tests=True)
    assert found.tests is not None
    assert found.tests.tolist() == [1, 4, 0]
    assert archive.latest().read("air_temperature").tests is None
    # A reading that is replaced takes its tests with it; series that are new begin without.
    _store(archive, readings([("a", 0, 7.0, 2, 6), ("c", 0, 3.0, 2, 6)]), "later")
    newest = archive.latest()
    current, old = (newest.read("air_temperature", tests=True, superseded=replaced) for replaced in (False, True))
    assert current.tests is not None
    assert current.tests.tolist() == [0, 4, 0, 0]
    assert old.tests is not None
    assert old.tests.tolist() == [1]


def test_a_writer_reads_some_series_and_tells_what_there_is(archive: Archive, readings: Build) -> None:
    _store(archive, readings([("a", 0, 1.0, 1, 5), ("b", 3 * MINUTE + 7, 2.0, 1, 5)]))
    with archive.latest().commit(batch="r", message="", now_ns=3) as writer:
        writer.readings(readings([("c", 5 * MINUTE, 3.0, 1, 5)]))
        known = writer.series("air_temperature")
        assert [one.station for one in known] == ["a", "b", "c"]
        unknown = replace(known[0], station="d")
        some = writer.read("air_temperature", series=[known[2], known[1], unknown])
        assert [(some.series[n].station, value) for n, value in zip(some.index, some.value, strict=True)] == [
            ("b", 2.0),
            ("c", 3.0),
        ]
        assert len(writer.read("air_temperature", series=[unknown])) == 0
        extent = writer.extent("air_temperature")
        assert extent == Window(0, 6 * MINUTE)
        assert (writer.series("snow_depth"), writer.extent("snow_depth")) == ((), None)


def test_parameters_of_the_tests_go_with_the_snapshot(archive: Archive) -> None:
    assert dict(archive.quality) == {}
    with archive.commit(batch="q", message="", now_ns=3) as writer:
        writer.quality({"air_temperature": {"spike": {"suspect": 3.0}}})
    assert dict(archive.latest().quality) == {"air_temperature": {"spike": {"suspect": 3.0}}}
    assert dict(archive.quality) == {}
    with archive.commit(batch="r", message="", now_ns=4) as writer:
        writer.quality({"air_temperature": {"spike": {"suspect": 3.0}}})
    assert len(archive.latest().snapshots) == 2


def test_a_commit_reads_what_it_wrote(archive: Archive, readings: Build, rows: Rows) -> None:
    with archive.commit(batch="q", message="", now_ns=3) as writer:
        assert len(writer.read("air_temperature")) == len(writer.read("nothing")) == 0
        writer.readings(readings([("a", 0, 1.0, 2, 5)]))
        assert rows(writer.read("air_temperature")) == [("a", 0, 1.0, 2, 5)]


_ROW = st.tuples(st.sampled_from(["s0", "s1", "s40"]), st.integers(0, 9), st.sampled_from([1, 2, 3, 4]))


@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(stored=st.lists(_ROW, min_size=1, max_size=20), judged=st.lists(st.lists(_ROW, max_size=20), max_size=3))
def test_flags_are_those_of_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, readings: Build, stored: list[tuple[str, int, int]],
    judged: list[list[tuple[str, int, int]]],
) -> None:  # fmt: skip
    from hypergrid.core.units import Variable  # noqa: PLC0415

    archive = Archive.create(
        tmp_path_factory.mktemp("flags") / "a", name="p", slice_s=120, variables=[Variable("v")], now_ns=0
    )

    def build(given: list[tuple[str, int, int]]) -> Readings:
        unique = list({(s, t): (s, t, flag) for s, t, flag in given}.values())
        made = readings([(s, t * MINUTE, 1.0, flag, 0) for s, t, flag in unique], variable="v")
        return replace(made, tests=np.array([flag if flag > 2 else 0 for _, _, flag in unique], np.uint16))

    expected = {(s, t): flag for s, t, flag in stored}
    _store(archive, build(stored))
    for number, some in enumerate(judged):
        changed = {(s, t): flag for s, t, flag in some if (s, t) in expected}
        count = sum(expected[key] != flag for key, flag in changed.items())
        expected |= changed
        if some:
            assert _judge(archive, build(some), str(number)) == count
    found = archive.latest().read("v", tests=True)
    assert found.tests is not None
    stations = [found.series[number].station for number in found.index]
    keys = zip(stations, (found.time_ns // MINUTE).tolist(), strict=True)
    assert dict(zip(keys, found.flag.tolist(), strict=True)) == expected
    assert (found.tests == np.where(found.flag > 2, found.flag, 0)).all()
