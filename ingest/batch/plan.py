"""Plan of a run: which files are new, their layouts, and their chunks."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from hypergrid.archive import FileEntry, Reject
from hypergrid.archive.disk.raw_copies import hash_of
from hypergrid.core.errors import InvalidDeployment, InvalidUnit, NotFound
from hypergrid.core.geodesy import arc_m, places_m
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import Variable, convert
from ingest.deployment.deployment_file import DEFAULT_SLICE_S, UNKNOWN_UNIT, Column, Deployment, Feed
from ingest.deployment.to_readings import natural_sort_key
from ingest.formats import FORMATS, DocumentFormat, Format, Layout, Parsed, Unreadable
from ingest.formats.file_metadata import FileMetadata
from ingest.sources.folder import (
    CHUNK_BYTES,
    HEAD_BYTES,
    Chunk,
    Discovery,
    SourceFile,
    cut,
    decompress_to,
    first_bytes,
    layout_of,
)


@dataclass(frozen=True)
class IngestPlan:
    """The new files of a run, and their chunks."""

    files: tuple[SourceFile, ...]
    """New files, the unreadable ones included."""
    skipped: int
    """Number of files whose content is known."""
    chunks: tuple[Chunk, ...]
    layouts: Mapping[int, Layout]
    """By file index; unreadable files have none."""
    unreadable: tuple[Reject, ...]
    """Files that cannot be read at all."""
    files_elsewhere: int = 0
    """Number of known files that were read with another mapping than the current one."""

    @property
    def size_bytes(self) -> int:
        return sum(self.files[file_index].size_bytes for file_index in self.layouts)


def make_plan(
    discovery: Discovery,
    deployment: Deployment,
    *,
    ledger: Iterable[FileEntry],
    scratch: Path,
    progress: Callable[[float], None] = lambda _: None,
    requires_columns: bool = True,
) -> IngestPlan:
    """Hash the files, skip known ones, and split the others into chunks.

    Content in the ledger is known if it gave readings, or if this mapping was tried on it before. Compressed files are
    extracted, and text that has no lines is rewritten, into the folder `scratch`, where the copies stay while they are
    parsed.

    Parameters
    ----------
    requires_columns
        Whether each column of a feed must be in one of its files; False if some of its files are not part of this run.

    Raises
    ------
    InvalidDeployment
        A feed names a column that none of its files has.
    """
    mapping = {feed.name: deployment.mapping_of(feed) for feed in deployment.feeds}
    entries = list(ledger)
    read = {entry.sha256 for entry in entries if entry.readings}
    tried = {(entry.sha256, entry.mapping) for entry in entries}
    files: list[SourceFile] = []
    layouts: dict[int, Layout] = {}
    chunks: list[Chunk] = []
    unreadable: list[Reject] = []
    telling: list[tuple[str, Layout]] = []
    elsewhere = 0
    for count, file in enumerate(discovery.files):
        progress(count / len(discovery.files))
        feed, wrong = deployment.feeds_by_name[file.feed], ""
        try:
            file = decompress_to(file, feed, scratch)
        except Unreadable as error:
            wrong = str(error)
        sha256 = hash_of(file.path, file.size_bytes)
        attempt = (sha256, mapping[file.feed])
        # Older archives did not record clock shifts.
        is_same = not tried.isdisjoint({attempt, (sha256, feed.token())})
        if sha256 in read or is_same:
            elsewhere += not is_same
            if sha256 not in read and FORMATS[feed.format].link is not None:
                # For its metadata of other files' columns.
                with suppress(Unreadable):
                    telling.append((feed.name, layout_of(file, feed)))
            continue
        tried.add(attempt)
        file = replace(file, sha256=sha256)
        file_index = len(files)
        files.append(file)
        try:
            if wrong:
                raise Unreadable(wrong)
            layout = layout_of(file, feed)
            chunks += cut(file, file_index, layout, feed.format, chunk_bytes=CHUNK_BYTES, first=len(chunks))
            layouts[file_index] = layout
            # A file repeated within this run is skipped, too.
            read |= {sha256} if layout.columns or layout.long else set()
        except Unreadable as error:
            unreadable.append(Reject(file.name, 0, "", "", str(error)))
    for feed in deployment.feeds:
        own = {index: layout for index, layout in layouts.items() if files[index].feed == feed.name}
        link = FORMATS[feed.format].link
        if link is not None and own:
            # Files of a feed may describe one another's columns.
            others = [layout for name, layout in telling if name == feed.name]
            layouts |= dict(zip(own, link([*own.values(), *others]), strict=False))
        if requires_columns:
            _check_columns(feed, [layouts[index] for index in own])
    chunks = [replace(chunk, layout=layouts[chunk.file]) for chunk in chunks]
    return IngestPlan(
        tuple(files), len(discovery.files) - len(files), tuple(chunks), layouts, tuple(unreadable), elsewhere
    )


def _check_columns(feed: Feed, layouts: list[Layout]) -> None:
    headers = {name for layout in layouts for name in layout.header}
    arrival_column = feed.options.text.arrival_column
    if layouts and arrival_column and arrival_column not in headers:
        unknown = NotFound.among("column", arrival_column, headers)
        raise InvalidDeployment(f"feed {feed.name!r} has an arrival_column that no file of it has: {unknown}")
    if any(layout.long for layout in layouts):
        # Columns of long rows are known only after parsing.
        return
    for column in feed.columns:
        if layouts and column.name not in headers:
            unknown = NotFound.among("column", column.name, headers)
            raise InvalidDeployment(
                f"feed {feed.name!r} of the deployment reads a column that no file of it has: {unknown}"
            )


def layout_warnings(plan: IngestPlan, deployment: Deployment) -> list[str]:
    """Return warnings about the columns of the files."""
    warnings: list[str] = []
    for feed in deployment.feeds:
        layouts = {plan.files[p].name: layout for p, layout in plan.layouts.items() if plan.files[p].feed == feed.name}
        ignored = sorted({name for layout in layouts.values() for name in layout.ignored})
        if ignored:
            warnings.append(f"columns that nothing maps were left out: {', '.join(ignored)}")
        for column in feed.columns:
            lacking = [name for name, layout in layouts.items() if not layout.long and column.name not in layout.header]
            if lacking:
                warnings.append(f"column {column.name!r} is missing in {list_names(lacking)}")
        if arrival_column := feed.options.text.arrival_column:
            lacking = [name for name, layout in layouts.items() if arrival_column not in layout.header]
            if lacking:
                warnings.append(
                    f"column {arrival_column!r} of arrivals is missing in {list_names(lacking)}, "
                    "whose rows arrive as they are ingested"
                )
        silent = any(set(layout.columns) - set(layout.metadata.columns) for layout in layouts.values())
        if deployment.declared and not feed.columns and silent:
            warnings.append(f"feed {feed.name!r} declares no columns: all were taken, with unknown units")
        for name, layout in layouts.items():
            warnings += [f"{name}: {note}" for note in layout.metadata.notes]
    if not deployment.declared and plan.layouts:
        warnings += _default_warnings(plan, deployment)
    unended = [
        file.name
        for file in (plan.files[index] for index in plan.layouts)
        if isinstance(FORMATS[deployment.feeds_by_name[file.feed].format], Format) and _is_unended(file)
    ]
    if unended:
        warnings.append(f"the last line has no line end and may be cut off within a number: {list_names(unended)}")
    return warnings


def _is_unended(file: SourceFile) -> bool:
    with file.path.open("rb") as stream:
        stream.seek(-1, os.SEEK_END)
        return stream.read(1) not in (b"\n", b"\r")


def _default_warnings(plan: IngestPlan, deployment: Deployment) -> list[str]:
    named = [
        plan.files[file_index].name
        for file_index, layout in plan.layouts.items()
        if layout.columns
        and layout.options.station_column not in layout.header
        and layout.station not in {station.id for station in layout.metadata.stations}
    ]
    columns = sorted(
        {
            name
            for layout in plan.layouts.values()
            for name in layout.columns
            if (column_metadata := layout.metadata.columns.get(name)) is None or column_metadata.unit is None
        }
    )
    feed = deployment.feeds[0]
    kept = [deployment.variable(feed.column(name).variable) for name in columns]
    taken = [f"{variable.name} as {variable.unit}" for variable in kept if variable.unit != UNKNOWN_UNIT]
    as_kept = f" ({', '.join(taken)}, which the archive keeps)" if taken else ""
    zoned = all(layout.metadata.zone for layout in plan.layouts.values())
    warnings = ["no deployment.toml was found" + ("" if zoned else ": times without a zone were taken as UTC")]
    if columns:
        warnings.append(f"units are unknown and values were taken as they are: {', '.join(columns)}{as_kept}")
    return [*warnings, f"the station was taken from the file's name: {list_names(named)}"] if named else warnings


def list_names(names: Sequence[str]) -> str:
    """List the first five names, and count the rest."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _first_rows(file: SourceFile, feed: Feed, layout: Layout) -> Parsed:
    form = FORMATS[feed.format]
    if not isinstance(form, Format):
        start, stop = form.cut(file.path, layout, HEAD_BYTES)[:2]
        return form.parse(file.path, layout, start, stop)
    head = first_bytes(file, feed)[layout.data_start :]
    return form.parse(head[: head.rfind(b"\n") + 1], layout, last=False)


