"""Rules of rewriting in order of application, and the loop that applies them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.rewrite.close_equalities import close_equalities
from hypergrid.continuous.rewrite.fold_constants import fold_constants
from hypergrid.continuous.rewrite.merge import merge
from hypergrid.continuous.rewrite.narrow import narrow
from hypergrid.continuous.rewrite.now_for_unbounded import now_for_unbounded
from hypergrid.continuous.rewrite.push_filter import push_filter
from hypergrid.continuous.rewrite.stream_join import stream_join
from hypergrid.continuous.rewrite.trees import Interning

Rule: TypeAlias = Callable[[Operator, frozenset[str]], tuple[Operator, tuple[str, ...]]]
"""Maps a tree and the names of the relations that never change to an equal tree and to sentences on what changed."""

# Constants first, so that conditions are seen as they are. Windows that need not be kept go while they stand next to
# their streams; joins are merged before their equalities are closed, closed before conditions go down, and columns are
# dropped last, when it is known which operator reads them. What then stands above each other is merged again.
RULES: tuple[Rule, ...] = (
    fold_constants,
    merge,
    now_for_unbounded,
    stream_join,
    close_equalities,
    push_filter,
    narrow,
    merge,
)
"""The rules, in order of application."""


@dataclass(frozen=True)
class Rewritten:
    """A tree after rewriting."""

    tree: Operator
    rules: tuple[str, ...]
    """Sentences on the rules that changed it, in order."""


def rewrite(tree: Operator, static: frozenset[str] = frozenset(), rules: tuple[Rule, ...] = RULES) -> Rewritten:
    """Apply every rule in turn; what the tree gives at each instant stays the same.

    Parameters
    ----------
    static
        Names of the relations that never change.
    """
    sentences: list[str] = []
    interning = Interning()
    tree = interning.intern(tree)
    for rule in rules:
        changed, notes = rule(tree, static)
        changed = interning.intern(changed)
        if changed is not tree:
            sentences += [f"{rule.__name__}: {note}" for note in notes or ("",)]
        tree = changed
    return Rewritten(tree, tuple(dict.fromkeys(sentences)))
