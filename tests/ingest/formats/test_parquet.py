"""Parquet tables, wide and long, written by pyarrow."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hypergrid.core.times import parse_instant
from ingest.formats import FORMATS, DocumentFormat, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.base import VALUE


def form() -> DocumentFormat:
    found = FORMATS["parquet"]
    assert isinstance(found, DocumentFormat)
    return found


def read(path: Path, options: ReadOptions | None = None, chunk_bytes: int = 1 << 20) -> tuple[Layout, list[Parsed]]:
    layout = form().layout(path, options or ReadOptions())
    bounds = form().cut(path, layout, chunk_bytes)
    return layout, [form().parse(path, layout, a, b) for a, b in zip(bounds[:-1], bounds[1:], strict=True)]


def wide(rows: int) -> pa.Table:
    instants = np.datetime64("2020-01-01T00:00", "us") + np.arange(rows) * np.timedelta64(600, "s")
    temperature = pa.field("T", pa.float32(), metadata={"units": "K", "standard_name": "air_temperature"})
    schema = pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            ("station", pa.dictionary(pa.int8(), pa.string())),
            temperature,
            ("n", "i4"),
        ]
    )
    names = pa.array([f"s{n % 3}" for n in range(rows)]).dictionary_encode().cast(schema.field("station").type)
    values = pa.array([None if n % 5 == 4 else n + 0.5 for n in range(rows)], pa.float32())
    return pa.table(
        [pa.array(instants).cast(schema.field("time").type), names, values, np.arange(rows, dtype="i4")], schema
    )


@pytest.mark.parametrize(("group", "chunk_bytes"), [(1000, 1 << 20), (7, 1 << 20), (7, 1), (1000, 100)])
def test_wide_tables_in_any_row_groups(tmp_path: Path, group: int, chunk_bytes: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(wide(100), path, row_group_size=group)
    layout, parts = read(path, chunk_bytes=chunk_bytes)
    assert len(parts) == 1 if chunk_bytes > 100 else len(parts) > 1
    assert [part.stations[code] for part in parts for code in part.code] == [f"s{n % 3}" for n in range(100)]
    start = parse_instant("2020-01-01")
    assert [t for part in parts for t in part.time_ns.tolist()] == [start + n * 600 * 10**9 for n in range(100)]
    expected = [np.nan if n % 5 == 4 else n + 0.5 for n in range(100)]
    np.testing.assert_array_equal(np.concatenate([part.values["T"] for part in parts]), expected)
    assert sum(part.lines for part in parts) == 100
    told = layout.metadata.columns["T"]
    assert told.unit == "K"
    assert told.variable is not None
    assert told.variable.name == "air_temperature"
    assert "n" not in layout.metadata.columns
    assert layout.columns == ("T", "n")


def test_long_tables_have_a_column_for_each_variable_and_unit(tmp_path: Path) -> None:
    path = tmp_path / "long.parquet"
    table = pa.table(
        {
            "Datetime": ["2020-07-01T12:00:00", "2020-07-01T12:00:00", "soon", "2020-07-01T13:00:00"],
            "site": ["a", "a", "b", "b"],
            "parameter": ["air_temperature", "rain", "rain", "air_temperature"],
            "value": [20.5, 1.0, 2.0, 68.0],
            "unit": ["degC", "mm", "mm", "degF"],
        }
    )
    pq.write_table(table, path)
    layout, (part,) = read(path, ReadOptions(timezone="Europe/Zurich"))
    assert layout.long
    assert set(layout.columns) == {"air_temperature [degC]", "air_temperature [degF]", "rain [mm]"}
    assert part.name_code is not None
    found = [
        (part.stations[code], part.names[which], t, value)
        for code, which, t, value in zip(part.code, part.name_code, part.time_ns, part.values[VALUE], strict=True)
    ]
    noon = int(datetime(2020, 7, 1, 12, tzinfo=ZoneInfo("Europe/Zurich")).timestamp()) * 10**9
    assert found == [
        ("a", "air_temperature [degC]", noon, 20.5),
        ("a", "rain [mm]", noon, 1.0),
        ("b", "air_temperature [degF]", noon + 3600 * 10**9, 68.0),
    ]
    assert [(row.line, row.column) for row in part.bad] == [(3, "Datetime")]
    told = layout.metadata.columns["air_temperature [degF]"]
    assert told.unit == "degF"
    assert told.variable is not None
    assert told.variable.unit == "degC"
    _, (mapped,) = read(path, ReadOptions(columns=("rain [mm]",)))
    assert (mapped.names, len(mapped.code)) == (("rain [mm]",), 1)
    assert mapped.unmapped == ("air_temperature [degC]", "air_temperature [degF]")


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_epochs_of_any_unit_and_files_of_one_station(tmp_path: Path, unit: int) -> None:
    path = tmp_path / "hut.parquet"
    pq.write_table(pa.table({"time": [1_600_000_000 * unit, 1_600_000_060 * unit], "a": [1.0, -999.0]}), path)
    _, (part,) = read(path, ReadOptions(nodata=("-999",)))
    assert (part.stations, part.time_ns.tolist()) == (("hut",), [1_600_000_000 * 10**9, 1_600_000_060 * 10**9])
    np.testing.assert_array_equal(part.values["a"], [1.0, np.nan])


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_beyond_the_range_of_nanoseconds_are_refused(tmp_path: Path, unit: str, zone: str | None) -> None:
    path = tmp_path / "a.parquet"
    each = {"s": 1, "ms": 10**3, "us": 10**6}[unit]
    when = pa.array([1_600_000_000 * each, 95_617_584_000 * each + each // 10**3], pa.timestamp(unit, zone))
    pq.write_table(pa.table({"time": when, "station": ["a", "a"], "x": [1.0, 2.0]}), path)
    _, (part,) = read(path, ReadOptions(timezone="Europe/Zurich"))
    assert [(row.line, row.column) for row in part.bad] == [(2, "time")]
    assert part.values["x"].tolist() == [1.0]
    # Rows beside it are still in the zone of the feed, two hours ahead of UTC.
    assert part.time_ns.tolist() == [(1_600_000_000 - (7200 if zone is None else 0)) * 10**9]


def test_rows_without_time_or_station_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    when = pa.array([0, None, 60, 120, 180], pa.timestamp("s"))
    pq.write_table(
        pa.table({"time": when, "station": ["a", "a", None, "b", "b"], "x": [1.0, 2.0, 3.0, float("inf"), 5.0]}), path
    )
    _, (part,) = read(path)
    assert [(row.line, row.column, row.reason.partition(":")[0]) for row in part.bad] == [
        (2, "time", "bad time"),
        (3, "station", "no station"),
        (4, "x", "bad number"),
    ]
    assert part.values["x"].tolist() == [1.0, 5.0]


def test_what_is_no_table_of_readings(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    with pytest.raises(Unreadable, match="no times: a column 'time' is needed; there are a"):
        read(path)
    pq.write_table(pa.table({"time": [[1]], "a": [1]}), path)
    with pytest.raises(Unreadable, match="no times: column 'time' is of list"):
        read(path)
    pq.write_table(wide(100), path)
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(Unreadable, match="damaged"):
        read(path)
