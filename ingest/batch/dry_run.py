"""Dry run: how each column would be read and why, the first problem of each kind, and a proposed deployment file.

Variable, unit, statistic and height of a column are inferred from its name, with the reasons; in the proposal, inferred
entries are marked by a comment.
"""

import glob
import json
import os
import re
import tempfile
import tomllib
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.core.readings import Statistic
from hypergrid.core.times import format_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable, counter_words
from ingest.deployment.deployment_file import (
    DEFAULT_SLICE_S,
    UNKNOWN_UNIT,
    Column,
    Deployment,
    Feed,
    default_deployment,
    from_mapping,
    load,
)
from ingest.formats import FORMATS, Layout, Parsed, Unreadable, recognise
from ingest.formats.base import TextForm
from ingest.formats.file_metadata import COMMON, is_convertible, statistic_of, unit_of, usual_interval_s, variable_name
from ingest.sources.folder import (
    CHUNK_BYTES,
    SourceFile,
    cut,
    decompress_to,
    discover,
    find_deployment,
    first_bytes,
    layout_of,
    network_name,
    parse,
)

OTHERS: Final = {
    variable.name: variable
    for variable in (
        Variable("battery_voltage", "V", None, "Battery voltage"),
        Variable(
            "diffuse_radiation", "W m-2", "surface_diffuse_downwelling_shortwave_flux_in_air", "Diffuse radiation"
        ),
        Variable("emitted_longwave_radiation", "W m-2", "surface_upwelling_longwave_flux_in_air", "Emitted longwave"),
        Variable("net_radiation", "W m-2", "surface_net_downward_radiative_flux", "Net radiation"),
        Variable("photon_flux", "umol m-2 s-1", None, "Photosynthetic photon flux"),
        Variable("illuminance", "lx", None, "Illuminance"),
        Variable("sunshine_duration", "s", "duration_of_sunshine", "Sunshine duration"),
        Variable("vapour_pressure", "kPa", "water_vapor_partial_pressure_in_air", "Vapour pressure"),
        Variable("water_level", "m", "water_surface_height_above_reference_datum", "Water level"),
        Variable("discharge", "m3 s-1", "water_volume_transport_in_river_channel", "Discharge"),
        Variable("water_temperature", "degC", "water_temperature", "Water temperature"),
        Variable("electrical_conductivity", "uS cm-1", None, "Electrical conductivity"),
        Variable("ph", "1", None, "pH"),
        Variable("carbon_dioxide", "ppm", "mole_fraction_of_carbon_dioxide_in_air", "Carbon dioxide"),
        Variable("particles_2_5", "ug m-3", "mass_concentration_of_pm2p5_ambient_aerosol_particles_in_air", "PM2.5"),
        Variable("particles_10", "ug m-3", "mass_concentration_of_pm10_ambient_aerosol_particles_in_air", "PM10"),
        Variable("ozone", "ug m-3", "mass_concentration_of_ozone_in_air", "Ozone"),
    )
}
"""Variables beyond `COMMON` that are recognised by name; a deployment has to declare them."""
VARIABLES_BY_NAME: Final[Mapping[str, Variable]] = {**OTHERS, **COMMON}

