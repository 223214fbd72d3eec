"""Catalogue of variables, stations, layers, snapshots, functions and saved queries, as JSON values."""

import dataclasses
import json
import logging
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.analysis.suggestion import Suggestion, adapt, suggest_document
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.parameters import Parameter, make_schema
from hypergrid.core.publication import Publication
from hypergrid.core.readings import Station
from hypergrid.core.times import DAY_NS, Window, format_timestamp
from hypergrid.core.units import Variable
from hypergrid.interpolation import METHODS
from hypergrid.interpolation.methods.station_selection import PARAMETERS
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.perspective.functions.rows import CONVERTS, MERGES
from hypergrid.perspective.spec.document_time import is_clipped_in_time
from hypergrid.query import OpenArchive
from hypergrid.topology.wkt import Region

SUGGESTIONS: Final = 64
"""Number of cached suggestions."""
SUGGESTED_S: Final = 600.0
"""How long a suggestion is given again while only readings of the same days come [s]."""
_LOG: Final = logging.getLogger(__name__)


class Catalogue:
    """Looks up the contents of the newest snapshot of one archive.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    saved
        Folder of saved queries, one JSON file each; None or a missing folder: none.
    clock
        Monotonic clock [s].
    """

    def __init__(
        self, archive: OpenArchive, *, saved: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.archive, self._saved, self._clock = archive, saved, clock
        self._logged: set[str] = set()
        self._answerable: tuple[_Facts | None, dict[str, bool]] = (None, {})
        self._suggestions: LruCache[str | None, tuple[_Facts, float, Suggestion]] = LruCache(SUGGESTIONS)

    @property
    def publication(self) -> Publication:
        """Statements about the data at the newest snapshot."""
        return self.archive.latest().store.publication

    def variables(self) -> list[dict[str, Any]]:
        held = self.archive.latest().variables
        return [dataclasses.asdict(held[name]) for name in sorted(held)]

    def stations(self, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Describe stations as a GeoJSON FeatureCollection, longitude before latitude."""
        known = self.archive.latest().stations
        listed_names = known if names is None else names
        return {
            "type": "FeatureCollection",
            "features": [_feature(known[name]) for name in listed_names if name in known],
        }

    def layers(self) -> list[dict[str, Any]]:
        """List the layers (time-independent fields) with unit, extent [degree] and source, by name."""
        held = self.archive.latest().layers.entries
        return [dataclasses.asdict(held[name]) for name in sorted(held)]

    def snapshots(self, maximum: int | None = None) -> list[dict[str, Any]]:
        """List the snapshots of the archive, newest first, at most `maximum`."""
        return [
            {
                "id": snapshot.id,
                "time": format_timestamp(snapshot.time_ns),
                "message": snapshot.message,
                "metadata": dict(snapshot.metadata),
            }
            for snapshot in self.archive.latest().snapshots[:maximum]
        ]

    def functions(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "convert": _rows(CONVERTS.values()),
            "aggregate": _rows(AGGREGATES.values(), _COVERAGE),
            "interpolate": _rows(
                dataclasses.replace(row, parameters=(*row.parameters, *PARAMETERS)) for row in METHODS.values()
            ),
            "merge": _rows(MERGES.values()),
        }

    def saved_queries(self) -> dict[str, Mapping[str, Any]]:
        """Load the saved queries by file name; unreadable ones are logged and left out."""
        documents = {}
        for name, entry in self._read_saved():
            if not isinstance(entry, InvalidQuery):
                documents[name] = entry
            # Once per problem, not at every request.
            elif str(entry) not in self._logged:
                self._logged.add(str(entry))
                _LOG.warning("%s", entry)
        return documents

    def answerable_queries(self) -> dict[str, Mapping[str, Any]]:
        """Load the saved queries that the newest snapshot can answer.

        Building them all takes half a second for thousands of stations, so an answer stays while what it depends on is
        equal. Queries clipped in time are tried again until they can be answered, those of a snapshot of their own
        each time.
        """
        archive, saved = self.archive.latest(), self.saved_queries()
        facts, answers = _find_facts(archive, saved), {}
        # Read once: another thread may replace both meanwhile.
        earlier, known = self._answerable
        if facts.can_follow(earlier):
            answers = {
                name: answer
                for name, answer in known.items()
                if saved[name].get("snapshot") is None and (answer or not is_clipped_in_time(saved[name]))
            }
        answers |= {name: _can_answer(archive, saved[name]) for name in saved if name not in answers}
        self._answerable = facts, answers
        return {name: document for name, document in saved.items() if answers[name]}

    def suggest(self, variable: str | None) -> Suggestion:
        """Return a first query at a recent snapshot, cached; parameters and errors as of `suggest_document`."""
        archive = self.archive.latest()
        facts, since_s, suggestion = self._suggestions.peek(variable) or (None, 0.0, None)
        # Reading the newest days of thousands of stations takes a second, and the newest whole day changes seldom.
        newest = _find_facts(archive, {})
        if suggestion is None or not newest.can_follow(facts) or self._clock() - since_s > SUGGESTED_S:
            suggestion = suggest_document(archive, variable)
            self._suggestions.put(variable, (newest, self._clock(), suggestion), 1)
        return suggestion

    def adapt(self, document: Mapping[str, Any], variable: str) -> Suggestion:
        """Carry a query over to another variable at the newest snapshot; errors as of `adapt`."""
        return adapt(self.archive.latest(), document, variable)

    def list_unreadable(self) -> list[InvalidQuery]:
        return [entry for _, entry in self._read_saved() if isinstance(entry, InvalidQuery)]

    def _read_saved(self) -> Iterator[tuple[str, Mapping[str, Any] | InvalidQuery]]:
        if self._saved is not None and self._saved.is_dir():
            yield from ((path.stem, _read(path)) for path in sorted(self._saved.glob("*.json")))


@dataclass(frozen=True)
class _Facts:
    """What decides whether a query can be answered, but for single readings."""

    saved: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, Variable]
    stations: Mapping[str, Station]
    layers: object
    series: Mapping[str, Sequence[int]]
    """Indices of the listed series, by variable."""
    extents: Mapping[str, Window | None]

    def can_follow(self, earlier: "_Facts | None") -> bool:
        """Return whether what could be answered before still can: nothing but readings of the same days was added."""
        return (
            earlier is not None
            and dataclasses.replace(self, extents={}) == dataclasses.replace(earlier, extents={})
            and self.extents.keys() == earlier.extents.keys()
            and all(_only_grew(span, earlier.extents[name]) for name, span in self.extents.items())
        )


def _find_facts(archive: OpenArchive, saved: Mapping[str, Mapping[str, Any]]) -> _Facts:
    store = archive.store
    extents = {name: store.extent(name) for name in archive.variables}
    series = {name: tuple(store.list_series(name)) for name in archive.variables}
    return _Facts(saved, store.variables, store.stations, archive.layers.entries, series, extents)


def _only_grew(span: Window | None, earlier: Window | None) -> bool:
    """Return whether an extent holds an earlier one, and covers the same days."""
    if span is None or earlier is None:
        return span is earlier
    return (
        earlier.start_ns // DAY_NS * DAY_NS <= span.start_ns <= earlier.start_ns
        and earlier.stop_ns <= span.stop_ns < (earlier.stop_ns // DAY_NS + 1) * DAY_NS
    )


def _can_answer(archive: OpenArchive, document: Mapping[str, Any]) -> bool:
    try:
        archive.query(document).surface()
    except HyperGridError:
        return False
    return True


def _feature(station: Station) -> dict[str, Any]:
    position = station.position
    known = math.isfinite(position.lon) and math.isfinite(position.lat)
    elevation_m = position.elevation_m if math.isfinite(position.elevation_m) else None
    height = [] if elevation_m is None else [elevation_m]
    return {
        "type": "Feature",
        "id": station.id,
        # RFC 7946 requires a null geometry if the position is unknown.
        "geometry": {"type": "Point", "coordinates": [position.lon, position.lat, *height]} if known else None,
        "properties": {"name": station.name, "elevation_m": elevation_m},
    }


_COVERAGE: Final = Parameter(
    "min_coverage", "number", "share of the possible readings below which a cell is missing", required=False
)


def _rows(rows: Iterable[Any], *more: Parameter) -> list[dict[str, Any]]:
    return [
        {
            "name": row.name,
            "summary": row.summary,
            "parameters": [dataclasses.asdict(parameter) for parameter in getattr(row, "parameters", ())],
            "schema": make_schema((*getattr(row, "parameters", ()), *more)),
        }
        for row in rows
    ]


def _read(path: Path) -> Mapping[str, Any] | InvalidQuery:
    """Read a saved query; return its error instead of raising it."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError, RecursionError) as error:
        # Returned, so that one broken file does not block the other queries.
        return InvalidQuery(f"the saved query {path.name} is no JSON: {error}; mend or remove the file")
    if not isinstance(document, dict):
        type_name = type(document).__name__
        return InvalidQuery(f"the saved query {path.name} needs a JSON object; got {type_name}; mend or remove it")
    return document


def select_stations(
    known: Mapping[str, Station], names: Sequence[str], region: Region | None
) -> tuple[str, ...] | None:
    """Select stations by name and region; None: all stations.

    Raises
    ------
    NotFound
        A name is unknown.
    """
    for name in names:
        if name not in known:
            raise NotFound.among("station", name, known)
    if region is None:
        return tuple(names) or None
    candidates = tuple(names or known)
    positions = (known[name].position for name in candidates)
    places = np.array([(position.lon, position.lat) for position in positions]).reshape(-1, 2)
    return tuple(candidates[index] for index in np.flatnonzero(region.holds(places[:, 0], places[:, 1])))


def select_variables(
    known: Mapping[str, Variable], names: Sequence[str], standard_names: Sequence[str]
) -> tuple[str, ...]:
    """Select variables by name or CF standard name; an empty tuple means all.

    Raises
    ------
    InvalidQuery
        Both are given.
    NotFound
        No variable has such a standard name.
    """
    if names and standard_names:
        raise InvalidQuery("ask by variable or by standard_name; got both")
    there = dict.fromkeys(variable.standard_name for variable in known.values() if variable.standard_name)
    for name in standard_names:
        if name not in there:
            raise NotFound.among("standard name", name, there)
    return tuple(names) or tuple(
        variable.name for variable in known.values() if variable.standard_name in standard_names
    )
