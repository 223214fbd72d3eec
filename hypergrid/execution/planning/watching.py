"""The order of a watched answer: whether a walk can pay, decided from costs before a run.

A walk saves the cells that it leaves out, and costs what it takes to look at the values so far and to step. What comes
before the first cell (readings, and the perspectives at stations) is the same for every order. So the gain of a walk is
the time of the whole over that of its share, start and steps included. Where it is small the walk would be a detour:
the cells come coarse to fine, and a note says why.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from hypergrid.execution.orders.orders import BY_TIME, PRINTED_WALK, WALK, WALKS, Watching, make_lattice
from hypergrid.execution.orders.walk import count_walkers
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.execution.planning.strategy import commutes
from hypergrid.perspective import Perspective

ROUND_S: Final[Mapping[str, float]] = {WALK: 1e-3, PRINTED_WALK: 1e-4}
"""Tabulated cost of a step of all walkers, by order, beside `LOOK_NS` for each walked cell [s]."""
LOOK_NS: Final[Mapping[str, float]] = {WALK: 2_500.0, PRINTED_WALK: 500.0}
"""Tabulated cost per walked cell of a step of all walkers [ns], until this process has measured a long walk's."""


def step_key(order: str) -> str:
    """Return the key of the measured cost per walked cell of a step of all walkers, in `MEASUREMENTS`."""
    return f"steps of {order}"


def count_steps(watched: Watching, cells: int) -> int:
    """Count the steps that all walkers take together until some cells are walked."""
    # They start on cells, and most steps end on others.
    return math.ceil(cells / count_walkers(watched.walking, cells)) - 1


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
    steps_s = _predict_steps_s(watched, max(1, round(watched.walking.fraction * lattice.cells)))
    return start_s + cells_s, start_s + watched.walking.fraction * cells_s + steps_s


def _predict_steps_s(watched: Watching, cells: int) -> float:
    """Predict what walkers take to look at values and to step [s], from costs measured in this process or tabulated."""
    measured = MEASUREMENTS.peek(step_key(watched.order))
    look_s = LOOK_NS[watched.order] * 1e-9 if measured is None else measured.seconds / measured.cells
    return count_steps(watched, cells) * (ROUND_S[watched.order] + cells * look_s)