def guess_slice_s(discovery: Discovery, deployment: Deployment) -> float:
    """Return a station's usual interval [s], from the first file with enough rows."""
    for file in discovery.files[:20]:
        feed = deployment.feeds_by_name[file.feed]
        if file.refused or (file.member and isinstance(FORMATS[feed.format], DocumentFormat)):
            continue
        try:
            layout = layout_of(file, feed)
        except Unreadable:
            continue
        rows = _first_rows(file, feed, layout)
        gaps = np.diff(rows.time_ns[rows.code == 0])
        gaps = gaps[gaps > 0]
        if len(gaps) >= 2:
            return max(1.0, round(float(np.median(gaps)) / SECOND_NS))
    return DEFAULT_SLICE_S


def column_of(feed: Feed, layout: Layout, name: str) -> Column:
    """Return a column of a file: declared attributes first, then file metadata."""
    return feed.column(name).with_metadata(layout.metadata.columns.get(name))


def columns_of(plan: IngestPlan, deployment: Deployment) -> Mapping[int, tuple[Column, ...]]:
    """Return the columns of each readable file by index; of long rows those known beforehand."""
    feeds = {index: deployment.feeds_by_name[plan.files[index].feed] for index in plan.layouts}
    return {
        file_index: tuple(column_of(feeds[file_index], layout, name) for name in layout.columns)
        for file_index, layout in plan.layouts.items()
    }


