"""Kinds of dirty files that people have: what is proposed, what an ingest gives, and that its ledger adds up."""

import gzip
import io
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment
from ingest.batch.dry_run import dry_run
from ingest.batch.proposal import propose_deployment
from ingest.batch.report import IngestReport
from ingest.deployment.deployment_file import load
from ingest.deployment.station_table import read_station_table
from ingest.formats import recognise
from ingest.job import ingest
from ingest.reprocess.remap import remap

ROOT = Path(__file__).parents[2]
Content = str | bytes


def stamps(first: str, count: int, *, step_min: int = 60, form: str = "%Y-%m-%dT%H:%M") -> list[str]:
    start = datetime.fromisoformat(first).replace(tzinfo=UTC)
    return [(start + timedelta(minutes=step_min * number)).strftime(form) for number in range(count)]


def hourly(header: str, cells: Callable[[int], str], count: int = 48) -> str:
    rows = [f"{stamp},{cells(number)}" for number, stamp in enumerate(stamps("2021-06-01", count))]
    return "\n".join([f"time,{header}", *rows]) + "\n"


def warm(number: int) -> float:
    """Return a temperature of an hour, 15.0 to 22.7 degC."""
    return round(15 + 8 * (number % 24) / 24, 1)


def foreign(header: str, station: str, date: str) -> str:
    """Return a day of hourly rows with five variables, in the form of a spreadsheet."""
    rows = [f"{stamp};{station};{warm(n)};{60 + n};2.5;0.2;{840 + n % 5}"
            for n, stamp in enumerate(stamps("2021-06-15", 24, form=date))]  # fmt: skip
    return "\n".join([header, *rows]) + "\n"


def summer_time() -> str:
    """Return ten-minute rows of eight stations over the end of summer time, by the clock on the wall."""
    local = [*stamps("2021-10-30", 27 * 6, step_min=10), *stamps("2021-10-31T02:00", 72, step_min=10)]
    rows = [f"S{s},{t},{5 + n / 100:.2f},{60 + n / 10:.1f},{2 + s}"
            for s in range(8) for n, t in enumerate(local)]  # fmt: skip
    return "\n".join(["station,time,Temperature [degC],Humidity [%],Wind speed [m/s]", *rows]) + "\n"


def compass(number: int) -> str:
    points = "N NNE NE ENE E ESE SE SSE S SSW SW WSW W WNW NW NNW".split()
    return f"{number % 7}.5,{points[number % 16]}"


def german(text: str) -> str:
    """Return numbers with decimal commas; dates keep their points."""
    return re.sub(r"(?<=;)(-?\d+)\.(\d+)(?=[;\n])", r"\1,\2", text)


