"""The order of a watched answer: whether a walk can pay, decided from costs before a run.

A walk saves the cells that it leaves out, and costs what it takes to look at the values so far and to step. What comes
before the first cell (readings, and the perspectives at stations) is the same for every order. So the gain of a walk is
the time of the whole over that of its share, start and steps included. Where it is small the walk would be a detour:
the cells come coarse to fine, and a note says why.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.execution.orders.orders import BY_TIME, WALKS, Lattice, Watching, make_lattice
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.execution.planning.strategy import commutes
from hypergrid.perspective import Perspective

STEP_NS: Final = 6_000.0
"""Tabulated cost of a walk's steps per walked cell [ns], until this process has measured one of the same order."""


def step_key(order: str) -> str:
    """Return the key of a walk's own cost in `MEASUREMENTS`, by order."""
    return f"steps of {order}"


@dataclass(frozen=True)
class ChosenOrder:
    """The order of a watched answer."""

    watched: Watching
    """How the answer is watched, with the order to take."""
    note: str = ""
    """Predicted times of a walk, or the reason for another order than the requested one; else empty."""
    walk_gain: float | None = None
    """Predicted time of the whole over that of the walked share; None if no walk was requested."""

    @property
    def name(self) -> str:
        return self.watched.order


def choose_order(surface: Perspective, watched: Watching, costs_s: Mapping[str, float]) -> ChosenOrder:
    """Replace an order that cannot pay by coarse to fine.

    Parameters
    ----------
    surface
        The perspective to compute.
    watched
        The requested order.
    costs_s
        Cost of all cells of each perspective, by token [s]; needed for a walk only.
    """
    if watched.order == BY_TIME and surface.topology.time.count == 1:
        return ChosenOrder(replace(watched, order="coarse_to_fine"), "coarse to fine: there is only one time cell")
    if watched.order not in WALKS:
        return ChosenOrder(watched)
    share, min_gain = watched.walking.fraction, watched.walking.min_gain
    whole_s, walked_s = predict_times(surface, watched, costs_s)
    gain = whole_s / walked_s if walked_s > 0 else 1.0
    text = f"{share:.0%} of the cells by a walk are predicted to take {walked_s:.2g} s, all of them {whole_s:.2g} s"
    if gain >= min_gain:
        return ChosenOrder(watched, f"{watched.order}: {text}", gain)
    reason = f"coarse to fine: {text}, less than {min_gain:g} times as long"
    return ChosenOrder(replace(watched, order="coarse_to_fine"), reason, gain)


def predict_times(surface: Perspective, watched: Watching, costs_s: Mapping[str, float]) -> tuple[float, float]:
    """Predict the time of the whole surface, and of the share that is walked [s]."""
    lattice = make_lattice(surface)
    chain = surface.list_chain()
    if lattice.along == "time":
        # The cells of a series are one pass over its readings, and so is every batch of some of them.
        start_s, cells_s = sum(costs_s[item.token] for item in chain), 0.0
    else:
        few = {item.source.token: item for item in chain if commutes(item)}
        start_s = cells_s = 0.0
        for item in chain:
            made = few.get(item.token, item)
            seconds = costs_s[item.token] * made.topology.time.count / item.topology.time.count
            start_s, cells_s = (start_s + seconds, cells_s) if item.is_at_stations else (start_s, cells_s + seconds)
    walked = watched.walking.fraction * lattice.cells
    return start_s + cells_s, start_s + watched.walking.fraction * cells_s + walked * _step_s(watched.order, lattice)


def _step_s(order: str, lattice: Lattice) -> float:
    """Return a walk's own cost per walked cell [s], measured in this process or tabulated."""
    measured = MEASUREMENTS.peek(step_key(order))
    # A small walk makes as many rounds as a large one for fewer cells; it is not measured.
    return STEP_NS * 1e-9 if measured is None or not lattice.cells else measured.seconds / measured.cells