def with_file_metadata(
    deployment: Deployment, plan: IngestPlan, *, variables: Mapping[str, Variable], stations: Mapping[str, Station]
) -> Deployment:
    """Return the deployment with the variables and stations from file metadata that it does not declare.

    Parameters
    ----------
    variables, stations
        Those of the archive, which keeps its units; a station with another position in a file has moved.

    Raises
    ------
    InvalidDeployment
        The unit of a column is not convertible to its variable's.
    """
    variables_by_name: dict[str, Variable] = {variable.name: variable for variable in deployment.variables}
    for file_index, columns in columns_of(plan, deployment).items():
        column_metadata = plan.layouts[file_index].metadata.columns
        for column in columns:
            variable = column_metadata[column.name].variable if column.name in column_metadata else None
            if variable is not None and variable.name == column.variable:
                variables_by_name.setdefault(column.variable, variables.get(column.variable, variable))
    whole = replace(
        deployment,
        variables=tuple(variables_by_name.values()),
        stations=merge_stations([layout.metadata for layout in plan.layouts.values()], deployment.stations, stations),
    )
    _check_units(plan, whole)
    return whole


def _check_units(plan: IngestPlan, deployment: Deployment) -> None:
    for file_index, columns in columns_of(plan, deployment).items():
        for column in columns:
            variable = deployment.variable(column.variable)
            try:
                convert(0.0, column.unit, variable.unit)
            except InvalidUnit as error:
                file = plan.files[file_index]
                raise InvalidDeployment(
                    f"{file.name}: column {column.name!r} is in {column.unit!r}, and {variable.name!r} is kept in "
                    f"{variable.unit!r}, which it does not convert to; give the column another variable or unit in "
                    f"[feed.columns] of feed {file.feed!r}"
                ) from error


