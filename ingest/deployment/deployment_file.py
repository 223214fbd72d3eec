"""Deployment file: the network's stations and variables, and the mapping of file columns to variables.

`station_data/deployments` has an example of every key.
"""

import json
import math
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Final, Literal, cast, get_args

from hypergrid.archive import S3Store
from hypergrid.archive.disk.checksums import list_written_twice, read_either, write_twice
from hypergrid.core.errors import InvalidDeployment, InvalidQuery, NotFound
from hypergrid.core.publication import NAMES, Publication
from hypergrid.core.readings import Position, Stamp, Station, Statistic
from hypergrid.core.times import parse_instant
from hypergrid.core.tokens import token
from hypergrid.core.units import (
    DIMENSIONLESS_TEXT,
    KNOWN_VARIABLES,
    Variable,
    check_unit,
    convert,
    counter_fault,
    is_amount,
)
from hypergrid.wo_join.batches import KEYS_AT_ONCE
from ingest.deployment.quality_overrides import QualityOverrides, read_quality
from ingest.deployment.station_table import read_station_table
from ingest.deployment.toml_table import TomlTable
from ingest.deployment.topics import Broker, Topic, check_no_overlap, read_broker, read_topic
from ingest.formats import FORMATS, DocumentFormat, ReadOptions
from ingest.formats.base import BLANKS, GENERAL, TextForm
from ingest.formats.csv_sniffer import DELIMITERS, is_superset_of_ascii
from ingest.formats.file_metadata import VARIABLE_NAME, ColumnMetadata, variable_name
from ingest.formats.timestamps import check_format, zone_of

FILE_NAME: Final = "deployment.toml"
"""Default name under which a deployment file is looked up."""
DEFAULT_SLICE_S: Final = 120.0
PER_STATION: Final = "column_per_station"
"""Layout of a table with a column for each station."""
UNKNOWN_UNIT: Final = "unknown"


@dataclass(frozen=True)
class Column:
    """One column of a feed, and the series attributes of its values."""

    token_name: ClassVar[str] = "Column"

    name: str
    """Name in the file."""
    variable: str
    unit: str = UNKNOWN_UNIT
    """Unit of the numbers in the file."""
    height_m: float | None = None
    """Height above ground [m]; None if unknown."""
    replicate: int = 1
    statistic: Statistic = "sample"
    interval_s: float = 0.0
    """Nominal interval [s]; 0 if unknown."""
    stamp: Stamp = "instant"
    given: tuple[str, ...] = field(default=(), compare=False)
    """Keys set in the deployment; file metadata does not override them."""

    def with_metadata(self, column: ColumnMetadata | None) -> "Column":
        """Return a copy with attributes from file metadata, except those that the deployment sets."""
        if column is None:
            return self
        keys = ("unit", "height_m", "replicate", "statistic", "interval_s", "stamp")
        attributes = {key: getattr(column, key) for key in keys if key not in self.given}
        if column.variable is not None and "variable" not in self.given:
            attributes["variable"] = column.variable.name
        return replace(self, **{key: value for key, value in attributes.items() if value is not None})


@dataclass(frozen=True)
class Feed:
    """Files of one format, and their columns."""

    token_name: ClassVar[str] = "Feed"

    name: str
    files: str
    """Glob pattern of file names; empty for a feed of messages only."""
    format: str
    options: ReadOptions
    columns: tuple[Column, ...] = ()
    """Declared columns; empty: each numeric column becomes a variable of the same name."""
    interval_s: float = 0.0
    statistic: Statistic = "sample"
    stamp: Stamp = "instant"
    arrivals: str | None = None
    """File next to the deployment file, with columns `station,time,arrival`."""
    # Omitted from tokens if None, so that feeds without a topic keep theirs.
    topic: Topic | None = field(default=None, metadata={"omit_default": True})

    def column(self, name: str) -> Column:
        """Return the declared column, or an undeclared one with unknown unit.

        Raises
        ------
        NotFound
            The feed declares columns, but not this one.
        """
        for column in self.columns:
            if column.name == name:
                return column
        if self.columns:
            kind = f"column of feed {self.name!r}"
            raise NotFound.among(kind, name, [column.name for column in self.columns])
        return Column(
            name,
            variable_name(name),
            statistic=self.statistic,
            interval_s=self.interval_s,
            stamp=self.stamp,
            given=self.options.given,
        )

    def token(self) -> str:
        """Return a digest of everything that decides whether a file can be read."""
        return token(self)


