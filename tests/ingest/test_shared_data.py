"""Station files that nobody here wrote: rows in, values, rejects, and values read from the files by hand.

Each hand-checked value names the line (or the cell) of the file that it was read from.
"""

from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import parse_instant
from ingest.batch.report import IngestReport
from ingest.job import ingest

DATA = Path(__file__).parents[2].parent / "shared" / "data"


def read(folder: str, tmp_path: Path, now_ns: int) -> tuple[IngestReport, Archive]:
    source = DATA / folder
    if not source.exists():
        pytest.skip(f"the real station files ../shared/data/{folder} are not here")
    report = ingest([source], tmp_path / "a", now_ns=now_ns, engine="inprocess")
    assert report.readings == report.stored + report.duplicates + report.superseded
    return report, Archive.open(tmp_path / "a")


def the_series(archive: Archive, variable: str, station: str, column: str) -> tuple[Series, Readings]:
    """Return the one series of a column and its readings."""
    all_series = archive.series(variable)
    source = [place for place, s in enumerate(all_series) if s.station == station and s.source.endswith(f":{column}")]
    assert len(source) == 1
    return all_series[source[0]], archive.read(variable, series=np.array(source))


def value_at(readings: Readings, instant: str) -> float:
    rows = np.flatnonzero(readings.time_ns == parse_instant(instant))
    assert len(rows) == 1
    return float(readings.value[rows[0]])


def test_smet(tmp_path: Path, now_ns: int) -> None:
    report, archive = read("meteoio_imis", tmp_path, now_ns)
    # 7 files of 1488 hours, one of 4464 and one of 4459 ten minutes, by `grep -c` of lines that begin with a year
    assert (report.stations, report.files, report.rows, report.rejects) == (9, 9, 7 * 1488 + 4464 + 4459, {})
    # columns: 9 in FIR2, GLA2, ILI2, OTT2, TUJ3; 8 in FLU2, FRA2; 5 in ISEE2; 1 in ISEE3
    assert report.readings == 5 * 1488 * 9 + 2 * 1488 * 8 + 4464 * 5 + 4459
    position = archive.stations["FIR2"].position
    assert (position.lon, position.lat, position.elevation_m) == (8.064570, 46.668527, 2110.0)
    assert archive.stations["FIR2"].name == "Schmidigen-Bidmeren"
    # FIR2.smet line 16, in tz = 1: 2008-12-01T00:00 269.15 0.520 2.0 265 0 85.000 0.000 273.85 261.75
    for variable, column, expected in (
        ("air_temperature", "TA", -4.0),
        ("relative_humidity", "RH", 52.0),
        ("wind_speed", "VW", 2.0),
        ("wind_direction", "DW", 265.0),
        ("reflected_radiation", "RSWR", 0.0),
        # units_multiplier 0.01
        ("snow_height", "HS", 0.85),
        ("precipitation", "PSUM", 0.0),
        ("ground_surface_temperature", "TSG", 0.7),
        ("surface_temperature", "TSS", -11.4),
    ):
        series, readings = the_series(archive, variable, "FIR2", column)
        assert value_at(readings, "2008-11-30T23:00Z") == pytest.approx(expected, abs=1e-9)
        assert (series.interval_s, series.stamp) == (3600.0, "end" if column == "PSUM" else "instant")
        assert series.statistic == ("total" if column == "PSUM" else "sample")
    # FIR2.smet line 1240: 2009-01-21T00:00 … VW and DW are -999, which the header declares
    readings = the_series(archive, "wind_speed", "FIR2", "VW")[1]
    assert np.isnan(value_at(readings, "2009-01-20T23:00Z"))
    # OTT2.smet line 1331 has -999 as well, but its header declares -9999: a value, and a wrong one
    assert value_at(the_series(archive, "wind_speed", "OTT2", "VW")[1], "2009-01-24T18:00Z") == -999.0
    # ISEE2.smet line 12: 2018-12-01T00:00:00 271.55 0.943 273.95 270.75 2
    series, readings = the_series(archive, "solar_radiation", "ISEE2", "ISWR")
    assert (value_at(readings, "2018-11-30T23:00Z"), series.interval_s) == (2.0, 600.0)