def merge_stations(
    metadata: Iterable[FileMetadata], declared: tuple[Station, ...], archive: Mapping[str, Station]
) -> tuple[Station, ...]:
    """Merge stations: declared ones, then those of files; a declared one without position takes the file's."""
    own = {station.id: station for station in declared}
    stations: dict[str, Station] = {}
    # In order of time, so that changed positions are moves.
    for file_metadata in sorted(metadata, key=lambda file_metadata: file_metadata.first_ns or 0):
        for station in file_metadata.stations:
            # Declared positions take precedence.
            if is_placed(own.get(station.id)):
                continue
            before = stations.get(station.id) or archive.get(station.id)
            if before is None or not is_placed(before):
                stations[station.id] = station
                continue
            positions = stations[station.id].positions if station.id in stations else ()
            moved = _moved_positions(before.position, station.positions, file_metadata.first_ns)
            if moved:
                stations[station.id] = replace(station, positions=(*positions, *moved))
    first = [
        replace(stations.pop(name), name=station.name) if name in stations else station for name, station in own.items()
    ]
    return (*first, *(stations[name] for name in sorted(stations, key=natural_sort_key)))


def _moved_positions(before: Position, after: Iterable[Position], first_ns: int | None) -> list[Position]:
    """Return the positions of `after` that differ from the preceding one."""
    moved = []
    for position in after:
        start = position.from_ns if position.from_ns is not None else first_ns
        later = before.from_ns is None or (start is not None and start > before.from_ns)
        if not np.isnan(position.lon) and not _is_same(before, position) and start is not None and later:
            before = replace(position, from_ns=start)
            moved.append(before)
    return moved


def _is_same(position: Position, other: Position) -> bool:
    up = abs(position.elevation_m - other.elevation_m)
    return (
        abs(position.lon - other.lon) <= 1e-5 and abs(position.lat - other.lat) <= 1e-5 and (np.isnan(up) or up <= 1.0)
    )


def is_placed(station: Station | None) -> bool:
    return station is not None and not (np.isnan(station.position.lon) or np.isnan(station.position.lat))


def find_distant_stations(stations: Iterable[Station]) -> dict[str, float]:
    """Return the stations far from the others, with their distance from the network's middle [m].

    The middle is the median position; far means more than 50 km, and than ten times the median distance.
    """
    placed = [station for station in stations if is_placed(station)]
    if len(placed) < 4:
        return {}
    lon = np.array([station.position.lon for station in placed])
    lat = np.array([station.position.lat for station in placed])
    places = places_m(lon, lat)
    away_m = arc_m(np.linalg.norm(places - np.median(places, axis=0), axis=1))
    threshold_m = max(50_000.0, 10.0 * float(np.median(away_m)))
    return {
        station.id: float(distance_m)
        for station, distance_m in zip(placed, away_m, strict=True)
        if distance_m > threshold_m
    }
