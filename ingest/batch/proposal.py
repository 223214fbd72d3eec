"""Proposal of a deployment file from a dry run."""

import fnmatch
import glob
import json
import os
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from pathlib import Path
from typing import Final

import numpy as np

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.units import KNOWN_VARIABLES, Variable, counter_words
from ingest.batch.clock_back import merge_clock_backs, zone_like
from ingest.batch.column_names import VARIABLES_BY_NAME, guess_column
from ingest.batch.dry_run import ColumnSeen, DryRun, SourceSummary, declared_variable
from ingest.batch.value_checks import ValueSample
from ingest.deployment.deployment_file import DEFAULT_SLICE_S, PER_STATION, UNKNOWN_UNIT, from_mapping
from ingest.deployment.station_table import read_remarks, read_station_table
from ingest.formats.base import GENERAL, TextForm
from ingest.formats.file_metadata import NO_METADATA

_TEXT_KEYS: Final = (
    *("delimiter", "decimal", "encoding", "comment", "time_format", "station"),
    *("variable_column", "value_column", "unit_column", "flag_column"),
)


@dataclass(frozen=True)
class Proposal:
    """A proposed deployment file."""

    text: str
    feeds: tuple[SourceSummary, ...]
    """What each feed of the file reads, in order."""


def propose_deployment(run: DryRun, path: Path | None = None) -> str:
    """Return the text of a deployment file to be edited; as `propose` without `with_open_units`."""
    return propose(run, path).text


def propose(run: DryRun, path: Path | None = None, *, with_open_units: bool = False) -> Proposal:
    """Propose a deployment file.

    Columns are mapped to the variables inferred from their names and values. If a unit is unknown, it is omitted and a
    comment asks for it: without it, numbers are assumed to be in the variable's own unit. A column whose values
    contradict its unit and fit several others is a comment, with the question; so is a feed without another column.

    Parameters
    ----------
    path
        Where the file will lie, from where tables are named; by default in the folder of the run's first file.
    with_open_units
        Whether columns whose unit is a question are part of the file, without a unit, instead of comments.

    Raises
    ------
    InvalidDeployment
        No file can be read, or no feed has a column whose unit is clear; the message has the questions.
    """
    if not run.sources:
        asked = "".join(f"; {name}: {question}" for name, question in run.questions.items())
        raise InvalidDeployment(f"no file could be read, so that there is nothing to describe{asked}")
    slice_s = min((source.interval_s for source in run.sources if source.interval_s), default=DEFAULT_SLICE_S)
    lines = [
        "# A proposal made from the files' beginnings: check every line, above all units and zones.",
        "[network]",
        f"name = {_quoted(run.deployment.name)}",
        f"slice_s = {max(1.0, slice_s):g}            # length of a slice [s]",
    ]
    table = next(iter(run.station_tables), None)
    listed: set[str] = set()
    folder = path.resolve().parent if path is not None else table.resolve().parent if table is not None else None
    if table is not None and folder is not None:
        listed = {station.id for station in read_station_table(table)}
        name = Path(os.path.relpath(table.resolve(), folder)).as_posix()
        lines.append(f"stations = {_quoted(name)}            # a table of {len(listed)} stations with positions")
        lines += [f"# it says: {remark}" for remark in read_remarks(table)]
    # A file that only describes stations has no column, and neither has one of remarks.
    sources = [
        _across(source, listed) or source for source in run.sources
        if source.columns() or (source.placed and source.feed.format != GENERAL)
    ]  # fmt: skip
    feeds, conflicts = _assign_patterns(sources)
    lines += _variables(run, [source for source, _ in feeds])
    lines += ["", *(f"# {conflict}" for conflict in conflicts)] if conflicts else []
    names: set[str] = set()
    questions = ["" if with_open_units else _question(source) for source, _ in feeds]
    if questions and all(questions):
        raise InvalidDeployment(f"no column can be described before its unit is known: {'; '.join(questions)}")
    for (source, pattern), question in zip(feeds, questions, strict=True):
        feed = _feed(source, pattern, names, with_open_units=with_open_units)
        lines += ["", *(f"# {line}" for line in [f"LEFT OUT. {question}", *feed[1:]])] if question else feed
    lines += _stations(sources, listed)
    text = "\n".join(lines) + "\n"
    # A file that cannot be parsed must not be written.
    from_mapping(tomllib.loads(text), path=folder / "deployment.toml" if folder is not None else None)
    return Proposal(text, tuple(source for (source, _), question in zip(feeds, questions, strict=True) if not question))