Grouping = Literal["network", "feed"]
SliceOrder = Literal["whole", "time"]


@dataclass(frozen=True)
class StreamSettings:
    """Slice assembly settings of a stream."""

    join: Grouping = "network"
    """Which stations' slices wait for one another: those of the whole network, or of one feed."""
    idle_s: float | None = None
    """Stop waiting for a station after this much silence [s]; None: ten slices."""
    order: SliceOrder = "whole"
    """When slices close: as soon as they are whole, also before older ones; or in order of time (thesis 5.10.1)."""
    memory: int | None = None
    """Limit of what all groups of stations hold in memory [bytes]; None: unlimited."""


@dataclass(frozen=True)
class Deployment:
    """A network: its stations, its variables and its feeds."""

    name: str
    feeds: tuple[Feed, ...]
    title: str = ""
    slice_s: float = DEFAULT_SLICE_S
    """Length of a slice of the base perspective [s]."""
    stations: tuple[Station, ...] = ()
    station_table: str | None = field(default=None, compare=False)
    """File with a table of stations, beside the deployment file; its stations are among `stations`."""
    variables: tuple[Variable, ...] = ()
    """Variables declared in the file."""
    quality: QualityOverrides = QualityOverrides()
    """Tests that set flags, and clock corrections."""
    declared: bool = True
    """False if there is no deployment file and everything is a default."""
    path: Path | None = field(default=None, compare=False)
    stream: StreamSettings = field(default=StreamSettings(), compare=False)
    broker: Broker | None = field(default=None, compare=False)
    publication: Publication | None = field(default=None, compare=False)
    """Statements about the data; None: those of the archive stay."""
    store: S3Store | None = field(default=None, compare=False)
    """Object store for the values of a new archive; None: in the archive's folder."""

    @cached_property
    def _declared_variables(self) -> Mapping[str, Variable]:
        return {variable.name: variable for variable in self.variables}

    @property
    def tables(self) -> tuple[Path, ...]:
        """Return the tables that belong to the description, of stations and of arrivals."""
        if self.path is None:
            return ()
        names = [self.station_table, *(feed.arrivals for feed in self.feeds)]
        return tuple(self.path.parent / name for name in dict.fromkeys(names) if name is not None)

    @cached_property
    def feeds_by_name(self) -> Mapping[str, Feed]:
        return {feed.name: feed for feed in self.feeds}

    def variable(self, name: str) -> Variable:
        """Return a variable: declared, or known and mapped by a feed, else with unknown unit."""
        if name in self._declared_variables:
            return self._declared_variables[name]
        # The column name alone is not enough: a column named "air_temperature" may be in degF.
        known = KNOWN_VARIABLES.get(name)
        if known is not None and any(column.variable == name for feed in self.feeds for column in feed.columns):
            return known
        return Variable(name, UNKNOWN_UNIT, None, known.long_name if known else "")

    def mapping_of(self, feed: Feed) -> str:
        """Return a digest of everything that decides which readings a file of a feed yields."""
        return token(feed, [list(shift) for shift in self.quality.clock_shift_h])

    def token(self) -> str:
        """Return a digest of everything that decides how a file is read."""
        stations = {
            s.id: (s.name, [(p.from_ns, repr((p.lon, p.lat, p.elevation_m))) for p in s.positions])
            for s in self.stations
        }
        # Omitted below if empty, because older tokens had no shifts.
        shifts = [list(shift) for shift in self.quality.clock_shift_h]
        return token(self.name, self.slice_s, self.feeds, self.variables, stations, *([shifts] if shifts else []))


