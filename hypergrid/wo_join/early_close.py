"""Keys that all streams have brought as often as they bring any, so that nobody need wait for more of them."""

from hypergrid.wo_join.compiled import jit_inline
from hypergrid.wo_join.hash_table import drop_chains
from hypergrid.wo_join.hints import index
from hypergrid.wo_join.observe import multiplicity
from hypergrid.wo_join.state_layout import (
    ASLEEP,
    FLOOR,
    LINE,
    NONE,
    ORDINAL,
    SIZE,
    TAILS,
    WATCH,
    WHOLE,
    Ints,
    Narrow,
)


@jit_inline
def count_brought(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return how many tuples a stream has brought of an entry's key."""
    tail = heads[entry, TAILS + stream]
    return int(links[tail, ORDINAL] + 1) if tail != NONE else 0


@jit_inline
def is_whole(heads: Narrow, links: Narrow, stream_state: Ints, entry: int, stream: int) -> bool:
    """Tell whether each stream has brought a key as often as it brings any, with one more tuple of a stream.

    Nothing is believed of a stream that begins.
    """
    for other in range(len(stream_state)):
        count = count_brought(heads, links, entry, other) + (other == stream)
        if count < multiplicity(stream_state, other) or stream_state[other, LINE] == FLOOR:
            return False
    return True


@jit_inline
def drop_whole(heads: Narrow, links: Narrow, join_state: Ints, stream_state: Ints, entry: int) -> None:
    """Drop all tuples of an entry, which stays until its key is passed, so that what comes nevertheless is told."""
    drop_chains(heads, links, join_state, stream_state, entry)
    heads[entry, SIZE] = WHOLE


@jit_inline
def is_brought(heads: Narrow, links: Narrow, stream_state: Ints, entry: int) -> bool:
    """Tell whether each stream that is awake has brought a key as often as it brings any.

    The one that had not when it was asked last is asked first. Nothing is believed of a stream that begins.
    """
    asked = index(heads[entry, WATCH])
    for _ in range(len(stream_state)):
        if not stream_state[asked, ASLEEP] and (
            stream_state[asked, LINE] == FLOOR
            or count_brought(heads, links, entry, asked) < multiplicity(stream_state, asked)
        ):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else len(stream_state) - 1
    return True