def zipped(files: Mapping[str, Content]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def tarred(files: Mapping[str, Content]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, content in files.items():
            data = content.encode() if isinstance(content, str) else content
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


PLACES = """Stationsname;Kürzel;Länge;Breite;Höhe (m ü. M.)
Davos;DAV;9° 50' 36" O;46° 48' 47" N;1594
Chur;CHU;9,5333;46,85;556,5
Arosa;ARO;9.6797 E;N 46.7926;
"""
XML = "<?xml version='1.0'?>\n<data>\n" + "".join(
    f"  <reading station='A{n}' time='2007-10-01T00:00'><ta>{n}</ta></reading>\n" for n in range(100)
)
AIR, HUMIDITY, WIND = "air_temperature", "relative_humidity", "wind_speed"
T = "Temperature [degC]"
WORDS = ("n.a.", "---", "NaN", "kaputt")
FIVE = {
    AIR: ("degC", 15.0, 22.7),
    HUMIDITY: ("%", 60.0, 83.0),
    WIND: ("m s-1", 2.5, 2.5),
    "precipitation": ("mm", 0.2, 0.2),
    "air_pressure": ("kPa", 84.0, 84.4),
}


@dataclass(frozen=True)
class Dirty:
    """One kind of dirty file, as a folder, and what its user gets."""

    name: str
    """As in the table of `ingest/README.md`."""
    files: Mapping[str, Content]
    counts: tuple[int, int, int]
    """Values, missing readings and rejected ones, once it is ingested as proposed."""
    variables: Mapping[str, tuple[str, float, float]] = field(default_factory=dict)
    """Unit, lowest and highest value of each variable then."""
    proposed: tuple[str, ...] = ()
    """Texts of the proposed description."""
    warned: tuple[str, ...] = ()
    """Texts among the warnings of an ingest without a description."""
    stations: tuple[str, ...] = ("a",)
    stored: int | None = None
    """Readings in the archive, if others than values and missing ones: of two with one time only one is in force."""


DIRTY = (
    Dirty(
        "the hour that summer time doubles",
        {"net.csv": summer_time()},
        (8 * 234 * 3, 0, 0),
        {AIR: ("degC", 5.0, 7.33), HUMIDITY: ("%", 60.0, 83.3), WIND: ("m s-1", 2.0, 9.0)},
        ('timezone = "Europe/Berlin"', "its clocks go back where times are there twice"),
        ("144 readings have a time twice, from 2021-10-31T02:00 on", "set timezone", "Europe/Berlin"),
        tuple(f"S{s}" for s in range(8)),
    ),
    Dirty(
        "one bad cell of a row",
        {"a.csv": hourly(f"{T},RH [%]", lambda n: f"{warm(n)},{'#!' if n == 5 else 60 + n % 9}")},
        (95, 0, 1),
        {AIR: ("degC", 15.0, 22.7), HUMIDITY: ("%", 60.0, 68.0)},
        warned=("1 rejects: 1 x bad number",),
    ),
    Dirty(
        "missing values as numbers",
        {"a.csv": hourly(f"{T},RH [%]",
                         lambda n: f"{warm(n) if n % 6 else -999},{-9999 if n % 8 == 3 else 60 + n % 9}")},
        (82, 14, 0),
        {AIR: ("degC", 15.3, 22.7), HUMIDITY: ("%", 60.0, 68.0)},
        ('"-999", "-9999"]', "-999 is taken for a missing value: 8 times in 'Temperature [degC]'"),
    ),
    Dirty(
        "missing values as words",
        {"a.csv": hourly(f"{T},RH [%]", lambda n: f"{warm(n) if n % 3 else WORDS[n // 3 % 4]},{60 + n % 9}")},
        (80, 16, 0),
        {AIR: ("degC", 15.3, 22.7), HUMIDITY: ("%", 60.0, 68.0)},
        ('"n.a.", "---", "kaputt"]', "kaputt is taken for a missing value: 4 times"),
        ("12 rejects: 12 x bad number",),
    ),
    Dirty(
        "missing values in the first rows",
        {"a.csv": hourly(f"{T},RH [%]", lambda n: f"{'n.a.' if n < 400 else warm(n)},{60 + n % 9}", 448)},
        (48 + 448, 400, 0),
        {AIR: ("degC", 15.0, 22.7), HUMIDITY: ("%", 60.0, 68.0)},
        ('"n.a."]',),
    ),
    Dirty(
        "positions in a table",
        {"data.csv": "station," + hourly(T, lambda n: f"{warm(n)}", 24).replace("\n2021", "\nDAV,2021"),
         "standorte.csv": PLACES},
        (24, 0, 0),
        {AIR: ("degC", 15.0, 22.7)},
        ('stations = "standorte.csv"', "a table of 3 stations"),
        ("a table of stations was not used", "--write-deployment"),
        ("DAV",),
    ),
    Dirty(
        "German headers, decimal commas",
        {"a.csv": german(foreign("Datum;Uhrzeit;Station;Lufttemperatur [°C];Luftfeuchtigkeit [%];"
                                 "Windgeschwindigkeit [m/s];Niederschlag [mm];Luftdruck [hPa]", "Davos",
                                 "%d.%m.%Y;%H:%M"))},
        (120, 0, 0), FIVE, ('decimal = ","', 'time_column = ["Datum", "Uhrzeit"]'), stations=("Davos",),
    ),
    Dirty(
        "French headers",
        {"a.csv": foreign("Date;Heure;Nom de la station;Température de l'air (°C);Humidité relative (%);"
                          "Vitesse du vent (m/s);Précipitations (mm);Pression (hPa)", "Sion", "%d/%m/%Y;%H:%M")},
        (120, 0, 0), FIVE, ('time_column = ["Date", "Heure"]', 'station_column = "Nom de la station"'),
        stations=("Sion",),
    ),
    Dirty(
        "Spanish headers",
        {"a.csv": foreign("Fecha;Hora;Estación;Temperatura del aire (°C);Humedad relativa (%);"
                          "Velocidad del viento (m/s);Precipitación (mm);Presión (hPa)", "Ávila", "%d/%m/%Y;%H:%M")},
        (120, 0, 0), FIVE, ('station_column = "Estación"',), stations=("Ávila",),
    ),
    Dirty(
        "Italian headers",
        {"a.csv": foreign("Data;Ora;Stazione;Temperatura dell'aria (°C);Umidità relativa (%);"
                          "Velocità del vento (m/s);Precipitazione (mm);Pressione (hPa)", "Aosta", "%d/%m/%Y;%H:%M")},
        (120, 0, 0), FIVE, ('time_column = ["Data", "Ora"]',), stations=("Aosta",),
    ),
    Dirty(
        "a date and a time of day under unknown names",
        {"a.csv": "Tagesdatum;Uhr;Temp [degC]\n" + "".join(
             f"{stamp};{warm(n)}\n" for n, stamp in enumerate(stamps("2021-06-15", 48, form="%d.%m.%Y;%H:%M")))},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, ("'Uhr' is the time of day",),
    ),
    Dirty(
        "decimal commas in quotes",
        {"a.csv": hourly(T, lambda n: f'"{warm(n)}"'.replace(".", ","))},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, ('decimal = ","',),
    ),
    Dirty(
        "kelvin under the name of degC",
        {"a.csv": hourly(T, lambda n: f"{warm(n) + 273.15:.2f}")},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, ('unit = "K"', "are not degC as the header says, but K"),
    ),
    Dirty(
        "hectopascals without a unit",
        {"a.csv": hourly("Pressure", lambda n: f"{1010 + n % 9}")},
        (48, 0, 0), {"air_pressure": ("kPa", 101.0, 101.8)}, ('unit = "hPa"', "are not kPa, but hPa"),
    ),
    Dirty(
        "Fahrenheit without a unit",
        {"a.csv": hourly("Temperature", lambda n: f"{warm(n) * 1.8 + 32:.2f}")},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, ('unit = "degF"',),
    ),
    Dirty(
        "humidity as a fraction",
        {"a.csv": hourly("RH", lambda n: f"{0.5 + n % 9 / 20:.2f}")},
        (48, 0, 0), {HUMIDITY: ("%", 50.0, 90.0)}, ('unit = "dimensionless"',),
    ),
    Dirty(
        "a pressure that may be two units",
        {"a.csv": hourly(f"{T},Pressure", lambda n: f"{warm(n)},{740 + n % 9}")},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, ('# WHICH UNIT, hPa or mmHg? "Pressure"',),
    ),
    Dirty(
        "two headers in files of one pattern",
        {f"log_{s}.csv": hourly(T + ",RH [%]" * (s % 2), lambda n, s=s: f"{warm(n)}" + f",{60 + s}" * (s % 2))
         for s in range(4)} | {"log_2.csv": hourly(T, lambda n: f"{warm(n) + 1}")},
        (4 * 48 + 2 * 48, 0, 0), {AIR: ("degC", 15.0, 23.7), HUMIDITY: ("%", 61.0, 63.0)},
        ('files = "log_*.csv"',), stations=("log_0", "log_1", "log_2", "log_3"),
    ),
    Dirty(
        "two forms of text in files of one pattern",
        {"log_0.csv": hourly(T, lambda n: f"{warm(n)}"),
         "log_1.csv": hourly(T, lambda n: f"{warm(n)}").replace(",", ";"),
         "log_2.csv": hourly(T, lambda n: f"{warm(n) + 1}")},
        (3 * 48, 0, 0), {AIR: ("degC", 15.0, 23.7)}, ('files = "log_1.csv"',), stations=("log_0", "log_1", "log_2"),
    ),
    Dirty(
        "counts and deviations beside a temperature",
        {"a.csv": hourly(f"{T},Temperature_Count,Temperature_Std,TL,Battery temperature",
                         lambda n: f"{warm(n)},{120 - n % 3},{0.2 + n % 3 / 10:.1f},{12_000 + n},{warm(n) + 9:.1f}")},
        (5 * 48, 0, 0), {AIR: ("degC", 15.0, 22.7)},
        ("'count' says that it is something else", "are no air temperature in degC or K or degF"),
    ),
    Dirty(
        "directions in words",
        {"a.csv": hourly("Wind speed [m/s],Wind direction", compass)},
        (96, 0, 0), {WIND: ("m s-1", 0.5, 6.5), "wind_direction": ("degree", 0.0, 337.5)},
        ("'Wind direction' has directions as words",),
    ),
    Dirty(
        "one variable in two units",
        {"a.csv": hourly("Wind speed [m/s]", lambda n: f"{n % 7}.5"),
         "b.csv": hourly("Wind speed [mph]", lambda n: f"{n % 7}.5")},
        (96, 0, 0), {WIND: ("m s-1", 0.22352, 6.5)}, ('unit = "m s-1"', 'unit = "mph"'), stations=("a", "b"),
    ),
    Dirty(
        "rain",
        {"a.csv": hourly("precipitation [mm]", lambda n: f"{0.2 * (n % 3):.1f}")},
        (48, 0, 0), {"precipitation": ("mm", 0.0, 0.4)},
    ),
    Dirty(
        "text that is no table",
        {"a.csv": hourly(T, lambda n: f"{warm(n)}"), "b.xml": XML},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)}, warned=("files that no feed reads were left out: 1 (b.xml)",),
    ),
    Dirty(
        "a column for each station",
        {"air_temperature.csv": hourly(
            "Davos,Chur,Arosa",
            lambda n: f"{warm(n)},{'?' if n == 7 else warm(n) + 1},{'' if n == 9 else warm(n) + 2}")},
        (3 * 48 - 2, 1, 1), {AIR: ("degC", 15.0, 24.7)}, ('layout = "column_per_station"',),
        stations=("Arosa", "Chur", "Davos"),
    ),
    Dirty(
        "a folder as tar.gz",
        {"logs.tar.gz": tarred({"a.csv": hourly(T, lambda n: f"{warm(n)}"),
                                "b.csv.gz": gzip.compress(hourly(T, lambda n: f"{warm(n) + 1}").encode())})},
        (96, 0, 0), {AIR: ("degC", 15.0, 23.7)}, stations=("a", "b"),
    ),
    Dirty(
        "a zip in a zip",
        {"logs.zip": zipped({"old/c.zip": zipped({"c.csv": hourly(T, lambda n: f"{warm(n)}")}),
                             "a.csv": hourly(T, lambda n: f"{warm(n) + 1}")})},
        (96, 0, 0), {AIR: ("degC", 15.0, 23.7)}, stations=("a", "c"),
    ),
    Dirty(
        "rows that are there twice",
        {"a.csv": hourly(T, lambda n: f"{warm(n)}") + f"2021-06-01T05:00,9.9\n2021-06-01T06:00,{warm(6)}\n"},
        (50, 0, 0), {AIR: ("degC", 9.9, 22.7)}, stored=48,
    ),
    Dirty(
        "stations in a column of an unknown name",
        {"a.csv": f"time,Punkt,Kennung,{T}\n" + "".join(
             f"{stamp},{10 * s},{n % 3},{warm(n) + s}\n" for n, stamp in enumerate(stamps("2021-06-01", 48))
             for s in (1, 2, 3)),
         "b.csv": f"time,Gerät,{T}\n" + "".join(
             f"{stamp},{s},{warm(n)}\n" for s in ("Nord", "Süd") for n, stamp in enumerate(stamps("2021-06-01", 48)))},
        (3 * 48 * 2 + 2 * 48, 0, 0), {AIR: ("degC", 15.0, 25.7)},
        ('station_column = "Punkt"', "'Punkt' is the station, by its values: 3 in 144 rows (10, 20, 30)",
         'station_column = "Gerät"'),
        stations=("10", "20", "30", "Nord", "Süd"),
    ),
    Dirty(
        "the arrival in a column",
        {"a.csv": hourly(f"received_at,{T}", lambda n: f"2021-06-{1 + n // 24:02}T{n % 24:02}:{10 + n}:00Z,{warm(n)}")},
        (48, 0, 0), {AIR: ("degC", 15.0, 22.7)},
        ('arrival_column = "received_at"', "# readings arrived 600 to 3420 s after their times"),
    ),
)  # fmt: skip


