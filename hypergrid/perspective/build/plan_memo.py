"""What many chains on one archive have in common: built once, as one object, which also knows its token already."""

import json
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Final, TypeVar

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.topology import SeriesAxis

MAX_PERMANENT: Final = 4096
"""How many things are kept that outlast a snapshot; beyond, all are found again."""


Kept = TypeVar("Kept")


class PlanMemo:
    """Steps that equal parts of queries share while they are built. Not locked: one thread builds.

    Standing queries are built anew at each snapshot, hundreds of them: most of the time went into tokens of stations
    and into where a grid lies among them, which neither a slice nor another query changes.
    """

    def __init__(self) -> None:
        self._snapshot = ""
        self._made: dict[Hashable, Perspective] = {}
        self._permanent: dict[Hashable, Any] = {}

    def use_snapshot(self, snapshot: str) -> "PlanMemo":
        """Let go of what belongs to another snapshot."""
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self._made.clear()
            if len(self._permanent) > MAX_PERMANENT:
                self._permanent.clear()
        return self

    def per_snapshot(self, key: Hashable, make: Callable[[], Perspective]) -> Perspective:
        """Return the perspective that a key stands for at this snapshot."""
        perspective = self._made.get(key)
        if perspective is None:
            perspective = self._made[key] = make()
        return perspective

    def permanent(self, key: Hashable, make: Callable[[], Kept], *, only: Callable[[Kept], bool] | None = None) -> Kept:
        """Return what a key stands for at every snapshot; kept where `only` says that it does at every one."""
        value: Kept | None = self._permanent.get(key)
        if value is None:
            value = make()
            if only is None or only(value):
                self._permanent[key] = value
        return value

    def intern(self, stations: SeriesAxis) -> SeriesAxis:
        """Return equal stations as one object."""
        return self.permanent(("stations", stations.token(), stations.moved), lambda: stations)


def format_step(step: Step) -> str:
    """Return a step as text, the same for equal steps."""
    return json.dumps(step.to_json(), sort_keys=True, default=partial(_refuse, step.name))


def _refuse(name: str, value: object) -> object:
    message = f"step {name!r} needs what JSON can hold (text, numbers, lists, mappings); got {value!r}"
    raise InvalidQuery(message)


def make_base_key(question: QuerySpec) -> Hashable:
    """Return what the base of a question depends on, besides its clip."""
    return (question.variable, question.snapshot, question.accept_flags, str(question.select), question.as_of)
