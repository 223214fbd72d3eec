"""How far a reading reaches: the time after its instant in which results can depend on it."""

from hypergrid.continuous.algebra import (
    FilterOf,
    Operator,
    ProjectionOf,
    RelationInput,
    StreamInput,
    ToStream,
    WindowOf,
    inputs_of,
)


def find_horizon(tree: Operator, static: frozenset[str] = frozenset()) -> int | None:
    """Return how long after an element's instant results can depend on it [ns].

    It is the longest chain of range windows with their slides. None if there is no limit: an unbounded window, one of
    rows, or a relation that changes.
    """
    match tree:
        case StreamInput():
            return 0
        case RelationInput(name=name):
            return 0 if name in static else None
        case WindowOf(input=below, form=form, range_ns=range_ns, slide_ns=slide_ns):
            if form in ("rows", "unbounded"):
                return None
            own = 1 if form == "now" else range_ns + slide_ns
            reach = find_horizon(below, static)
            return None if reach is None else reach + own
        case ToStream(input=below, form="istream"):
            while isinstance(below, FilterOf | ProjectionOf):
                below = below.input
            if isinstance(below, WindowOf) and below.form == "unbounded":
                # What enters stays, so only its own instant shows.
                return find_horizon(below.input, static)
    reaches = [find_horizon(part, static) for part in inputs_of(tree)]
    known = [reach for reach in reaches if reach is not None]
    return max(known) if len(known) == len(reaches) else None
