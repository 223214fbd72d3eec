"""Cells that depend on a clock are those whose readings change if stamps are shifted within the bound, no others."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.clock_errors import ClockError, ClockErrors, find_bounds_ns
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, format_instant, parse_instant
from hypergrid.topology import Periodic, TimeCells, blocks_of
from tests.support.networks import START_NS, random_archive, write_archive

GRID = hg.grid(lon=7.177, lat=45.867, step="2arcsec", shape=(2, 2))
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)
ACCEPTED = (1, 2)
LOW = 0.0
EDGES = {"edges": ["2007-10-01T00:00", "2007-10-01T01:10", "2007-10-01T01:13", "2007-10-01T04:00"]}
TIMES: dict[str, object] = {
    "cells": "10min",
    "sliding": {"length": "30min", "step": "10min"},
    "with gaps": {"length": "7min", "step": "20min"},
    "given edges": EDGES,
    "hour of the day": "hour_of_day",
    "days": "1day",
}
LEVELS: Mapping[str, Callable[[hg.Query], hg.Query]] = {
    "at stations": lambda query: query,
    "kriged": lambda query: query.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL),
}


def state(folder: Path, errors: ClockErrors) -> hg.OpenArchive:
    with Archive.open(folder).commit(batch=f"clocks {errors}", message="clocks", now_ns=START_NS) as writer:
        writer.clock_errors(errors)
    return hg.open(folder)


def random_errors(archive: hg.OpenArchive, seed: int) -> dict[str, tuple[ClockError, ...]]:
    random = np.random.default_rng(seed)
    stations = sorted(archive.store.stations)
    chosen = random.choice(stations, max(1, len(stations) - 1), replace=False).tolist()
    errors = {station: (ClockError(None, float(random.choice([1.0, 20.0, 90.0, 700.0]))),) for station in chosen}
    return errors | {chosen[0]: (ClockError(parse_instant("2007-10-01T02:00"), 45.0),)}


def read_used(archive: hg.OpenArchive) -> Readings:
    stored = archive.store.read("air_temperature")
    return stored.take_rows(np.isin(stored.flag, ACCEPTED) & (stored.value >= LOW))


def shift(readings: Readings, errors: ClockErrors, time: TimeCells) -> list[tuple[str, int, set[int]]]:
    """Shift each reading to the ends of its bound, and to each edge within it and just before.

    Returns its station, its stamp and the cells that have it in some of these places but not in all.
    """
    starts, ends = blocks_of(time)
    owners = time.owners if isinstance(time, Periodic) else np.arange(time.count)
    edges: NDArray[np.int64] = np.unique(np.concatenate([starts, ends]))
    shifted = []
    for row in range(len(readings)):
        series, stamp = readings.series[int(readings.index[row])], int(readings.time_ns[row])
        if series.station not in errors:
            continue
        bound = int(find_bounds_ns(errors[series.station], readings.time_ns[row : row + 1])[0])
        begin = stamp - (round(series.interval_s * SECOND_NS) if series.stamp == "end" else 0)
        instants = {begin, begin - bound, begin + bound}
        instants |= {edge - early for edge in edges.tolist() for early in (0, 1) if abs(edge - early - begin) <= bound}
        members = [set(owners[(starts <= at) & (at < ends)].tolist()) for at in instants]
        shifted.append((series.station, stamp, set.union(*members) - set.intersection(*members)))
    return shifted


def parse_runs(text: str, time: TimeCells) -> set[int]:
    names = list(map(str, time.labels)) if isinstance(time, Periodic) else list(map(format_instant, time.corners))
    cells: set[int] = set()
    for run in filter(None, text.split(", ")):
        first, _, last = run.partition(" to ")
        cells |= set(range(names.index(first), names.index(last or first) + 1))
    return cells


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("seed", [1, 4, 5])
def test_cells_whose_readings_change_by_shifts_are_those_named(
    seed: int, times: str, level: str, tmp_path: Path
) -> None:
    archive, _ = random_archive(tmp_path, seed)
    errors = random_errors(archive, seed)

    def ask(opened: hg.OpenArchive) -> hg.Query:
        query = opened["air_temperature"].convert("valid_range", low=LOW, high=1e9)
        return LEVELS[level](query.aggregate("mean", time=TIMES[times], min_coverage=0))

    before = ask(archive).compute()
    archive = state(tmp_path, errors)
    result, time = ask(archive).compute(), ask(archive).plan().surface.topology.time
    stations = archive.store.stations.values()
    placed = {station.id for station in stations if np.isfinite(station.position.lon) or level == "at stations"}
    shifted = shift(read_used(archive), errors, time)
    # An interpolation reads no station without a position.
    cells = set().union(*(cells for station, _, cells in shifted if station in placed))
    assert parse_runs(result.attrs.get("hypergrid_clock_cells", ""), time) == cells
    described = f"{len(cells):,} of {time.count:,} time cells depend on clocks that are right only within a bound"
    assert (described in result.attrs.get("comment", "")) == bool(cells)
    # Values are those of the stamps, and without clock errors nothing is said of clocks.
    assert result.drop_attrs().identical(before.drop_attrs())
    assert "clock" not in "".join([*before.attrs, before.attrs.get("comment", "")])


@pytest.mark.parametrize("times", ["cells", "sliding", "hour of the day"])
@pytest.mark.parametrize("seed", [1, 7])
def test_the_lineage_of_a_cell_names_the_readings_that_may_leave_or_enter_it(
    seed: int, times: str, tmp_path: Path
) -> None:
    archive, _ = random_archive(tmp_path, seed)
    errors = random_errors(archive, seed)
    archive = state(tmp_path, errors)
    query = archive["air_temperature"].convert("valid_range", low=LOW, high=1e9)
    query = query.aggregate("mean", time=TIMES[times], min_coverage=0)
    result, time = query.compute(), query.plan().surface.topology.time
    shifted = shift(read_used(archive), errors, time)
    stations = result["station"].to_numpy().astype(str).tolist()
    random = np.random.default_rng(seed)
    sizes = {True: 0, False: 0}
    for station in stations:
        own = sorted(set().union(*(cells for name, _, cells in shifted if name == station)))
        chosen = random.choice(own, min(2, len(own)), replace=False).tolist() if own else []
        for number in {*chosen, int(random.integers(time.count))}:
            made = hg.lineage(result, result.isel({time.name: number, "station": stations.index(station)}), archive)
            expected = sorted(stamp for name, stamp, cells in shifted if name == station and number in cells)
            assert made.uncertain["time"].astype("int64").tolist() == expected
            assert set(made.uncertain["station"]) <= {station}
            by_stamp = made.uncertain[made.uncertain["used"]]["time"]
            in_cell = made.readings[made.readings["used"] | made.readings["reason"].str.contains("overlaps")]["time"]
            assert set(by_stamp) <= set(in_cell)
            assert not set(made.uncertain[~made.uncertain["used"]]["time"]) & set(made.used["time"])
            assert any("right only within a bound" in note for note in made.notes) == bool(expected)
            for used in made.uncertain["used"]:
                sizes[used] += 1
    assert all(sizes.values()), "some may leave a cell, and some may enter one"


def test_cells_made_of_dependent_cells_depend_on_the_clock_too(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path, 4)
    errors = random_errors(archive, 4)
    archive = state(tmp_path, errors)
    minutes = archive["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
    hours = minutes.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate("mean", time="1h")
    fine, coarse = (query.plan().surface.topology.time for query in (minutes, hours))
    cells = parse_runs(minutes.compute().attrs["hypergrid_clock_cells"], fine)
    expected = {int((fine.corners[cell] - coarse.origin) // (3600 * SECOND_NS)) for cell in cells}
    assert parse_runs(hours.compute().attrs["hypergrid_clock_cells"], coarse) == expected
    # A fitted variogram learns from all slices.
    fitted = minutes.interpolate("ordinary_kriging", grid=GRID, variogram="fit")
    assert len(parse_runs(fitted.compute().attrs["hypergrid_clock_cells"], fine)) == fine.count
    # What is anomalous depends on what is normal.
    normal = minutes.aggregate("mean", time="hour_of_day", min_coverage=0)
    unlike = parse_runs(minutes.merge("anomaly", normal).compute().attrs["hypergrid_clock_cells"], fine)
    assert cells <= unlike


def write_one(folder: Path, seconds: list[int]) -> hg.OpenArchive:
    """Write one station with a reading at each of some seconds of a day."""
    stamps = START_NS + np.array(seconds, np.int64) * SECOND_NS
    size, series = len(stamps), (Series("air_temperature", "a"),)
    readings = Readings(
        series, np.zeros(size, np.int32), stamps, np.arange(size, dtype=float), np.ones(size, np.uint8), stamps
    )
    station = Station("a", "a", (Position(None, 7.178, 45.868, 2300.0),))
    return write_archive(folder, stations=[station], readings=[readings])


def test_a_day_does_not_depend_on_readings_well_inside(tmp_path: Path) -> None:
    write_one(tmp_path, [89, 600, 3600, 86400 - 600])
    archive = state(tmp_path, {"a": (ClockError(None, 90.0),)})
    by_day = archive["air_temperature"].aggregate("mean", time="1day", min_coverage=0)
    assert "hypergrid_clock_cells" in by_day.compute().attrs
    archive = state(tmp_path, {"a": (ClockError(None, 88.0),)})
    by_day = archive["air_temperature"].aggregate("mean", time="1day", min_coverage=0)
    assert "hypergrid_clock_cells" not in by_day.compute().attrs
    by_hour = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0).compute()
    assert by_hour.attrs["hypergrid_clock_cells"] == "2007-10-01T00:00Z to 2007-10-01T01:00Z"
    assert "2 of 24 time cells depend on clocks that are right only within a bound (a: 88s)" in by_hour.attrs["comment"]
    # The edge of a clip is one of its single cell.
    clipped = archive["air_temperature"].clip(time=("2007-10-01T00:10", "2007-10-01T01:01"))
    one = clipped.aggregate("mean", time="all", min_coverage=0).compute()
    assert one.attrs["hypergrid_clock_cells"] == "2007-10-01T00:10Z"


def test_values_between_readings_depend_on_their_clocks(tmp_path: Path) -> None:
    write_one(tmp_path, [0, 600, 1200, 1800, 7200, 7800])
    archive = state(tmp_path, {"a": (ClockError(parse_instant("2007-10-01T01:30"), 30.0),)})
    query = archive["air_temperature"].interpolate("linear", time="5min", max_gap="15min")
    result = query.compute()
    instants = query.plan().surface.topology.time
    named = parse_runs(result.attrs["hypergrid_clock_cells"], instants)
    seconds = (instants.corners - START_NS) // SECOND_NS
    assert {int(seconds[cell]) for cell in named} >= {7200, 7500, 7800}
    assert all(seconds[cell] > 1800 for cell in named)
    made = hg.lineage(result, {"time": "2007-10-01T02:05"}, archive)
    assert made.uncertain[["clock_error_s", "used"]].to_numpy().tolist() == [[30.0, True]] * 2


def test_clock_errors_are_kept_by_station_and_snapshot(tmp_path: Path) -> None:
    first = write_one(tmp_path, [0])
    assert "clock_errors" not in first.store.root.group.attrs
    exact, wrong = (ClockError(None, 0.0),), (ClockError(None, 5.0),)
    assert state(tmp_path, {"a": wrong, "b": wrong}).store.clock_errors == {"a": wrong, "b": wrong}
    newest = state(tmp_path, {"a": exact})
    assert newest.store.clock_errors == {"a": exact, "b": wrong}
    assert hg.open(tmp_path, snapshot=first.snapshot).store.clock_errors == {}
    assert state(tmp_path, {"b": wrong}).snapshot == newest.snapshot
    hours = newest["air_temperature"].aggregate("mean", time="1h", min_coverage=0)
    assert "hypergrid_clock_cells" not in hours.compute().attrs