_ALIASES: Final[Mapping[str, str]] = {
    "air_temperature": "ta t temp temperature airtemp airtemperature tair airt tempair temperatureair tempout "
    "outtemp tmp t2m tt tl lufttemperatur temperatur tas temperaturaire temperatura tc ambienttemp ambienttemperature "
    "drybulb drybulbtemperature ttten dbt",
    "surface_temperature": "ts tss surfacetemp surfacetemperature skintemperature tsurf surftemp targettemp "
    "sbt ts0 snowsurfacetemperature oberflachentemperatur irt tcanopy",
    "solar_radiation": "iswr sw swin swdown swd ghi globalradiation globalrad glorad solarradiation solarrad solar "
    "srad rsds rg radiation shortwave shortwavein slr slrkw globalstrahlung strahlung rad pyr pyranometer "
    "incomingshortwave insolation irradiance swr kdown qg",
    "reflected_radiation": "rswr swout swup reflectedradiation reflectedshortwave shortwaveout outgoingshortwave kup",
    "longwave_radiation": "ilwr lw lwin lwdown lwd longwave longwavein incominglongwave ldown rlds",
    "emitted_longwave_radiation": "olwr lwout lwup longwaveout outgoinglongwave lup",
    "net_radiation": "netrad rnet rn netradiation nr qn",
    "diffuse_radiation": "dhi diffuseradiation diffuse diffuserad",
    "photon_flux": "par ppfd photosyntheticradiation quantum",
    "relative_humidity": "rh relativehumidity humidity relhum hum humidite hurs luftfeuchte luftfeuchtigkeit feuchte "
    "relativefeuchte relf humrel hr outhumidity hygro humedad rfm",
    "dew_point_temperature": "td dewpoint dewpointtemperature dewpt dp taupunkt tdew tau",
    "air_pressure": "pa p pressure airpressure stationpressure baro barometer barometricpressure bp pres press patm "
    "atmosphericpressure luftdruck slp pression qfe pp",
    "vapour_pressure": "vp vapourpressure vaporpressure ea vappres",
    "precipitation": "psum precip precipitation rain rainfall prcp pr rr niederschlag regen raintot pluie ppt "
    "rainamount precipitationamount n1 lluvia precipitacion",
    "rain_meter": "rainmeter raincounter rainaccumulated accumulatedrain",
    "wind_speed": "vw ws windspeed windspd wspd ff wind windgeschwindigkeit windvel windvelocity vent wv sknt "
    "windspeedms u10 windms vv",
    "wind_gust": "vwmax gust windgust wsmax gustspeed fx boe windboe maxwind gusts windspeedmax peakwind",
    "wind_direction": "dw wd winddirection winddir wdir dd windrichtung windrose wnddir drct wdd dirvent winddirdeg",
    "snow_height": "hs snowheight snowdepth snow schneehohe sd snd sfcsnow hsnow snowheightm hneige sdepth",
    "soil_temperature": "tsoil soiltemp soiltemperature tg bodentemperatur ground tgnd tsg stemp soilt tb",
    "soil_moisture": "vwc sm soilmoisture soilwatercontent swc moisture volumetricwatercontent bodenfeuchte theta wc "
    "soilvwc soilwater",
    "watermark": "watermark soilwatertension tension matricpotential swp soilwaterpotential",
    "battery_voltage": "batt batterie battery battv batteryvoltage vbat bat batvolt voltage volt ubat supplyvoltage "
    "internalvoltage battvolt",
    "illuminance": "lux illuminance light illumination",
    "sunshine_duration": "sunshine sunshineduration sunduration sonnenscheindauer ss sun",
    "water_level": "waterlevel stage level pegel wasserstand wl gaugeheight",
    "discharge": "discharge flow q abfluss streamflow debit runoff",
    "water_temperature": "watertemp watertemperature wtemp twater wassertemperatur wt",
    "electrical_conductivity": "ec conductivity leitfahigkeit cond specificconductance",
    "ph": "ph",
    "carbon_dioxide": "co2 carbondioxide",
    "particles_2_5": "pm25 pm2p5",
    "particles_10": "pm10",
    "ozone": "o3 ozone",
}
_BY_NAME: Final = {
    alias: name for name, aliases in _ALIASES.items() for alias in (name.replace("_", ""), *aliases.split())
}
_SUFFIXES: Final = {
    alias: unit
    for unit, aliases in {
        "degC": "c degc celsius",
        "degF": "f degf",
        "K": "k kelvin",
        "m s-1": "ms mps",
        "km h-1": "kmh kph",
        "mile hour-1": "mph",
        "knot": "kt kts knots",
        "mm": "mm",
        "cm": "cm",
        "m": "m",
        "inch": "in",
        "hPa": "hpa mbar mb",
        "kPa": "kpa",
        "Pa": "pa",
        "%": "pct percent",
        "W m-2": "wm2 w",
        "degree": "deg degrees",
        "V": "v",
        "mV": "mv",
        "ppm": "ppm",
    }.items()
    for alias in aliases.split()
}
_BRACKET: Final = re.compile(r"[\[(<{]\s*([^\[\](){}<>]+?)\s*[\])>}]")
_HEIGHT: Final = re.compile(r"^(-?\d+(?:\.\d+)?)(m|cm)$")
_TOKENS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+(?:\.\d+)?(?:cm|m)?(?![A-Za-z])|\d+")
_DEEP: Final = ("soil_temperature", "soil_moisture", "watermark")
_FOLD: Final = str.maketrans({"ä": "a", "ö": "o", "ü": "u", "é": "e", "è": "e", "ô": "o", "í": "i", "ó": "o", "á": "a"})


