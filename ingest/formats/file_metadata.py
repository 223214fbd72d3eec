"""File metadata: positions, units, names, statistics, intervals and stamps, which a deployment can override."""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.readings import Position, Stamp, Station, Statistic
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import DIMENSIONLESS_TEXT, KNOWN_VARIABLES, Variable, check_unit, convert

VARIABLE_NAME: Final = re.compile(r"^[A-Za-z][A-Za-z0-9_]*$")
"""Pattern of variable names."""
UNKNOWN: Final = "unknown"

COMMON: Final = {
    **KNOWN_VARIABLES,
    **{
        variable.name: variable
        for variable in (
            Variable("snow_height", "m", "surface_snow_thickness", "Snow height"),
            Variable("reflected_radiation", "W m-2", "surface_upwelling_shortwave_flux_in_air", "Reflected radiation"),
            Variable("longwave_radiation", "W m-2", "surface_downwelling_longwave_flux_in_air", "Longwave radiation"),
            Variable("wind_gust", "m s-1", "wind_speed_of_gust", "Wind gust"),
            Variable("dew_point_temperature", "degC", "dew_point_temperature", "Dew point"),
            Variable("ground_surface_temperature", "degC", None, "Temperature at the ground's surface, below snow"),
            Variable("soil_temperature", "degC", "soil_temperature", "Soil temperature"),
        )
    },
}
"""Common variables of files, with the unit that an archive uses unless one is declared."""

_STANDARD: Final = {variable.standard_name: variable for variable in COMMON.values() if variable.standard_name} | {
    "total_downwelling_shortwave_flux_in_air": COMMON["solar_radiation"],
    "downwelling_shortwave_flux_in_air": COMMON["solar_radiation"],
    "surface_air_pressure": COMMON["air_pressure"],
    "wind_to_direction": Variable(
        "wind_to_direction", "degree", "wind_to_direction", "Direction that the wind goes to"
    ),
}
# For CF, "C" is coulomb, which never occurs in a station's file.
_UNITS: Final = {
    **dict.fromkeys(
        ("c", "cel", "deg c", "degc", "deg_c", "°c", "celsius", "degrees celsius", "degree celsius"), "degC"
    ),
    **dict.fromkeys(("degree_celsius", "degrees_celsius", "degrees_c", "degree_c", "degrees c"), "degC"),
    **dict.fromkeys(("f", "deg f", "degf", "deg_f", "°f", "fahrenheit", "degrees fahrenheit"), "degF"),
    **dict.fromkeys(("k", "deg k", "kelvin", "degrees kelvin"), "K"),
    **dict.fromkeys(("volts", "volt", "v"), "V"),
    **dict.fromkeys(("feet", "ft"), "ft"),
    **dict.fromkeys(("deg", "degree", "degrees", "°", "degree_true", "degrees_true", "degt"), "degree"),
    **dict.fromkeys(("%", "percent", "pct", "%rh"), "%"),
    **dict.fromkeys(("m/s", "m s-1", "meters/second", "metres/second", "m/sec", "mps"), "m s-1"),
    **dict.fromkeys(("1", "-", "ratio", "fraction"), "1"),
}
"""CF units by common spellings."""
_WORDS: Final[Mapping[str, Statistic]] = {
    **dict.fromkeys(("avg", "average", "mean"), "mean"),
    **dict.fromkeys(("max", "maximum"), "max"),
    **dict.fromkeys(("min", "minimum"), "min"),
    **dict.fromkeys(("tot", "total", "sum", "totalised"), "total"),
    **dict.fromkeys(("smp", "sample", "point", "instantaneous"), "sample"),
}
_USUAL: Final = (
    (r"air_?t(emp(erature)?)?(c|f|_c|_f)?|t_?air|ta|temp(erature)?|air temperature", "air_temperature"),
    (r"(relative_?)?hum(idity)?|rh", "relative_humidity"),
    (r"(baro|air_?p|bp|press|p$|pa$|atmos).*", "air_pressure"),
    (r"(slr|sol|solar|global|glob|sw|pyr|iswr|ghi).*", "solar_radiation"),
    (r"rain.*|precip.*|psum|prcp", "precipitation"),
    (r"ws|wind_?s(peed)?(_ms)?|wspd|windspeed|vw", "wind_speed"),
    (r"wd|wind_?d(ir(ection)?)?|wdir|dw", "wind_direction"),
    (r"(vwc|soil_?(m|w)).*", "soil_moisture"),
    (r"soil_?t(emp)?.*", "soil_temperature"),
    (r"dew_?p(oint)?.*|td", "dew_point_temperature"),
    (r"snow_?(h|d).*|hs", "snow_height"),
)
"""Patterns of logger names of variables in `COMMON`; the unit is checked, too."""
_PART: Final = re.compile(r"^([A-Za-zµΩ°%]+)(-?\d+)?$")


