"""Readings as files: what is in them, and that ingest reads them back as they were."""

import csv
from dataclasses import replace
from pathlib import Path

import h5netcdf
import numpy as np
import pyarrow.parquet as pq
import pytest
import xarray as xr

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import Window, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from hypergrid.formats.readings import Selection, export_readings
from hypergrid.formats.readings import selection as selecting
from ingest.job import ingest

AIR, GUST = "air_temperature", "wind_gust_of_mine"
START = parse_instant("2007-10-01")
MINUTE = 60 * 10**9
STATIONS = (
    Station("a", 'Pass, "upper"', (Position(None, 7.1, 45.8, 2400.5), Position(START + MINUTE, 7.2, 45.8, 2401.0))),
    Station("b/..", "b", (Position(None, 7.3, 45.9, float("nan")),)),
    Station("3", "three\nlines", (Position(None, float("nan"), float("nan"), float("nan")),)),
)


def _readings(series: tuple[Series, ...], count: int, *, seed: int, step: int = MINUTE) -> Readings:
    rng = np.random.default_rng(seed)
    index = np.repeat(np.arange(len(series), dtype=np.int32), count)
    time_ns = START + np.tile(np.arange(count), len(series)) * step + index * 1000
    value = rng.normal(size=len(index)) * 10.0 ** rng.integers(-3, 4, len(index))
    flag = rng.choice(np.array([1, 2, 3, 4, 9], np.uint8), len(index), p=[0.5, 0.2, 0.1, 0.1, 0.1])
    value[flag == 9] = np.nan
    tests = np.where(flag >= 3, np.where(flag == 9, 0, rng.integers(1, 9, len(index))), 0).astype(np.uint16)
    return Readings(series, index, time_ns, value, flag, time_ns + 5_000_000, tests)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    """Three stations with ugly names; a variable at two heights, and one of maxima stamped at the end."""
    variables = [KNOWN_VARIABLES[AIR], Variable(GUST, "m s-1", None, "Gust"), Variable("unknown_one")]
    made = Archive.create(
        tmp_path_factory.mktemp("export") / "archive", name="pass", slice_s=60, variables=variables, now_ns=0
    )
    air = tuple(
        Series(AIR, one.id, height, interval_s=60.0, source="f:T") for one in STATIONS for height in (2.0, -0.5)
    )
    gust = tuple(Series(GUST, one.id, 10.0, 1, "max", 600.0, "end", "f:G") for one in STATIONS[:2])
    with made.commit(batch="1", message="", now_ns=1) as writer:
        writer.stations(STATIONS)
        writer.readings(_readings(air, 500, seed=1))
        writer.readings(_readings(gust, 50, seed=2, step=10 * MINUTE))
        writer.readings(_readings((Series("unknown_one", "a"),), 3, seed=3))
    # Some beyond the first in their cell.
    with made.commit(batch="2", message="", now_ns=1) as writer:
        few = _readings(air[:2], 20, seed=4)
        writer.readings(replace(few, time_ns=few.time_ns + 20 * 10**9))
    return made.latest()


def _rows(archive: Archive, variable: str, *, flags: bool = True) -> set[tuple[object, ...]]:
    """Return what tells readings apart, whatever feed they came from and in whichever order series stand."""
    found = archive.read(variable)
    keys = [(s.station, s.height_m, s.replicate, s.statistic, s.interval_s, s.stamp) for s in found.series]
    values = [None if np.isnan(value) else value for value in found.value.tolist()]
    flag = found.flag.tolist() if flags else [0] * len(found)
    return {(*keys[i], t, v, f) for i, t, v, f in zip(found.index, found.time_ns.tolist(), values, flag, strict=True)}


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_table_is_read_back_as_it_was(archive: Archive, tmp_path: Path, ending: str) -> None:
    told: list[float] = []
    done = export_readings(archive, tmp_path / f"out{ending}", progress=told.append)
    described = tmp_path / "out.deployment.toml"
    assert sorted(done.files) == sorted([tmp_path / f"out{ending}", described])
    assert done.readings == sum(archive.readings(name) for name in archive.variables)
    assert told[-1] == 1.0
    report = ingest([tmp_path / f"out{ending}"], tmp_path / "again", deployment=described, engine="inprocess", now_ns=9)
    assert (report.rows_rejected, report.duplicates) == (0, 0)
    again = Archive.open(tmp_path / "again")
    assert (again.name, again.slice_s) == (archive.name, archive.slice_s)
    for name, variable in archive.variables.items():
        assert _rows(again, name) == _rows(archive, name)
        assert again.variables[name].unit == variable.unit
        assert again.variables[name].standard_name == variable.standard_name
    for station in STATIONS:
        found = again.stations[station.id]
        assert [repr(p) for p in found.positions] == [repr(p) for p in station.positions]
        assert found.name == station.name


