"""Relations of an archive: its stations as they moved, and the nearest neighbours of each."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.continuous.sources.batch import CodedTexts, SourceBatch
from hypergrid.core.geodesy import arc_m, places_m
from hypergrid.core.readings import Position, Station

NEAREST: Final = 8
"""Neighbours of a station, at most."""

Row = tuple[Any, ...]


def station_changes(stations: Mapping[str, Station]) -> SourceBatch:
    """Return the changes of the relation of stations: those of the start, and each move.

    Columns are station, name, lon, lat [degree] and elevation_m [m], NULL where unknown.
    """
    changes = [
        (tau, sign, (key, stations[key].name, at.lon, at.lat, at.elevation_m))
        for tau, before, after in _iterate_moves(stations)
        for sign, positions in ((-1, before), (1, after))
        for key, at in positions.items()
        if after.get(key) != before.get(key)
    ]
    return _make_batch(changes, (str, str, float, float, float))


def neighbour_changes(stations: Mapping[str, Station]) -> SourceBatch:
    """Return the changes of the relation of neighbours: the eight nearest of each station whose position is known.

    Columns are station, neighbour, distance_m along a great circle, and dz_m, the station's elevation less the
    neighbour's [m].
    """
    changes: list[tuple[int, int, Row]] = []
    held: dict[Row, None] = {}
    for tau, _, positions in _iterate_moves(stations):
        rows = dict.fromkeys(_list_neighbours(positions))
        changes += [(tau, -1, row) for row in held if row not in rows]
        changes += [(tau, 1, row) for row in rows if row not in held]
        held = rows
    return _make_batch(changes, (str, str, float, float))


def _iterate_moves(
    stations: Mapping[str, Station],
) -> Sequence[tuple[int, dict[str, Position], dict[str, Position]]]:
    """Return each instant at which stations move, with the positions before and after it."""
    starts = {at.from_ns for item in stations.values() for at in item.positions if at.from_ns is not None}
    moves: list[tuple[int, dict[str, Position], dict[str, Position]]] = []
    before: dict[str, Position] = {}
    for tau in (NULL_INTEGER, *sorted(starts)):
        after = {}
        for key, item in stations.items():
            known = [at for at in item.positions if at.from_ns is None or at.from_ns <= tau]
            if known:
                after[key] = known[-1]
        moves.append((tau, before, after))
        before = after
    return moves


def _list_neighbours(positions: Mapping[str, Position]) -> list[Row]:
    placed = [(key, at) for key, at in positions.items() if np.isfinite(at.lon) and np.isfinite(at.lat)]
    if len(placed) < 2:  # noqa: PLR2004 - two stations make a pair
        return []
    places = places_m(np.array([at.lon for _, at in placed]), np.array([at.lat for _, at in placed]))
    rows: list[Row] = []
    for number, (key, at) in enumerate(placed):
        distance = arc_m(np.linalg.norm(places - places[number], axis=-1))
        distance[number] = np.inf
        for other in np.argsort(distance, kind="stable")[: min(NEAREST, len(placed) - 1)].tolist():
            neighbour, there = placed[other]
            rows.append((key, neighbour, float(distance[other]), at.elevation_m - there.elevation_m))
    return rows


def _make_batch(changes: Sequence[tuple[int, int, Row]], kinds: Sequence[type]) -> SourceBatch:
    columns = [
        code_texts([row[position] for _, _, row in changes])
        if kind is str
        else np.array([row[position] for _, _, row in changes], np.float64)
        for position, kind in enumerate(kinds)
    ]
    return SourceBatch(
        np.array([tau for tau, _, _ in changes], np.int64),
        tuple(columns),
        np.array([sign for _, sign, _ in changes], np.int8),
    )


def code_texts(texts: Sequence[str | None]) -> CodedTexts:
    """Return texts as codes of the distinct ones, in the order in which they come."""
    numbers: dict[str, int] = {}
    codes = [-1 if text is None else numbers.setdefault(text, len(numbers)) for text in texts]
    return CodedTexts(tuple(numbers), np.array(codes, np.int64))
