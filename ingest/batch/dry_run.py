"""Dry run: how each column would be read and why, and the first problem of each kind.

Variable, unit, statistic and height of a column are inferred from its name (`column_names`) and compared with its
values (`value_checks`), with the reasons. `proposal` makes a deployment file of the result.
"""

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.core.times import SECOND_NS, format_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable, counter_words
from ingest.batch.clock_back import ClockBack, find_clock_back, merge_clock_backs
from ingest.batch.column_names import VARIABLES_BY_NAME, ColumnGuess, guess_column
from ingest.batch.column_roles import recognise_roles
from ingest.batch.value_checks import (
    ValueSample,
    are_outside,
    check_unit_by_values,
    find_missing_codes,
    find_missing_words,
    number_text,
)
from ingest.deployment.deployment_file import UNKNOWN_UNIT, Column, Deployment, Feed, default_deployment, load
from ingest.formats import FORMATS, Layout, Parsed, Unreadable, recognise
from ingest.formats.base import GENERAL
from ingest.formats.csv_lines import BAD_NUMBER
from ingest.formats.csv_sniffer import NO_HEADER, ask_about
from ingest.formats.file_metadata import COMMON, ColumnMetadata, FileMetadata, usual_interval_s, variable_name
from ingest.sources.folder import (
    CHUNK_BYTES,
    Discovery,
    SourceFile,
    cut,
    decompress_to,
    discover,
    find_deployment,
    first_bytes,
    layout_of,
    network_name,
    open_member,
    parse,
    plain_head,
    read,
    read_first_lines,
)

DECLARED: Final = "the deployment file says so"
FROM_FILE: Final = "the file tells"
AS_FORMAT: Final = "as the format has it; UTC where it does not say: set timezone if clocks showed another"
FIRST_ROWS: Final = 5
"""Number of rows of a source that are shown."""
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
    codes: Mapping[float, int] = field(default_factory=dict)
    """Numbers that probably stand for missing values, with their counts."""
    candidates: tuple[str, ...] = ()
    """Units one of which has to be chosen, because the values contradict the given one."""


@dataclass(frozen=True)
class FirstRow:
    """A row as it is read, for people to compare with what they know."""

    station: str
    time_ns: int
    """Time stamp [ns since 1970 UTC]."""
    values: Mapping[str, float]
    """Values by column [the column's unit]; NaN: reported without a value."""


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
    samples: dict[str, ValueSample] = field(default_factory=dict)
    """Values by column."""
    words: Counter[str] = field(default_factory=Counter)
    """Texts of cells that are no numbers."""
    lag_s: tuple[float, float] = (np.nan, np.nan)
    """Shortest and longest time from a reading to its arrival [s]; NaN if arrivals are unknown."""
    placed: set[str] = field(default_factory=set)
    """Stations whose positions are in the files."""
    clock_back: ClockBack | None = None
    """Where the clocks of its stations went back an hour."""
    first_rows: list[FirstRow] = field(default_factory=list)
    """At most `FIRST_ROWS`."""

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

    def missing_codes(self) -> dict[str, str]:
        """Return the texts that probably stand for missing values, with the reason, beyond those declared."""
        by_column = {seen.name: seen.codes for seen in self.columns()}
        every = [code for codes in by_column.values() for code in codes]
        samples = [sample.array() for sample in self.samples.values()]
        texts = {
            number_text(code): f"{count} times in {name!r}, outside of the other values"
            for name, codes in by_column.items()
            for code, count in codes.items()
            # A number of one column may be a value of another.
            if are_outside(code, samples, every)
        }
        texts |= {word: f"{count} times, no number" for word, count in find_missing_words(self.words).items()}
        known = self.layout.options.nodata
        return {text: why for text, why in texts.items() if text not in known}

    def columns(self) -> list[ColumnSeen]:
        """Return the columns to read, with the attributes inferred from their names and values."""
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
                if _is_told(column_metadata, column_metadata.variable, guess):
                    why = FROM_FILE
                    guess = ColumnGuess(
                        column_metadata.variable,
                        column_metadata.unit,
                        column_metadata.statistic,
                        column_metadata.height_m,
                        column_metadata.replicate or 1,
                        why,
                    )
            elif column_metadata is not None and column_metadata.unit:
                why = f"{why}; its unit, {column_metadata.unit}, is in the file"
            low, high = self.ranges.get(name, (np.nan, np.nan))
            is_declared = why == DECLARED
            values = self.samples[name].array() if name in self.samples else np.empty(0)
            given = guess.unit or (column.unit if column.unit != UNKNOWN_UNIT else None)
            codes = {} if is_declared else find_missing_codes(values, guess.variable, given)
            candidates: tuple[str, ...] = ()
            if not is_declared:
                check = check_unit_by_values(guess.variable, given, values[~np.isin(values, list(codes))])
                why = f"{why}; {check.why}" if check.why else why
                candidates = check.candidates
                # What the file says of a broken sensor holds.
                if check.is_other and why.startswith(FROM_FILE):
                    why = FROM_FILE
                elif check.is_other:
                    own = f"{variable_name(name)}_raw"
                    guess = replace(guess, variable=Variable(own, UNKNOWN_UNIT, None, name), unit=None)
                elif check.unit != given:
                    guess = replace(guess, unit=check.unit)
            columns_seen.append(ColumnSeen(name, column, guess, why, low, high, codes, candidates))
        return columns_seen


