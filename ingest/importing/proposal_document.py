"""The proposal of an import as JSON: a deployment document, what is behind it, and what has to be answered."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from functools import reduce
from typing import Any, Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment, InvalidUnit
from hypergrid.core.readings import Station
from hypergrid.core.times import SECOND_NS, format_instant
from hypergrid.core.units import DIMENSIONLESS_TEXT, KNOWN_VARIABLES, Variable, convert
from ingest.batch.column_names import VARIABLES_BY_NAME
from ingest.batch.dry_run import NO_ZONE, ColumnSeen, DryRun, FirstRow, SourceSummary
from ingest.batch.plan import is_placed
from ingest.batch.proposal import column_unit, propose, propose_feed, proposed_zone
from ingest.deployment.station_table import read_station_table
from ingest.formats.base import GENERAL
from ingest.formats.csv_lines import BAD_NUMBER
from ingest.formats.timestamps import zone_of
from ingest.importing.declared_units import keep_declared_units

UNITS: Final = (
    *("degC", "K", "degF", "%", "dimensionless", "Pa", "hPa", "kPa", "inHg", "mmHg", "m s-1", "km h-1", "knot"),
    *(
        "mile hour-1",
        "mm",
        "cm",
        "m",
        "inch",
        "foot",
        "W m-2",
        "kW m-2",
        "V",
        "mV",
        "degree",
        "radian",
        "s",
        "min",
        "hour",
    ),
    *("m3 s-1", "l s-1", "ppm", "ug m-3", "mg m-3", "lx", "umol m-2 s-1", "uS cm-1", "mS cm-1", "kg m-2", "l m-2"),
)
"""Units that are offered for a column; any other that converts can be written."""
VALUES_SHOWN: Final = 3
"""Number of values of a column that are shown."""


def describe_dry_run(run: DryRun, others: DryRun | None, archive: Archive) -> dict[str, Any]:
    """Return what a dry run knows, with a deployment that fits the archive; `others` is that of files beside it.

    The document is that of the deployment file if there is one, in which feeds without columns are filled from their
    files; else it is proposed. Columns whose unit is a question are in it, without a unit.
    """
    document, sources = _document(run)
    if run.deployment.declared:
        keep_declared_units(document, run.deployment, sources, archive)
    runs = [run]
    if others is not None:
        runs.append(others)
        more, more_sources = _document(others)
        _append(document, more)
        sources += more_sources
    fit_to_archive(document, archive)
    placed = _placed_stations(runs, archive)
    variables = _variables(document, archive)
    return {
        "document": _plain(document),
        "feeds": [_feed(group, placed, archive.variables) for group in sources],
        "stations": _stations(document, sources, placed),
        "variables": [
            {"name": variable.name, "unit": variable.unit, "long_name": variable.long_name or variable.name,
             "standard_name": variable.standard_name,
             "needs_declaration": KNOWN_VARIABLES.get(variable.name) != variable}
            for variable in variables
        ],
        "units": _conversions({variable.unit for variable in variables}),
        "unreadable": {name: reason for part in runs for name, reason in part.unreadable.items()},
        "questions": {name: question for part in runs for name, question in part.questions.items()},
        "ignored": [name for name in runs[-1].unknown if name not in runs[-1].questions],
        "companions": list(run.companions),
    }  # fmt: skip


def _document(run: DryRun) -> tuple[dict[str, Any], list[list[SourceSummary]]]:
    """Return the deployment, and the sources of each of its feeds."""
    if not run.deployment.declared:
        try:
            proposal = propose(run, with_open_units=True)
        except InvalidDeployment:
            # Nothing can be read: the questions say what is missing.
            return {"network": {"name": run.deployment.name}, "feed": []}, []
        return tomllib.loads(proposal.text), [[source] for source in proposal.feeds]
    path = run.deployment.path
    assert path is not None
    document = tomllib.loads(path.read_text("utf-8-sig"))
    groups = [[source for source in run.sources if source.feed.name == feed["name"]] for feed in document["feed"]]
    for feed, group in zip(document["feed"], groups, strict=True):
        if feed["format"] == GENERAL and not feed.get("columns") and group:
            _fill(document, feed, group[0])
    return document, groups


def _append(document: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Append the feeds, variables and stations of another deployment, under names that are free."""
    names = {feed["name"] for feed in document["feed"]}
    for feed in more["feed"]:
        count = 2
        name = feed["name"]
        while feed["name"] in names:
            feed["name"], count = f"{name}_{count}", count + 1
        names.add(feed["name"])
    document["feed"] = [*document["feed"], *more["feed"]]
    for kind, key in (("variable", "name"), ("station", "id")):
        known = {entry[key] for entry in document.get(kind, ())}
        new = [entry for entry in more.get(kind, ()) if entry[key] not in known]
        if new:
            document[kind] = [*document.get(kind, ()), *new]