def propose_feed(source: SourceSummary, pattern: str) -> str:
    """Return the text of a feed, and of the variables that it declares, for a deployment file that has the rest."""
    lines = _variables_of([source], lambda name: KNOWN_VARIABLES.get(name) or Variable(name))
    return "\n".join([*lines, *_feed(source, pattern, set(), with_open_units=True)]) + "\n"


def _across(source: SourceSummary, listed: set[str]) -> SourceSummary | None:
    """Return a table with a column per station as one of a single column; None if it is none.

    Its columns have names that are not known, and they are in the table of stations, or the file has the name of a
    variable.
    """
    layout, columns = source.layout, source.columns()
    alone = layout.options.station_column not in layout.header and source.feed.format == GENERAL and not layout.long
    if not alone or len(columns) < 2 or any(seen.guess.variable.name in VARIABLES_BY_NAME for seen in columns):
        return None
    stems = {os.path.splitext(_base_name(file))[0] for file in source.files}
    name = next(iter(stems))
    is_variable = len(stems) == 1 and guess_column(name).variable.name in VARIABLES_BY_NAME
    if not is_variable and not {seen.name for seen in columns} <= listed:
        return None
    sample = reduce(ValueSample.joined, source.samples.values(), ValueSample())
    form = replace(layout.options.text, across=name)
    return replace(
        source,
        layout=replace(
            layout, columns=(name,), metadata=NO_METADATA, long=True, options=replace(layout.options, text=form)
        ),
        stations=dict.fromkeys(seen.name for seen in columns),
        ranges={name: (sample.low, sample.high)},
        samples={name: sample},
    )


def _stations(sources: Sequence[SourceSummary], listed: set[str]) -> list[str]:
    """Return the lines of the stations whose positions are in no file and no table."""
    lines: list[str] = []
    known = listed | {name for source in sources for name in source.placed}
    absent = [name for name in dict.fromkeys(name for source in sources for name in source.stations)
              if name not in known]  # fmt: skip
    if listed and absent:
        lines += ["", f"# not in the table of stations, which has {', '.join(sorted(listed)[:5])}"]
    for name in absent:
        lines += ["", "[[station]]", f"id = {_quoted(name)}", "# lon = 7.17", "# lat = 45.87", "# elevation_m = 2450.0"]
    return lines


def _assign_patterns(sources: Sequence[SourceSummary]) -> tuple[list[tuple[SourceSummary, str]], list[str]]:
    """Return the sources with a pattern each that finds their files, and those that names cannot separate.

    A file belongs to the first pattern that matches its name. Sources whose patterns collide become one if the columns
    of one are among those of the other; else each of their files has a pattern.
    """
    conflicts: list[str] = []
    merged = list(sources)
    split: list[SourceSummary] = []
    while True:
        feeds = _order([*((source, _pattern(source.files)) for source in merged),
                        *((source, glob.escape(_base_name(name))) for source in split
                          for name in dict.fromkeys(source.files))])  # fmt: skip
        pair = _find_collision(feeds)
        if pair is None:
            return feeds, conflicts
        owner, other = pair
        both = _merge(owner, other)
        if both is not None:
            merged = [source for source in merged if source is not owner and source is not other] + [both]
            split = [source for source in split if source is not owner and source is not other]
        elif other not in split:
            merged = [source for source in merged if source is not other]
            split.append(other)
        elif owner not in split:
            merged = [source for source in merged if source is not owner]
            split.append(owner)
        else:
            split = [source for source in split if source is not owner]
            conflicts.append(
                f"{', '.join(owner.files)}: another kind of file has that name, {', '.join(other.files)}; a feed finds "
                "its files by name: rename them, or ingest their folders apart"
            )