@dataclass(frozen=True)
class ColumnGuess:
    """Inferred attributes of a column; None if its name does not reveal them."""

    variable: Variable
    unit: str | None
    statistic: Statistic | None
    height_m: float | None
    replicate: int
    why: str


def guess_column(name: str, unit: str | None = None) -> ColumnGuess:
    """Infer the attributes of a column from its name and, if given, its unit.

    A common variable is only inferred if the unit, if any, is convertible; otherwise the column becomes a new variable.

    Examples
    --------
    >>> guess = guess_column("AirTC_Avg")
    >>> guess.variable.name, guess.unit, guess.statistic
    ('air_temperature', 'degC', 'mean')
    >>> guess_column("Wind Speed (km/h)").unit
    'km h-1'
    """
    reasons: list[str] = []
    plain = name.translate(_FOLD)
    bracket = _BRACKET.search(plain)
    parsed_unit = unit_of(unit)
    if parsed_unit is None and bracket is not None and (parsed_unit := unit_of(bracket[1])) is not None:
        reasons.append(f"unit {parsed_unit} from {bracket[0]!r}")
    head, _, tail = plain.rpartition(" ")
    if (
        parsed_unit is None
        and head
        and any(sign in tail for sign in "/%°-")
        and (parsed_unit := unit_of(tail)) is not None
    ):
        reasons.append(f"unit {parsed_unit} from {tail!r}")
        plain = head
    tokens = [
        token.lower().replace(".", "") if "." in token and "m" not in token else token.lower()
        for token in _TOKENS.findall(_BRACKET.sub(" ", plain))
    ]
    statistic = next((candidate for token in tokens if (candidate := statistic_of(token)) is not None), None)
    if statistic is not None and len(tokens) > 1:
        reasons.append(f"{statistic} from its name")
        tokens = [token for token in tokens if statistic_of(token) is None]
    else:
        statistic = None
    height, tokens = _height(tokens, reasons)
    numbered = len(tokens) > 1 and tokens[-1].isdigit() and "".join(tokens) not in _BY_NAME
    replicate = int(tokens.pop()) if numbered and 1 <= int(tokens[-1]) <= 99 else 1
    alias, rest = _find_known_variable(tokens)
    if parsed_unit is None and len(rest) == 1 and rest[0] in _SUFFIXES:
        parsed_unit = _SUFFIXES[rest[0]]
        reasons.append(f"unit {parsed_unit} from {rest[0]!r} in its name")
        rest = []
    known = VARIABLES_BY_NAME.get(_BY_NAME.get(alias, ""))
    # With further words in the name, short aliases such as "t" are too ambiguous.
    if known is not None and (not rest or len(alias) > 3) and _is_plausible(parsed_unit, known):
        # Sensors in the soil: a length in the name is a depth, which is a negative height.
        if known.name in _DEEP and height is not None:
            height = -abs(height)
        reasons.insert(0, f"{alias!r} is {known.long_name.lower()}")
        return ColumnGuess(known, parsed_unit, statistic, height, replicate, "; ".join(reasons))
    reasons.insert(
        0, "nobody knows the name" if known is None else f"{alias!r} would be {known.long_name.lower()}, but"
    )
    if known is not None:
        reasons[0] += (
            f" not in {parsed_unit}" if parsed_unit and not _is_plausible(parsed_unit, known) else " the name says more"
        )
    own = variable_name(name)
    # A common name would claim a meaning that the numbers may not have.
    own = f"{own}_raw" if own in VARIABLES_BY_NAME else own
    return ColumnGuess(
        Variable(own, parsed_unit or "unknown", None, name), parsed_unit, statistic, height, 1, "; ".join(reasons)
    )


