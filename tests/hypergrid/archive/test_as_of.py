"""What was known at an instant, against archives that got only what had arrived by then."""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.core.times import Window, parse_instant
from hypergrid.core.units import Variable
from tests.support.archive_counts import count_content

Build = Callable[..., Readings]
Rows = Callable[[Readings], list[tuple[object, ...]]]
Row = tuple[str, int, float | None, int, int]
SLICE_NS = 120_000_000_000
STATIONS = ("s0", "s1", "s33", *(f"s{number}" for number in range(2, 33)))
"""More than a chunk of series holds."""
_BORDER = parse_instant("1900-01-01") + 2048 * 13_000 * SLICE_NS
CLUSTERS = [parse_instant("1900-01-01"), _BORDER - SLICE_NS, _BORDER + 40 * 2048 * SLICE_NS]

ROW = st.tuples(
    st.sampled_from(STATIONS[:3]),
    # A third of a slice apart: several in a cell.
    st.builds(lambda base, step: base + step * SLICE_NS // 3, st.sampled_from(CLUSTERS), st.integers(0, 5)),
    st.sampled_from([None, 0.0, 3.25]),
    st.sampled_from([1, 2]),
    st.integers(0, 6),
)
BATCHES = st.lists(st.lists(ROW, max_size=25), min_size=1, max_size=4)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty") / "archive"
    Archive.create(folder, name="p", slice_s=120, variables=[Variable("v")], now_ns=0)
    return folder


def _known(batches: list[list[Row]]) -> list[list[Row]]:
    """Return the batches, in which a reading that repeats the last of its stamp arrives no earlier than that one."""
    newest: dict[tuple[str, int], Row] = {}
    found = []
    for batch in batches:
        rows = []
        for station, stamp, value, given_flag, arrival in batch:
            flag = 9 if value is None else given_flag
            old = newest.get((station, stamp))
            again = old is not None and old[2:4] == (value, flag)
            row = (station, stamp, value, flag, max(arrival, old[4]) if again and old is not None else arrival)
            newest[station, stamp] = old if again and old is not None else row
            rows.append(row)
        found.append(rows)
    return found


@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(batches=BATCHES, as_of=st.integers(-1, 6))
def test_as_of_is_the_archive_that_got_only_what_had_arrived(
    empty: Path, readings: Build, rows: Rows, batches: list[list[Row]], as_of: int
) -> None:
    whole = _known(batches)
    with tempfile.TemporaryDirectory() as scratch:
        archives = []
        for name, latest in (("all", 10), ("arrived", as_of)):
            archive = Archive.open(shutil.copytree(empty, Path(scratch) / name))
            for number, batch in enumerate(whole):
                arrived = [row for row in batch if row[4] <= latest]
                with archive.commit(batch=str(number), message="", now_ns=number) as writer:
                    writer.readings(readings(arrived, variable="v", stations=STATIONS))
            archives.append(archive.latest())
        there, expected = archives[0].as_of(as_of), archives[1]
        for superseded in (False, True):
            assert rows(there.read("v", superseded=superseded)) == rows(expected.read("v", superseded=superseded))
        assert there.extent("v") == expected.extent("v")
        assert count_content(there) == count_content(expected)
        assert there.readings("v") == expected.readings("v")
        window = Window(CLUSTERS[1] + SLICE_NS // 2, CLUSTERS[2] + SLICE_NS)
        chosen = np.array([2, 0])
        assert rows(there.read("v", window=window, series=chosen)) == rows(
            expected.read("v", window=window, series=chosen)
        )
        assert rows(there.as_of(None).read("v")) == rows(archives[0].read("v"))


def test_tests_go_with_the_readings_that_were_known(archive: Archive, readings: Build) -> None:
    first = readings([("a", 0, 1.0, 4, 5)])
    for number, some in enumerate(
        [replace(first, tests=np.array([3], np.uint16)), replace(readings([("a", 0, 2.0, 3, 8)]), tests=None)]
    ):
        with archive.commit(batch=str(number), message="", now_ns=1) as writer:
            writer.readings(some)
    newest = archive.latest()
    for as_of, value, flag, tests in ((5, 1.0, 4, 3), (7, 1.0, 4, 3), (8, 2.0, 3, 0)):
        found = newest.as_of(as_of).read("air_temperature", tests=True)
        assert found.tests is not None
        assert (found.value.tolist(), found.flag.tolist(), found.tests.tolist()) == ([value], [flag], [tests])
    assert newest.as_of(5).latest().as_of_ns == 5
    assert len(newest.as_of(4).read("air_temperature")) == 0


def _minutes(readings: Build, *, amended: bool, arrived_by: int) -> Readings:
    """Return 20 minutes of three stations, each reading a minute late, one half an hour; perhaps what replaces some."""
    rows = []
    for station in range(3):
        for minute in range(20):
            stamp = minute * 60_000_000_000
            late = 30 if (station, minute) == (1, 4) else 1
            rows.append((f"s{station}", stamp, 10.0 * station + minute, 2, stamp + late * 60_000_000_000))
    if amended:
        rows = [(name, t, value + 100.0, 2, 50 * 60_000_000_000) for name, t, value, _, _ in rows[:5]]
    return readings([row for row in rows if row[4] <= arrived_by], stations=["s0", "s1", "s2"])


QUERY = {
    "variable": "air_temperature",
    "steps": [{"op": "aggregate", "function": "mean", "time": "10min", "params": {"min_coverage": 0}}],
}


@pytest.mark.parametrize("minute", [8, 21, 35, 50])
def test_a_query_answers_as_one_would_have_then(tmp_path: Path, readings: Build, minute: int) -> None:
    as_of_ns = minute * 60_000_000_000
    opened = {}
    for name, limit in (("all", 2**62), ("arrived", as_of_ns)):
        made = Archive.create(
            tmp_path / name, name="p", slice_s=120, variables=[Variable("air_temperature", "degC")], now_ns=0
        )
        for number, amended in enumerate((False, True)):
            with made.commit(batch=str(number), message="", now_ns=number) as writer:
                places = [Station(f"s{n}", "", (Position(None, 7.0 + n, 46.0, 100.0),)) for n in range(3)]
                writer.stations(places)
                writer.readings(_minutes(readings, amended=amended, arrived_by=limit))
        opened[name] = tmp_path / name
    expected = hg.open(opened["arrived"]).query(QUERY).compute()
    text = str(np.datetime64(as_of_ns, "ns"))[:16] + "Z"
    then = hg.open(opened["all"], as_of=text)
    assert then.as_of == text
    assert text in repr(then)
    by_document = hg.open(opened["all"]).query({**QUERY, "as_of": f"1970-01-01 00:{minute:02}:00"})
    fluent = then["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
    for query in (then.query(QUERY), by_document, fluent):
        result = query.compute()
        np.testing.assert_array_equal(result["value"], expected["value"])
        np.testing.assert_array_equal(result["count"], expected["count"])
        np.testing.assert_array_equal(result["time"], expected["time"])
        assert query.to_json()["as_of"] == text
        assert f'"as_of": "{text}"' in result.attrs["hypergrid_query"]
        assert hg.again(result, hg.open(opened["all"])).identical
    assert by_document.token == then.query(QUERY).token != hg.open(opened["all"]).query(QUERY).token
    # What a query is merged with is read as of the same instant.
    merged = {**QUERY, "steps": [*QUERY["steps"], {"op": "merge", "function": "difference", "with": [QUERY]}]}  # type: ignore[misc]
    difference = then.query(merged).compute()["value"]
    np.testing.assert_array_equal(difference, expected["value"] - expected["value"])


def test_an_instant_that_is_none_is_refused(archive: Archive) -> None:
    with pytest.raises(InvalidTime, match="ISO 8601"):
        hg.open(archive.path, as_of="yesterday")
    with pytest.raises(InvalidTime, match="ISO 8601"):
        hg.open(archive.path).query({**QUERY, "as_of": "yesterday"})
    with pytest.raises(InvalidQuery, match="as_of"):
        hg.open(archive.path).query({**QUERY, "as_of": 3})


def test_an_array_has_no_arrivals() -> None:
    times = np.array(["2007-10-01T00:00", "2007-10-01T00:10"], "datetime64[ns]")
    coords = {"time": times, "x": ("station", [0.0]), "y": ("station", [0.0])}
    base = hg.base(xr.DataArray(np.ones((2, 1)), dims=("time", "station"), coords=coords, name="v"))
    asked = replace(base, question=replace(base.question, as_of="2007-10-01T00:05Z"))
    with pytest.raises(InvalidQuery, match="no arrival"):
        asked.aggregate("mean", time="all").compute()
