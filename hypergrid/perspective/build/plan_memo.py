"""Cache of perspectives and other parts that many plans on one archive share."""

import json
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.perspective.tree.perspective import Perspective
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
