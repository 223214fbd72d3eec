"""Strategies: how many perspectives of a chain are materialised before the rest is pulled (thesis 5.6 and 5.7.2.2).

A chain has N perspectives above the base: the base, and converts of readings, which have no cells, count as the base.
hybrid-k materialises the first k of them, whole, in blocks, with all that they are derived from, and pulls the others
box by box. Top-down is hybrid-N, bottom-up hybrid-0. Where a merge makes a tree of the chain, k counts along the path
of first sources; other branches are materialised where they lie below a materialised step.
"""

from dataclasses import dataclass
from typing import Final, Literal

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective import Aggregate, Base, Perspective
from hypergrid.topology import SeriesAxis

StrategyOption = Literal["auto", "top_down", "bottom_up"] | int
"""What a user asks for: a name, or the k of hybrid-k."""

STRATEGY_NAMES: Final = ("auto", "top_down", "bottom_up")


@dataclass(frozen=True)
class Strategy:
    """How a surface is computed."""

    k: int
    """Perspectives of the path that are materialised."""
    perspectives: int
    """N: perspectives of the path."""
    name: str
    """What was asked for."""
    buffered: bool = True
    """Whether cells that several boxes ask for are kept between them."""
    keeps_weights: bool = True
    """Whether weights of kriging are kept for the next box, and for the next query."""

    def describe(self) -> str:
        """One line for people."""
        how = {0: "bottom-up", self.perspectives: "top-down"}.get(self.k, f"hybrid-{self.k}")
        return f"{self.name.replace('_', '-')}: {how}, {self.k} of {self.perspectives} perspectives materialised"


def path(surface: Perspective) -> list[Perspective]:
    """Return the perspectives above the base along first sources, nearest to the base first."""
    nodes = []
    node = surface
    while not isinstance(node.operator, Base) and not node.holds_readings:
        nodes.append(node)
        node = node.source
    return nodes[::-1]


def list_materialised(surface: Perspective, k: int) -> list[Perspective]:
    """Return what hybrid-k materialises above the bases, sources before what is derived from them."""
    return [item for item in path(surface)[k - 1].list_chain() if not _is_base(item)] if k else []


def pulled(surface: Perspective, k: int) -> list[Perspective]:
    """Return what hybrid-k pulls box by box, sources before what is derived from them."""
    held = {item.token for item in list_materialised(surface, k)}
    return [item for item in surface.list_chain() if not _is_base(item) and item.token not in held]


def count_at_stations(surface: Perspective) -> int:
    """Return how many perspectives of the path lie at the stations: the k by which each of them is computed once."""
    return sum(isinstance(item.topology.space, SeriesAxis) for item in path(surface))


def parse_strategy(wanted: StrategyOption, surface: Perspective) -> int | None:
    """Return the k that is asked for; None for "auto".

    Raises
    ------
    InvalidQuery
        No such strategy, or a k beyond the perspectives that there are.
    """
    path_length = len(path(surface))
    if wanted == "auto":
        return None
    if wanted == "top_down":
        return path_length
    if wanted == "bottom_up":
        return 0
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= path_length:
        message = (
            f"strategy needs one of {', '.join(STRATEGY_NAMES)}, or how many perspectives are materialised, 0 to "
            f"{path_length} for "
            f"this query; got {wanted!r}"
        )
        raise InvalidQuery(message)
    return wanted


def commutes(node: Perspective) -> bool:
    """Return whether an aggregate over time is taken at the stations, before the interpolation below it."""
    return isinstance(node.operator, Aggregate) and node.operator.at_stations


def _is_base(node: Perspective) -> bool:
    return isinstance(node.operator, Base) or node.holds_readings
