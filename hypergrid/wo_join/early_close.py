"""Keys that all streams have brought as often as they bring any, so that nobody need wait for more of them."""

from hypergrid.wo_join.compiled import compiled_within
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


@compiled_within
def brought(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return how many tuples a stream has brought of an entry's key."""
    tail = heads[entry, TAILS + stream]
    return int(links[tail, ORDINAL] + 1) if tail != NONE else 0


@compiled_within
def is_whole(heads: Narrow, links: Narrow, per: Ints, entry: int, stream: int) -> bool:
    """Tell whether each stream has brought a key as often as it brings any, with one more tuple of a stream.

    Nothing is believed of a stream that begins.
    """
    for other in range(len(per)):
        count = brought(heads, links, entry, other) + (other == stream)
        if count < multiplicity(per, other) or per[other, LINE] == FLOOR:
            return False
    return True


@compiled_within
def drop_whole(heads: Narrow, links: Narrow, whole: Ints, per: Ints, entry: int) -> None:
    """Drop all tuples of an entry, which stays until its key is passed, so that what comes nevertheless is told."""
    drop_chains(heads, links, whole, per, entry)
    heads[entry, SIZE] = WHOLE


@compiled_within
def is_brought(heads: Narrow, links: Narrow, per: Ints, entry: int) -> bool:
    """Tell whether each stream that is awake has brought a key as often as it brings any.

    The one that had not when it was asked last is asked first. Nothing is believed of a stream that begins.
    """
    asked = index(heads[entry, WATCH])
    for _ in range(len(per)):
        if not per[asked, ASLEEP] and (
            per[asked, LINE] == FLOOR or brought(heads, links, entry, asked) < multiplicity(per, asked)
        ):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else len(per) - 1
    return True