def test_a_csv_file_is_what_the_standard_says(archive: Archive, tmp_path: Path) -> None:
    export_readings(archive, tmp_path / "out.csv", Selection(variables=(AIR,), stations=("a",)))
    content = (tmp_path / "out.csv").read_bytes()
    assert content.count(b"\n") == content.count(b"\r\n") == 1041
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["station", "time", "variable", "value", "unit", "flag", "failed_tests", "arrival"]
    assert {row["variable"] for row in rows} == {f"{AIR} 2m", f"{AIR} -0.5m"}
    first = next(row for row in rows if row["variable"] == f"{AIR} 2m")
    found = archive.read(AIR, series=np.array([0]), tests=True)
    assert first["time"] == "2007-10-01T00:00:00Z"
    assert first["arrival"] == "2007-10-01T00:00:00.005Z"
    assert (first["flag"], first["value"]) == (str(found.flag[0]), str(found.value[0]))
    failed = [row for row in rows if row["flag"] in "34"]
    assert all(row["failed_tests"] for row in failed)
    assert all((row["value"] == "") == (row["flag"] == "9") for row in rows)


def test_cells_that_spreadsheets_would_run_are_harmless(tmp_path: Path) -> None:
    names = ("=cmd|' /C calc'!A0", "+1", "-x", "@SUM(A1)", '"quoted", line\nbreak')
    made = Archive.create(tmp_path / "a", name="p", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=0)
    with made.commit(batch="1", message="", now_ns=1) as writer:
        writer.readings(_readings(tuple(Series(AIR, name) for name in names), 3, seed=1))
    export_readings(made.latest(), tmp_path / "out.csv")
    with (tmp_path / "out.csv").open(newline="") as stream:
        rows = list(csv.reader(stream))
    assert {row[0] for row in rows[1:]} == {*(f"'{name}" for name in names[:4]), names[4]}
    assert {len(row) for row in rows} == {8}
    assert (tmp_path / "out.csv").read_bytes().count(b"\r\n") == 16


def test_a_parquet_file_has_types(archive: Archive, tmp_path: Path) -> None:
    export_readings(archive, tmp_path / "out.parquet", Selection(variables=(GUST,)))
    table = pq.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("time").type) == "timestamp[ns, tz=UTC]"
    found = archive.read(GUST)
    assert sorted(table["time"].cast("int64").to_pylist()) == sorted(found.time_ns.tolist())
    assert table["value"].null_count == int(np.isnan(found.value).sum())


def test_netcdf_is_read_back_as_it_was(archive: Archive, tmp_path: Path) -> None:
    done = export_readings(archive, tmp_path / "out.nc")
    names = ["air_temperature_-0.5m", "air_temperature_2m", "unknown_one", GUST]
    assert sorted(path.name for path in done.files) == [f"out-{name}.nc" for name in names]
    ingest(list(done.files), tmp_path / "again", engine="inprocess", now_ns=9, deployment=_netcdf_feed(tmp_path))
    again = Archive.open(tmp_path / "again")
    for name in (AIR, GUST):
        assert _rows(again, name) == _rows(archive, name)
        assert again.variables[name].unit == archive.variables[name].unit
    assert replace(again.stations["a"].position, from_ns=None) == replace(STATIONS[0].position, from_ns=None)


def _netcdf_feed(folder: Path) -> Path:
    """Describe the files so that no test gives flags anew."""
    text = (
        '[network]\nname = "pass"\nslice_s = 60\n[quality]\nrun = false\n'
        '[[feed]]\nname = "n"\nfiles = "*.nc"\nformat = "netcdf"\n'
    )
    (folder / "netcdf.toml").write_text(text)
    return folder / "netcdf.toml"


