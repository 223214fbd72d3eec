"""The rewrite rules, in order, and the loop that applies them."""

from collections.abc import Callable
from dataclasses import dataclass

from hypergrid.perspective.surface import Surface
from hypergrid.rewrite.coalesce import coalesce
from hypergrid.rewrite.push_clip import push_clip

Rule = Callable[[Surface], Surface]

RULES: tuple[Rule, ...] = (push_clip, coalesce)
"""The clip first, while every perspective still has its own step, then fewer steps over what is left."""


@dataclass(frozen=True, eq=False)
class Rewritten:
    """A surface, and which rules changed it."""

    surface: Surface
    fired: tuple[str, ...]


def rewrite(surface: Surface, rules: tuple[Rule, ...] = RULES) -> Rewritten:
    """Return the surface after every rule; the cells that it holds and their values are the same."""
    fired = []
    for rule in rules:
        changed = rule(surface)
        if changed.token != surface.token:
            fired.append(rule.__name__)
        surface = changed
    return Rewritten(surface, tuple(fired))