def made(dirty: Dirty, folder: Path) -> Path:
    folder.mkdir()
    for name, content in dirty.files.items():
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def assert_adds_up(report: IngestReport, cells: int | None = None) -> None:
    """Check the project's ledger: what was read is in the archive, superseded, a duplicate, or rejected."""
    assert report.readings == report.values + report.missing
    assert report.readings == report.stored + report.superseded + report.duplicates
    assert cells is None or report.values + report.missing + report.readings_rejected == cells


@pytest.mark.parametrize("dirty", DIRTY, ids=[dirty.name for dirty in DIRTY])
def test_a_dirty_folder_is_read_as_it_is_proposed(dirty: Dirty, tmp_path: Path, now_ns: int) -> None:
    folder = made(dirty, tmp_path / "in")
    text = propose_deployment(dry_run([folder]), folder / "deployment.toml")
    for part in dirty.proposed:
        assert part in text
    (folder / "deployment.toml").write_text(text, encoding="utf-8")
    # No two feeds have one pattern.
    patterns = [feed.files for feed in load(folder / "deployment.toml").feeds]
    assert len(patterns) == len(set(patterns))
    report = ingest([folder], tmp_path / "a", engine="inprocess", now_ns=now_ns)
    assert_adds_up(report, sum(dirty.counts))
    assert (report.values, report.missing, report.readings_rejected) == dirty.counts
    archive = Archive.open(tmp_path / "a")
    for name, (unit, low, high) in dirty.variables.items():
        values = archive.read(name).value
        assert archive.variables[name].unit == unit
        assert (np.nanmin(values), np.nanmax(values)) == pytest.approx((low, high))
    held = sum(len(archive.read(name)) for name in archive.variables)
    assert held == (sum(dirty.counts[:2]) if dirty.stored is None else dirty.stored)
    found = {archive.series(name)[at].station for name in archive.variables for at in archive.read(name).index.tolist()}
    assert tuple(sorted(found)) == dirty.stations