def _fill(document: dict[str, Any], feed: dict[str, Any], source: SourceSummary) -> None:
    """Complete a feed of a deployment by what its files show; what it declares stays."""
    proposed = tomllib.loads(propose_feed(source, feed["files"]))
    feed |= {**proposed["feed"][0], **feed}
    declared = {variable["name"] for variable in document.get("variable", ())}
    new = [variable for variable in proposed.get("variable", ()) if variable["name"] not in declared]
    if new:
        document["variable"] = [*document.get("variable", ()), *new]


def fit_to_archive(document: dict[str, Any], archive: Archive) -> None:
    """Give a deployment the network, the slices and the units that the archive has."""
    network = document.setdefault("network", {})
    network |= {"name": archive.name, "slice_s": archive.slice_s}
    declared = {variable["name"]: variable for variable in document.get("variable", ())}
    mapped = [
        entry if isinstance(entry, str) else entry["variable"]
        for feed in document.get("feed", ())
        for entry in feed.get("columns", {}).values()
    ]
    for name in dict.fromkeys([*mapped, *declared]):
        held = archive.variables.get(name)
        if held is None or (name not in declared and KNOWN_VARIABLES.get(name) == held):
            continue
        if name in declared:
            declared[name]["unit"] = held.unit
        else:
            document["variable"] = [*document.get("variable", ()), _declaration(held)]
    # Without a position a station keeps the one that it has in the archive, if it is not declared again.
    stations = [
        station
        for station in document.get("station", ())
        if "lon" in station or not is_placed(archive.stations.get(str(station["id"])))
    ]
    document.pop("station", None)
    if stations:
        document["station"] = stations


def _declaration(variable: Variable) -> dict[str, Any]:
    pairs = {
        "name": variable.name, "unit": variable.unit, "standard_name": variable.standard_name,
        "long_name": variable.long_name, "counter": variable.is_counter or None,
        "resolution": variable.resolution, "rollover": variable.rollover,
    }  # fmt: skip
    return {key: value for key, value in pairs.items() if value}


def _variables(document: Mapping[str, Any], archive: Archive) -> list[Variable]:
    """Return the variables that a column may be: those of the archive, of the document, and those that are known."""
    own = {
        entry["name"]: Variable(
            entry["name"], entry.get("unit", "unknown"), entry.get("standard_name"), entry.get("long_name", "")
        )
        for entry in document.get("variable", ())
    }
    known = {**VARIABLES_BY_NAME, **KNOWN_VARIABLES, **own, **archive.variables}
    return sorted(known.values(), key=lambda variable: (variable.long_name or variable.name).lower())


def _conversions(targets: set[str]) -> dict[str, dict[str, list[float]]]:
    """Return, by the unit of a variable, factor and offset of each unit that converts to it."""
    conversions: dict[str, dict[str, list[float]]] = {}
    for target in sorted(targets):
        conversions[target] = {target: [1.0, 0.0]}
        for unit in UNITS if target not in DIMENSIONLESS_TEXT else ():
            try:
                offset, one_converted = (float(convert(number, unit, target)) for number in (0.0, 1.0))
            except InvalidUnit:
                continue
            conversions[target][unit] = [one_converted - offset, offset]
    return conversions


def _feed(
    group: Sequence[SourceSummary], placed: Mapping[str, Mapping[str, Any]], kept: Mapping[str, Variable]
) -> dict[str, Any]:
    """Describe the sources of one feed."""
    if not group:
        return {"files": [], "columns": [], "rows": 0, "stations": [], "problems": [], "first_rows": []}
    source = group[0]
    _, zone_origin = proposed_zone(source)
    firsts = [part.first_ns for part in group if part.first_ns is not None]
    lasts = [part.last_ns for part in group if part.last_ns is not None]
    columns = {seen.name: seen for part in reversed(group) for seen in part.columns()}
    problems = [problem for part in group for problem in _problems(part)]
    stations = list(dict.fromkeys(name for part in group for name in part.stations))
    return {
        "files": [name for part in group for name in part.files],
        "format": source.feed.format,
        "why": source.why,
        "notes": list(source.layout.notes),
        "rows": sum(part.rows for part in group),
        "stations": stations,
        "unplaced": sum(name not in placed for name in stations),
        "first": format_instant(min(firsts)) if firsts else None,
        "last": format_instant(max(lasts)) if lasts else None,
        "interval_s": source.interval_s,
        "time_columns": list(source.layout.options.text.time_columns),
        "zone": {"why": zone_origin, "is_open": zone_origin == NO_ZONE, "is_fixed": source.layout.zoned is True},
        "missing": reduce(lambda codes, part: codes | part.missing_codes(), group, dict[str, str]()),
        "problems": problems,
        "ignored": list(source.layout.ignored),
        "columns": [_column(seen, source, kept) for seen in columns.values()],
        "first_rows": [_row(row, source) for row in source.first_rows],
    }