def default_deployment(
    *, name: str = "unnamed", slice_s: float = DEFAULT_SLICE_S, variables: tuple[Variable, ...] = ()
) -> Deployment:
    """Return the deployment used without a file: one feed per format.

    Metadata comes from the files; the defaults are UTC, unknown units and missing positions. Plain CSV is recognised by
    file name, the other formats by their first bytes.
    """
    options = ReadOptions(nodata=("NaN", "nan", "NA"))
    names = sorted(FORMATS, key=lambda name: (name != GENERAL, name))
    feeds = tuple(Feed(form, "*.csv" if form == GENERAL else "", form, options) for form in names)
    return Deployment(name, feeds, slice_s=slice_s, variables=variables, declared=False)


def load(path: Path) -> Deployment:
    """Read a deployment file.

    Raises
    ------
    InvalidDeployment
        The file is invalid; the message names the key.
    NotFound
        The file does not exist.
    """
    return load_with_text(path)[0]


def load_with_text(path: Path) -> tuple[Deployment, str]:
    """Read a deployment file once; return the deployment and the file's text; errors as in `load`."""
    if not path.is_file():
        raise NotFound(f"no deployment file {path}; write one (see station_data/deployments) or leave the option away")
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDeployment(f"{path.name}: no TOML: {error}") from error
    described = from_mapping(content, file=path.name, path=path.resolve())
    for feed in described.feeds:
        if feed.arrivals is not None and not (path.resolve().parent / feed.arrivals).is_file():
            raise InvalidDeployment(
                f"{path.name}: feed {feed.name!r} names arrivals in {feed.arrivals!r}, which is not beside it; "
                "add the file or drop the key"
            )
    return described, text


def from_mapping(content: Mapping[str, object], *, file: str = FILE_NAME, path: Path | None = None) -> Deployment:
    """Return the deployment described by parsed TOML; errors as in `load`."""
    top = TomlTable(content, "", file=file)
    # First, so that a misspelt table name is reported as unknown, not as a missing table.
    for key in ("network", "variable", "feed", "station", "quality", "mqtt", "stream", "archive", "publication"):
        top.has(key)
    network = top.finish(top.table("network"))
    variables = tuple(_variable(table) for table in top.tables("variable"))
    own = {variable.name: variable for variable in variables}
    feeds = tuple(_feed(table, own) for table in top.tables("feed"))
    if not feeds:
        top.refuse("feed", "is missing; a deployment needs at least one [[feed]]")
    table_name = network.optional_text("stations")
    stations = tuple(_station(table) for table in top.tables("station"))
    for kind, names in (("feed", [f.name for f in feeds]), ("station", [s.id for s in stations])):
        # A set: with 20,000 stations, comparing each with those before it took 15 s.
        earlier: set[str] = set()
        for index, name in enumerate(names):
            if name in earlier:
                top.refuse(f"{kind}[{index}]", f"repeats {name!r}; each {kind} is named once")
            earlier.add(name)
    if table_name is not None:
        stations = (*_other_stations(network, table_name, path, stations), *stations)
    check_no_overlap([(feed.name, feed.topic) for feed in feeds if feed.topic is not None], file=file)
    deployment = Deployment(
        network.text("name"),
        feeds,
        title=network.text("title", default=network.text("name")),
        slice_s=network.number("slice_s", default=DEFAULT_SLICE_S, minimum=0.01, maximum=366 * 86_400.0),
        stations=stations,
        station_table=table_name,
        variables=variables,
        quality=read_quality(top.table("quality"), {**KNOWN_VARIABLES, **own}.get),
        path=path,
        stream=_stream_settings(top.table("stream"), len(feeds)),
        broker=read_broker(top.table("mqtt"), folder=path.parent if path else None) if top.has("mqtt") else None,
        publication=_publication(top.table("publication")) if top.has("publication") else None,
        store=_store(top.table("archive")),
    )
    most_s = (KEYS_AT_ONCE - 1) // 2 * deployment.slice_s
    for station, history in deployment.quality.clock_errors.items():
        if any(each.bound_s >= most_s for each in history):
            top.refuse(f"quality.clock_error_s.{station}", f"needs less than {most_s:g} s with these slices")
    return network.finish(deployment)


