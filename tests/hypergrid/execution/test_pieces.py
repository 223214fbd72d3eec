"""Archives that are read in pieces: answers are those of all readings at once, and no chunk is decompressed twice."""

from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import CellArrays, Tile
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from hypergrid.execution.operators import pieces
from hypergrid.query import Query

STEP_S, STEPS, STATIONS = 600, 3 * 2048 + 300, 36
START_NS = parse_instant("2021-03-20T05:00Z")
CHUNKS = 1
"""Chunks in a piece, here: several pieces along time, and two groups of series."""


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Make ten-minute means stamped at their end: holes, flags, late amendments, a station that falls silent."""
    random = np.random.default_rng(5)
    made = Archive.create(
        tmp_path_factory.mktemp("pieces") / "archive", name="pieces", slice_s=STEP_S,
        variables=[KNOWN_VARIABLES["air_temperature"]], now_ns=START_NS,
    )  # fmt: skip
    names = [f"s{number:02d}" for number in range(STATIONS)]
    series = tuple(
        Series("air_temperature", name, statistic="mean", interval_s=STEP_S, stamp="end", source="test")
        for name in names
    )
    places = random.uniform(0.0, 0.2, (STATIONS, 2)) + (7.0, 46.0)
    known = [
        Station(name, name, (Position(None, lon, lat, 500.0),))
        for name, (lon, lat) in zip(names, places.tolist(), strict=True)
    ]
    index = np.repeat(np.arange(STATIONS, dtype=np.int32), STEPS)
    time_ns = np.tile(START_NS + np.arange(STEPS) * STEP_S * SECOND_NS, STATIONS)
    value = (random.normal(10.0, 5.0, len(index)) + 80.0 * (random.random(len(index)) < 0.01)).round(2)
    flag = np.where(random.random(len(index)) < 0.03, 4, 1).astype(np.uint8)
    there = (random.random(len(index)) > 0.05) & ((index != 3) | (time_ns < time_ns[900]))
    arrived = time_ns + SECOND_NS
    readings = Readings(series, index, time_ns, value, flag, arrived).take_rows(there)
    with made.commit(batch="one", message="all", now_ns=START_NS) as writer:
        writer.stations(known)
        writer.readings(readings)
    rows = np.flatnonzero(random.random(len(readings)) < 0.002)
    # Some of a stamp of their own lie in the slice of another reading: these are in the side table.
    late = Readings(
        series, readings.index[rows], readings.time_ns[rows] + (rows % 2) * SECOND_NS, readings.value[rows] + 1.0,
        np.full(len(rows), 1, np.uint8), readings.arrival_ns[rows] + 10 * SECOND_NS,
    )  # fmt: skip
    with made.latest().commit(batch="two", message="late", now_ns=START_NS) as writer:
        writer.readings(late)
    return made.latest()


def in_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "WHOLE_READINGS", 1000)
    monkeypatch.setattr(pieces, "CHUNKS_AT_ONCE", CHUNKS)
    monkeypatch.setattr(pieces, "BATCH_READINGS", 20_000)


MODEL = hg.variogram("exponential", psill=1.2, range_m=9000.0, nugget=0.05)

GRID = hg.grid(lon="7:0:0", lat="46:0:0", step="120arcsec", shape=(3, 3))

QUESTIONS: dict[str, Callable[[Query], Query]] = {
    "monthly mean": lambda base: base.aggregate("mean", time="month"),
    "hourly maximum": lambda base: base.aggregate("max", time="1h"),
    "overlapping windows": lambda base: base.aggregate("mean", time={"length": "3day", "step": "1day"}),
    "median of all": lambda base: base.aggregate("quantile", time="all", q=0.5),
    "a reading by chance": lambda base: base.aggregate("sample", time="1day"),
    "trend": lambda base: base.aggregate("trend", time="all"),
    "hour of day": lambda base: base.aggregate("mean", time="hour_of_day"),
    "converted twice": lambda base: (
        base.convert("valid_range", low=-20.0, high=50.0)
        .convert("scale", factor=2.0)
        .aggregate("variance", time="5day")
    ),
    "within a clip": lambda base: base.aggregate("mean", time="1day").clip(time=("2021-04-03T07:00", "2021-04-25")),
    "two that read it": lambda base: base.aggregate("mean", time="1day").merge(
        "difference", base.convert("valid_range", low=0.0, high=50.0).aggregate("max", time="1day")
    ),
}


def same(one: xr.Dataset, other: xr.Dataset) -> None:
    assert set(one.variables) == set(other.variables)
    for name in one.variables:
        first, second = one[name].to_numpy(), other[name].to_numpy()
        if first.dtype.kind == "f":
            np.testing.assert_allclose(first, second, rtol=1e-13, atol=0, equal_nan=True, err_msg=str(name))
        else:
            np.testing.assert_array_equal(first, second, err_msg=str(name))
    ours, theirs = ({k: v for k, v in each.attrs.items() if k != "history"} for each in (one, other))
    assert ours == theirs


@pytest.mark.parametrize("name", QUESTIONS)
def test_pieces_give_what_all_readings_give(archive: Archive, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query = QUESTIONS[name](hg.open(archive.path)["air_temperature"])
    whole = query.compute()
    in_small_pieces(monkeypatch)
    same(query.compute(), whole)


def test_boxes_read_what_they_need(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = hg.open(archive.path)["air_temperature"].aggregate("mean", time="1day").interpolate(
        "ordinary_kriging", grid=GRID, variogram=MODEL
    )  # fmt: skip
    whole = query.compute()
    in_small_pieces(monkeypatch)
    same(query.compute(strategy="bottom_up"), whole)


def test_readings_are_kriged_without_an_aggregate(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = (
        hg.open(archive.path)["air_temperature"]
        .interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
        .clip(time=("2021-04-03", "2021-04-05"))
    )
    whole = query.compute()
    in_small_pieces(monkeypatch)
    same(query.compute(), whole)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Make totals of the last hour, told every ten minutes, one in a hundred below zero."""
    random = np.random.default_rng(6)
    made = Archive.create(
        tmp_path_factory.mktemp("pieces") / "running", name="pieces", slice_s=STEP_S,
        variables=[Variable("precipitation", "mm")], now_ns=START_NS,
    )  # fmt: skip
    series = tuple(
        Series("precipitation", name, statistic="total", interval_s=3600.0, stamp="end", source="test")
        for name in ("s0", "s1")
    )
    index = np.repeat(np.arange(2, dtype=np.int32), STEPS)
    time_ns = np.tile(START_NS + np.arange(STEPS) * STEP_S * SECOND_NS, 2)
    value = np.where(random.random(len(index)) < 0.01, -0.1, random.exponential(0.3, len(index))).round(2)
    flag = np.full(len(index), 1, np.uint8)
    readings = Readings(series, index, time_ns, value, flag, time_ns + SECOND_NS)
    known = [Station(name, name, (Position(None, lon, 46.0, 500.0),)) for name, lon in (("s0", 7.0), ("s1", 7.1))]
    with made.commit(batch="one", message="all", now_ns=START_NS) as writer:
        writer.stations(known)
        writer.readings(readings.take_rows(random.random(len(index)) > 0.01))
    return made.latest()