def _order(feeds: list[tuple[SourceSummary, str]]) -> list[tuple[SourceSummary, str]]:
    """Return the feeds with specific patterns first."""
    unique = list({(id(source), pattern): (source, pattern) for source, pattern in feeds}.values())
    return sorted(unique, key=lambda feed: ("*" in feed[1], -len(feed[1])))


def _find_collision(feeds: Sequence[tuple[SourceSummary, str]]) -> tuple[SourceSummary, SourceSummary] | None:
    """Return a source one of whose files belongs to another one by its name, and that one; None if there is none."""
    for source, _ in feeds:
        for name in map(_base_name, source.files):
            first = next((other for other, pattern in feeds if fnmatch.fnmatchcase(name, pattern)), source)
            if first is not source:
                return source, first
    return None


def _merge(source: SourceSummary, other: SourceSummary) -> SourceSummary | None:
    """Return two sources as one if the columns of one are among those of the other, in one form and unit."""
    more, less = sorted((source, other), key=lambda summary: len(summary.layout.columns), reverse=True)
    columns = more.layout.metadata.columns
    agree = all(columns.get(name, column) == column for name, column in less.layout.metadata.columns.items())
    is_part = set(less.layout.columns) <= set(more.layout.columns) and not more.layout.long
    if source.feed is not other.feed or source.layout.options != other.layout.options or not (agree and is_part):
        return None
    return replace(
        more,
        files=[*source.files, *other.files],
        rows=source.rows + other.rows,
        stations=source.stations | other.stations,
        interval_s=min(filter(None, (source.interval_s, other.interval_s)), default=0.0),
        words=source.words + other.words,
        clock_back=merge_clock_backs(source.clock_back, other.clock_back),
        lag_s=_wider(source.lag_s, other.lag_s),
        placed=source.placed | other.placed,
        samples={name: more.samples[name].joined(less.samples.get(name)) for name in more.samples},
        ranges={name: _wider(more.ranges[name], less.ranges.get(name)) for name in more.ranges},
    )


def _wider(extent: tuple[float, float], other: tuple[float, float] | None) -> tuple[float, float]:
    return extent if other is None else (float(np.fmin(extent[0], other[0])), float(np.fmax(extent[1], other[1])))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _variables(run: DryRun, sources: Sequence[SourceSummary]) -> list[str]:
    return _variables_of(sources, partial(declared_variable, run.deployment))


def _variables_of(sources: Sequence[SourceSummary], declared: Callable[[str], Variable]) -> list[str]:
    variables: dict[str, Variable] = {}
    for source in sources:
        for seen in source.columns():
            variable = declared(seen.guess.variable.name)
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


def proposed_zone(source: SourceSummary) -> tuple[str, str]:
    """Return the zone to propose for the stamps, and the reason."""
    zone, zone_origin = source.zone()
    if source.clock_back is None:
        return zone, zone_origin
    like = zone_like(source.clock_back.at_ns)
    if like:
        return like, "its clocks go back where times are there twice; another zone may have the same hour"
    return zone, source.clock_back.describe()


def _feed(source: SourceSummary, pattern: str, names: set[str], *, with_open_units: bool) -> list[str]:
    name, count = source.feed.name, 2
    while name in names:
        name, count = f"{source.feed.name}_{count}", count + 1
    names.add(name)
    zone, zone_origin = proposed_zone(source)
    codes = source.missing_codes()
    lines = [
        "",
        f"# {source.why}",
        *(f"# {note}" for note in source.layout.notes),
        "[[feed]]",
        f"name = {_quoted(name)}",
        f"files = {_quoted(pattern)}",
        f"format = {_quoted(source.feed.format)}",
        f"timezone = {_quoted(zone)}            # {zone_origin}",
        *(f"# {text} is taken for a missing value: {why}" for text, why in codes.items()),
        f"nodata = {json.dumps([*source.layout.options.nodata, *codes], ensure_ascii=False)}",
    ]
    # Declared, it would hold for columns to which the file gives another one.
    if source.interval_s and not any(column.interval_s for column in source.layout.metadata.columns.values()):
        lines.append(f"interval_s = {source.interval_s:g}")
    if source.feed.format == "csv":
        lines += _text_keys(source)
    taken: dict[tuple[object, ...], int] = {}
    columns = [_column(seen, taken, with_open_units=with_open_units) for seen in source.columns()]
    return [*lines, "[feed.columns]", *columns] if columns else lines


