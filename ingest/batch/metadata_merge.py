"""Merge of file metadata into the deployment: variables, units and station positions."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import numpy as np

from hypergrid.core.errors import InvalidDeployment, InvalidUnit
from hypergrid.core.geodesy import arc_m, places_m
from hypergrid.core.readings import Position, Station
from hypergrid.core.units import Variable, convert
from ingest.batch.plan import IngestPlan
from ingest.deployment.deployment_file import Column, Deployment, Feed
from ingest.deployment.to_readings import natural_sort_key
from ingest.formats import Layout
from ingest.formats.file_metadata import FileMetadata

FAR_TIMES: Final = 10.0
"""Minimum distance of a distant station from the network's middle [median distance]."""
FAR_LEAST_M: Final = 50_000.0
"""Stations nearer to the middle than this are never distant [m]."""
_SAME_DEGREES: Final = 1e-5
_SAME_M: Final = 1.0


def column_of(feed: Feed, layout: Layout, name: str) -> Column:
    """Return a column of a file: declared attributes first, then file metadata."""
    return feed.column(name).with_metadata(layout.metadata.columns.get(name))


def columns_of(plan: IngestPlan, deployment: Deployment) -> Mapping[int, tuple[Column, ...]]:
    """Return the columns of each readable file by index; of long rows those known beforehand."""
    feeds = {feed.name: feed for feed in deployment.feeds}
    return {
        file_index: tuple(column_of(feeds[plan.files[file_index].feed], layout, name) for name in layout.columns)
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
        abs(position.lon - other.lon) <= _SAME_DEGREES
        and abs(position.lat - other.lat) <= _SAME_DEGREES
        and (np.isnan(up) or up <= _SAME_M)
    )


def is_placed(station: Station | None) -> bool:
    """Return whether the position of a station is known."""
    return station is not None and not (np.isnan(station.position.lon) or np.isnan(station.position.lat))


def find_distant_stations(stations: Iterable[Station]) -> dict[str, float]:
    """Return the stations far from the others, with their distance from the network's middle [m].

    The middle is the median position; far means more than `FAR_TIMES` times the median distance from it.
    """
    placed = [station for station in stations if is_placed(station)]
    if len(placed) < 4:
        return {}
    lon = np.array([station.position.lon for station in placed])
    lat = np.array([station.position.lat for station in placed])
    places = places_m(lon, lat)
    away_m = arc_m(np.linalg.norm(places - np.median(places, axis=0), axis=1))
    threshold_m = max(FAR_LEAST_M, FAR_TIMES * float(np.median(away_m)))
    return {
        station.id: float(distance_m)
        for station, distance_m in zip(placed, away_m, strict=True)
        if distance_m > threshold_m
    }
