"""Who asks for queries and what they may cost: looked at before anything is computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from hypergrid.core.errors import HyperGridError, TooLarge
from hypergrid.execution.planning.explain import projected_s
from hypergrid.execution.planning.plan import Plan


class TooManyQueries(HyperGridError, RuntimeError):
    """One asker has as many queries that wait or run as it may have."""


@dataclass(frozen=True)
class Limits:
    """What one asker may have; None: no limit of its own."""

    cells: int | None = None
    """Cells of the surface of one query."""
    bytes: int | None = None
    """Memory that one query may project [bytes]."""
    seconds: float | None = None
    """Time that one query may project [s]."""
    queries: int | None = None
    """Queries that wait or run."""

    def check(self, plan: Plan) -> None:
        """Refuse a plan that is above a limit.

        Raises
        ------
        TooLarge
            With both numbers, and how to make it smaller.
        """
        fewer = "ask for fewer cells (a coarser step, a smaller grid, a shorter time)"
        rows = (
            (plan.cells, self.cells, "cells", fewer),
            (plan.projected_bytes, self.bytes, "bytes of memory", plan.advice()),
            (projected_s(plan), self.seconds, "s", f"{fewer}, or fewer neighbours"),
        )
        for projected, allowed, what, remedy in rows:
            if allowed is not None and projected > allowed:
                label = "the query"
                raise TooLarge(label, what, projected, allowed, remedy)


@dataclass(frozen=True)
class Asker:
    """On whose behalf queries are asked for."""

    owner: str = ""
    """Its id; empty: this process itself."""
    limits: Limits = Limits()


_ITSELF: Final = Asker()
_ASKER: Final[ContextVar[Asker]] = ContextVar("asker", default=_ITSELF)


def current_asker() -> Asker:
    """Return on whose behalf this thread or task works."""
    return _ASKER.get()


@contextmanager
def act_as(label: Asker) -> Iterator[None]:
    """Have what is asked for inside, also by threads that take the context along, count as asked by `who`.

    The door of the web API sets it, so that no route can forget the limits of its caller.
    """
    token = _ASKER.set(label)
    try:
        yield
    finally:
        _ASKER.reset(token)
