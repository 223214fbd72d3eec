"""The rewrite rules, in order, and the loop that applies them."""

from collections.abc import Callable
from dataclasses import dataclass

from hypergrid.perspective.tree.perspective import Surface
from hypergrid.rewrite.coalesce import coalesce
from hypergrid.rewrite.commute import commute
from hypergrid.rewrite.drop_idle import drop_idle
from hypergrid.rewrite.push_clip import push_clip
from hypergrid.rewrite.push_stations import push_stations

Rule = Callable[[Surface], tuple[Surface, str]]
"""From a surface to an equal one, and why that may be done and is worth it; empty where nothing changed."""

RULES: tuple[Rule, ...] = (push_clip, push_stations, drop_idle, coalesce, commute)
"""The clip first, while every perspective still has its own step, and the stations that it leaves; then fewer steps,
then their order."""


@dataclass(frozen=True)
class FiredRule:
    """A rule that changed a surface."""

    rule: str
    why: str


@dataclass(frozen=True, eq=False)
class RewriteResult:
    """A surface, and which rules changed it."""

    surface: Surface
    fired: tuple[FiredRule, ...]


def rewrite(surface: Surface, rules: tuple[Rule, ...] = RULES) -> RewriteResult:
    """Return the surface after every rule; the cells that it holds and their values are the same."""
    fired = []
    for rule in rules:
        changed, why = rule(surface)
        if changed.token != surface.token:
            fired.append(FiredRule(rule.__name__, why))
        surface = changed
    return RewriteResult(surface, tuple(fired))