@dataclass(frozen=True)
class ColumnMetadata:
    """Metadata of a column; None if not in the file."""

    variable: Variable | None = None
    unit: str | None = None
    """Unit of the numbers that the parser returns."""
    height_m: float | None = None
    replicate: int | None = None
    statistic: Statistic | None = None
    interval_s: float | None = None
    stamp: Stamp | None = None


@dataclass(frozen=True)
class FileMetadata:
    """Metadata in a file."""

    columns: Mapping[str, ColumnMetadata] = field(default_factory=dict)
    """By column name."""
    stations: tuple[Station, ...] = ()
    """Stations with positions; each position is valid from its first instant on."""
    first_ns: int | None = None
    """First instant of the file [ns since 1970 UTC].

    From then on, its station positions are valid if they differ from earlier ones.
    """
    zone: str | None = None
    """Zone of its times, if given."""
    notes: tuple[str, ...] = ()
    """Notes for the user."""


NO_METADATA: Final = FileMetadata()


def station_at(
    station: str, lon: float, lat: float, elevation_m: float = float("nan"), *, name: str | None = None
) -> Station:
    """Return a station with one fixed position [degrees, m]; impossible coordinates become NaN."""
    if not (-180.0 <= lon <= 360.0 and -90.0 <= lat <= 90.0):
        lon = lat = float("nan")
    if not -1e4 <= elevation_m <= 1e5:
        elevation_m = float("nan")
    return Station(station, name or station, (Position(None, float(lon), float(lat), float(elevation_m)),))


def variable_name(column: str) -> str:
    """Convert a column name to a variable name: letters, digits and underscores.

    Examples
    --------
    >>> variable_name("Temp (air)")
    'temp_air'
    """
    if VARIABLE_NAME.match(column):
        return column
    plain = re.sub(r"[^A-Za-z0-9]+", "_", column).strip("_").lower()
    return plain if plain[:1].isalpha() else f"v_{plain}"


def unit_of(text: str | None) -> str | None:
    """Return a unit in CF spelling, None if it is unknown.

    Examples
    --------
    >>> unit_of("Deg C"), unit_of("W/m2"), unit_of("octa")
    ('degC', 'W m-2', None)
    """
    plain = " ".join((text or "").replace("²", "2").replace("³", "3").split())
    if not plain:
        return None
    known = _UNITS.get(plain.lower())
    if known is not None:
        return known
    for candidate in (_with_powers(plain), plain, plain.lower()):
        with suppress(InvalidUnit):
            return check_unit(candidate) if candidate not in ("", UNKNOWN) else None
    return None


def _with_powers(text: str) -> str:
    """Convert "J/cm2" to "J cm-2"; "" if the text has another form."""
    parts = text.replace("^", "").replace("**", "").split("/")
    words = []
    for index, part in enumerate(parts):
        for word in part.split():
            match = _PART.match(word)
            if match is None:
                return ""
            power = int(match[2] or 1) * (-1 if index else 1)
            words.append(match[1] + (str(power) if power != 1 else ""))
    return " ".join(words)


def usual_variable(name: str) -> str | None:
    """Return the variable of `COMMON` that a logger's column name probably means, None if unknown.

    Examples
    --------
    >>> usual_variable("AirTC"), usual_variable("Batt")
    ('air_temperature', None)
    """
    return next((variable for pattern, variable in _USUAL if re.fullmatch(pattern, name.strip().lower())), None)


def statistic_of(text: str) -> Statistic | None:
    """Return the statistic that a word denotes ("Avg", "maximum"), None if it does not."""
    return _WORDS.get(text.strip().lower())