# What is said of them is said of all, too.
@pytest.mark.parametrize(
    "time", ["1day", "month", "all", {"length": "1day", "step": "6h"}, {"step": "1day", "zone": "Europe/Zurich"}]
)
@pytest.mark.parametrize("function", ["sum", "max", "first"])
def test_intervals_that_overlap_are_taken_alike(
    running: Archive, time: str | dict[str, str], function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = (
        hg.open(running.path)["precipitation"].select(statistic="total").aggregate(function, time=time, min_coverage=0)
    )
    whole = query.compute()
    assert "intervals overlap in 2 of 2 series" in whole.attrs["comment"]
    in_small_pieces(monkeypatch)
    same(query.compute(), whole)


def test_no_chunk_is_decompressed_twice(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    in_small_pieces(monkeypatch)
    read: list[tuple[int, int, int]] = []
    plain = CellArrays.read

    def counted(self: CellArrays, rows: slice, columns: slice, **given: bool) -> Tile:
        read.extend((row // 2048, columns.start, 0) for row in range(rows.start // 2048 * 2048, rows.stop, 2048))
        assert rows.stop - rows.start <= CHUNKS * 2048
        return plain(self, rows, columns, **given)

    monkeypatch.setattr(CellArrays, "read", counted)
    hg.open(archive.path)["air_temperature"].aggregate("mean", time="month").compute()
    assert len(read) == len(set(read)) >= 8


def test_what_is_held_does_not_grow_with_the_archive(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    query = hg.open(archive.path)["air_temperature"]
    before = query.aggregate("mean", time="1day").plan().steps[0].projected_bytes
    in_small_pieces(monkeypatch)
    monkeypatch.setattr(pieces, "CHUNKS_AT_ONCE", 1)
    by_day = query.aggregate("mean", time="1day").plan().steps[0].projected_bytes
    whole = query.aggregate("mean", time="all").plan().steps[0].projected_bytes
    assert by_day < whole < before