def _other_stations(
    table: TomlTable, name: str, path: Path | None, declared: tuple[Station, ...]
) -> tuple[Station, ...]:
    """Return the stations of a table that are not declared in the deployment file itself."""
    beside = Path() if path is None else path.parent
    # A kept copy lies beside the deployment file, whatever folder it was in.
    listed_in = next((path for path in (beside / name, beside / Path(name).name) if path.is_file()), None)
    if listed_in is None:
        table.refuse("stations", f"names {name!r}, which is not beside the file; add the table or drop the key")
    listed = table.run_check("stations", lambda: read_station_table(listed_in))
    own = {station.id for station in declared}
    return tuple(station for station in listed if station.id not in own)


def _stream_settings(table: TomlTable, feeds: int) -> StreamSettings:
    settings = StreamSettings(
        cast("Grouping", table.text("join", default="network", among=get_args(Grouping))),
        table.number("idle_s", minimum=0.001, maximum=1e8) if table.has("idle_s") else None,
        cast("SliceOrder", table.text("order", default="whole", among=get_args(SliceOrder))),
        table.run_check("memory", lambda: parse_size(table.text("memory"))) if table.has("memory") else None,
    )
    groups = feeds if settings.join == "feed" else 1
    if settings.memory is not None and settings.memory < groups * LEAST_MEMORY:
        table.refuse("memory", f"needs 1MiB for each of the {feeds} feeds; got {settings.memory} bytes for all")
    return table.finish(settings)


_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?(kB|MB|GB|KiB|MiB|GiB)")
_UNIT_BYTES: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
LEAST_MEMORY: Final = 1 << 20
"""Least limit of the memory of a group of stations [bytes]."""