def _question(source: SourceSummary) -> str:
    """Return what to ask of a source before it can be described; empty if the unit of one of its columns is clear."""
    columns = source.columns()
    if not columns or not all(seen.candidates for seen in columns):
        return ""
    asked = [
        f"WHICH UNIT has {_quoted(seen.name)}, {' or '.join(seen.candidates)} (values {seen.low:g} to {seen.high:g})?"
        for seen in columns
    ]
    first = columns[0]
    answer = f"{first.name} [{first.candidates[0]}]"
    return (
        f"{_pattern(source.files)}: {' '.join(asked)} Name it in the header, such as {_quoted(answer)}, or declare the "
        "column in a feed of a deployment file, such as "
        f"{_quoted(first.name)} = {{variable = {_quoted(first.guess.variable.name)}, "
        f"unit = {_quoted(first.candidates[0])}}}"
    )


def _text_keys(source: SourceSummary) -> list[str]:
    options, form = source.layout.options, source.layout.options.text
    lines = [f"{key} = {_quoted(value)}" for key in _TEXT_KEYS if (value := getattr(form, key))]
    lines += [f"layout = {_quoted(PER_STATION)}"] if form.across else []
    columns = [_quoted(name) for name in form.time_columns]
    lines.append(f"time_column = {columns[0] if len(columns) == 1 else '[' + ', '.join(columns) + ']'}")
    if options.station_column in source.layout.header:
        lines.append(f"station_column = {_quoted(options.station_column)}")
    if form.arrival_column in source.layout.header:
        lines += [_lag(*source.lag_s), f"arrival_column = {_quoted(form.arrival_column)}"]
        lines += [f"arrival_format = {_quoted(form.arrival_format)}"] if form.arrival_format else []
    numbers = {key: getattr(form, key) for key in ("skip_lines", "header_lines", "unit_line")}
    return lines + [f"{key} = {value}" for key, value in numbers.items() if value != getattr(TextForm, key)]


def _lag(low: float, high: float) -> str:
    """Return a comment on how long after their times readings arrived [s]."""
    if np.isnan(low):
        return "# no arrival can be read: check arrival_format"
    early = "; SOME ARRIVED BEFORE THEY WERE MEASURED: check timezone, which holds for both" if low < -1.0 else ""
    return f"# readings arrived {low:g} to {high:g} s after their times{early}"


def column_unit(seen: ColumnSeen) -> str | None:
    """Return the unit of a column, None if it is not known."""
    return seen.guess.unit or (seen.column.unit if seen.column.unit != UNKNOWN_UNIT and not seen.candidates else None)


def _column(seen: ColumnSeen, taken: dict[tuple[object, ...], int], *, with_open_units: bool) -> str:
    guess, column = seen.guess, seen.column
    statistic = guess.statistic or column.statistic
    height = guess.height_m if guess.height_m is not None else column.height_m
    kind = (guess.variable.name, statistic, height)
    replicate = max(guess.replicate, taken.get(kind, 0) + 1)
    taken[kind] = replicate
    parts = [f"variable = {_quoted(guess.variable.name)}"]
    unit = column_unit(seen)
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
    # Without the answer, the column is left out, rather than read in a wrong unit.
    is_question = seen.candidates and not with_open_units
    question = f"# WHICH UNIT, {' or '.join(seen.candidates)}? " if is_question else ""
    return f"{question}{_quoted(seen.name)} = {{{', '.join(parts)}}}   # {why}"


def _pattern(files: Sequence[str]) -> str:
    """Return a glob pattern that matches all of the file names."""
    names = [_base_name(file) for file in files]
    if len(set(names)) == 1:
        return glob.escape(names[0])
    start = os.path.commonprefix(names)
    stop = os.path.commonprefix([name[len(start) :][::-1] for name in names])[::-1]
    return f"{glob.escape(start)}*{glob.escape(stop)}"


def _base_name(file: str) -> str:
    return Path(file).name.removesuffix(".gz")
