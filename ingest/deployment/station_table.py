"""Table of stations and their positions, as people have it: any delimiter, several languages, degrees in any form."""

import csv
import math
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.readings import Position, Station
from ingest.formats.csv_sniffer import BYTE_ORDER_MARK, encoding_of, to_utf8, wide_encoding
from ingest.formats.file_metadata import STATION, fold_accents, normalise_name, time_columns_among

_IDS: Final = frozenset(
    "id code kurzel kuerzel abk abbreviation abbrev abreviatura sigla indicatif indicativo codigo codice kennung "
    "nummer "
    "nr no number numero stationnumber stationid stationcode".split()
)
_NAMES: Final = frozenset("name nom nombre nome stationname stationsname nomstation nomdelastation ort place".split())
_LONGITUDES: Final = frozenset(
    "lon long longitude lng x laenge lange geolange longitud longitudine laengengrad langengrad longitudewgs84 "
    "lonwgs84 "
    "longdeg londeg longitudedeg este east ost".split()
)
_LATITUDES: Final = frozenset(
    "lat latitude y breite geobreite latitud latitudine breitengrad latitudewgs84 latwgs84 latdeg latitudedeg norte "
    "north nord".split()
)
_ELEVATIONS: Final = frozenset(
    "elevation elevationm elev alt altitude altitudem height z hoehe hohe hoehem hohem meereshohe stationshohe hohemum "
    "seehohe altitud altitudine quota elevacion masl msl altura".split()
)
_EASTERN: Final = frozenset("lange laenge geolange langengrad laengengrad ost".split())
"""German words for longitude: there, O means east; in French, Italian and Spanish it means west."""
_WESTERN: Final = frozenset("longitud longitudine nom nombre nome altitud altitudine quota estacion stazione".split())
_SIGN: Final = {"N": 1.0, "S": -1.0, "E": 1.0, "W": -1.0}
_PART: Final = re.compile(r"\d+(?:[.,]\d+)?")
_EMPTY: Final = frozenset(("", "-", "--", "na", "n.a.", "nan", "none", "null"))


def read_station_table(path: Path) -> tuple[Station, ...]:
    """Read the stations of a table, in order.

    The columns are recognised by their names in English, German, French, Italian and Spanish: the station's id, its
    name, longitude, latitude [degrees] and elevation [m]. A position may be in degrees with a point or a comma, or in
    degrees, minutes and seconds; an empty one is unknown.

    Raises
    ------
    InvalidDeployment
        The file is not such a table, a cell cannot be read, a position is impossible, or a station is there twice.
    """
    stations: dict[str, tuple[Station, int]] = {}
    header, rows = _read_rows(path)
    columns = _roles(header)
    if columns is None:
        raise InvalidDeployment(
            f"{path.name} needs a column for the station and columns for longitude and latitude, such as "
            f"id,lon,lat,elevation; its first line has {', '.join(header)[:120]!r}"
        )
    if "elevation" in columns and _FEET.search(header[columns["elevation"]]):
        raise InvalidDeployment(
            f"{path.name}: {header[columns['elevation']]!r} is not in metres; convert the elevations, and rename it"
        )
    west = _west_of(header)
    for line, cells in rows:
        if not any(cell.strip() for cell in cells):
            continue
        station = _station(path, line, {role: cells[at] for role, at in columns.items() if at < len(cells)}, west)
        before = stations.get(station.id)
        if before is not None and repr(before[0].positions) != repr(station.positions):
            raise InvalidDeployment(
                f"{path.name}, lines {before[1]} and {line}: station {station.id!r} is there twice, at two positions; "
                "leave one of them, or give a station that moved in [[station]] with [[station.moved]]"
            )
        stations.setdefault(station.id, (station, line))
    if not stations:
        raise InvalidDeployment(f"{path.name} has no station below its header")
    return tuple(station for station, _ in stations.values())


def read_remarks(path: Path) -> list[str]:
    """Return the comments above the header of a table, which may say how far its positions can be trusted."""
    with path.open("rb") as stream:
        text = to_utf8(stream.read(_HEAD_BYTES), "utf-8").decode("utf-8", errors="replace")
    remarks = [line.strip("# \t") for line in takewhile(lambda line: line.startswith("#"), text.splitlines())]
    return [remark for remark in remarks if remark and not any(_roles(_split(remark, mark)) for mark in ";\t|,")]


def is_station_table(path: Path) -> bool:
    """Return whether a file is text with the header of a table of stations."""
    try:
        header, rows = _read_rows(path, _HEAD_BYTES)
    except InvalidDeployment:
        return False
    columns = _roles(header)
    if columns is None or time_columns_among(header):
        return False
    # A table of readings names a station again and again, with other cells.
    different = {tuple(cells) for _, cells in rows if columns["id"] < len(cells)}
    return len({cells[columns["id"]] for cells in different}) == len(different)


_FEET: Final = re.compile(r"\b(ft|feet|foot|fuss)\b", re.IGNORECASE)
_HEAD_BYTES: Final = 1 << 16
"""Bytes in which a header is looked for."""