def column_of(
    name: str,
    unit: str | None,
    *,
    standard_name: str | None = None,
    long_name: str = "",
    variable: str | None = None,
    **rest: object,
) -> ColumnMetadata:
    """Build the metadata of a column, with its variable from CF name, `variable` or `name`.

    A common variable (`COMMON`) is used if the unit converts to its own; otherwise the column becomes a variable of the
    file, in the file's unit.

    Parameters
    ----------
    name
        As in the file, or any other from which a variable name can be made.
    unit
        As written in the file.
    standard_name
        CF standard name; invalid ones are ignored.
    rest
        Further fields of `ColumnMetadata`.
    """
    given = unit_of(unit)
    name = variable_name(name)
    standard_name = standard_name if re.fullmatch(r"[a-z][a-z0-9_]*", standard_name or "") else None
    for known in (_STANDARD.get(standard_name or ""), COMMON.get(variable or name)):
        if known is None or given is None:
            continue
        # "1" would mean an unknown unit in an archive.
        taken = "dimensionless" if given == "1" and known.unit not in DIMENSIONLESS_TEXT else given
        if is_convertible(taken, known.unit):
            return ColumnMetadata(known, taken, **rest)  # type: ignore[arg-type]
    # Without a convertible unit, a common name would claim a meaning that the numbers may not have.
    own = f"{name}_raw" if name in COMMON else name
    return ColumnMetadata(Variable(own, given or UNKNOWN, standard_name, long_name or name), given, **rest)  # type: ignore[arg-type]


def is_convertible(unit: str, target: str) -> bool:
    """Return whether numbers in a unit can be converted to another."""
    try:
        convert(0.0, unit, target)
    except InvalidUnit:
        return False
    return True


def usual_interval_s(time_ns: NDArray[np.int64]) -> float:
    """Return the usual interval between stamps of shape (n,) [s]; 0 for fewer than two gaps."""
    gaps = np.diff(np.unique(time_ns))
    return float(np.median(gaps)) / SECOND_NS if len(gaps) >= 2 else 0.0


def zone_text(hours: float) -> str:
    """Return an offset from UTC [h] as a zone name.

    Examples
    --------
    >>> zone_text(-3.5)
    '-03:30'
    """
    minutes = round(abs(hours) * 60)
    return f"{'-' if hours < 0 else '+'}{minutes // 60:02d}:{minutes % 60:02d}"


STATION_IN_ENGLISH: Final = frozenset(
    "station stationid stationname stationcode stationsid stn stnid stid site siteid sitename sitecode node nodeid mote"
    " moteid device deviceid devid logger loggerid platform platformid gauge gaugeid wmo wmoid usaf".split()
)
STATION: Final = STATION_IN_ENGLISH | frozenset(
    "stationsname nomstation nomdelastation estacion stazione nombreestacion nomestazione messstelle standort localita "
    "localidad codigo codestation".split()
)
TIME: Final = frozenset(
    "time timestamp datetime dateandtime datetimeutc timeutc utctime utc utcdatetime localtime datetimelocal timelocal "
    "date dates datum zeit zeitstempel messzeit messzeitpunkt messdatum datumzeit dateheure fecha fechahora obstime "
    "dataora instante marcatemporal horodatage observationtime observedat measuredat timeofobservation validtime "
    "valid phenomenontime resulttime epoch unixtime "
    "unixtimestamp unix posix posixtime tmstamp recordtime loggertime samplingtime measuretime stamp ts t0".split()
)
ARRIVAL: Final = frozenset(
    "arrival arrivals arrivaltime arrivedat arrived received receivedat receivetime receivedtime receptiontime "
    "timereceived rxtime servertime gatewaytime ingesttime ingestedat insertedat storedat ankunft ankunftszeit empfang "
    "empfangen empfangszeit arrivee heurearrivee reception heurereception recule llegada horallegada recepcion "
    "recibido arrivo oraarrivo ricezione ricevuto".split()
)
"""Names of columns with the instant at which a reading arrived."""
_DATE: Final = frozenset("date datum fecha jour giorno day dates ddmmyyyy yyyymmdd datelocal dateutc".split())
_CLOCK: Final = frozenset(
    "time zeit uhrzeit hora heure ora orario clock hour hhmm hhmmss timeutc timelocal localtime utc".split()
)
_PARTS: Final = (
    ("%Y", ("year", "yr", "yyyy", "jahr", "annee", "an", "ano", "anno")),
    ("%m", ("month", "mon", "mo", "monat", "mois", "mes", "mese")),
    ("%d", ("day", "dy", "dd", "tag", "jour", "dia", "giorno", "dayofmonth", "dom")),
    ("%j", ("doy", "dayofyear", "julianday", "jday", "yearday", "yday", "jd", "jul")),
    ("%H", ("hour", "hr", "hh", "stunde", "heure", "hora", "ora")),
    ("%M", ("minute", "min", "mi", "minuten", "mins", "minuto", "minuti")),
    ("%S", ("second", "sec", "ss", "sekunde", "secs", "seconds")),
    ("%H%M", ("hhmm", "hourminute", "timehhmm", "time")),
)
LONG_VARIABLE: Final = (
    *("variable", "variablename", "parameter", "parametername", "param", "observedproperty", "property", "element"),
    *("measurement", "measure", "quantity", "characteristicname", "datatype", "variablecode", "parametercode"),
)
LONG_VALUE: Final = (
    "value",
    "val",
    "wert",
    "valeur",
    "valor",
    "valore",
    "result",
    "resultvalue",
    "datavalue",
    "observationvalue",
    "reading",
)
LONG_UNIT: Final = ("unit", "units", "uom", "unitofmeasurement", "einheit", "unite", "unidad", "unita", "resultunit")
_BRACKETS: Final = re.compile(r"[\[(].*?[\])]")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_STATISTICS: Final = frozenset("avg ave mean max min tot total sum smp sample std stdev ts rn inst counts".split())


