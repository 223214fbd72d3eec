"""Streams of an archive against a direct reading of its table, for any windows, orders and demands."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hypergrid.continuous.archive_catalogue import list_streams
from hypergrid.continuous.sources import ArchiveStreams, CodedTexts, Stretch
from hypergrid.continuous.sources.demand import Demand
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.query import OpenArchive
from tests.support.continuous_archives import elements_of, packets_of, rain_of, random_sources
from tests.support.networks import START_NS

WINDOWS_S = (2345, 10**6)


def read_stream(
    archive: OpenArchive, name: str, stretch: Stretch, window_s: float | None = None, **restrictions: frozenset[str]
) -> pd.DataFrame:
    """Return a stream as a table; check that its parts follow each other below their heartbeats."""
    attributes = list_streams(archive).streams[name]
    demand = Demand(frozenset(range(len(attributes))), restrictions)
    window_ns = None if window_s is None else round(window_s * SECOND_NS)
    streams = ArchiveStreams(archive, {name: attributes}, {name: demand}, stretch, window_ns=window_ns)
    parts, heartbeat = [], streams.window.start_ns
    for step in streams.iterate():
        batch = step.batches[name]
        assert all(heartbeat <= tau < step.heartbeat_ns for tau in batch.tau.tolist())
        heartbeat = step.heartbeat_ns
        columns = {"tau": batch.tau}
        for attribute, column in zip(attributes, batch.columns, strict=True):
            assert column is not None
            values = np.array(column.words, object)[column.codes] if isinstance(column, CodedTexts) else column
            columns[attribute.name] = values
        parts.append(pd.DataFrame(columns))
    assert heartbeat == streams.window.stop_ns
    return pd.concat(parts, ignore_index=True)


def assert_equal(read: pd.DataFrame, wanted: pd.DataFrame, columns: list[str]) -> None:
    pd.testing.assert_frame_equal(
        read[columns].reset_index(drop=True), wanted[columns].reset_index(drop=True), check_dtype=False
    )


COLUMNS = ["tau", "station", "series", "value", "flag", "slice", "time", "arrival"]


@pytest.mark.parametrize("seed", range(3))
def test_streams_by_time_are_the_readings_in_canonical_order(tmp_path: Path, seed: int) -> None:
    archive, table = random_sources(tmp_path / "a", seed)
    elements = elements_of(table)
    for window_s in WINDOWS_S:
        for name in ("air_temperature", "wind_speed"):
            read = read_stream(archive, name, Stretch(), window_s)
            assert_equal(read, elements[elements["variable"] == name], COLUMNS)
        assert_equal(read_stream(archive, "readings", Stretch(), window_s), elements, ["variable", *COLUMNS])


@pytest.mark.parametrize("seed", range(3))
def test_packets_and_rain_are_those_of_the_table(tmp_path: Path, seed: int) -> None:
    archive, table = random_sources(tmp_path / "a", seed)
    for window_s in WINDOWS_S:
        packets = read_stream(archive, "obs", Stretch(), window_s)
        names = ["tau", "station", "slice", "time", "arrival", "air_temperature", "wind_speed", "rain_meter"]
        assert_equal(packets, packets_of(table), names)
        rain = read_stream(archive, "rain", Stretch(), window_s)
        assert_equal(rain, rain_of(table), ["tau", "station", "series", "mm", "flag", "slice", "time", "arrival"])


@pytest.mark.parametrize("seed", [1])
def test_by_arrival_an_element_has_the_instant_of_its_arrival(tmp_path: Path, seed: int) -> None:
    archive, table = random_sources(tmp_path / "a", seed)
    cases = {"readings": elements_of(table), "obs": packets_of(table), "rain": rain_of(table)}
    for name, elements in cases.items():
        series = "rank" if name == "obs" else "series"
        wanted = elements.sort_values(["arrival", "tau", series], kind="stable", ignore_index=True)
        wanted["tau"] = wanted["arrival"]
        for window_s in WINDOWS_S:
            read = read_stream(archive, name, Stretch(order="arrival"), window_s)
            assert_equal(read, wanted, ["tau", "station", "time", "arrival"])


@pytest.mark.parametrize("order", ["time", "arrival"])
def test_a_stretch_holds_what_has_its_instant_in_it(tmp_path: Path, order: str) -> None:
    archive, table = random_sources(tmp_path / "a", 3)
    rng = np.random.default_rng(8)
    for name in ("air_temperature", "readings", "obs", "rain"):
        whole = read_stream(archive, name, Stretch(order=order))  # type: ignore[arg-type]
        for _ in range(2):
            start, end = sorted((START_NS + rng.integers(-3600, 4 * 3600, 2) * SECOND_NS).tolist())
            part = read_stream(archive, name, Stretch(start, end + 1, order), 1800.0)  # type: ignore[arg-type]
            inside = whole[(whole["tau"] >= start) & (whole["tau"] <= end)]
            pd.testing.assert_frame_equal(part, inside.reset_index(drop=True), check_dtype=False)
    assert len(table)


def test_stations_and_variables_that_nothing_needs_are_not_read(tmp_path: Path) -> None:
    archive, table = random_sources(tmp_path / "a", 2)
    elements = elements_of(table)
    stations, variables = frozenset(("s1",)), frozenset(("wind_speed", "rain_meter"))
    read = read_stream(archive, "readings", Stretch(), 1800.0, station=stations, variable=variables)
    wanted = elements[elements["station"].isin(stations) & elements["variable"].isin(variables)]
    assert 0 < len(wanted) < len(elements)
    assert_equal(read, wanted, ["variable", *COLUMNS])


def test_each_version_of_a_reading_arrives(tmp_path: Path) -> None:
    archive, table = random_sources(tmp_path / "a", 1)
    first = archive.store.read("air_temperature")
    with archive.store.commit(batch="2", message="amended", now_ns=START_NS) as writer:
        later = first.take_rows(slice(0, 5))
        amended = later.__class__(
            later.series, later.index, later.time_ns, later.value + 1, later.flag, later.arrival_ns + 10**12
        )
        writer.readings(amended)
    newest = archive.latest()
    by_time = read_stream(newest, "air_temperature", Stretch())
    by_arrival = read_stream(newest, "air_temperature", Stretch(order="arrival"))
    count = int((table["variable"] == "air_temperature").sum())
    assert len(by_time) == count
    assert len(by_arrival) == count + len(newest.store.read("air_temperature", superseded=True)) > count


def test_an_empty_stretch_is_refused(tmp_path: Path) -> None:
    archive, _ = random_sources(tmp_path / "a", 0)
    with pytest.raises(InvalidQuery, match="needs an end after its start; got 2007-10-02T00:00Z to 2007-10-01T00:00Z"):
        Stretch(parse_instant("2007-10-02"), parse_instant("2007-10-01"))
    with pytest.raises(InvalidQuery, match="is empty: the readings span"):
        read_stream(archive, "air_temperature", Stretch(start_ns=parse_instant("2030-01-01")))