def _problems(source: SourceSummary) -> list[dict[str, Any]]:
    """Return the rejects by kind, without cells whose text is proposed as a missing value."""
    codes = source.missing_codes()
    covered = sum(count for word, count in source.words.items() if word in codes)
    counts = {kind: count - (covered if kind == BAD_NUMBER else 0) for kind, count in source.problems.items()}
    return [
        {"kind": kind, "count": count, "first": source.examples[kind]} for kind, count in counts.items() if count > 0
    ]


def _column(seen: ColumnSeen, source: SourceSummary, kept: Mapping[str, Variable]) -> dict[str, Any]:
    unit, variable = column_unit(seen), kept.get(seen.guess.variable.name, seen.guess.variable)
    is_declared = any(column.name == seen.name for column in source.feed.columns)
    sample = source.samples[seen.name].array() if seen.name in source.samples else np.empty(0)
    sample = sample[~np.isin(sample, list(seen.codes))]
    return {
        "name": seen.name,
        "why": " ".join(seen.why.split()),
        "low": float(sample.min()) if len(sample) else None,
        "high": float(sample.max()) if len(sample) else None,
        "values": sample[:VALUES_SHOWN].tolist(),
        "candidates": list(seen.candidates),
        "unit_is_open": not is_declared and unit is None and variable.unit not in DIMENSIONLESS_TEXT,
    }


def _row(row: FirstRow, source: SourceSummary) -> dict[str, Any]:
    """Return a row with the time that the clock showed."""
    # Parsed in the zone of the layout, which may not be the proposed one.
    parsed_in = "UTC" if source.layout.zoned else source.layout.options.timezone
    clock = datetime.fromtimestamp(row.time_ns // SECOND_NS, UTC).astimezone(zone_of(parsed_in))
    across = source.layout.options.text.across
    station, values = row.station, row.values
    if across and across not in values:
        # Read as a table with a column for each variable before it was proposed as one with a column for each station.
        station, values = next(iter(values), row.station), {across: next(iter(values.values()), math.nan)}
    return {
        "station": station,
        "clock": clock.replace(tzinfo=None).isoformat(),
        "values": {name: _number(value) for name, value in values.items()},
    }


def _placed_stations(runs: Sequence[DryRun], archive: Archive) -> dict[str, dict[str, Any]]:
    """Return the stations whose positions are known, each with where from; the deployment's own go first."""
    stations: dict[str, dict[str, Any]] = {}

    def add(station: Station, origin: str) -> None:
        if is_placed(station):
            position = station.position
            stations.setdefault(
                station.id,
                {
                    "lon": position.lon,
                    "lat": position.lat,
                    "elevation_m": _number(position.elevation_m),
                    "from": origin,
                },
            )

    for run in runs:
        for station in run.deployment.stations:
            add(station, "deployment")
        for table in run.station_tables[:1]:
            for station in read_station_table(table):
                add(station, "table")
        for source in run.sources:
            for station in source.layout.metadata.stations:
                add(station, "file")
    for station in archive.stations.values():
        add(station, "archive")
    return stations


def _stations(
    document: Mapping[str, Any],
    sources: Sequence[Sequence[SourceSummary]],
    placed: Mapping[str, Mapping[str, Any]],
) -> list[dict[str, Any]]:
    """Return the stations of the files and of the document, with their known positions."""
    declared = {str(station["id"]): station for station in document.get("station", ())}
    names = dict.fromkeys([*(name for group in sources for part in group for name in part.stations), *declared])
    nowhere = {"lon": None, "lat": None, "elevation_m": None, "from": ""}
    return [
        {"id": name, "name": declared.get(name, {}).get("name", ""), **nowhere, **placed.get(name, {})}
        for name in names
    ]


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _plain(value: Any) -> Any:  # noqa: ANN401 - TOML
    """Return a document of TOML as one of JSON: instants become text."""
    match value:
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case date():
            return value.isoformat()
        case _:
            return value