def test_climaps(tmp_path: Path, now_ns: int) -> None:
    report, archive = read("sensorscope_davos", tmp_path, now_ns)
    # lines of the four files less their headers; 19, 15, 15 and 14 columns besides the epoch
    rows = (2407, 2413, 2411, 2405)
    assert (report.stations, report.files, report.rows, report.rejects) == (4, 5, sum(rows), {})
    assert report.readings == sum(n * columns for n, columns in zip(rows, (19, 15, 15, 14), strict=True))
    # sensorscope_stn.info line 4; 1200 of its line 1 has no file
    position = archive.stations["1204"].position
    assert (position.lon, position.lat, position.elevation_m) == (9.86735880374908, 46.7715960999604, 2192.0)
    assert set(archive.stations) == {"1200", "1202", "1203", "1204", "1205"}
    # station_1202.csv line 2: 1309737600,3.9499,84.2871,0.0,0.3402,37.9068,4.6,4.1,0.4191,0.4094,…
    instant = "2011-07-04T00:00:00Z"
    for variable, column, expected, replicate in (
        ("air_temperature", "SHT75 / Temperature", 3.9499, 1),
        ("air_temperature", "TNX / Air Temperature", 4.1, 1),
        ("relative_humidity", "SHT75 / Humidity", 84.2871, 1),
        ("surface_temperature", "TNX / Surface Temperature", 4.6, 1),
        ("soil_moisture", "10HS / VWC", 41.91, 1),
        ("soil_moisture", "10HS / VWC [2]", 40.94, 2),
        ("soil_moisture", "10HS / VWC [10]", 34.36, 10),
        ("solar_radiation", "SP-212 / Radiation [2]", 0.0, 2),
    ):
        series, readings = the_series(archive, variable, "1202", column)
        assert value_at(readings, instant) == pytest.approx(expected, abs=1e-9)
        assert (series.replicate, series.interval_s) == (replicate, 60.0)
    # station_1203.csv line 15: 1309738380,5.8799,64.0135,nan,…
    assert np.isnan(value_at(the_series(archive, "precipitation", "1203", "Davis / Rain")[1], "2011-07-04T00:13:00Z"))
    # the humidity of -2.9 % is a value; tests of quality judge it
    assert the_series(archive, "relative_humidity", "1204", "SHT75 / Humidity")[1].value.min() == -2.9093


def test_toa5(tmp_path: Path, now_ns: int) -> None:
    report, archive = read("toa5/Station_Daily.dat", tmp_path, now_ns)
    assert (report.stations, report.rows, report.rejects) == (1, 57, {})
    # 24 columns less the stamp, the record number and 10 times of extremes; one NAN, on line 34
    assert (report.readings, report.missing) == (57 * 12, 1)
    # line 5: "2014-04-11 00:00:00",0,13.04,0,17,…,2.432,…,81.4,…,23.88,…,730,…,728,…,0.872,…,0.026,…,17.91,…,0.559,…
    for variable, column, statistic, expected in (
        ("batt", "Batt_Min", "min", 13.04),
        ("precipitation", "Rain_Tot", "total", 0.0),
        ("air_temperature", "AirT_Max", "max", 17.0),
        ("air_temperature", "AirT_Min", "min", 2.432),
        ("relative_humidity", "RH_Max", "max", 81.4),
        ("relative_humidity", "RH_Min", "min", 23.88),
        ("air_pressure", "BaromPres_Max", "max", 730 * 0.133322387415),
        ("solar_radiation", "SlrkW_Max", "max", 872.0),
        ("slrmj", "SlrMJ_Max", "max", 0.026),
        ("watert", "WaterT_Max", "max", 17.91),
        ("waterlvl", "WaterLvl_Min", "min", 0.559),
    ):
        series, readings = the_series(archive, variable, "Station", column)
        assert value_at(readings, "2014-04-11T00:00Z") == pytest.approx(expected, abs=1e-9)
        assert (series.statistic, series.stamp, series.interval_s) == (statistic, "end", 86_400.0)
        # The stamp is the end: the row belongs to 10 April.
        assert readings.starts_ns()[0] == parse_instant("2014-04-10")
    assert archive.variables["waterlvl"].unit == "ft"
    missing = the_series(archive, "waterlvl", "Station", "WaterLvl_Min")[1]
    assert missing.flag[missing.time_ns == parse_instant("2014-05-10")].tolist() == [MISSING]