def _read_rows(path: Path, size_bytes: int = -1) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the cells of the header and, with their line numbers, those of the rows."""
    with path.open("rb") as stream:
        data = stream.read(size_bytes).removeprefix(BYTE_ORDER_MARK)
    if wide := wide_encoding(data):
        text = data.decode(wide, errors="replace").removeprefix("\ufeff")
    elif b"\0" in data[:8192]:
        raise InvalidDeployment(f"{path.name} is binary, and not a table of stations")
    else:
        text = to_utf8(data, encoding_of(data)[0]).decode("utf-8", errors="replace")
    lines = [(number, line) for number, line in enumerate(text.splitlines(), 1) if line.strip()]
    while len(lines) > 1 and lines[0][1].startswith("#"):
        head = lines[0][1].lstrip("# ")
        # The header may be in a comment line.
        if not lines[1][1].startswith("#") and any(_roles(_split(head, mark)) for mark in ";\t|,"):
            lines[0] = (lines[0][0], head)
            break
        lines.pop(0)
    if not lines:
        raise InvalidDeployment(f"{path.name} is empty")
    # A decimal comma never parts cells where another mark does.
    mark = max(";\t|,", key=lambda mark: (len(_split(lines[0][1], mark)) > 1, -";\t|,".index(mark)))
    header, *rows = [(number, _split(line, mark)) for number, line in lines]
    return header[1], rows


def _split(line: str, mark: str) -> list[str]:
    return [cell.strip() for cell in next(csv.reader([line], delimiter=mark), [])]


def _roles(header: Sequence[str]) -> dict[str, int] | None:
    """Return the index of each column that a table of stations has; None if it lacks one that is needed."""
    names = [normalise_name(name) for name in header]
    roles: dict[str, int] = {}
    for role, known in (
        ("lon", _LONGITUDES), ("lat", _LATITUDES), ("elevation", _ELEVATIONS),
        ("id", _IDS), ("id", STATION), ("name", _NAMES | STATION), ("id", _NAMES),
    ):  # fmt: skip
        at = next((at for at, name in enumerate(names) if name in known and at not in roles.values()), None)
        if at is not None and role not in roles:
            roles[role] = at
    if "id" not in roles and "name" in roles:
        roles["id"] = roles["name"]
    return roles if {"id", "lon", "lat"} <= roles.keys() else None


def _west_of(header: Sequence[str]) -> float | None:
    """Return the sign of a longitude with "O": 1 in German, -1 in the Romance languages, None if it is not known."""
    names = {normalise_name(name) for name in header}
    return 1.0 if names & _EASTERN else -1.0 if names & _WESTERN else None


def _station(path: Path, line: int, cells: Mapping[str, str], west: float | None) -> Station:
    where = f"{path.name}, line {line}"
    station_id = cells.get("id", "").strip()
    if not station_id:
        raise InvalidDeployment(f"{where}: there is no station; the first needed cell is empty")
    lon, lat = (_parse_degrees(cells.get(role, ""), where, role, west) for role in ("lon", "lat"))
    if abs(lat) > 90.0 >= abs(lon):
        raise InvalidDeployment(
            f"{where}: station {station_id!r} has latitude {lat:g} and longitude {lon:g}, which are probably swapped"
        )
    if not (math.isnan(lon) or -180.0 <= lon <= 360.0) or not (math.isnan(lat) or -90.0 <= lat <= 90.0):
        raise InvalidDeployment(
            f"{where}: station {station_id!r} needs a longitude of -180 to 360 and a latitude of -90 to 90 degrees; "
            f"got {lon:g} and {lat:g}: convert projected coordinates first"
        )
    # "1594 m ü. M." is a height in metres.
    elevation = _parse_number(re.sub(r"\s*m(\s.*)?$", "", cells.get("elevation", "").strip()), where, "elevation")
    name = cells.get("name", "").strip() or station_id
    return Station(station_id, name, (Position(None, lon, lat, elevation),))


def _parse_number(text: str, where: str, role: str) -> float:
    if text.strip().lower() in _EMPTY:
        return math.nan
    if re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+", text):
        raise InvalidDeployment(f"{where}: {role} {text!r} may be thousands or decimals; write it without a comma")
    try:
        return float(text.replace(",", ".").replace("−", "-").replace(" ", ""))
    except ValueError as error:
        raise InvalidDeployment(f"{where}: {role} needs a number; got {text[:40]!r}") from error


def _parse_degrees(text: str, where: str, role: str, west: float | None) -> float:
    """Return degrees from "46.5", "46,5", "46° 30' N" or "S 46 30 0".

    Examples
    --------
    >>> _parse_degrees("9° 50' 36″ O", "line 2", "lon", 1.0)
    9.843333333333334
    """
    plain = fold_accents(text).strip().replace("−", "-")
    if plain.lower() in _EMPTY:
        return math.nan
    letters = {letter for letter in plain.upper() if letter.isalpha()} & {"N", "S", "E", "W", "O"}
    if "O" in letters and role == "lon" and west is None:
        raise InvalidDeployment(f"{where}: 'O' in {text[:40]!r} may be east (Ost) or west (ouest); write E or W")
    allowed = {"N", "S"} if role == "lat" else {"E", "W", "O"}
    parts = _PART.findall(plain)
    rest = re.sub(r"[NSEWO°º'′’\"″”:\s\d.,+-]|deg", "", plain, flags=re.IGNORECASE)
    if len(letters) > 1 or not letters <= allowed or not 1 <= len(parts) <= 3 or rest:
        raise InvalidDeployment(
            f"{where}: {role} needs degrees such as 46.5, 46,5 or 46° 30' 0\" {'N' if role == 'lat' else 'E'}; "
            f"got {text[:40]!r}"
        )
    numbers = [float(part.replace(",", ".")) for part in parts]
    if any(number >= 60.0 for number in numbers[1:]):
        raise InvalidDeployment(f"{where}: minutes and seconds of {role} are below 60; got {text[:40]!r}")
    size = sum(number / 60.0**power for power, number in enumerate(numbers))
    letter = next(iter(letters), "")
    sign = _SIGN.get(letter, (west or 1.0) if letter else 1.0)
    return -size * sign if plain.lstrip("NSEWOnsewo ").startswith("-") else size * sign