@pytest.mark.parametrize("dirty", DIRTY, ids=[dirty.name for dirty in DIRTY])
def test_a_dirty_folder_without_a_description_adds_up_too(dirty: Dirty, tmp_path: Path, now_ns: int) -> None:
    report = ingest([made(dirty, tmp_path / "in")], tmp_path / "a", engine="inprocess", now_ns=now_ns)
    assert_adds_up(report)
    said = "\n".join(report.warnings)
    for part in dirty.warned:
        assert part in said


def test_the_readme_lists_each_kind() -> None:
    text = (ROOT / "ingest" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \| .+ \|$", text[text.index("**Dirty files.**") :], re.MULTILINE)
    assert [name for name in rows if name != "what is dirty"][: len(DIRTY)] == [dirty.name for dirty in DIRTY]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        # A logger of one station: neither a state, nor a counter, nor classes of a measurement.
        ("state", lambda n: f"{n // 7 % 2}"),
        ("number", lambda n: f"{n % 10}"),
        ("class", lambda n: "ABC"[n * n % 3]),
        ("remark", lambda n: "maintenance" if n == 7 else "ok"),
        ("version", lambda n: "1" if n < 30 else "2"),
    ],
)
def test_a_column_that_tells_no_times_apart_is_no_station(
    header: str, row: Callable[[int], str], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(hourly(f"{header},{T}", lambda n: f"{row(n)},{warm(n)}", 96))
    assert "station_column" not in propose_deployment(dry_run([tmp_path]))


def test_depths_of_a_station_are_asked_about(tmp_path: Path) -> None:
    rows = [f"{stamp},{depth},{warm(n)}" for n, stamp in enumerate(stamps("2021-06-01", 24)) for depth in (5, 20, 50)]
    (tmp_path / "a.csv").write_text("time,depth_cm,soil temperature [degC]\n" + "\n".join(rows) + "\n")
    text = propose_deployment(dry_run([tmp_path]))
    assert "# 'depth_cm' TELLS ROWS OF ONE TIME APART, and is no station by its name" in text
    assert "station_column" not in text


def test_stations_that_take_turns_are_told_by_their_intervals(tmp_path: Path) -> None:
    rows = sorted((n * 60 + 7 * s + (n * n + s) % 3, s, warm(n)) for n in range(60) for s in range(5))
    (tmp_path / "a.csv").write_text(f"epoch,knoten,{T}\n" + "".join(f"{1622505600 + t},{s},{v}\n" for t, s, v in rows))
    assert 'station_column = "knoten"' in propose_deployment(dry_run([tmp_path]))


def test_unknown_text_is_refused() -> None:
    assert recognise(XML.encode(), "b.xml") is None
    assert recognise(XML.replace("ta", "x,1").encode(), "c.xml") is None
    rows = "".join(f"{1163438041250 + n} {n % 9} 1 21,2{n % 9}\n" for n in range(300))
    assert recognise(rows.encode(), "R1.txt") is None


def test_a_table_of_stations_has_degrees_in_any_form(tmp_path: Path) -> None:
    path = tmp_path / "orte.csv"
    path.write_text(PLACES, encoding="cp1252")
    davos, chur, arosa = read_station_table(path)
    assert (davos.id, davos.name, davos.position.elevation_m) == ("DAV", "Davos", 1594.0)
    degrees = (9 + 50 / 60 + 36 / 3600, 46 + 48 / 60 + 47 / 3600)
    assert (davos.position.lon, davos.position.lat) == pytest.approx(degrees)
    assert (chur.position.lon, chur.position.lat, chur.position.elevation_m) == (9.5333, 46.85, 556.5)
    assert (arosa.position.lon, arosa.position.lat) == (9.6797, 46.7926)
    assert np.isnan(arosa.position.elevation_m)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,lon,lat\na,46.5,120.0\n", "'a' has latitude 120 and longitude 46.5, which are probably swapped"),
        ("id,lon,lat\na,7,46\nb,8,47\na,9,48\n", "lines 2 and 4: station 'a' is there twice"),
        ("id,lon,lat\na,600000,200000\n", "convert projected coordinates first"),
        ("id,lon,lat\n,7,46\n", "there is no station"),
        ("id,lon,lat\na,seven,46\n", "lon needs degrees such as 46.5"),
        ("id,lon,lat\na,7° 30' O,46\n", "may be east .Ost. or west .ouest."),
        ("id,lon,lat\na,7° 61',46\n", "minutes and seconds of lon are below 60"),
        ("id,name\na,b\n", "needs a column for the station and columns for longitude and latitude"),
        ("id,lon,lat\n", "has no station below its header"),
    ],
)
def test_a_table_of_stations_that_cannot_be_used_is_refused(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidDeployment, match=said):
        read_station_table(tmp_path / "t.csv")


