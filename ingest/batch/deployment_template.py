"""Proposal of a deployment file from a dry run; inferred entries are marked by a comment."""

import json
import os
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hypergrid.core.units import KNOWN_VARIABLES, Variable, counter_words
from ingest.batch.dry_run import ColumnSeen, DryRun, SourceSummary, declared_variable
from ingest.deployment.deployment_file import DEFAULT_SLICE_S, from_mapping
from ingest.formats.base import TextForm

_TEXT_KEYS: Final = ("delimiter", "decimal", "encoding", "comment", "time_format", "station")
_COLUMN_KEYS: Final = ("variable_column", "value_column", "unit_column", "flag_column")


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
    for seen in source.columns():
        lines.append(_column(seen, taken))
    return lines


def _text_keys(source: SourceSummary) -> list[str]:
    options, form = source.layout.options, source.layout.options.text
    lines = [f"{key} = {_quoted(value)}" for key in _TEXT_KEYS if (value := getattr(form, key))]
    lines += [f"{key} = {_quoted(value)}" for key in _COLUMN_KEYS if (value := getattr(form, key))]
    columns = [_quoted(name) for name in form.time_columns]
    lines.append(f"time_column = {columns[0] if len(columns) == 1 else '[' + ', '.join(columns) + ']'}")
    if options.station_column in source.layout.header:
        lines.append(f"station_column = {_quoted(options.station_column)}")
    given = TextForm()
    for key in ("skip_lines", "header_lines", "unit_line"):
        if getattr(form, key) != getattr(given, key):
            lines.append(f"{key} = {getattr(form, key)}")
    return lines


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
        return _literal(names[0])
    start = os.path.commonprefix(names)
    stop = os.path.commonprefix([name[len(start) :][::-1] for name in names])[::-1]
    return f"{_literal(start)}*{_literal(stop)}"


def _literal(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "[*?" else letter for letter in text)
