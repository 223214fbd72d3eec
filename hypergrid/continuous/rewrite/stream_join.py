"""Join a stream with relations that never change, element by element.

Exact if the relations never change: an update would join elements of before (Motwani 2003, section 2.2, third example).
"""

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.rewrite.now_for_unbounded import find_stream
from hypergrid.continuous.rewrite.trees import transform


def stream_join(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Replace a stream of insertions into a join of a growing window with fixed relations by a join of the stream.

    ::

        istream > join > window unbounded > stream S, relation R   becomes   join > stream S, relation R
    """
    notes: list[str] = []

    def change(operator: Operator) -> Operator:
        taken = find_stream(operator, static)
        if taken is None:
            return operator
        notes.append("each element is joined when it comes with relations that never change: no window is kept")
        return taken

    return transform(tree, change), tuple(dict.fromkeys(notes))
