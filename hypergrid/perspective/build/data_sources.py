"""Sources of questions, archives at a snapshot and arrays in memory, and a cache of what plans on them share."""

import json
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.times import parse_instant
from hypergrid.perspective.sources.archive_source import ArchiveSource, find_named_stations
from hypergrid.perspective.sources.array_source import ArraySource
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.perspective.tree import Perspective
from hypergrid.topology import SeriesAxis

MAX_PERMANENT: Final = 4096
"""Maximum number of entries kept across snapshots; the cache is cleared beyond it."""


Kept = TypeVar("Kept")


class PlanMemo:
    """Cache of plan parts; not thread-safe, for use by one building thread."""

    # Hundreds of standing queries are rebuilt at each snapshot. Most of the time went into station tokens and into
    # placing grids among the stations, which change neither with the slice nor with the query.
    def __init__(self) -> None:
        self._snapshot = ""
        self._made: dict[Hashable, Perspective] = {}
        self._permanent: dict[Hashable, Any] = {}

    def use_snapshot(self, snapshot: str) -> "PlanMemo":
        """Evict the entries of other snapshots."""
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._made.clear()
            if len(self._permanent) > MAX_PERMANENT:
                self._permanent.clear()
        return self

    def per_snapshot(self, key: Hashable, make: Callable[[], Perspective]) -> Perspective:
        """Return the perspective cached for a key at this snapshot, making it on a miss."""
        perspective = self._made.get(key)
        if perspective is None:
            perspective = self._made[key] = make()
        return perspective

    def permanent(self, key: Hashable, make: Callable[[], Kept], *, only: Callable[[Kept], bool] | None = None) -> Kept:
        """Return the value cached for a key at all snapshots, making it on a miss.

        It is cached if `only` holds for it, or without `only`.
        """
        value: Kept | None = self._permanent.get(key)
        if value is None:
            value = make()
            if only is None or only(value):
                self._permanent[key] = value
        return value

    def intern(self, stations: SeriesAxis) -> SeriesAxis:
        """Return one shared object for equal stations."""
        return self.permanent(("stations", stations.token(), stations.moved), lambda: stations)


def format_step(step: Step) -> str:
    """Serialise a step to text, equal for equal steps."""
    return json.dumps(step.to_json(), sort_keys=True, default=partial(_refuse, step.name))


def _refuse(name: str, value: object) -> object:
    raise InvalidQuery(f"step {name!r} needs what JSON can hold (text, numbers, lists, mappings); got {value!r}")


def make_base_key(question: QuerySpec) -> Hashable:
    """Return the key of everything the base of a question depends on, except its clip."""
    return (question.variable, question.snapshot, question.accept_flags, str(question.select), question.as_of)


ARRAY: Final = "array:"
"""Prefix of the snapshot of a question about an array; its content token follows."""


@dataclass(frozen=True, eq=False)
class SourceLookup:
    """Lookup of the source of a question or of merged queries."""

    archive: Archive | None = None
    arrays: Mapping[str, ArraySource] = field(default_factory=dict)
    """Arrays by the snapshot in their questions."""
    known: PlanMemo | None = field(default=None, compare=False)
    """Cache shared by queries that are built together."""

    def __call__(self, question: QuerySpec) -> ArchiveSource | ArraySource:
        """Return the source of a question.

        Raises
        ------
        NotFound
            Unknown array, snapshot or variable.
        InvalidQuery
            No series is selected, or flags or an arrival time are requested of an array.
        """
        if question.snapshot is not None and question.snapshot.startswith(ARRAY):
            NotFound.refuse_unknown("array", [question.snapshot], self.arrays)
            source = self.arrays[question.snapshot]
            NotFound.refuse_unknown("variable", [question.variable], [source.variable.name])
            if question.accept_flags != ACCEPTED_BY_DEFAULT:
                raise InvalidQuery(
                    f"the values of the array {source.variable.name!r} have no flags, so that accept_flags "
                    f"{', '.join(map(str, question.accept_flags))} cannot be asked of it; leave it out, and put NaN "
                    "where a value is not to be used"
                )
            if question.as_of is not None:
                raise InvalidQuery(
                    f"the values of the array {source.variable.name!r} have no arrival, so that as_of "
                    f"{question.as_of!r} cannot be asked of it; leave it out, or query an archive"
                )
            return source.select_series(question.select)
        if self.archive is None:
            raise NotFound(
                f"variable {question.variable!r} is to come from an archive, and this query has none; open one"
            )
        archive = self.archive
        if question.snapshot not in (None, archive.snapshot):
            archive = Archive.open(archive.path, snapshot=question.snapshot)
        archive = archive.as_of(None if question.as_of is None else parse_instant(question.as_of))
        return ArchiveSource(
            archive, archive.variable(question.variable), find_named_stations(archive, question.select)
        )

    def join(self, other: "SourceLookup") -> "SourceLookup":
        """Combine two lookups.

        Raises
        ------
        InvalidQuery
            They use different archives.
        """
        if self.archive and other.archive and self.archive.path != other.archive.path:
            raise InvalidQuery(
                f"a merge reads one archive; got {self.archive.path} and {other.archive.path}; "
                "compute one of them, and merge it as an array (hg.base)"
            )
        return SourceLookup(self.archive or other.archive, {**self.arrays, **other.arrays}, self.known or other.known)


def pin_snapshot(question: QuerySpec, snapshot: str, as_of: str | None = None) -> QuerySpec:
    """Pin a question and its merged queries to one snapshot and arrival time.

    Merged queries keep a snapshot or arrival time of their own.
    """
    own, own_as_of = question.snapshot or snapshot, question.as_of or as_of
    pin = partial(pin_snapshot, snapshot=own, as_of=own_as_of)
    return replace(
        question, snapshot=own, as_of=own_as_of, steps=tuple(step.change_others(pin) for step in question.steps)
    )