def test_stations_without_a_position_and_some_declared_beside_a_table(tmp_path: Path, now_ns: int) -> None:
    (tmp_path / "in").mkdir()
    for name in ("a", "b", "c"):
        (tmp_path / "in" / f"{name}.csv").write_text(hourly(T, lambda n, name=name: f"{warm(n) + ord(name)}"))
    (tmp_path / "in" / "where.csv").write_text("station;latitud;longitud\na;-33,5;70,6 O\nb;;\na;-33,5;70,6 O\n")
    text = propose_deployment(dry_run([tmp_path / "in"]), tmp_path / "in" / "deployment.toml")
    text += '\n[[station]]\nid = "b"\nlon = -70.0\nlat = -33.0\n'
    (tmp_path / "in" / "deployment.toml").write_text(text)
    report = ingest([tmp_path / "in"], tmp_path / "x", engine="inprocess", now_ns=now_ns)
    stations = Archive.open(tmp_path / "x").stations
    assert (stations["a"].position.lon, stations["a"].position.lat) == (-70.6, -33.5)
    assert stations["b"].position.lon == -70.0
    assert any(text.endswith("cannot be interpolated: c") for text in report.warnings)
    # The table is kept with the description, so that the files can be read again.
    (tmp_path / "in" / "where.csv").unlink()
    assert remap(tmp_path / "x", now_ns=now_ns + 1).same == 3 * 48


