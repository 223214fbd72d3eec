"""Admission control: the caller's identity and limits, checked before anything is computed."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from hypergrid.core.errors import HyperGridError, TooLarge
from hypergrid.execution.planning.explain import projected_s
from hypergrid.execution.planning.plan import Plan


class TooManyQueries(HyperGridError, RuntimeError):
    """The caller has reached its limit of queued and running queries."""


@dataclass(frozen=True)
class Limits:
    """Limits of one caller; None: no limit of its own."""

    cells: int | None = None
    """Cells of one query's surface."""
    bytes: int | None = None
    """Projected memory of one query [bytes]."""
    seconds: float | None = None
    """Projected time of one query [s]."""
    queries: int | None = None
    """Queued and running queries."""

    def check(self, plan: Plan, label: str = "the query") -> None:
        """Reject a plan that exceeds a limit; `label` is what the message calls it.

        Raises
        ------
        TooLarge
            The message has both numbers, and how to make the query smaller.
        """
        fewer = "ask for fewer cells (a coarser step, a smaller grid, a shorter time)"
        rows = (
            (plan.cells, self.cells, "cells", fewer),
            (plan.projected_bytes, self.bytes, "bytes of memory", plan.advice()),
            (projected_s(plan), self.seconds, "s", f"{fewer}, or fewer neighbours"),
        )
        for projected, allowed, what, remedy in rows:
            if allowed is not None and projected > allowed:
                raise TooLarge(label, what, projected, allowed, remedy)


@dataclass(frozen=True)
class Asker:
    """The caller on whose behalf queries are submitted."""

    owner: str = ""
    """Its id; empty: this process itself."""
    limits: Limits = Limits()


_ITSELF: Final = Asker()
_ASKER: Final[ContextVar[Asker]] = ContextVar("asker", default=_ITSELF)


def current_asker() -> Asker:
    return _ASKER.get()


@contextmanager
def act_as(label: Asker) -> Iterator[None]:
    """Attribute queries submitted within to `label`, also from threads that inherit the context.

    The web API's authentication middleware sets it, so that limits apply to every route.
    """
    token = _ASKER.set(label)
    try:
        yield
    finally:
        _ASKER.reset(token)