def test_netcdf_keeps_the_conventions(archive: Archive, tmp_path: Path) -> None:
    export_readings(archive, tmp_path / "out.nc", Selection(variables=(GUST,)))
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as data:
        assert (data.attrs["featureType"], data.attrs["hypergrid_snapshot"]) == ("timeSeries", archive.snapshot)
        found = archive.read(GUST)
        order = np.lexsort((found.index, found.time_ns))
        np.testing.assert_array_equal(data[GUST], found.value[order])
        np.testing.assert_array_equal(data["time"], found.time_ns[order].astype("datetime64[ns]"))
        np.testing.assert_array_equal(data[f"{GUST}_flag"], found.flag[order])
        assert data[GUST].attrs["ancillary_variables"].split() == [f"{GUST}_flag", f"{GUST}_failed_tests"]
        assert data[GUST].attrs["cell_methods"] == "time: maximum"
        assert data[f"{GUST}_flag"].attrs["flag_meanings"] == "good not_evaluated suspect fail missing"
        assert data["station"].values.tolist() == ["a", "b/.."]
        assert data["station_index"].attrs["instance_dimension"] == "station"
        assert float(data["sensor_height"]) == 10.0
    with h5netcdf.File(tmp_path / "out.nc") as file:
        bounds = file["time_bounds"][:]
        assert set((bounds[:, 1] - bounds[:, 0]).tolist()) == {600_000_000}
        np.testing.assert_array_equal(bounds[:, 1], file["time"][:])


