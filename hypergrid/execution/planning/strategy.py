"""Strategies: how many perspectives are materialised before the rest is pulled (thesis 5.6, 5.7.2.2).

A chain has N perspectives above the base; converts of readings, which have no cells, count as part of the base.
hybrid-k materialises the first k of them whole, in blocks, with everything below them, and pulls the others box by
box. Top-down is hybrid-N, bottom-up hybrid-0. If a merge makes the chain a tree, k counts along the path of first
sources; other branches are materialised if they lie below a materialised step.
"""

from dataclasses import dataclass
from typing import Literal

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective import Aggregate, Base, Perspective

StrategyOption = Literal["auto", "top_down", "bottom_up"] | int
"""User option: a name, or the k of hybrid-k."""


@dataclass(frozen=True)
class Strategy:
    """How a surface is computed."""

    k: int
    """Number of materialised perspectives of the path."""
    perspectives: int
    """N: number of perspectives of the path."""
    name: str
    """The requested strategy."""
    buffered: bool = True
    """Whether cells that several boxes need are buffered between them."""
    weights_bytes: int | None = None
    """Memory for the kriging weights that boxes share, 0 for none; None: the cache that all queries share."""

    def describe(self) -> str:
        how = {0: "bottom-up", self.perspectives: "top-down"}.get(self.k, f"hybrid-{self.k}")
        return f"{self.name.replace('_', '-')}: {how}, {self.k} of {self.perspectives} perspectives materialised"


def path(surface: Perspective) -> list[Perspective]:
    """Return the perspectives above the base along first sources, from the base upwards."""
    nodes = []
    node = surface
    while not _is_base(node):
        nodes.append(node)
        node = node.source
    return nodes[::-1]


def list_materialised(surface: Perspective, k: int) -> list[Perspective]:
    """List the perspectives that hybrid-k materialises above the bases, sources first.

    A fused convert is not among them: the aggregate above applies it.
    """
    chain = path(surface)[k - 1].list_chain() if k else []
    return [item for item in chain if not _is_base(item) and not item.is_fused]


def pulled(surface: Perspective, k: int) -> list[Perspective]:
    """List the perspectives that hybrid-k pulls box by box, sources first."""
    held = {item.token for item in list_materialised(surface, k)}
    return [item for item in surface.list_chain() if not _is_base(item) and item.token not in held]


def count_at_stations(surface: Perspective) -> int:
    """Count the perspectives at stations: the k that computes each of them once."""
    return sum(item.is_at_stations for item in path(surface))


def parse_strategy(wanted: StrategyOption, surface: Perspective) -> int | None:
    """Return the requested k; None for "auto".

    Raises
    ------
    InvalidQuery
        Unknown strategy, or a k above the number of perspectives.
    """
    path_length = len(path(surface))
    named = {"auto": None, "top_down": path_length, "bottom_up": 0}
    if isinstance(wanted, str) and wanted in named:
        return named[wanted]
    # `bool` is a subclass of `int`.
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 0 <= wanted <= path_length:
        raise InvalidQuery(
            f"strategy needs one of {', '.join(named)}, or how many perspectives are materialised, 0 to {path_length} "
            f"for this query; got {wanted!r}"
        )
    return wanted


def commutes(node: Perspective) -> bool:
    """Return whether an aggregate over time is computed before the interpolation below it."""
    return isinstance(node.operator, Aggregate) and node.operator.at_stations


def _is_base(node: Perspective) -> bool:
    return isinstance(node.operator, Base) or node.holds_readings