def _height(tokens: list[str], reasons: list[str]) -> tuple[float | None, list[str]]:
    for token in tokens:
        if (match := _HEIGHT.match(token)) and len(tokens) > 1:
            height = float(match[1]) / (100.0 if match[2] == "cm" else 1.0)
            reasons.append(f"{height:g} m from its name")
            return height, [other for other in tokens if other is not token]
    return None, tokens


def _find_known_variable(tokens: list[str]) -> tuple[str, list[str]]:
    """Return the longest prefix that is a known name, else all words joined, and the rest."""
    for count in range(len(tokens), 0, -1):
        joined = "".join(tokens[:count])
        if joined in _BY_NAME:
            return joined, tokens[count:]
        # "airtc" is air temperature in degC.
        if joined[:-1] in _BY_NAME and joined[-1] in _SUFFIXES and count == len(tokens) and len(joined) >= 4:
            return joined[:-1], [joined[-1]]
    for start in range(1, len(tokens)):
        joined = "".join(tokens[start:])
        if joined in _BY_NAME and len(joined) > 3:
            return joined, []
    return "".join(tokens), []


def _is_plausible(unit: str | None, variable: Variable) -> bool:
    return unit is None or variable.unit in (unit, "1", "unknown") or is_convertible(unit, variable.unit)


DECLARED: Final = "the deployment file says so"
FROM_FILE: Final = "the file tells"
AS_FORMAT: Final = "as the format has it; UTC where it does not say: set timezone if clocks showed another"
NO_ZONE: Final = "nobody says: taken as UTC; set timezone if clocks showed another"


@dataclass(frozen=True)
class ColumnSeen:
    """A column, and how it would be read."""

    name: str
    column: Column
    guess: ColumnGuess
    """Inferred attributes; a proposal only, unless declared or in the file."""
    why: str
    low: float
    """Minimum value; NaN without any."""
    high: float


