"""The twenty largest true events of the shared data keep flag 1: rain, gusts, and falls of air temperature.

Ranked by size over all data sets, by kind; each is true by what is beside it: `why` says by what. Larger ones that are
not listed are faults: sensors at the pass that swing between -1 and 124 degC, one that reads 8 K too warm for hours and
comes back, and a gauge that counts 13 mm in an hour while the thirteen others stay dry, and is emptied in the evening.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.flags import GOOD, MISSING, NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.quality_overrides import default_tests
from ingest.quality.flagging import places_of
from tests.bench.bench_quality import IMIS, SMET_COLUMNS, read_smet
from tests.support.judging import judge_by_all

DATA = Path(__file__).parents[4] / "shared" / "data"
KNMI = {
    "rg": (Variable("rg", "mm h-1", "precipitation_rate"), "mean", 600.0, "instant"),
    "pg": (Variable("pg", "mm h-1", "lwe_precipitation_rate"), "mean", 600.0, "instant"),
    "R1H": (Variable("R1H", "mm", "rainfall_amount"), "total", 3_600.0, "end"),
    "R6H": (Variable("R6H", "mm", "rainfall_amount"), "total", 21_600.0, "end"),
    "R12H": (Variable("R12H", "mm", "rainfall_amount"), "total", 43_200.0, "end"),
    "R24H": (Variable("R24H", "mm", "rainfall_amount"), "total", 86_400.0, "end"),
    "gff": (Variable("wind_gust", "m s-1", "wind_speed_of_gust"), "max", 600.0, "instant"),
}
"""By column of the file what ingest takes it for."""
HOUR_NS = 3_600 * 10**9


@dataclass(frozen=True)
class Event:
    """A station, the stamp of its reading, and its size."""

    source: str
    variable: str
    station: str
    at: str
    size: float
    """Value of the reading; of temperature, and of the counter, the change in the hour before."""
    why: str


EVENTS = (
    Event("knmi", "rg", "06283", "2022-12-31T09:00Z", 34.5, "06290, 28 km off, has 6.7; 20 mm in six hours"),
    Event("knmi", "pg", "06350", "2022-12-31T05:40Z", 23.6, "the gauge beside it says 11.2 mm/h"),
    Event("knmi", "pg", "06275", "2022-12-31T07:40Z", 19.5, "the gauge beside it says 16.3 mm/h"),
    Event("knmi", "rg", "06273", "2022-12-31T13:20Z", 18.6, "the sensor of present weather says 16.6 mm/h"),
    Event("knmi", "R1H", "06283", "2022-12-31T09:20Z", 8.367, "06290 5.2, 06275 2.1 mm"),
    Event("knmi", "R6H", "06350", "2022-12-31T06:00Z", 23.48, "06340 20.9, 06356 12.8, 06370 12.6 mm"),
    Event("knmi", "R12H", "06283", "2022-12-31T11:00Z", 33.44, "06275 26.7, 06290 23.9 mm"),
    Event("knmi", "R24H", "06283", "2022-12-31T13:40Z", 35.37, "06275 30.6, 06290 25.1 mm"),
    Event("toa5", "precipitation", "Station", "2014-06-02T00:00Z", 39.62, "the brook rises by half; it cools by 6 K"),
    Event("gsb", "rain_meter", "13", "2007-09-17T23:07Z", 9.6, "nine others have 8.4 to 9.4 mm in the same hour"),
    Event("knmi", "gff", "06203", "2022-12-31T18:40Z", 28.27, "06317 23.4 m/s; mean wind 20.4"),
    Event("knmi", "gff", "06207", "2022-12-31T23:50Z", 25.26, "06208 20.8, 06242 19.9 m/s; mean wind 21.2"),
    Event("knmi", "gff", "06242", "2022-12-31T20:30Z", 25.24, "06229 21.0, 06207 20.3 m/s; mean wind 21"),
    Event("knmi", "gff", "06249", "2022-12-31T21:50Z", 24.99, "06235 18.5, 06225 17.1 m/s"),
    Event("knmi", "gff", "06321", "2022-12-31T20:00Z", 24.85, "06320 21.4, 06203 21.6 m/s"),
    Event("knmi", "gff", "06310", "2022-12-31T13:10Z", 23.76, "06317 20.1, 06319 16.9 m/s; mean wind 18"),
    Event("imis", "air_temperature", "ISEE3", "2018-12-12T16:10Z", -6.4, "ISEE2 falls by 4.1 K in the same minutes"),
    Event("imis", "air_temperature", "GLA2", "2009-01-31T16:00Z", -5.1, "sunset: six of seven fall; 3.8 K more after"),
    Event("gsb", "air_temperature", "12", "2007-10-03T16:53Z", -4.6, "sunset: four others fall by 4.2 to 4.5 K"),
    Event("imis", "air_temperature", "TUJ3", "2008-12-25T03:00Z", -4.5, "a front: GLA2 -4.2, OTT2 -8.6, FIR2 -6.3 K"),
)  # fmt: skip


@cache
def _knmi(column: str) -> tuple[Readings, Variable, dict[str, Station]]:
    netcdf = pytest.importorskip("netCDF4")
    variable, statistic, interval_s, stamp = KNMI[column]
    with netcdf.Dataset(DATA / "knmi_10min" / "20221231.nc") as file:
        names = [str(name) for name in file["station"][:]]
        value = np.ma.filled(file[column][:].astype(np.float64), np.nan)
        lon, lat, height = (np.ma.filled(file[name][0].astype(np.float64), np.nan) for name in ("lon", "lat", "height"))
        seconds = np.asarray(file["time"][:], np.float64)
    stamps = np.round(seconds).astype(np.int64) * 10**9 + int(np.datetime64("1950-01-01", "ns").astype(np.int64))
    stations = {
        name: Station(name, name, (Position(None, float(lon[n]), float(lat[n]), float(height[n])),))
        for n, name in enumerate(names)
    }
    series = tuple(Series(variable.name, name, None, 1, statistic, interval_s, stamp) for name in names)
    return _readings(series, [(stamps, row) for row in value]), variable, stations


@cache
def _gsb(variable: str) -> tuple[Readings, Variable, dict[str, Station]]:
    column = {"air_temperature": 8, "rain_meter": 14}[variable]
    files = [
        np.loadtxt(path, usecols=(0, 7, column))
        for path in sorted((DATA / "sensorscope_gsb").glob("stbernard-meteo-*.txt"))
    ]
    nowhere = Position(None, float("nan"), float("nan"), float("nan"))
    stations = {f"{rows[0, 0]:.0f}": Station(f"{rows[0, 0]:.0f}", "", (nowhere,)) for rows in files}
    parts = []
    for rows in files:
        stamps, first = np.unique(rows[:, 1].astype(np.int64) * 10**9, return_index=True)
        parts.append((stamps, rows[first, 2]))
    series = tuple(Series(variable, name, None, 1, "sample", 120.0) for name in stations)
    return _readings(series, parts), KNOWN_VARIABLES[variable], stations


@cache
def _imis(variable: str) -> tuple[Readings, Variable, dict[str, Station]]:
    read = [read_smet(path, {**SMET_COLUMNS, "TA_HYD": SMET_COLUMNS["TA"]}) for path in sorted(IMIS.glob("*.smet"))]
    read = [one for one in read if variable in one[2]]
    stations = {station.id: station for station, _, _ in read}
    series = tuple(
        Series(variable, station.id, None, 1, "sample", float(np.median(np.diff(stamps))) / 1e9)
        for station, stamps, _ in read
    )
    return (
        _readings(series, [(stamps, columns[variable]) for _, stamps, columns in read]),
        KNOWN_VARIABLES[variable],
        stations,
    )


@cache
def _toa5(variable: str) -> tuple[Readings, Variable, dict[str, Station]]:
    lines = [line.split(",") for line in (DATA / "toa5" / "Station_Daily.dat").read_text().splitlines()]
    column = next(n for n, name in enumerate(lines[1]) if "rain" in name.lower())
    factor = {"mm": 1.0, "in": 25.4, "inch": 25.4, "inches": 25.4}[lines[2][column].strip('"').lower()]
    stamps = np.array([line[0].strip('"').replace(" ", "T") for line in lines[4:]], "datetime64[ns]").astype(np.int64)
    value = np.array([float(line[column].strip('"')) for line in lines[4:]]) * factor
    station = Station("Station", "", (Position(None, float("nan"), float("nan"), float("nan")),))
    series = (Series(variable, "Station", None, 1, "total", 86_400.0, "end"),)
    rain = Variable(variable, "mm", "lwe_thickness_of_precipitation_amount")
    return _readings(series, [(stamps, value)]), rain, {"Station": station}


def _readings(series: tuple[Series, ...], parts: list[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Readings:
    index = np.repeat(np.arange(len(parts), dtype=np.int32), [len(stamps) for stamps, _ in parts])
    stamps, value = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    flag = np.where(np.isnan(value), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings(series, index, stamps, value, flag, stamps).sort_rows()


@cache
def _judged(source: str, variable: str) -> tuple[Readings, NDArray[np.uint8]]:
    """Return readings of a variable, and their flags by the default tests, with the neighbours that there are."""
    readings, kind, stations = {"knmi": _knmi, "gsb": _gsb, "imis": _imis, "toa5": _toa5}[source](variable)
    tests = default_tests(kind)
    assert tests, variable
    return readings, judge_by_all(readings, tests, places_of(readings.series, stations), {}).flag


@pytest.mark.skipif(not DATA.is_dir(), reason="the real station data are not here (../shared/data)")
@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event.variable}-{event.station}")
def test_a_true_event_keeps_flag_1(event: Event) -> None:
    readings, flag = _judged(event.source, event.variable)
    number = [one.station for one in readings.series].index(event.station)
    mine = np.flatnonzero((readings.index == number) & (readings.flag != MISSING))
    stamps, value = readings.time_ns[mine], readings.value[mine]
    at = int(np.argmin(np.abs(stamps - parse_instant(event.at))))
    assert abs(stamps[at] - parse_instant(event.at)) <= 60 * 10**9
    before = int(np.searchsorted(stamps, stamps[at] - HOUR_NS))
    change = event.variable in ("air_temperature", "rain_meter")
    assert value[at] - (value[before] if change else 0.0) == pytest.approx(event.size, rel=0.06)
    # What leads to it and what follows, an hour each, stays good as well.
    near = np.abs(stamps - stamps[at]) <= HOUR_NS
    assert set(flag[mine[near]].tolist()) == {GOOD}
