"""Real folders, ingested with the description that is proposed for them, as it is written.

Rows, stations, times and values are counted in the files by other means than ours. What cannot be described without an
answer is refused, with the question. Whole folders are read in `make soak`, else the first rows of some files.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import netCDF4
import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.times import parse_instant
from tests.end_to_end.in_process import hypergrid

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
LINES = 300
"""Rows of a file that are read outside of the soak."""


@dataclass(frozen=True)
class Reading:
    """A reading as it is in a file, in the unit in which the archive should hold it."""

    variable: str
    unit: str
    station: str
    column: str
    instant: str
    value: float


@dataclass(frozen=True)
class Counted:
    """What a folder holds, by other means."""

    readings: int
    """Cells of its rows, those without a value included."""
    stations: frozenset[str]
    some: tuple[Reading, ...]
    units: Mapping[str, str]
    """Unit of each variable that is to be known."""


def rows_of(path: Path, begins: Callable[[str], bool]) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines() if begins(line)]


def count_gsb(folder: Path) -> Counted:
    tables = [np.loadtxt(path) for path in sorted(folder.glob("stbernard-meteo-*.txt"))]
    units = {
        "air_temperature": "degC", "surface_temperature": "degC", "solar_radiation": "W m-2", "relative_humidity": "%",
        "soil_moisture": "%", "watermark": "kPa", "rain_meter": "mm", "wind_speed": "m s-1", "wind_direction": "degree",
    }  # fmt: skip
    # The clock of this row showed 00:06:00 of 15 September 2007, two hours before UTC; its epoch is 1189807560.
    row = Reading("air_temperature", "degC", "10", "air_temperature", "2007-09-14T22:06:00Z", 5.68)
    return Counted(
        sum(9 * len(table) for table in tables), frozenset(str(int(table[0, 0])) for table in tables), (row,), units
    )


def count_davos(folder: Path) -> Counted:
    cells = 0
    for path in folder.glob("station_*.csv"):
        header, *rows = path.read_text().splitlines()
        cells += header.count(",") * len(rows)
    # station_1202.csv, line 2: 1309737600,3.9499,84.2871,0.0,0.3402,37.9068,4.6,4.1,0.4191,…
    at = "2011-07-04T00:00Z"
    some = (
        Reading("air_temperature", "degC", "1202", "SHT75 / Temperature", at, 3.9499),
        Reading("relative_humidity", "%", "1202", "SHT75 / Humidity", at, 84.2871),
        Reading("soil_moisture", "%", "1202", "10HS / VWC", at, 41.91),
        Reading("surface_temperature", "degC", "1202", "TNX / Surface Temperature", at, 4.6),
    )
    units = {"air_temperature": "degC", "relative_humidity": "%", "soil_moisture": "%", "wind_speed": "m s-1",
             "wind_direction": "degree", "solar_radiation": "W m-2", "precipitation": "mm"}  # fmt: skip
    stations = frozenset(path.stem.removeprefix("station_") for path in folder.glob("station_*.csv"))
    return Counted(cells, stations, some, units)


def count_imis(folder: Path) -> Counted:
    cells = sum(len(row) - 1 for path in folder.glob("*.smet") for row in rows_of(path, lambda line: line[:2] == "20"))
    # FIR2.smet, tz = 1: 2008-12-01T00:00 269.15 0.520 2.0 265 0 85.000 0.000 273.85 261.75; HS is in centimetres
    at = "2008-11-30T23:00Z"
    some = (
        Reading("air_temperature", "degC", "FIR2", "TA", at, -4.0),
        Reading("relative_humidity", "%", "FIR2", "RH", at, 52.0),
        Reading("snow_height", "m", "FIR2", "HS", at, 0.85),
        Reading("ground_surface_temperature", "degC", "FIR2", "TSG", at, 0.7),
        Reading("surface_temperature", "degC", "FIR2", "TSS", at, -11.4),
    )
    units = {"air_temperature": "degC", "relative_humidity": "%", "wind_speed": "m s-1", "wind_direction": "degree",
             "snow_height": "m", "precipitation": "mm"}  # fmt: skip
    return Counted(cells, frozenset(path.stem for path in folder.glob("*.smet")), some, units)


def count_knmi(folder: Path) -> Counted:
    with netCDF4.Dataset(folder / "20221231.nc") as file:
        names = [name for name, variable in file.variables.items()
                 if variable.dimensions == ("station", "time") and name not in ("lat", "lon", "height")]  # fmt: skip
        size = len(file.dimensions["station"]) * len(file.dimensions["time"])
        stations = frozenset(str(name) for name in file["station"][:])
        at = int(np.flatnonzero(file["station"][:] == "06260")[0])
        warm, dry = float(file["ta"][at, 0]), float(file["rh"][at, 0])
    instant = "2022-12-31T00:00Z"
    some = (
        Reading("air_temperature", "degC", "06260", "ta", instant, warm),
        Reading("relative_humidity", "%", "06260", "rh", instant, dry),
    )
    units = {"air_temperature": "degC", "relative_humidity": "%", "wind_speed": "m s-1", "solar_radiation": "W m-2"}
    return Counted(len(names) * size, stations, some, units)


def count_saqc(folder: Path) -> Counted:
    lines = {path.stem: path.read_text().splitlines() for path in folder.glob("*.csv") if path.stem != "config"}
    cells = sum((len(header.split(",")) - 1) * len(rows) for header, *rows in lines.values())
    # data.csv, line 2: 2016-04-01 00:05:48,3573,32.685,29.3157; a battery has 3.6 V. The other probes have values from
    # -12 to 177 where they fail, and nothing says in which unit: whether that is taken as %, depends on the rows.
    at = "2016-04-01T00:05:48Z"
    some = (
        Reading("battery_voltage", "V", "data", "Battery", at, 3.573),
        Reading("soil_moisture", "%", "data", "SM2", at, 29.3157),
    )
    return Counted(cells, frozenset(lines), some, {"battery_voltage": "V", "soil_moisture": "%"})


def count_toa5(folder: Path) -> Counted:
    rows = (folder / "Station_Daily.dat").read_text().splitlines()[4:]
    # 24 columns without the stamp, the record's number and ten times of extremes
    at = "2014-04-11T00:00Z"
    some = (
        Reading("air_temperature", "degC", "Station", "AirT_Max", at, 17.0),
        Reading("air_pressure", "kPa", "Station", "BaromPres_Max", at, 730 * 0.133322387415),
        Reading("solar_radiation", "W m-2", "Station", "SlrkW_Max", at, 872.0),
        Reading("battery_voltage", "V", "Station", "Batt_Min", at, 13.04),
        Reading("water_temperature", "degC", "Station", "WaterT_Max", at, 17.91),
        Reading("water_level", "m", "Station", "WaterLvl_Min", at, 0.559 * 0.3048),
    )
    return Counted(12 * len(rows), frozenset(["Station"]), some, {"precipitation": "mm", "relative_humidity": "%"})


def count_sensorthings(folder: Path) -> Counted:
    def observations(content: object) -> int:
        if isinstance(content, list):
            return sum(map(observations, content))
        if not isinstance(content, dict):
            return 0
        own = "phenomenonTime" in content and "result" in content
        return own + sum(map(observations, content.values()))

    content = json.loads((folder / "observationsDataFixtures.json").read_text())
    barometer = "BGS GGERFS Barometer"
    some = (Reading("air_pressure", "kPa", barometer, "Datastreams(1)", "2023-03-28T10:30Z", 100.986),)
    # Of the other observations no file says where they were made.
    stations = frozenset([barometer, "observationsDataFixtures"])
    return Counted(observations(content), stations, some, {"air_pressure": "kPa"})


FOLDERS: Mapping[str, Callable[[Path], Counted]] = {
    "sensorscope_gsb": count_gsb,
    "sensorscope_davos": count_davos,
    "meteoio_imis": count_imis,
    "knmi_10min": count_knmi,
    "saqc": count_saqc,
    "toa5": count_toa5,
    "sensorthings": count_sensorthings,
}
REFUSED: Mapping[str, tuple[str, ...]] = {
    "meuse": ("meuse.csv: WHICH COLUMN holds the times, 'x', 'y', 'cadmium'", "a table without times has no readings"),
    "ulb_wsn": ("R1.txt: WHAT ARE the 9 columns of its rows, such as '1163438041250 20 1 21,21", "header_lines = 0",
                "column 1 may be the time, as '1163438041250' counts from 1970 (epoch_ms)"),
    "sos": ("OM-GetObservation.xml: it is XML", "EXPORT it as a table of text"),
}  # fmt: skip


def some_of(name: str, target: Path) -> Path:
    """Copy a folder with the first rows of a few of its files of text."""
    source, by_kind = DATA / name, dict[str, int]()
    target.mkdir()
    for path in sorted(source.iterdir(), key=lambda path: (len(path.name), path.name)):
        kind = path.suffix
        by_kind[kind] = by_kind.get(kind, 0) + 1
        if kind == ".nc":
            copy_stations(path, target / path.name, slice(18, 25))
        elif kind in (".json", ".info", ".dat"):
            shutil.copy(path, target)
        elif by_kind[kind] <= 4 or path.name in ("FIR2.smet", "stbernard-meteo-10.txt"):
            (target / path.name).write_text("\n".join(path.read_text().splitlines()[: LINES + 30]) + "\n")
    return target


def copy_stations(path: Path, target: Path, stations: slice) -> None:
    """Copy a NetCDF file with some of its stations."""
    with netCDF4.Dataset(path) as source, netCDF4.Dataset(target, "w") as copy:
        source.set_auto_maskandscale(False)
        copy.set_auto_maskandscale(False)
        copy.setncatts({name: source.getncattr(name) for name in source.ncattrs()})
        for name, dimension in source.dimensions.items():
            copy.createDimension(name, stations.stop - stations.start if name == "station" else len(dimension))
        for name, variable in source.variables.items():
            attributes = {key: variable.getncattr(key) for key in variable.ncattrs()}
            fill = attributes.pop("_FillValue", None)
            own = copy.createVariable(name, variable.dtype, variable.dimensions, fill_value=fill)
            own.setncatts(attributes)
            own[:] = variable[tuple(stations if name == "station" else slice(None) for name in variable.dimensions)]


def ingested(folder: Path, tmp_path: Path) -> tuple[dict[str, object], str]:
    """Ingest a folder as it is proposed, by the commands that a user types."""
    deployment = tmp_path / "proposed.toml"
    done = hypergrid("ingest", "--dry-run", folder, "--write-deployment", deployment)
    assert done.returncode == 0, done.stderr
    done = hypergrid("ingest", tmp_path / "archive", folder, "--deployment", deployment, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), deployment.read_text(encoding="utf-8")


def the_value(archive: Archive, wanted: Reading) -> float:
    numbers = [
        number for number, series in enumerate(archive.series(wanted.variable))
        if series.station == wanted.station and series.source.endswith(f":{wanted.column}")
    ]  # fmt: skip
    assert len(numbers) == 1, wanted
    readings = archive.read(wanted.variable, series=np.array(numbers))
    (row,) = np.flatnonzero(readings.time_ns == parse_instant(wanted.instant))
    return float(readings.value[row])


def assert_as_counted(folder: Path, tmp_path: Path, count: Callable[[Path], Counted]) -> None:
    counted = count(folder)
    report, text = ingested(folder, tmp_path)
    archive = Archive.open(tmp_path / "archive")
    assert report["readings"] == counted.readings
    assert report["readings"] == report["values"] + report["missing"]
    assert report["readings"] == report["stored"] + report["duplicates"] + report["superseded"]
    assert report["rejects"] == {}
    having = {archive.series(name)[index].station for name in archive.variables
              for index in np.unique(archive.read(name).index).tolist()}  # fmt: skip
    assert having == counted.stations
    assert {name: archive.variables[name].unit for name in counted.units} == counted.units
    for wanted in counted.some:
        assert archive.variables[wanted.variable].unit == wanted.unit
        assert the_value(archive, wanted) == pytest.approx(wanted.value, abs=1e-5), wanted
    assert "WHICH UNIT" not in text


def needs(name: str) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"the real station files ../shared/data/{name} are not here")


@pytest.mark.parametrize("name", FOLDERS)
def test_some_of_a_folder_is_ingested_as_proposed(name: str, tmp_path: Path) -> None:
    needs(name)
    assert_as_counted(some_of(name, tmp_path / name), tmp_path, FOLDERS[name])


@pytest.mark.soak
@pytest.mark.parametrize("name", FOLDERS)
def test_a_whole_folder_is_ingested_as_proposed(name: str, tmp_path: Path) -> None:
    needs(name)
    assert_as_counted(DATA / name, tmp_path, FOLDERS[name])


@pytest.mark.parametrize("name", REFUSED)
def test_a_folder_without_readings_is_refused_with_the_question(name: str, tmp_path: Path) -> None:
    needs(name)
    done = hypergrid("ingest", "--dry-run", DATA / name, "--write-deployment", tmp_path / "proposed.toml")
    assert done.returncode == 2
    assert not (tmp_path / "proposed.toml").exists()
    said = " ".join(done.stderr.split())
    for part in REFUSED[name]:
        assert part in said


def test_every_folder_is_judged() -> None:
    if not DATA.is_dir():
        pytest.skip("the real station files ../shared/data are not here")
    assert {path.name for path in DATA.iterdir() if path.is_dir()} == {*FOLDERS, *REFUSED}