def test_netcdf(tmp_path: Path, now_ns: int) -> None:
    report, archive = read("knmi_10min", tmp_path, now_ns)
    assert (report.stations, report.rows, report.rejects) == (55, 55 * 144, {})
    # 44 variables; 109,870 cells hold the fill value (31.5 %)
    assert (report.readings, report.missing) == (55 * 144 * 44, 109_870)
    # by hand, with h5py: station[21] = "06260", its cell [21, 0] of each variable, time[0] = 2303596800 s since 1950
    position = archive.stations["06260"].position
    assert (position.lon, position.lat, position.elevation_m) == pytest.approx((5.1797058644882, 52.098821802977, 1.9))
    assert archive.stations["06260"].name == "DE BILT AWS"
    for variable, column, expected, height_m, statistic in (
        ("air_temperature", "ta", 12.1, None, "mean"),
        ("air_temperature", "tgn", 11.8, 0.1, "min"),
        ("air_temperature", "Tn12", 8.2, None, "min"),
        ("relative_humidity", "rh", 95.0, None, "mean"),
        ("wind_speed", "ff", 4.95, 10.0, "mean"),
        ("wind_gust", "gff", 8.41, 10.0, "max"),
        ("wind_direction", "dd", 224.3, None, "mean"),
        ("solar_radiation", "qg", 2.0, None, "mean"),
        ("dew_point_temperature", "td", 11.4, 1.5, "mean"),
        ("pp", "pp", 1001.92, None, "mean"),
        ("R1H", "R1H", 2.20367, None, "total"),
    ):
        series, readings = the_series(archive, variable, "06260", column)
        assert value_at(readings, "2022-12-31T00:00Z") == pytest.approx(expected, abs=1e-5)
        assert (series.height_m, series.statistic) == (height_m, statistic)
        assert len(readings) == 144
    assert the_series(archive, "air_temperature", "06260", "Tn12")[0].interval_s == 12 * 3600.0
    # "06225", cell [9, 0]: a wind pole, without a thermometer
    assert np.isnan(value_at(the_series(archive, "air_temperature", "06225", "ta")[1], "2022-12-31T00:00Z"))
    # Saba, St. Eustatius and Bonaire lie in the Caribbean
    assert report.far_off == ("78871", "78873", "78990")
    assert value_at(the_series(archive, "air_temperature", "78990", "ta")[1], "2022-12-31T23:50Z") == pytest.approx(
        24.8
    )
    assert any("78990 (7794 km)" in text for text in report.warnings)


def test_sensorthings(tmp_path: Path, now_ns: int) -> None:
    report, archive = read("sensorthings", tmp_path, now_ns)
    # 3 + 2 + 2 + 101 observations; the other file has Datastreams alone
    assert (report.files, report.rows, report.rejects) == (2, 108, {})
    # the first observation of observationsDataFixtures.json: 1009.86 at 2023-03-28T10:30, of Datastreams(1) by the
    # link to the next page; datastreamsByFeatureFixtures.json says that it is in mbar, and where it stands
    series, readings = the_series(archive, "air_pressure", "BGS GGERFS Barometer", "Datastreams(1)")
    assert value_at(readings, "2023-03-28T10:30Z") == pytest.approx(100.986)
    assert (series.variable, len(readings)) == ("air_pressure", 3)
    assert archive.variables["air_pressure"].unit == "kPa"
    assert archive.stations["BGS GGERFS Barometer"].position.lon == pytest.approx(-4.2, abs=0.1)
    # what nothing links to a Datastream keeps its values, in an unknown unit; out of order in the file
    rest = archive.read("observationsDataFixtureRealExample")
    assert (len(rest), value_at(rest, "2023-03-28T12:15Z"), value_at(rest, "2023-03-28T10:00Z")) == (101, 8.81, 6.31)
    assert any("no Datastream is told of" in text for text in report.warnings)