def fold_accents(text: str) -> str:
    """Return the text with letters of the Latin alphabet without their accents.

    Examples
    --------
    >>> fold_accents("Précipitations [µm]")
    'Precipitations [µm]'
    """
    bases = (unicodedata.normalize("NFD", letter)[0] for letter in text)
    return "".join(base if base.isascii() else letter for base, letter in zip(bases, text, strict=True))


def normalise_name(name: str) -> str:
    """Normalise a name for lookups: without brackets, in lower case, only letters and digits, no accents."""
    return _OTHER.sub("", fold_accents(_BRACKETS.sub("", name)).lower())


def time_columns_among(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the time stamp: its parts, date and clock, or one; none if unknown."""
    by_normal_name: dict[str, str] = {}
    for name in names:
        by_normal_name.setdefault(normalise_name(name), name)
    parts = _parts(by_normal_name)
    if parts["%Y"] and ((parts["%m"] and parts["%d"]) or parts["%j"]):
        day = ("%m", "%d") if parts["%m"] and parts["%d"] else ("%j",)
        clock = ("%H", "%M", "%S") if parts["%H"] else ("%H%M",)
        return tuple(dict.fromkeys(takewhile(bool, (parts[part] for part in ("%Y", *day, *clock)))))
    date = next((by_normal_name[normal_name] for normal_name in by_normal_name if normal_name in _DATE), "")
    clock_name = next(
        (
            by_normal_name[normal_name]
            for normal_name in by_normal_name
            if normal_name in _CLOCK and by_normal_name[normal_name] != date
        ),
        "",
    )
    if date and clock_name:
        return (date, clock_name)
    # In Italian, "data" is a date; in English, it is anything.
    if "data" in by_normal_name and (italian_clock := by_normal_name.get("ora") or by_normal_name.get("orario")):
        return (by_normal_name["data"], italian_clock)
    # A column named "time" is preferred to other names.
    exact = next((name for name in names if name.lower() == "time"), "")
    found_name = exact or next((name for name in names if normalise_name(name) in TIME), "")
    return (found_name,) if found_name else ()


def _parts(by_normal_name: Mapping[str, str]) -> dict[str, str]:
    return {
        part: next((by_normal_name[normal_name] for normal_name in known if normal_name in by_normal_name), "")
        for part, known in _PARTS
    }


def pattern_of(columns: Sequence[str], first: Sequence[str]) -> str | None:
    """Return the pattern of a stamp whose parts are separate columns, None if they are not.

    `first` has texts of the year, which show whether it has two digits.
    """
    parts = {name: part for part, name in _parts({normalise_name(name): name for name in columns}).items() if name}
    directives = [parts.get(name, "") for name in columns]
    if len(columns) < 3 - ("%j" in directives) or directives[0] != "%Y" or not all(directives):
        return None
    short = [len(text) <= 2 for text in first if text]
    return " ".join(["%y" if short and all(short) else "%Y", *directives[1:]])


def is_unit_cell(cell: str) -> bool:
    """Return whether a cell below the names is a unit, a statistic or empty."""
    text = cell.strip().strip("[]()").strip()
    if not text or text.lower() in _STATISTICS or text in ("-", "--", "UTC", "n/a", "yyyy-mm-dd HH:MM"):
        return True
    return not text[0].isdigit() and text[0] not in "+-." and unit_of(text) is not None
