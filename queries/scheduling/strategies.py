"""Registry of strategies, used by the command line, the simulation and the standing-query runner."""

from collections.abc import Callable, Mapping

from hypergrid.core.errors import NotFound
from queries.scheduling.hybrid import Hybrid
from queries.scheduling.ordered import Order, Ordered, arrival_key, deadline_key, laxity_key, profit_key
from queries.scheduling.round_robin import RoundRobin
from queries.scheduling.strategy import SchedulingStrategy

DD_U = 1.3
"""u of algorithm 7, laxity first (thesis 4.9.2.1)."""
PD_U = 0.65
"""u of algorithm 7, profit first (thesis 4.9.2.1)."""

GREEDY = Order(profit_key)
"""Algorithms 1 and 2."""


def make_deadline_dominant(u: float = DD_U) -> Order:
    """Make the order of algorithm 6: least laxity first, last ditch for much denser pieces."""
    return Order(laxity_key, last_ditch=u)


def make_profit_dominant(u: float = PD_U) -> Order:
    """Make the order of algorithm 8: densest first, last ditch for slightly less dense."""
    return Order(profit_key, last_ditch=u)


STRATEGIES: Mapping[str, Callable[[], SchedulingStrategy]] = {
    "round-robin": RoundRobin,
    "fifo": lambda: Ordered("fifo", "jobs", Order(arrival_key, preempts=False)),
    "earliest-deadline": lambda: Ordered("earliest-deadline", "jobs", Order(deadline_key)),
    "least-laxity": lambda: Ordered("least-laxity", "jobs", Order(laxity_key)),
    "basic": lambda: Ordered("basic", "jobs", GREEDY),
    "opt-profit": lambda: Ordered("opt-profit", "fragments", GREEDY),
    "opt-profit-printed": lambda: Ordered("opt-profit-printed", "printed", GREEDY),
    "basic+dd": lambda: Ordered("basic+dd", "jobs", make_deadline_dominant()),
    "opt-profit+dd": lambda: Ordered("opt-profit+dd", "fragments", make_deadline_dominant()),
    "basic+pd": lambda: Ordered("basic+pd", "jobs", make_profit_dominant()),
    "opt-profit+pd": lambda: Ordered("opt-profit+pd", "fragments", make_profit_dominant()),
    "hybrid": Hybrid,
}
"""Factories of empty strategies, by name."""


def make_strategy(name: str) -> SchedulingStrategy:
    """Make a strategy by its name.

    Raises
    ------
    NotFound
        Unknown strategy; the message lists the known ones.
    """
    if name not in STRATEGIES:
        raise NotFound.among(kind="strategy", given=name, existing=STRATEGIES)
    return STRATEGIES[name]()
