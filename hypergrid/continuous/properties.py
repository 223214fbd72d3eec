"""Properties of trees that rewriting, the language and the engine rest on."""

from typing import Final

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    RelationInput,
    SampleOf,
    StreamInput,
    ToStream,
    WindowOf,
    inputs_of,
    walk_operators,
)


def is_static(tree: Operator, static: frozenset[str]) -> bool:
    """Return whether a relation never changes, given the names of those that do not."""
    inputs = inputs_of(tree)
    if inputs:
        return all(is_static(part, static) for part in inputs)
    return isinstance(tree, RelationInput) and tree.name in static


def is_append_only(tree: Operator, static: frozenset[str] = frozenset()) -> bool:
    """Return whether no row ever leaves a relation; of a stream, always true.

    Aggregates of such an input need neither counts of a group's rows nor deletions, and its ``dstream`` is empty.
    """
    if tree.is_stream or is_static(tree, static):
        return True
    match tree:
        case WindowOf(form=form):
            return form == "unbounded"
        case FilterOf() | ProjectionOf() | DistinctOf() | JoinOf():
            return all(is_append_only(part, static) for part in inputs_of(tree))
        case BagOf(form=form, left=left, right=right):
            grows = is_append_only(left, static) and is_append_only(right, static)
            return is_append_only(left, static) and is_static(right, static) if form == "except" else grows
        case MembershipOf(input=below, other=other, is_negated=is_negated):
            keeps = is_static(other, static) if is_negated else is_append_only(other, static)
            return keeps and is_append_only(below, static)
        case AggregateOf(input=below, keys=keys, calls=calls):
            return bool(keys) and not calls and is_append_only(below, static)
    return False


SUMS: Final = frozenset(("count", "sum", "avg", "stddev"))
"""Aggregates that keep no values."""
DECOMPOSED: Final = SUMS | {"min", "max"}
"""Aggregates of rows that follow from those of parts of the rows, in a few words each (Gray and others, 1997)."""


def list_paned_windows(tree: Operator) -> dict[WindowOf, list[AggregateOf]]:
    """List the sliding windows whose rows groups need no longer than their pane is filled, with these aggregates.

    Sums and extremes of panes are held in place of rows, also where panes have so few rows that those would take less:
    what a query holds does not depend on the rates at which it was planned.
    """
    paned: dict[WindowOf, list[AggregateOf]] = {}
    kept: set[Operator] = set()
    for part in dict.fromkeys(walk_operators(tree)):
        match part:
            case AggregateOf(input=WindowOf(form="range") as window) if window.slide_ns and is_decomposed(part):
                paned.setdefault(window, []).append(part)
            case _:
                kept.update(inputs_of(part))
    return {window: parts for window, parts in paned.items() if window not in kept}


def is_decomposed(aggregate: AggregateOf) -> bool:
    """Return whether the aggregates of a window follow from those of its panes, in a few words each."""
    functions = DECOMPOSED if find_aged_window(aggregate.input) is None else DECOMPOSED | {"first", "last"}
    return all(call.function in functions for call in aggregate.calls)


def comes_in_order(operator: Operator) -> bool:
    """Return whether the elements of a stream come in the order of their rows, without carrying it."""
    if isinstance(operator, FilterOf | ProjectionOf | SampleOf):
        return comes_in_order(operator.input)
    return isinstance(operator, StreamInput)


def keeps_no_values(aggregate: AggregateOf) -> bool:
    """Return whether what an aggregate keeps of a group does not grow with its rows."""
    window, functions = _find_window(aggregate.input), SUMS
    if window is not None and window.form == "unbounded":
        # Of rows that never leave, the best value is the extreme for ever.
        functions = functions | {"min", "max"} | ({"first", "last"} if comes_in_order(window.input) else set())
    return all(call.function in functions for call in aggregate.calls)


def find_aged_window(operator: Operator) -> WindowOf | None:
    """Return the window whose rows a relation has, if they enter in the order of their ages, without carrying it."""
    window = _find_window(operator)
    return window if window is not None and comes_in_order(window.input) else None


def _find_window(operator: Operator) -> WindowOf | None:
    """Return the window whose rows a relation has, if it is filtered and projected only."""
    while isinstance(operator, FilterOf | ProjectionOf):
        operator = operator.input
    return operator if isinstance(operator, WindowOf) else None


def is_momentary(tree: Operator) -> bool:
    """Return whether a relation is empty but at instants of a ``now`` window: its ``rstream`` needs no slide (R6)."""
    match tree:
        case WindowOf(form=form):
            return form == "now"
        case FilterOf(input=below) | ProjectionOf(input=below) | DistinctOf(input=below) | MembershipOf(input=below):
            return is_momentary(below)
        case AggregateOf(input=below, keys=keys):
            return bool(keys) and is_momentary(below)
        case JoinOf(inputs=inputs):
            return any(is_momentary(part) for part in inputs)
        case BagOf(form=form, left=left, right=right):
            sides = [is_momentary(left), is_momentary(right)]
            return {"union": all(sides), "except": sides[0], "intersect": any(sides)}[form]
    return False


def is_ordered(tree: Operator, static: frozenset[str] = frozenset()) -> bool:
    """Return whether the order of rows is defined where stamps are equal.

    Elsewhere ``first``, ``last`` and windows of rows choose among rows of one instant, or among those of changing
    relations, as the plan has it.
    """
    match tree:
        case StreamInput():
            return True
        case RelationInput(name=name):
            return name in static
        case SampleOf() | FilterOf() | ProjectionOf() | WindowOf() | JoinOf():
            return all(is_ordered(part, static) for part in inputs_of(tree))
        case MembershipOf(input=below, other=other):
            return is_ordered(below, static) and is_static(other, static)
        case BagOf(form="union"):
            return tree.is_stream and is_ordered(tree.left, static) and is_ordered(tree.right, static)
        case ToStream(input=below, form=form):
            while isinstance(below, FilterOf | ProjectionOf):
                below = below.input
            wanted = {"istream": "unbounded", "rstream": "now"}.get(form)
            return isinstance(below, WindowOf) and below.form == wanted and is_ordered(below, static)
    return False


def emptied_after_ns(tree: Operator) -> int:
    """Return a time after the last element by which all windows of time have emptied [ns]."""
    operators = list(walk_operators(tree))
    spans = [part.range_ns + part.slide_ns + 1 for part in operators if isinstance(part, WindowOf)]
    slides = [part.slide_ns for part in operators if isinstance(part, ToStream)]
    return sum(spans) + sum(slides)


def may_hold(tree: Operator) -> bool:
    """Return whether a relation may hold rows before any element of a stream."""
    match tree:
        case StreamInput() | WindowOf() | ToStream():
            return False
        case RelationInput():
            return True
        case JoinOf(inputs=inputs):
            return all(may_hold(part) for part in inputs)
        case BagOf(form="except", left=left) | MembershipOf(input=left):
            return may_hold(left)
        case _:
            return any(may_hold(part) for part in inputs_of(tree))


def shows_from_start(tree: Operator) -> bool:
    """Return whether rows may show at the first instant that do not come from elements of that instant.

    Parts of an evaluation must know when the inputs of the whole begin, and no element may be left out before it is
    read. Streams of what enters or leaves never show what is there from the start; a stream of all rows gives those at
    each slide from the first instant on.
    """
    if any(isinstance(part, AggregateOf) and not part.keys for part in walk_operators(tree)):
        return True
    repeated = (part.input for part in walk_operators(tree) if isinstance(part, ToStream) and part.form == "rstream")
    return any(may_hold(part) for part in repeated) or (not tree.is_stream and may_hold(tree))
