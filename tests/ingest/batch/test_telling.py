"""What files tell reaches the archive; what a deployment says goes first; stations that move, miss, or lie far off."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import parse_instant
from ingest.batch.plan import find_distant_stations, merge_stations
from ingest.deployment.deployment_file import Column
from ingest.formats.file_metadata import COMMON, ColumnMetadata, FileMetadata, column_of, station_at, unit_of
from ingest.job import ingest

ROOT = Path(__file__).parents[3]
DEPLOYMENTS = ROOT / "station_data" / "deployments"
KNMI = ROOT.parent / "shared" / "data" / "knmi_10min"

HEADER = """SMET 1.1 ASCII
[HEADER]
station_id = {station}
latitude = {lat}
longitude = 8.0
altitude = 2000
nodata = -999
tz = 1
fields = timestamp TA RH HS
units_multiplier = 1 1 1 0.01
units_offset = 0 0 0 0
[DATA]
"""


def smet(folder: Path, name: str, *, day: str, lat: float = 46.5, station: str = "a", rows: int = 4) -> Path:
    path = folder / f"{name}.smet"
    path.write_text(
        HEADER.format(station=station, lat=lat) + "".join(f"{day}T0{n}:00 273.15 0.5 -999\n" for n in range(rows))
    )
    return path


def deploy(folder: Path, more: str = "") -> None:
    (folder / "deployment.toml").write_text(
        f'[network]\nname = "n"\nslice_s = 3600\n[[feed]]\nname = "f"\nfiles = "*.smet"\nformat = "smet"\n{more}'
    )


def test_a_deployment_without_columns_takes_what_files_tell(tmp_path: Path, now_ns: int) -> None:
    deploy(tmp_path)
    smet(tmp_path, "one", day="2020-01-01")
    report = ingest([tmp_path], tmp_path / "archive", now_ns=now_ns)
    archive = Archive.open(tmp_path / "archive")
    assert {name: v.unit for name, v in archive.variables.items()} == {
        "air_temperature": "degC",
        "relative_humidity": "%",
        "snow_height": "m",
    }
    assert archive.read("air_temperature").value.tolist() == pytest.approx([0.0] * 4)
    assert archive.read("relative_humidity").value.tolist() == pytest.approx([50.0] * 4)
    assert np.isnan(archive.read("snow_height").value).all()
    assert archive.read("air_temperature").time_ns[0] == parse_instant("2019-12-31T23:00Z")
    assert report.warnings == ()


def test_what_a_deployment_says_goes_first(tmp_path: Path, now_ns: int) -> None:
    deploy(
        tmp_path,
        'timezone = "UTC"\nstamp = "end"\n[feed.columns]\n'
        'TA = {variable = "surface_temperature", unit = "degC", height_m = 2}\n'
        'HS = {variable = "snow", statistic = "mean", interval_s = 60}\n'
        '[[variable]]\nname = "snow"\nunit = "cm"\n[[station]]\nid = "a"\nname = "Alp"\nlon = 9.0\nlat = 47.0\n',
    )
    smet(tmp_path, "one", day="2020-01-01")
    ingest([tmp_path], tmp_path / "archive", now_ns=now_ns)
    archive = Archive.open(tmp_path / "archive")
    assert set(archive.variables) == {"surface_temperature", "snow"}
    # the unit is the deployment's, the interval the file's; "RH" is not mapped
    (series,) = archive.series("surface_temperature")
    assert (series.height_m, series.stamp, series.interval_s, series.statistic) == (2.0, "end", 3600.0, "sample")
    assert archive.read("surface_temperature").value[0] == pytest.approx(273.15)
    assert archive.read("surface_temperature").time_ns[0] == parse_instant("2020-01-01")
    (snow,) = archive.series("snow")
    assert (snow.statistic, snow.interval_s, archive.variables["snow"].unit) == ("mean", 60.0, "cm")
    station = archive.stations["a"]
    assert (station.name, station.position.lon, station.position.lat) == ("Alp", 9.0, 47.0)


def test_a_told_unit_that_is_none_of_the_variable_is_refused(tmp_path: Path, now_ns: int) -> None:
    deploy(tmp_path, '[feed.columns]\nTA = "relative_humidity"\n')
    smet(tmp_path, "one", day="2020-01-01")
    with pytest.raises(
        InvalidDeployment, match=r"one.smet: column 'TA' is in 'K', and 'relative_humidity' is kept in '%'"
    ):
        ingest([tmp_path], tmp_path / "archive", now_ns=now_ns)


def test_a_station_that_files_tell_elsewhere_has_moved(tmp_path: Path, now_ns: int) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    smet(first, "one", day="2020-01-01")
    smet(first, "two", day="2020-02-01", lat=46.6)
    smet(second, "three", day="2020-03-01", lat=46.6)
    smet(second, "four", day="2020-04-01", lat=46.7)
    for folder in (first, second):
        ingest([folder], tmp_path / "archive", now_ns=now_ns)
    found = [(p.from_ns, p.lat) for p in Archive.open(tmp_path / "archive").stations["a"].positions]
    day = [parse_instant(f"2020-0{month}-01") - 3600 * 10**9 for month in (2, 4)]
    assert found == [(None, 46.5), (day[0], 46.6), (day[1], 46.7)]


def test_declared_stations_take_a_told_position_where_they_have_none() -> None:
    nowhere = Station("a", "Alp", (Position(None, np.nan, np.nan, np.nan),))
    placed = station_at("b", 8.0, 47.0)
    told = [FileMetadata(stations=(station_at("a", 7.0, 46.0), station_at("b", 1.0, 1.0), station_at("c2", 7, 46)))]
    told.append(FileMetadata(stations=(station_at("c10", np.nan, 46), station_at("c2", 7.000001, 46))))
    found = merge_stations(told, (nowhere, placed), {})
    assert [(s.id, s.name, s.position.lon) for s in found[:3]] == [
        ("a", "Alp", 7.0),
        ("b", "b", 8.0),
        ("c2", "c2", 7.0),
    ]
    assert found[3].id == "c10"
    assert np.isnan(found[3].position.lon)
    assert len(found) == 4


def test_impossible_positions_are_none() -> None:
    position = station_at("a", 200.0, 91.0, 1e9).position
    assert np.isnan([position.lon, position.lat, position.elevation_m]).all()


def test_far_off_is_far_for_the_network() -> None:
    near = [station_at(f"s{n}", 7 + 0.01 * n, 46.0) for n in range(6)]
    assert find_distant_stations(near) == {}
    assert find_distant_stations([*near, station_at("x", 7.2, 46.0)]) == {}
    far = find_distant_stations([*near, station_at("x", 9.0, 46.0), station_at("nowhere", np.nan, np.nan)])
    assert list(far) == ["x"]
    # 1.975 degrees of longitude at 46 degrees north
    assert far["x"] == pytest.approx(1.97 * 111_195 * np.cos(np.radians(46)), rel=0.01)
    # a wide network has wide limits
    assert find_distant_stations([station_at(f"s{n}", 3.0 * n, 46.0) for n in range(8)]) == {}


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("Deg C", "degC"),
        ("C", "degC"),
        ("degrees Celsius", "degC"),
        ("W/m^2", "W m-2"),
        ("W/m2", "W m-2"),
        ("MJ/m^2", "MJ m-2"),
        ("J/cm2", "J cm-2"),
        ("umol/m2/s", "umol m-2 s-1"),
        ("Volts", "V"),
        ("m/s", "m s-1"),
        ("W m-2", "W m-2"),
        ("mmHg", "mmHg"),
        ("1", "1"),
        ("octa", None),
        ("", None),
        ("unknown", None),
        ("9**9**9 m", None),
    ],
)
def test_units_as_people_write_them(text: str, unit: str | None) -> None:
    assert unit_of(text) == unit


def test_variables_by_standard_name_then_by_name_then_of_their_own() -> None:
    def named(*args: str | None, **more: str) -> tuple[str, str | None]:
        told = column_of(*args, **more)  # type: ignore[arg-type]
        assert told.variable is not None
        return told.variable.name, told.unit

    assert named("ta", "K", standard_name="air_temperature") == ("air_temperature", "K")
    assert named("rh", "1", standard_name="relative_humidity") == ("relative_humidity", "dimensionless")
    assert named("x", "m s-1", variable="wind_speed") == ("wind_speed", "m s-1")
    # what does not convert, or has no unit, is not what it is called
    assert named("air_temperature", "W m-2") == ("air_temperature_raw", "W m-2")
    assert named("wind_speed", None) == ("wind_speed_raw", None)
    assert named("Level (m)", "m") == ("level_m", "m")
    assert column_of("x", "m", standard_name="Not One").variable == replace(
        COMMON["snow_height"], name="x", standard_name=None, long_name="x"
    )


def test_a_column_keeps_what_the_deployment_gives() -> None:
    column = Column("T", "t", statistic="sample", given=("statistic", "variable"))
    told = column.with_metadata(ColumnMetadata(COMMON["air_temperature"], "K", 2.0, 3, "mean", 60.0, "end"))
    assert (told.variable, told.unit, told.height_m, told.replicate) == ("t", "K", 2.0, 3)
    assert (told.statistic, told.interval_s, told.stamp) == ("sample", 60.0, "end")
    assert column.with_metadata(None) is column


def test_uplinks_of_a_network_are_mapped_by_the_example(tmp_path: Path, now_ns: int) -> None:
    """Fields and stations by pattern, units converted, and what nothing maps told."""
    uplink = {"end_device_ids": {"device_id": "weather-north"}, "received_at": "2021-10-07T10:00:01Z"}
    payload = {"air": {"temperature": 12.5, "pressure": 990}, "wind": {"speed": 36.0}}
    uplink["uplink_message"] = {
        "f_cnt": 3,
        "decoded_payload": payload,
        "rx_metadata": [{"time": "2021-10-07T10:00:00Z"}],
    }
    (tmp_path / "a.jsonl").write_text(json.dumps(uplink) + "\n")
    deployment = DEPLOYMENTS / "things.toml"
    report = ingest([tmp_path / "a.jsonl"], tmp_path / "archive", deployment=deployment, now_ns=now_ns)
    archive = Archive.open(tmp_path / "archive")
    wind = archive.read("wind_speed")
    assert (wind.value.tolist(), wind.time_ns.tolist()) == ([10.0], [parse_instant("2021-10-07T10:00Z")])
    assert wind.arrival_ns.tolist() == [parse_instant("2021-10-07T10:00:01Z")]
    assert [(s.station, s.height_m, s.interval_s) for s in archive.series("wind_speed")] == [("north", 3.0, 600.0)]
    assert "columns that nothing maps were left out: air.pressure" in report.warnings


def test_the_example_for_knmi_says_that_stamps_are_ends(tmp_path: Path, now_ns: int) -> None:
    if not KNMI.is_dir():
        pytest.skip("the real station files ../shared/data/knmi_10min are not here")
    report = ingest([KNMI], tmp_path / "archive", deployment=DEPLOYMENTS / "knmi.toml", now_ns=now_ns)
    archive = Archive.open(tmp_path / "archive")
    assert report.rows == 55 * 144
    assert {(s.height_m, s.statistic, s.stamp, s.interval_s) for s in archive.series("air_temperature")} == {
        (1.5, "mean", "end", 600.0),
        (0.1, "min", "end", 600.0),
    }
    assert {(s.height_m, s.stamp) for s in archive.series("wind_speed")} == {(10.0, "end")}