def test_a_deployment_names_a_table_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "deployment.toml").write_text(
        '[network]\nname = "n"\nstations = "none.csv"\n[[feed]]\nname = "f"\nfiles = "*"\nformat = "csv"\n'
    )
    with pytest.raises(InvalidDeployment, match=r"network.stations names 'none.csv', which is not beside the file"):
        load(tmp_path / "deployment.toml")


def test_a_zip_in_a_zip_is_opened_once_and_within_limits(tmp_path: Path, now_ns: int) -> None:
    table = hourly(T, lambda n: f"{warm(n)}")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "deep.zip").write_bytes(zipped({"a.zip": zipped({"b.zip": zipped({"x.csv": table})})}))
    (tmp_path / "in" / "bomb.zip").write_bytes(zipped({"a.zip": zipped({"x.csv": table + "\n" * (80 << 20)})}))
    (tmp_path / "in" / "cut.tar.gz").write_bytes(tarred({"a.csv": table})[:200])
    (tmp_path / "in" / "a.csv").write_text(table)
    report = ingest([tmp_path / "in"], tmp_path / "a", engine="inprocess", now_ns=now_ns)
    assert report.values == 48
    assert report.rejects == {"packed too densely": 1, "damaged archive": 1}
    assert any("deep.zip/a.zip/b.zip" in text for text in report.warnings)


