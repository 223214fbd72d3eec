"""Meaning of column names (time, station and the like) in common conventions."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from ingest.formats.file_metadata import unit_of

STATION: Final = frozenset(
    "station stationid stationname stationcode stationsid stn stnid stid site siteid sitename sitecode node nodeid mote"
    " moteid device deviceid devid logger loggerid platform platformid gauge gaugeid wmo wmoid usaf".split()
)
TIME: Final = frozenset(
    "time timestamp datetime dateandtime datetimeutc timeutc utctime utc utcdatetime localtime datetimelocal timelocal "
    "date dates datum zeit zeitstempel messzeit messzeitpunkt messdatum datumzeit dateheure fecha fechahora obstime "
    "observationtime observedat measuredat timeofobservation validtime valid phenomenontime resulttime epoch unixtime "
    "unixtimestamp unix posix posixtime tmstamp recordtime loggertime samplingtime measuretime stamp ts t0".split()
)
_DATE: Final = frozenset("date datum fecha day dates ddmmyyyy yyyymmdd datelocal dateutc".split())
_CLOCK: Final = frozenset("time zeit uhrzeit hora heure clock hour hhmm hhmmss timeutc timelocal localtime utc".split())
_PARTS: Final = (
    ("%Y", ("year", "yr", "yyyy", "jahr", "annee", "an")),
    ("%m", ("month", "mon", "mo", "monat", "mois")),
    ("%d", ("day", "dy", "dd", "tag", "jour", "dayofmonth", "dom")),
    ("%j", ("doy", "dayofyear", "julianday", "jday", "yearday", "yday", "jd", "jul")),
    ("%H", ("hour", "hr", "hh", "stunde", "heure")),
    ("%M", ("minute", "min", "mi", "minuten", "mins")),
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
    "result",
    "resultvalue",
    "datavalue",
    "observationvalue",
    "reading",
)
LONG_UNIT: Final = ("unit", "units", "uom", "unitofmeasurement", "einheit", "unite", "resultunit")
_BRACKETS: Final = re.compile(r"[\[(].*?[\])]")
_OTHER: Final = re.compile(r"[^a-z0-9]+")
_STATISTICS: Final = frozenset("avg ave mean max min tot total sum smp sample std stdev ts rn inst counts".split())


def normalise_name(name: str) -> str:
    """Normalise a name for lookups: without brackets, in lower case, only letters and digits."""
    return _OTHER.sub("", _BRACKETS.sub("", name).lower())


def time_columns_among(names: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of the time stamp: its parts, date and clock, or one; none if unknown."""
    by_normal_name: dict[str, str] = {}
    for name in names:
        by_normal_name.setdefault(normalise_name(name), name)
    parts = _parts(by_normal_name)
    if parts["%Y"] and ((parts["%m"] and parts["%d"]) or parts["%j"]):
        day = ("%m", "%d") if parts["%m"] and parts["%d"] else ("%j",)
        clock = ("%H", "%M", "%S") if parts["%H"] else ("%H%M",)
        time_columns = []
        for part in ("%Y", *day, *clock):
            if not parts[part]:
                break
            time_columns.append(parts[part])
        return tuple(dict.fromkeys(time_columns))
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