def _is_told(column: ColumnMetadata, variable: Variable, guess: ColumnGuess) -> bool:
    """Return whether a file says more of a column's variable than its name, from which some formats infer it."""
    is_named = variable.name in COMMON or variable.standard_name is not None
    return is_named or column.unit is None or guess.variable.name not in VARIABLES_BY_NAME


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
    station_tables: tuple[Path, ...] = ()
    """Tables of stations with positions among the files."""
    questions: Mapping[str, str] = field(default_factory=dict)
    """Files that nothing describes, each with the question to answer before it can be read."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "declared": self.deployment.declared,
            "sources": [_source_to_dict(source, self.deployment) for source in self.sources],
            "unreadable": dict(self.unreadable),
            "unknown": list(self.unknown),
            "companions": list(self.companions),
            "questions": dict(self.questions),
            "station_tables": [str(path) for path in self.station_tables],
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
    questions: dict[str, str] = {}
    if not described.declared:
        questions |= _ask_about_ignored(discovery)
    on_progress("read", 0.0)
    linked = _linked_layouts(discovery.files, described)
    for count, file in enumerate(discovery.files):
        # One folder per file, so that only one decompressed file at a time is on disk.
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
            try:
                _read(file, described.feeds_by_name[file.feed], Path(scratch), seen, linked.get(file.name))
            except Unreadable as error:
                unreadable[file.name] = str(error)
        if unreadable.get(file.name, "").startswith(NO_HEADER) and not described.declared:
            with suppress(Unreadable):
                questions[file.name] = ask_about(first_bytes(file, described.feeds_by_name[file.feed]))
        on_progress("read", (count + 1) / len(discovery.files))
    on_progress("read", 1.0)
    return DryRun(
        described,
        tuple(seen.values()),
        unreadable,
        discovery.ignored,
        discovery.companions,
        discovery.station_tables,
        questions,
    )


def _ask_about_ignored(discovery: Discovery) -> dict[str, str]:
    """Ask what the files are that no feed takes, by name, from their first lines."""
    questions = {}
    for name, (path, member) in zip(discovery.ignored, discovery.ignored_at, strict=True):
        with suppress(Unreadable), open_member(path, member) as stream:
            questions[name] = ask_about(plain_head(read_first_lines(stream), None))
    return questions


_BAD_CELL: Final = re.compile(rf"{BAD_NUMBER}: '(.*)' in ")
"""Reason of a rejected cell, with its text."""


def _linked_layouts(files: Sequence[SourceFile], deployment: Deployment) -> dict[str, Layout]:
    """Return the layouts, by file, of formats whose files describe one another's columns."""
    layouts: dict[str, dict[str, Layout]] = {}
    for file in files:
        feed = deployment.feeds_by_name[file.feed]
        if FORMATS[feed.format].link is not None:
            # The error is reported when the file is read.
            with suppress(Unreadable), tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
                layout = layout_of(decompress_to(file, feed, Path(scratch)), feed)
                layouts.setdefault(feed.name, {})[file.name] = layout
    linked: dict[str, Layout] = {}
    for name, by_file in layouts.items():
        link = FORMATS[deployment.feeds_by_name[name].format].link
        linked |= dict(zip(by_file, link([*by_file.values()]) if link is not None else (), strict=True))
    return linked