def test_a_line_of_a_matrix_that_cannot_be_read_costs_a_reading_of_each_station(tmp_path: Path, now_ns: int) -> None:
    (tmp_path / "in").mkdir()
    table = hourly("Davos,Chur,Arosa", lambda n: f"{warm(n)},{warm(n) + 1},{warm(n) + 2}")
    (tmp_path / "in" / "t.csv").write_text(table + "2021-06-31T00:00,1,2,3\n2021-06-03T00:00,x,y,3\n")
    (tmp_path / "in" / "deployment.toml").write_text(
        '[network]\nname = "n"\nslice_s = 3600\n[[feed]]\nname = "f"\nfiles = "t*.csv"\nformat = "csv"\n'
        'layout = "column_per_station"\n[feed.columns]\nvalue = {variable = "air_temperature", unit = "degC"}\n'
    )
    report = ingest([tmp_path / "in"], tmp_path / "a", engine="inprocess", now_ns=now_ns)
    assert_adds_up(report, 50 * 3)
    assert (report.values, report.readings_rejected) == (48 * 3 + 1, 3 + 2)
    archive = Archive.open(tmp_path / "a")
    assert [(one.line, one.column) for one in archive.rejects()] == [(50, "time"), (51, "Davos"), (51, "Chur")]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('layout = "wide"', "layout"),
        ('layout = "column_per_station"', "one entry in .feed.columns., for the variable of all columns; got .* and 0"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(more: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "deployment.toml").write_text(
        f'[network]\nname = "n"\n[[feed]]\nname = "f"\nfiles = "*"\nformat = "csv"\n{more}\n'
    )
    with pytest.raises(InvalidDeployment, match=said):
        load(tmp_path / "deployment.toml")
