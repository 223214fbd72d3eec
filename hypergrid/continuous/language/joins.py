"""Joins that would be products of large relations, which are refused."""

from typing import Final

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    Operator,
    ProjectionOf,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.language.errors import Refusal
from hypergrid.continuous.language.syntax import SourceClause

SMALL_ROWS: Final = 100
"""Rows up to which a window of rows may be joined without a condition."""


def is_single_row(tree: Operator) -> bool:
    """Return whether a relation always holds exactly one row."""
    if isinstance(tree, AggregateOf):
        return not tree.keys
    return isinstance(tree, ProjectionOf | DistinctOf) and is_single_row(tree.input)


def is_small(tree: Operator) -> bool:
    """Return whether a relation holds few rows at each instant: one, those of an instant, or few last ones."""
    if isinstance(tree, WindowOf):
        return tree.form == "now" or (tree.form == "rows" and tree.rows <= SMALL_ROWS and not tree.partition)
    if isinstance(tree, AggregateOf) and not tree.keys:
        return True
    if isinstance(tree, BagOf):
        return is_small(tree.left) and is_small(tree.right)
    below = inputs_of(tree)
    return bool(below) and not tree.is_stream and all(is_small(part) for part in below)


def check_join(sources: tuple[SourceClause, ...], inputs: tuple[Operator, ...], sides: list[frozenset[int]]) -> None:
    """Check that conditions connect the inputs, but for those that hold few rows.

    Parameters
    ----------
    sources
        Sources as written, those of the first inputs.
    inputs
        Relations that are joined.
    sides
        Inputs that each condition reads.

    Raises
    ------
    Refusal
        Two large relations have no condition in common, directly or by others.
    """
    groups = list(range(len(inputs)))
    for side in sides:
        joined = {groups[index] for index in side}
        if joined:
            groups = [min(joined) if group in joined else group for group in groups]
    large = [index for index in range(len(inputs)) if not is_small(inputs[index])]
    for index in large[1:]:
        if groups[index] != groups[large[0]]:
            first, second = (sources[each].alias or sources[each].name or "a query" for each in (large[0], index))
            raise Refusal(
                sources[index].span,
                f"{second} is joined to {first} without a condition, which is each row beside each row; write what "
                f"connects them in Where, as in {first}.key = {second}.key",
            )