def test_netcdf_rounds_finer_stamps_down_and_says_so(tmp_path: Path) -> None:
    """Messages of LoRaWAN have such stamps; so have arrivals in archives of earlier versions."""
    made = Archive.create(tmp_path / "a", name="p", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=0)
    given = _readings((Series(AIR, "s"),), 3, seed=1, step=MINUTE + 1)
    with made.commit(batch="1", message="", now_ns=1) as writer:
        writer.readings(replace(given, arrival_ns=given.arrival_ns + 789))
    export_readings(made.latest(), tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as data:
        for name, stamps in (("time", given.time_ns), ("arrival", given.arrival_ns + 789)):
            assert data[name].values.astype("int64").tolist() == (stamps // 1000 * 1000).tolist()
        assert "rounded down to whole microseconds" in data["time"].attrs["comment"]


def test_netcdf_of_files_without_arrival_times(tmp_path: Path) -> None:
    """Readings of such files arrive by the machine's clock, in whole microseconds."""
    (tmp_path / "a.csv").write_text("station,time,air_temperature\nA,2024-01-01T00:00:00Z,1.5\n")
    now_ns = 1_700_000_000_123_456_789
    ingest([tmp_path / "a.csv"], tmp_path / "archive", engine="inprocess", now_ns=now_ns)
    (name,) = Archive.open(tmp_path / "archive").variables
    assert Archive.open(tmp_path / "archive").read(name).arrival_ns.tolist() == [now_ns // 1000 * 1000]
    export_readings(Archive.open(tmp_path / "archive"), tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc", engine="h5netcdf") as data:
        assert data["arrival"].values.astype("int64").tolist() == [now_ns // 1000 * 1000]
        assert "comment" not in data["time"].attrs
    ingest([tmp_path / "out.nc"], tmp_path / "again", engine="inprocess", now_ns=now_ns + 1)
    (name,) = Archive.open(tmp_path / "again").variables
    assert Archive.open(tmp_path / "again").read(name).value.tolist() == [1.5]


def test_smet_is_read_back_but_for_rounding(archive: Archive, tmp_path: Path) -> None:
    whole = Selection(variables=(AIR, GUST), flags=(1, 2, 3, 4, 9))
    done = export_readings(archive, tmp_path / "out.smet", whole)
    assert sorted(path.name for path in done.files) == ["out-3.smet", "out-a.smet", "out-b%2F...smet"]
    head = (tmp_path / "out-a.smet").read_text().split("[DATA]")[0]
    assert "fields = timestamp TA TA_2 WIND_GUST_OF_MINE" in head
    assert "units_offset = 0 273.15 273.15 0" in head
    assert "altitude = 2401.0" in head
    ingest(list(done.files), tmp_path / "again", engine="inprocess", now_ns=9)
    again = Archive.open(tmp_path / "again")
    found = again.read(AIR)
    for number, station in enumerate(("a", "b/..", "3")):
        expected = archive.read(AIR, series=np.array([2 * number]))
        mine = [n for n, s in enumerate(found.series) if s.station == station and s.source.endswith(":TA")]
        kept = found.take_rows(np.isin(found.index, mine))
        value = dict(zip(kept.time_ns.tolist(), kept.value.tolist(), strict=True))
        np.testing.assert_allclose([value[t] for t in expected.time_ns.tolist()], expected.value, rtol=0, atol=1e-9)
        # Times of the other series have no reading of this one; nothing else was added.
        others = np.setdiff1d(kept.time_ns, expected.time_ns)
        assert all(np.isnan(value[t]) for t in others.tolist())


def test_smet_has_what_is_good_unless_flags_are_asked_for(tmp_path: Path, archive: Archive) -> None:
    done = export_readings(archive, tmp_path / "out.smet", Selection(variables=(GUST,), stations=("a",)))
    assert done.files == (tmp_path / "out.smet",)
    flags = archive.read(GUST, series=np.array([0])).flag
    assert done.readings == int(np.isin(flags, (1, 2, 9)).sum())
    rows = (tmp_path / "out.smet").read_text().split("[DATA]\n")[1].splitlines()
    assert sum(not row.endswith(" -999") for row in rows) == int(np.isin(flags, (1, 2)).sum())


def test_smet_refuses_a_value_that_means_none(tmp_path: Path) -> None:
    made = Archive.create(tmp_path / "a", name="p", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=0)
    given = _readings((Series(AIR, "s"),), 1, seed=1)
    with made.commit(batch="1", message="", now_ns=1) as writer:
        writer.readings(replace(given, value=np.array([-999.0]), flag=np.array([1], np.uint8)))
    with pytest.raises(InvalidQuery, match="means no value in SMET"):
        export_readings(made.latest(), tmp_path / "out.smet")


def test_a_selection_is_kept(archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces so small that there are several.
    monkeypatch.setattr(selecting, "READINGS_AT_ONCE", 1)
    window = Window(START + 100 * MINUTE, START + 200 * MINUTE)
    chosen = Selection((AIR,), ("a", "3"), window, (1, 4))
    done = export_readings(archive, tmp_path / "out.parquet", chosen)
    found = archive.read(AIR, window=window, series=np.array([0, 1, 4, 5]))
    expected = found.take_rows(np.isin(found.flag, (1, 4)))
    assert done.readings == len(expected) > 0
    table = pq.read_table(tmp_path / "out.parquet")
    assert sorted(table["value"].to_pylist()) == sorted(expected.value.tolist())


def test_what_cannot_be_exported_is_refused(archive: Archive, tmp_path: Path) -> None:
    for path, chosen, message in (
        ("out.xls", Selection(), "unknown ending of an export '.xls'"),
        ("nowhere/out.csv", Selection(), "does not exist; make it first"),
        ("out.csv", Selection(variables=("rain",)), "unknown variable 'rain'"),
        ("out.csv", Selection(stations=("z",)), "unknown station 'z'"),
        ("out.csv", Selection(("unknown_one",), ("3",)), "nothing to export: no series of unknown_one at 3"),
    ):
        with pytest.raises(NotFound, match=message):
            export_readings(archive, tmp_path / path, chosen)
    with pytest.raises(InvalidQuery, match="flags are those of QARTOD"):
        Selection(flags=(7,))
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InvalidQuery, match="a folder is there"):
        export_readings(archive, tmp_path / "folder.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.csv"]


def test_feeds_that_measured_the_same_are_told_apart(tmp_path: Path) -> None:
    made = Archive.create(tmp_path / "a", name="p", slice_s=60, variables=[KNOWN_VARIABLES[AIR]], now_ns=0)
    with made.commit(batch="1", message="", now_ns=1) as writer:
        writer.readings(_readings((Series(AIR, "s", source="one:T"), Series(AIR, "s", source="two:T")), 3, seed=1))
    export_readings(made.latest(), tmp_path / "out.parquet")
    names = set(pq.read_table(tmp_path / "out.parquet")["variable"].to_pylist())
    assert names == {f"{AIR} (one:T)", f"{AIR} (two:T)"}
