"""Rewrite rules in order of application, and the loop that applies them."""

from collections.abc import Callable
from dataclasses import dataclass

from hypergrid.perspective.tree import Surface
from hypergrid.rewrite.coalesce import coalesce
from hypergrid.rewrite.commute import commute
from hypergrid.rewrite.drop_idle import drop_idle
from hypergrid.rewrite.push_clip import push_clip
from hypergrid.rewrite.push_stations import push_stations

Rule = Callable[[Surface], tuple[Surface, str]]
"""Maps a surface to an equal one and the reason for the change; the reason is empty if nothing changed."""

# The clip comes first, while every perspective still has its own step; then the stations that it leaves. Fewer steps
# follow, then their order.
RULES: tuple[Rule, ...] = (push_clip, push_stations, drop_idle, coalesce, commute)
"""The rewrite rules, in order of application."""


@dataclass(frozen=True)
class FiredRule:
    """A rule that changed a surface, and why."""

    rule: str
    why: str


@dataclass(frozen=True, eq=False)
class RewriteResult:
    """A surface after rewriting, and the rules that changed it."""

    surface: Surface
    fired: tuple[FiredRule, ...]


def rewrite(surface: Surface, rules: tuple[Rule, ...] = RULES) -> RewriteResult:
    """Apply every rule in turn; cells and values of the surface stay the same."""
    fired = []
    for rule in rules:
        changed, why = rule(surface)
        if changed.token != surface.token:
            fired.append(FiredRule(rule.__name__, why))
        surface = changed
    return RewriteResult(surface, tuple(fired))