def parse_size(text: str) -> int:
    """Parse a size such as 64MB [bytes].

    Raises
    ------
    InvalidQuery
        It is none, or below `LEAST_MEMORY`.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise InvalidQuery(f"a size is a number and kB, MB, GB, KiB, MiB or GiB, such as 64MB; got {text!r}")
    size = round(float(match[1]) * _UNIT_BYTES[match[2]])
    if size < LEAST_MEMORY:
        raise InvalidQuery(f"a stream needs 1MiB of memory at least; got {text!r}, {size} bytes")
    return size


def _publication(table: TomlTable) -> Publication:
    statements = table.finish({name: table.text(name) for name in NAMES if table.has(name)})
    return table.run_check("", lambda: Publication(**statements))


def _store(table: TomlTable) -> S3Store | None:
    options = {key: table.text(key) for key in ("endpoint", "region") if table.has(key)}
    conditional = table.switch("conditional", default=True)
    url = table.finish(table.text("store") if options or not conditional or table.has("store") else None)
    if url is None:
        return None
    return table.run_check("", lambda: S3Store.from_url(url, conditional=conditional, **options))


def _variable(table: TomlTable) -> Variable:
    name = table.text("name")
    if not VARIABLE_NAME.match(name):
        table.refuse("name", f"needs letters, digits and underscores; got {name!r}")
    unit = table.text("unit", default=UNKNOWN_UNIT)
    table.run_check("unit", lambda: check_unit(unit))
    standard = table.optional_text("standard_name")
    long_name = table.text("long_name", default=name)
    return table.finish(Variable(name, unit, standard, long_name, *_counter(table, unit)))


def _counter(table: TomlTable, unit: str) -> tuple[bool, float | None, float | None]:
    """Return whether a variable is a counter, and its resolution and rollover [its unit]."""
    is_counter = table.switch("counter", default=False)
    declared = {key: table.number(key) if table.has(key) else None for key in ("resolution", "rollover")}
    for key, value in declared.items():
        if value is not None and not is_counter:
            table.refuse(key, f"is of a counter; got {value:g} for a variable that is none: add counter = true")
    if is_counter and not is_amount(unit):
        table.refuse("counter", f"needs a unit that can be amassed, such as 'mm'; got {unit!r}")
    fault = counter_fault(**declared)
    if fault:
        at_fault = [key for key, value in declared.items() if counter_fault(**{**dict.fromkeys(declared), key: value})]
        table.refuse(at_fault[0] if at_fault else "rollover", f"does not fit: {fault}")
    return is_counter, declared["resolution"], declared["rollover"]


def _feed(table: TomlTable, own: Mapping[str, Variable]) -> Feed:
    format_name = table.text("format", among=sorted(FORMATS))
    interval_s = _interval_s(table, 0.0)
    statistic = cast("Statistic", table.text("statistic", default="sample", among=get_args(Statistic)))
    stamp = cast("Stamp", table.text("stamp", default="instant", among=get_args(Stamp)))
    zone = table.text("timezone", default="UTC")
    table.run_check("timezone", lambda: zone_of(zone))
    # File metadata does not override these keys.
    given = table.given_keys()
    defaults = Column("", "", statistic=statistic, interval_s=interval_s, stamp=stamp, given=given)
    columns: tuple[Column, ...] = ()
    if table.has("columns"):
        inner = table.table("columns")
        columns = tuple(_column(inner, name, defaults, own) for name in inner.names())
        _check_columns(inner, columns, FORMATS[format_name].columns)
    elif FORMATS[format_name].columns is not None:
        columns = tuple(replace(defaults, name=name, variable=name) for name in FORMATS[format_name].columns or ())
    form = text_form(table)
    if table.optional_text("layout", among=(PER_STATION,)) is not None:
        if format_name != GENERAL or len(columns) != 1 or form.long:
            table.refuse(
                "layout",
                f"{PER_STATION!r} needs format 'csv', no variable_column, and one entry in [feed.columns], for the "
                f"variable of all columns; got format {format_name!r} and {len(columns)} entries",
            )
        form = replace(form, across=columns[0].name)
    if form.arrival_column and format_name != GENERAL:
        table.refuse("arrival_column", f"needs format 'csv', of text with columns; got format {format_name!r}")
    targets = tuple((c.name, c.unit if c.unit != UNKNOWN_UNIT else _unit(c.variable, own)) for c in columns)
    options = ReadOptions(
        tuple(column.name for column in columns) or None,
        zone,
        table.texts("nodata", default=("NaN",)),
        table.text("station_column", default="station"),
        (form.time_columns or ("time",))[0],
        _pattern(table),
        given,
        replace(form, targets=targets if form.unit_column else ()),
    )
    arrivals = table.optional_text("arrivals")
    topic = read_topic(table) if table.has("topic") else None
    if topic is not None and isinstance(FORMATS[format_name], DocumentFormat) and format_name != "messages":
        table.refuse(
            "topic", f"needs a format that a message can have, 'messages' or lines of text; got {format_name!r}"
        )
    files = table.text("files") if topic is None or table.has("files") else ""
    name = table.text("name")
    return table.finish(Feed(name, files, format_name, options, columns, interval_s, statistic, stamp, arrivals, topic))


def _unit(variable: str, own: Mapping[str, Variable]) -> str:
    return (own.get(variable) or KNOWN_VARIABLES[variable]).unit


def _pattern(table: TomlTable) -> str:
    if not table.has("station_pattern"):
        return ""
    text = table.text("station_pattern")
    try:
        groups = re.compile(text).groups
    except re.error as error:
        table.refuse("station_pattern", f"is no regular expression: {error}", cause=error)
    if groups != 1:
        table.refuse("station_pattern", f"needs one group, the station, as in 'node-(.*)'; {text!r} has {groups}")
    return text


def _column(table: TomlTable, name: str, defaults: Column, own: Mapping[str, Variable]) -> Column:
    content = table.value(name)
    given = {"variable": content} if isinstance(content, str) else content
    inner = TomlTable(given, f"{table.path}.{name}", file=table.file)
    variable = inner.text("variable")
    if variable not in own and variable not in KNOWN_VARIABLES:
        known = NotFound.among("variable", variable, {*own, *KNOWN_VARIABLES})
        inner.refuse("variable", f"needs a known one or a [[variable]] table: {known}")
    unit = inner.text("unit", default=UNKNOWN_UNIT)
    declared = _unit(variable, own)
    # Converting a number checks that the units are compatible.
    inner.run_check("unit", lambda: convert(0.0, check_unit(unit), declared))
    if declared in DIMENSIONLESS_TEXT and unit not in DIMENSIONLESS_TEXT:
        inner.refuse("unit", f"is {unit!r}, but [[variable]] {variable!r} is kept without one; give it a unit there")
    column = Column(
        name,
        variable,
        unit,
        inner.number("height_m", minimum=-1e5, maximum=1e5) if inner.has("height_m") else None,
        inner.integer("replicate", default=1, minimum=1),
        cast("Statistic", inner.text("statistic", default=defaults.statistic, among=get_args(Statistic))),
        _interval_s(inner, defaults.interval_s),
        cast("Stamp", inner.text("stamp", default=defaults.stamp, among=get_args(Stamp))),
        tuple(sorted({*defaults.given, *inner.given_keys()})),
    )
    return inner.finish(column)


def _interval_s(table: TomlTable, default: float) -> float:
    """Return the interval [s], which must be positive if given; 0 means unknown."""
    interval_s = table.number("interval_s", default=default, minimum=0.0)
    if table.has("interval_s") and interval_s == 0.0:
        table.refuse("interval_s", "needs more than 0 s; got 0: omit the key where the interval is not known")
    return interval_s


def _check_columns(table: TomlTable, columns: tuple[Column, ...], existing: tuple[str, ...] | None) -> None:
    if not columns:
        table.refuse("", "is empty; name at least one column, or leave it away to take all")
    for column in columns:
        if existing is not None and column.name not in existing:
            table.refuse(column.name, f"is no column of the format: {NotFound.among('column', column.name, existing)}")


def _station(table: TomlTable) -> Station:
    # An unquoted id such as 7 is an integer in TOML.
    station_id = str(table.value("id")) if isinstance(table.value("id"), int) else table.text("id")
    positions = [_position(table, None)]
    for moved in table.tables("moved"):
        instant = moved.run_check("from", lambda moved=moved: parse_instant(moved.value("from")))  # type: ignore[misc]
        positions.append(moved.finish(_position(moved, instant)))
    # The first position has no start: it is valid from the beginning.
    starts = [position.from_ns for position in positions[1:]]
    if starts != sorted(set(starts), key=lambda start: start or 0):
        table.refuse("moved", "needs instants one after the other; order them by `from`")
    return table.finish(Station(station_id, table.text("name", default=station_id), tuple(positions)))


def _position(table: TomlTable, from_ns: int | None) -> Position:
    return Position(
        from_ns,
        table.number("lon", default=math.nan, minimum=-180.0, maximum=360.0),
        table.number("lat", default=math.nan, minimum=-90.0, maximum=90.0),
        table.number("elevation_m", default=math.nan, minimum=-1e4, maximum=1e5),
    )


QARTOD = (1, 2, 3, 4, 9)


def text_form(table: TomlTable) -> TextForm:
    """Read the keys of a text format; omitted ones are inferred from the beginning of each file.

    Raises
    ------
    InvalidDeployment
        A key is invalid, or two keys conflict.
    """
    names = table.texts("names", default=())
    if len(set(names)) < len(names):
        table.refuse("names", f"names a column twice: {', '.join(sorted({n for n in names if names.count(n) > 1}))}")
    header_lines = _line_count(table, "header_lines") if table.has("header_lines") else None
    if header_lines == 0 and not names:
        table.refuse("header_lines", "is 0, so that nothing names the columns; name them in `names`")
    name_lines = table.value("name_line", default=1)
    name_lines = tuple(name_lines) if isinstance(name_lines, list) else (name_lines,)
    unit_line = _line_count(table, "unit_line")
    for key, lines in (("name_line", name_lines), ("unit_line", (unit_line,))):
        first_line = 1 if key == "name_line" else 0
        if not lines or not all(isinstance(line, int) and line >= first_line for line in lines):
            table.refuse(key, f"needs numbers of lines of the header, from {first_line}; got {table.value(key)!r}")
        if table.has(key) and max(lines) > (header_lines or 0):
            table.refuse(key, f"is {max(lines)}, but `header_lines` is {header_lines or 'missing'}")
    comment = table.value("comment")
    if comment is not None and not isinstance(comment, str):
        table.refuse("comment", f"needs text, which may be empty; got {comment!r}")
    variable, value, unit = (table.optional_text(f"{what}_column") or "" for what in ("variable", "value", "unit"))
    if bool(variable) != bool(value) or (unit and not variable):
        table.refuse("variable_column", "and value_column go together; a unit_column needs both")
    time_format = table.optional_text("time_format")
    if time_format is not None:
        table.run_check("time_format", lambda: check_format(time_format))
    column, arrival_format = _arrivals(table)
    return TextForm(
        _delimiter(table),
        table.optional_text("decimal", among=(".", ",")),
        _encoding(table),
        comment,
        _line_count(table, "skip_lines"),
        header_lines,
        name_lines,
        unit_line,
        names,
        table.texts("time_column", default=()),
        time_format,
        table.optional_text("station") or "",
        variable,
        value,
        unit,
        table.optional_text("flag_column") or "",
        _flags(table),
        arrival_column=column,
        arrival_format=arrival_format,
    )


def _arrivals(table: TomlTable) -> tuple[str, str | None]:
    """Return the column of arrivals, empty without one, and its format."""
    column, arrival_format = table.optional_text("arrival_column"), table.optional_text("arrival_format")
    if arrival_format is not None:
        if column is None:
            table.refuse("arrival_format", "needs an `arrival_column`, whose instants have that format")
        table.run_check("arrival_format", lambda: check_format(arrival_format))
    return column or "", arrival_format


def _line_count(table: TomlTable, key: str) -> int:
    return table.integer(key, default=0, minimum=0, maximum=1000)


def _delimiter(table: TomlTable) -> str | None:
    delimiter = table.value("delimiter")
    if delimiter is None or delimiter in DELIMITERS:
        return delimiter
    if not isinstance(delimiter, str) or len(delimiter) != 1 or not delimiter.isascii() or delimiter in '"\r\n':
        table.refuse("delimiter", f"needs one character, or {BLANKS!r} for any number of them; got {delimiter!r}")
    return BLANKS if delimiter == " " else delimiter


def _encoding(table: TomlTable) -> str | None:
    if not table.has("encoding"):
        return None
    name = table.text("encoding")
    try:
        is_superset_of_ascii(name)
    except (LookupError, UnicodeError, TypeError) as error:
        table.refuse("encoding", f"is {name!r}, which nobody knows; write 'utf-8', 'cp1252', 'latin-1'", cause=error)
    return name


def _flags(table: TomlTable) -> tuple[tuple[str, int], ...]:
    inner, flags = table.table("flags"), []
    for text in inner.names():
        if inner.value(text) not in QARTOD or isinstance(inner.value(text), bool):
            inner.refuse(
                text, f"needs a flag of QARTOD, one of {', '.join(map(str, QARTOD))}; got {inner.value(text)!r}"
            )
        flags.append((text, int(inner.value(text))))
    return tuple(flags)


@dataclass(frozen=True)
class DeploymentVersion:
    """A deployment, and the first spool record that it reads."""

    first: int
    text: str
    path: Path
    """File that it was read from."""

    @property
    def deployment(self) -> Deployment:
        return _parse_text(self.text, self.path)


@lru_cache(maxsize=16)
def _parse_text(text: str, path: Path) -> Deployment:
    return from_mapping(tomllib.loads(text), file=path.name, path=path)


def read_versions(folder: Path) -> list[DeploymentVersion]:
    """Return the deployments of a stream, in the order of the records that they read.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        One is damaged, and so is its spare.
    """
    versions = []
    for path in list_written_twice(folder):
        content = read_either(path)
        versions.append(DeploymentVersion(int(path.stem.partition("-")[2]), content["text"], Path(content["path"])))
    return versions


def _inline_stations(text: str, described: Deployment, path: Path) -> str:
    """Return the text of a deployment with the stations of its table in it: records are read by it for years."""
    content = tomllib.loads(text)
    if "stations" not in content.get("network", {}):
        return text
    own = {str(station["id"]) for station in content.get("station", ())}
    blocks = []
    for station in described.stations:
        if station.id in own:
            continue
        position = station.position
        numbers = (("lon", position.lon), ("lat", position.lat), ("elevation_m", position.elevation_m))
        known = [f"{key} = {value!r}" for key, value in numbers if value is not None and not math.isnan(value)]
        names = [
            f"{key} = {json.dumps(value, ensure_ascii=False)}"
            for key, value in (("id", station.id), ("name", station.name))
        ]
        blocks.append("\n".join(["[[station]]", *names, *known]))
    lines = re.sub(r"(?m)^[ \t]*stations[ \t]*=.*$", "", text, count=1).rstrip("\n")
    inlined = "\n\n".join([lines, *blocks]) + "\n"
    kept = _parse_text(inlined, path.resolve()).stations
    # As text, as an unknown elevation is not equal to itself.
    if sorted(map(repr, kept)) != sorted(map(repr, described.stations)):
        raise InvalidDeployment(
            f"{path.name}: write 'stations' of [network] as a line of its own, so that it can be kept"
        )
    return inlined


def deploy(folder: Path, path: Path, *, first: int, check: Callable[[Deployment], None] = lambda _: None) -> bool:
    """Use a deployment file from record `first` on; return whether it is a new one.

    It is on disk when this returns; `first` must lie beyond all records of planned batches.

    Parameters
    ----------
    check
        Raises if the deployment is not acceptable.

    Raises
    ------
    InvalidDeployment, NotFound
        As `ingest.deployment.deployment_file.load`.
    """
    described, text = load_with_text(path)
    check(described)
    text = _inline_stations(text, described, path)
    before = read_versions(folder)
    # An unchanged file needs no new version.
    if before and before[-1].text == text:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    write_twice(folder / f"from-{first:016d}.json", {"text": text, "path": str(path.resolve())})
    return True


def version_at(versions: list[DeploymentVersion], seq: int) -> Deployment:
    """Return the deployment that reads a record.

    Raises
    ------
    NotFound
        The stream has no deployment.
    """
    # The first version also reads the records before it.
    earlier_versions = [version for version in versions if version.first <= seq] or versions[:1]
    if not earlier_versions:
        raise NotFound("the stream of this archive has no deployment yet; give --deployment FILE")
    return earlier_versions[-1].deployment


def split_by_version(versions: list[DeploymentVersion], after: int, upto: int) -> list[tuple[int, int, Deployment]]:
    """Split the records with after < seq <= upto into spans (after, upto), each with its deployment."""
    cuts = sorted({after, upto, *(version.first - 1 for version in versions if after < version.first - 1 < upto)})
    return [(start, stop, version_at(versions, stop)) for start, stop in zip(cuts[:-1], cuts[1:], strict=True)]