def _read(
    file: SourceFile, feed: Feed, scratch: Path, seen: dict[Hashable, SourceSummary], linked: Layout | None
) -> None:
    plain = decompress_to(file, feed, scratch)
    layout = linked or layout_of(plain, feed)
    if feed.format == GENERAL and not feed.options.given:
        layout = _with_roles(plain, feed, layout)
    # Files with the same header are shown as one source.
    key = (feed.name,) if linked is not None else (feed.name, layout.header, layout.options)
    if key not in seen:
        recognised = recognise(first_bytes(plain, feed), plain.path.name)
        why = recognised[1] if recognised is not None and recognised[0] == feed.format else f"its name is {feed.files}"
        seen[key] = SourceSummary(feed, layout, DECLARED if "format" in feed.options.given else why)
    source = seen[key]
    if linked is not None:
        source.layout = replace(source.layout, metadata=_joined(source.layout.metadata, layout.metadata))
    source.placed |= {station.id for station in layout.metadata.stations}
    source.files.append(file.name)
    line = layout.lines_before
    for chunk in cut(plain, 0, layout, feed.format, chunk_bytes=CHUNK_BYTES, first=0):
        parsed = parse(chunk)
        _add(source, parsed, file.name, line)
        line += parsed.lines


def _joined(metadata: FileMetadata, other: FileMetadata) -> FileMetadata:
    """Return the metadata of the columns of two files of one feed."""
    columns = {**other.columns, **metadata.columns}
    return replace(metadata, columns=columns, stations=(*metadata.stations, *other.stations))


def _with_roles(plain: SourceFile, feed: Feed, layout: Layout) -> Layout:
    """Return the layout with the columns of stations and arrivals that its first rows show."""
    first = cut(plain, 0, layout, feed.format, chunk_bytes=CHUNK_BYTES, first=0)[0]
    roles = recognise_roles(read(first), layout)
    if not roles.notes:
        return layout
    layout = layout_of(plain, replace(feed, options=roles.apply_to(feed.options)))
    return replace(layout, notes=(*layout.notes, *roles.notes))


def _add(source: SourceSummary, parsed: Parsed, file: str, before: int) -> None:
    source.rows += len(parsed.code)
    source.stations |= dict.fromkeys(parsed.stations)
    for row in parsed.bad:
        kind = row.reason.partition(":")[0]
        source.problems[kind] += 1
        if word := _BAD_CELL.match(row.reason):
            source.words[word[1]] += 1
        source.examples.setdefault(kind, f"{file}, line {before + row.line}: {row.reason}")
    if not len(parsed.code):
        return
    source.first_rows += _first_rows(parsed, FIRST_ROWS - len(source.first_rows))
    first, last = int(parsed.time_ns.min()), int(parsed.time_ns.max())
    source.first_ns = first if source.first_ns is None else min(first, source.first_ns)
    source.last_ns = last if source.last_ns is None else max(last, source.last_ns)
    first_series = parsed.code == parsed.code[0]
    if parsed.name_code is not None:
        first_series &= parsed.name_code == parsed.name_code[0]
    source.interval_s = source.interval_s or usual_interval_s(parsed.time_ns[first_series])
    if parsed.arrival_ns is not None and (parsed.arrival_ns > 0).any():
        lag_s = (parsed.arrival_ns - parsed.time_ns)[parsed.arrival_ns > 0] / SECOND_NS
        low, high = source.lag_s
        source.lag_s = float(np.fmin(low, lag_s.min())), float(np.fmax(high, lag_s.max()))
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
        source.samples.setdefault(name, ValueSample()).add(finite)
    source.clock_back = merge_clock_backs(source.clock_back, find_clock_back(parsed, source.layout))


def _first_rows(parsed: Parsed, count: int) -> list[FirstRow]:
    """Return the first rows of a chunk; of a long table, each has one value."""
    rows = []
    for index in range(min(count, len(parsed.code))):
        values = {name: float(column[index]) for name, column in parsed.values.items()}
        if parsed.name_code is not None:
            (value,) = values.values()
            values = {parsed.names[parsed.name_code[index]]: value}
        rows.append(FirstRow(parsed.stations[parsed.code[index]], int(parsed.time_ns[index]), values))
    return rows