@dataclass
class SourceSummary:
    """Files of one feed with one header."""

    feed: Feed
    layout: Layout
    why: str
    """Why this format was chosen."""
    files: list[str] = field(default_factory=list)
    rows: int = 0
    stations: dict[str, None] = field(default_factory=dict)
    first_ns: int | None = None
    last_ns: int | None = None
    interval_s: float = 0.0
    problems: Counter[str] = field(default_factory=Counter)
    """Rejects by kind."""
    examples: dict[str, str] = field(default_factory=dict)
    """The first reject of each kind, with its file and line."""
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Minimum and maximum value by column."""

    def zone(self) -> tuple[str, str]:
        """Return the time zone of the stamps, and the reason for it."""
        if self.layout.zoned:
            return "UTC", "the time stamps carry their zone, or count from 1970 UTC"
        if "timezone" in self.feed.options.given:
            return self.layout.options.timezone, DECLARED
        if self.layout.zoned is None and self.feed.format != "csv":
            other = self.layout.options.timezone != self.feed.options.timezone
            return self.layout.options.timezone, FROM_FILE if other else AS_FORMAT
        return self.layout.options.timezone, NO_ZONE

    def columns(self) -> list[ColumnSeen]:
        """Return the columns to read, with the attributes inferred from their names."""
        columns_seen = []
        for name in self.ranges if self.layout.long else self.layout.columns:
            column_metadata = self.layout.metadata.columns.get(name)
            column = self.feed.column(name).with_metadata(column_metadata)
            guess = guess_column(name, column_metadata.unit if column_metadata else None)
            why = guess.why
            if any(column.name == name for column in self.feed.columns):
                why = DECLARED
            # Variables of plain CSV are inferred from the column names, not given in the file.
            elif column_metadata is not None and column_metadata.variable is not None and self.feed.format != "csv":
                why = FROM_FILE
            elif column_metadata is not None and column_metadata.unit:
                why = f"{why}; its unit, {column_metadata.unit}, is in the file"
            low, high = self.ranges.get(name, (np.nan, np.nan))
            columns_seen.append(ColumnSeen(name, column, guess, why, low, high))
        return columns_seen


@dataclass(frozen=True)
class DryRun:
    """Result of a dry run."""

    deployment: Deployment
    sources: tuple[SourceSummary, ...]
    unreadable: Mapping[str, str]
    """Files that cannot be read at all, with the reason."""
    unknown: tuple[str, ...]
    """Files without a feed, or of unknown format."""
    companions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "declared": self.deployment.declared,
            "sources": [_source_to_dict(source, self.deployment) for source in self.sources],
            "unreadable": dict(self.unreadable),
            "unknown": list(self.unknown),
            "companions": list(self.companions),
            "formats": sorted(FORMATS),
        }


def declared_variable(deployment: Deployment, name: str) -> Variable:
    """Return a variable as declared; a known one if no unit is declared."""
    own = deployment.variable(name)
    return KNOWN_VARIABLES[name] if own.unit == UNKNOWN_UNIT and name in KNOWN_VARIABLES else own


def _counter(variable: Variable) -> dict[str, float | None] | None:
    return {"resolution": variable.resolution, "rollover": variable.rollover} if counter_words(variable) else None


def _source_to_dict(source: SourceSummary, deployment: Deployment) -> dict[str, Any]:
    zone, zone_origin = source.zone()
    times = [None if ns is None else format_instant(ns) for ns in (source.first_ns, source.last_ns)]
    return {
        "feed": source.feed.name,
        "format": source.feed.format,
        "why": source.why,
        "files": source.files,
        "notes": list(source.layout.notes),
        "time_columns": list(source.layout.options.text.time_columns),
        "time_format": source.layout.options.text.time_format,
        "zone": zone,
        "zone_why": zone_origin,
        "stations": list(source.stations),
        "rows": source.rows,
        "first": times[0],
        "last": times[1],
        "interval_s": source.interval_s,
        "problems": {kind: {"count": n, "first": source.examples[kind]} for kind, n in source.problems.items()},
        "ignored": list(source.layout.ignored),
        "columns": [
            {
                "name": seen.name,
                "read_as": {k: v for k, v in asdict(seen.column).items() if k not in ("name", "given")},
                "proposed": {**asdict(seen.guess), "variable": seen.guess.variable.name},
                "counter": _counter(declared_variable(deployment, seen.column.variable)),
                "why": seen.why,
                "low": None if np.isnan(seen.low) else seen.low,
                "high": None if np.isnan(seen.high) else seen.high,
            }
            for seen in source.columns()
        ],
    }


def dry_run(
    paths: Sequence[str | Path], *, deployment: Path | None = None, progress: Callable[[str, float], None] | None = None
) -> DryRun:
    """Read files as `ingest.job.ingest` would, without storing anything.

    Parameters
    ----------
    paths
        Files, and folders with all their content.
    deployment
        Deployment file; by default that of the first folder that has one, else metadata comes from the files.
    progress
        Called with the stage and the fraction done.

    Raises
    ------
    NotFound
        A path does not exist.
    InvalidDeployment
        The deployment file is invalid.
    """
    on_progress = progress or (lambda _stage, _fraction: None)
    sources = [Path(path) for path in paths]
    given = deployment or find_deployment(sources)
    described = load(given) if given is not None else default_deployment(name=network_name(sources))
    discovery = discover(sources, described)
    seen: dict[Hashable, SourceSummary] = {}
    unreadable: dict[str, str] = {}
    on_progress("read", 0.0)
    for count, file in enumerate(discovery.files):
        # One folder per file, so that only one decompressed file at a time is on disk.
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
            try:
                _read(file, described.feeds_by_name[file.feed], Path(scratch), seen)
            except Unreadable as error:
                unreadable[file.name] = str(error)
        on_progress("read", (count + 1) / len(discovery.files))
    on_progress("read", 1.0)
    return DryRun(described, tuple(seen.values()), unreadable, discovery.ignored, discovery.companions)


def _read(file: SourceFile, feed: Feed, scratch: Path, seen: dict[Hashable, SourceSummary]) -> None:
    plain = decompress_to(file, feed, scratch)
    layout = layout_of(plain, feed)
    # Files with the same header are shown as one source.
    key = (feed.name, layout.header, layout.options)
    if key not in seen:
        recognised = recognise(first_bytes(plain, feed), plain.path.name)
        why = recognised[1] if recognised is not None and recognised[0] == feed.format else f"its name is {feed.files}"
        seen[key] = SourceSummary(feed, layout, DECLARED if "format" in feed.options.given else why)
    source = seen[key]
    source.files.append(file.name)
    line = layout.lines_before
    for chunk in cut(plain, 0, layout, feed.format, chunk_bytes=CHUNK_BYTES, first=0):
        parsed = parse(chunk)
        _add(source, parsed, file.name, line)
        line += parsed.lines


def _add(source: SourceSummary, parsed: Parsed, file: str, before: int) -> None:
    source.rows += len(parsed.code)
    source.stations |= dict.fromkeys(parsed.stations)
    for row in parsed.bad:
        kind = row.reason.partition(":")[0]
        source.problems[kind] += 1
        source.examples.setdefault(kind, f"{file}, line {before + row.line}: {row.reason}")
    if not len(parsed.code):
        return
    first, last = int(parsed.time_ns.min()), int(parsed.time_ns.max())
    source.first_ns = first if source.first_ns is None else min(first, source.first_ns)
    source.last_ns = last if source.last_ns is None else max(last, source.last_ns)
    source.interval_s = source.interval_s or usual_interval_s(parsed.time_ns[parsed.code == parsed.code[0]])
    columns = parsed.values
    if parsed.name_code is not None:
        (values,) = parsed.values.values()
        columns = {name: values[parsed.name_code == index] for index, name in enumerate(parsed.names)}
    for name, values in columns.items():
        finite = values[np.isfinite(values)]
        low, high = source.ranges.get(name, (np.nan, np.nan))
        if len(finite):
            low, high = np.fmin(low, finite.min()), np.fmax(high, finite.max())
        source.ranges[name] = float(low), float(high)


_TEXT_KEYS: Final = (
    *("delimiter", "decimal", "encoding", "comment", "time_format", "station"),
    *("variable_column", "value_column", "unit_column", "flag_column"),
)


def propose_deployment(run: DryRun) -> str:
    """Return the text of a deployment file.

    Columns are mapped to the variables inferred from their names. If a unit is unknown, it is omitted and a comment
    asks for it: without it, numbers are assumed to be in the variable's own unit.
    """
    slice_s = min((source.interval_s for source in run.sources if source.interval_s), default=DEFAULT_SLICE_S)
    lines = [
        "# A proposal made from the files' beginnings: check every line, above all units and zones.",
        "[network]",
        f"name = {_quoted(run.deployment.name)}",
        f"slice_s = {max(1.0, slice_s):g}            # length of a slice [s]",
    ]
    lines += _variables(run)
    names: set[str] = set()
    # Specific patterns first: a file belongs to the first pattern that matches.
    for source in sorted(run.sources, key=lambda source: (len(source.files) > 1, -len(_pattern(source.files)))):
        lines += _feed(source, names)
    station_ids = {station.id for source in run.sources for station in source.layout.metadata.stations}
    for name in dict.fromkeys(name for source in run.sources for name in source.stations):
        if name not in station_ids:
            lines += [
                "",
                "[[station]]",
                f"id = {_quoted(name)}",
                "# lon = 7.17",
                "# lat = 45.87",
                "# elevation_m = 2450.0",
            ]
    text = "\n".join(lines) + "\n"
    # A file that cannot be parsed must not be written.
    from_mapping(tomllib.loads(text))
    return text


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _variables(run: DryRun) -> list[str]:
    variables: dict[str, Variable] = {}
    for source in run.sources:
        for seen in source.columns():
            variable = declared_variable(run.deployment, seen.guess.variable.name)
            if variable.name not in KNOWN_VARIABLES:
                variable = variable if variable.is_counter else seen.guess.variable
            if variable.name not in KNOWN_VARIABLES or counter_words(variable):
                variables.setdefault(variable.name, variable)
    return [line for variable in variables.values() for line in _variable(variable)]


def _variable(variable: Variable) -> list[str]:
    """Return the lines of a variable; commented out for a known counter without a declaration."""
    lines = ["[[variable]]", f"name = {_quoted(variable.name)}", f"unit = {_quoted(variable.unit)}"]
    if variable.standard_name:
        lines.append(f"standard_name = {_quoted(variable.standard_name)}")
    lines.append(f"long_name = {_quoted(variable.long_name or variable.name)}")
    if not counter_words(variable):
        return ["", *lines]
    lines.append("counter = true")
    for key, value, what in (
        ("resolution", variable.resolution, "its step"),
        ("rollover", variable.rollover, "where it starts again from zero"),
    ):
        lines.append(f"# {key} =            # {what} [{variable.unit}]" if value is None else f"{key} = {value!r}")
    if variable.is_counter:
        return ["", *lines]
    hint = f"# {variable.name} counts: declare what is known of the gauges, by leaving out the first # of each line"
    return ["", hint, *(f"# {line}" for line in lines)]


def _feed(source: SourceSummary, names: set[str]) -> list[str]:
    name, count = source.feed.name, 2
    while name in names:
        name, count = f"{source.feed.name}_{count}", count + 1
    names.add(name)
    zone, zone_origin = source.zone()
    lines = [
        "",
        f"# {source.why}",
        *(f"# {note}" for note in source.layout.notes),
        "[[feed]]",
        f"name = {_quoted(name)}",
        f"files = {_quoted(_pattern(source.files))}",
        f"format = {_quoted(source.feed.format)}",
        f"timezone = {_quoted(zone)}            # {zone_origin}",
        f"nodata = {json.dumps(list(source.layout.options.nodata))}",
    ]
    if source.interval_s:
        lines.append(f"interval_s = {source.interval_s:g}")
    if source.feed.format == "csv":
        lines += _text_keys(source)
    lines.append("[feed.columns]")
    taken: dict[tuple[object, ...], int] = {}
    return lines + [_column(seen, taken) for seen in source.columns()]


def _text_keys(source: SourceSummary) -> list[str]:
    options, form = source.layout.options, source.layout.options.text
    lines = [f"{key} = {_quoted(value)}" for key in _TEXT_KEYS if (value := getattr(form, key))]
    columns = [_quoted(name) for name in form.time_columns]
    lines.append(f"time_column = {columns[0] if len(columns) == 1 else '[' + ', '.join(columns) + ']'}")
    if options.station_column in source.layout.header:
        lines.append(f"station_column = {_quoted(options.station_column)}")
    numbers = {key: getattr(form, key) for key in ("skip_lines", "header_lines", "unit_line")}
    return lines + [f"{key} = {value}" for key, value in numbers.items() if value != getattr(TextForm, key)]


def _column(seen: ColumnSeen, taken: dict[tuple[object, ...], int]) -> str:
    guess, column = seen.guess, seen.column
    statistic = guess.statistic or column.statistic
    height = guess.height_m if guess.height_m is not None else column.height_m
    kind = (guess.variable.name, statistic, height)
    replicate = max(guess.replicate, taken.get(kind, 0) + 1)
    taken[kind] = replicate
    parts = [f"variable = {_quoted(guess.variable.name)}"]
    unit = guess.unit or (column.unit if column.unit != "unknown" else None)
    if unit and guess.variable.unit not in ("unknown", "1", ""):
        parts.append(f"unit = {_quoted(unit)}")
    if statistic != "sample":
        parts.append(f"statistic = {_quoted(statistic)}")
    if height is not None:
        parts.append(f"height_m = {height:g}")
    if replicate != 1:
        parts.append(f"replicate = {replicate}")
    asked = (
        "" if unit else f"; UNIT NOT TOLD: taken as {guess.variable.unit}" if guess.variable.unit != "unknown" else ""
    )
    extent = f"; values {seen.low:g} to {seen.high:g}" if seen.low == seen.low else ""
    why = " ".join((seen.why + asked + extent).split())
    return f"{_quoted(seen.name)} = {{{', '.join(parts)}}}   # {why}"


def _pattern(files: Sequence[str]) -> str:
    """Return a glob pattern that matches all of the file names."""
    names = [Path(file).name.removesuffix(".gz") for file in files]
    if len(set(names)) == 1:
        return glob.escape(names[0])
    start = os.path.commonprefix(names)
    stop = os.path.commonprefix([name[len(start) :][::-1] for name in names])[::-1]
    return f"{glob.escape(start)}*{glob.escape(stop)}"
