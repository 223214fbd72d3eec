"""What every format that is no lines of text keeps to: pieces give what the whole gives, and no damage is a crash."""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ingest.deployment.deployment_file import Feed
from ingest.formats import FORMATS, DocumentFormat, Parsed, ReadOptions, Unreadable, recognise
from ingest.sources.folder import SourceFile, cut, layout_of, parse

NAMES = sorted(name for name, form in FORMATS.items() if isinstance(form, DocumentFormat))


def netcdf(path: Path) -> None:
    time = xr.Variable(("time",), np.arange(40), {"units": "minutes since 2020-01-01", "standard_name": "time"})
    names = xr.Variable(("station",), np.array(["a", "b"], object), {"cf_role": "timeseries_id"})
    values = xr.Variable(("time", "station"), np.arange(80.0).reshape(40, 2), {"units": "K"})
    xr.Dataset({"time": time, "name": names, "t": values}, attrs={"featureType": "timeSeries"}).to_netcdf(
        path, engine="h5netcdf"
    )


def parquet(path: Path) -> None:
    times = pa.array(np.arange(60) * 60, pa.timestamp("s"))
    pq.write_table(pa.table({"time": times, "station": ["a", "b"] * 30, "t": np.arange(60.0)}), path, row_group_size=11)


def messages(path: Path) -> None:
    path.write_text("".join(json.dumps({"station": "a", "time": 60 * n, "t": n, "u": -n}) + "\n" for n in range(60)))


def sensorthings(path: Path) -> None:
    path.write_text(json.dumps([{"phenomenonTime": f"2020-01-01T00:{n:02d}:00Z", "result": n} for n in range(60)]))


def sensorscope_stations(path: Path) -> None:
    path.write_text("1200 Wannengrat -999 -999 46.8038 9.78336 2390\nnonsense\n\n1202 Golf -999 -999 46.8 9.83 1539\n")


WRITE: dict[str, Callable[[Path], None]] = {
    "messages": messages,
    "netcdf": netcdf,
    "parquet": parquet,
    "sensorscope_stations": sensorscope_stations,
    "sensorthings": sensorthings,
}
FILES = {"sensorscope_stations": "sensorscope_stn.info"}


def pieces(path: Path, name: str, chunk_bytes: int) -> list[Parsed]:
    """Read a file as ingest does."""
    file = SourceFile(path, path.name, name, path.stat().st_size, 0)
    layout = layout_of(file, Feed(name, "*", name, ReadOptions()))
    return [parse(chunk) for chunk in cut(file, 0, layout, name, chunk_bytes=chunk_bytes, first=0)]


def readings(parts: list[Parsed]) -> list[tuple[object, ...]]:
    found: list[tuple[object, ...]] = []
    for part in parts:
        for row in range(len(part.code)):
            column = () if part.name_code is None else (part.names[part.name_code[row]],)
            values = tuple(float(values[row]) for values in part.values.values())
            found.append((part.stations[part.code[row]], *column, int(part.time_ns[row]), *values))
    return found


def test_each_format_is_written_here() -> None:
    assert sorted(WRITE) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_it_is_told_by_its_beginning(tmp_path: Path, name: str) -> None:
    path = tmp_path / FILES.get(name, "file.dat")
    WRITE[name](path)
    recognised = recognise(path.read_bytes()[:65536], path.name)
    assert recognised is not None
    assert recognised[0] == name


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("chunk_bytes", [1, 150, 2000])
def test_pieces_give_what_the_whole_gives(tmp_path: Path, name: str, chunk_bytes: int) -> None:
    path = tmp_path / "file.dat"
    WRITE[name](path)
    whole, parts = pieces(path, name, 1 << 23), pieces(path, name, chunk_bytes)
    assert len(whole) == 1
    assert readings(parts) == readings(whole)
    assert sum(part.lines for part in parts) == whole[0].lines
    before, bad = 0, []
    for part in parts:
        bad += [(before + row.line, row.reason) for row in part.bad]
        before += part.lines
    assert bad == [(row.line, row.reason) for row in whole[0].bad]


@pytest.mark.parametrize("name", NAMES)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    noise=st.lists(st.tuples(st.integers(0, 20_000), st.binary(min_size=1, max_size=4)), max_size=4),
    kept=st.integers(1, 20_000),
)
def test_damage_costs_rows_or_the_file_and_never_the_run(
    tmp_path: Path, name: str, noise: list[tuple[int, bytes]], kept: int
) -> None:
    # A name of its own: HDF5 does not write a file anew that it failed to read and has not let go of yet.
    path = tmp_path / f"{abs(hash((tuple(noise), kept)))}.dat"
    WRITE[name](path)
    data = bytearray(path.read_bytes())
    for place, bytes_ in noise:
        at = place % len(data)
        data[at : at + len(bytes_)] = bytes_
    damaged = path.with_suffix(".damaged")
    damaged.write_bytes(bytes(data[: max(1, min(kept, len(data)))]))
    parts: list[Parsed] = []
    with suppress(Unreadable):
        parts = pieces(damaged, name, 1000)
    for part in parts:
        assert all(row.reason and len(row.text) <= 200 for row in part.bad)
        assert all(1 <= row.line <= max(1, part.lines) for row in part.bad)
        assert all(np.isfinite(column[~np.isnan(column)]).all() for column in part.values.values())
