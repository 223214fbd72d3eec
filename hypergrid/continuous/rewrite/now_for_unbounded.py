"""Take a stream itself instead of a stream of what a window adds to a relation.

Exact for bags: each element enters an unbounded window at its instant and never leaves, so the insertions of filters
and projections above it are those of the element (for sets only if the stream had a key; Motwani 2003, section 2.2).
An ``rstream`` of a ``now`` window likewise shows each element once. Insertions into a ``now`` window are not the
stream: an element equal to one of the nanosecond before does not enter.
"""

from hypergrid.continuous.algebra import BagOf, FilterOf, JoinOf, Operator, ProjectionOf, ToStream, WindowOf
from hypergrid.continuous.properties import is_static
from hypergrid.continuous.rewrite.trees import transform, with_inputs


def now_for_unbounded(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Replace a stream of insertions into a window that only grows by operators of the stream.

    ::

        istream > filter a > 10 > window unbounded > stream S   becomes   filter a > 10 > stream S
    """
    notes: list[str] = []

    def change(operator: Operator) -> Operator:
        taken = find_stream(operator, None)
        if taken is None:
            return operator
        notes.append("each element shows once, when it comes: no window is kept")
        return taken

    return transform(tree, change), tuple(dict.fromkeys(notes))


def find_stream(operator: Operator, static: frozenset[str] | None) -> Operator | None:
    """Return the stream that shows what a stream of changes shows, None if there is no such stream.

    Parameters
    ----------
    static
        Relations that never change, with which streams may be joined; None if none is joined.
    """
    if not isinstance(operator, ToStream) or operator.form == "dstream" or operator.slide_ns:
        return None
    return _find_below(operator.input, "unbounded" if operator.form == "istream" else "now", static)


def _find_below(relation: Operator, form: str, static: frozenset[str] | None) -> Operator | None:
    match relation:
        case WindowOf(input=below, form=own, where=where) if own == form:
            return below if where is None else FilterOf(below, where)
        case FilterOf(input=below) | ProjectionOf(input=below):
            taken = _find_below(below, form, static)
            return None if taken is None else with_inputs(relation, [taken])
        case BagOf(form="union", left=left, right=right):
            sides = [_find_below(side, form, static) for side in (left, right)]
            return None if None in sides else with_inputs(relation, [side for side in sides if side is not None])
        case JoinOf(inputs=inputs) if static is not None:
            changing = [part for part in inputs if not is_static(part, static)]
            taken = _find_below(changing[0], form, static) if len(changing) == 1 else None
            if taken is None:
                return None
            return with_inputs(relation, [taken if part is changing[0] else part for part in inputs])
    return None
