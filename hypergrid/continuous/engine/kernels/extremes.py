"""Least, greatest, first and last values of groups whose rows leave in the order in which they enter.

A value that a later one surpasses is never an extreme again: a chain keeps the others, oldest and best first, with the
numbers under which they entered; it takes constant time on average. The first and the last value are the ends of a
chain of all. A row that leaves needs no search: its number is how many left before it. Of rows that never leave, the
chain is the best value alone.
"""

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.ordered import (
    FREE_NODE,
    KEY,
    LEFT,
    NODES_FREE,
    NODES_USED,
    RIGHT,
    SIZE,
    VALUE,
    KeyOrder,
    NodePool,
    is_less,
)

FIRST, LAST, ENTERED, GONE, WORDS = 0, 1, 2, 3, 4
"""Words of a chain: first and last node, 0 if it is empty; rows that entered and that left; and their number.

Nodes are those of ordered multisets: `LEFT` is the one before, `RIGHT` the next, `SIZE` the number of the row. In a
chain of all, `KEY` is its first value and `VALUE` its last, as a row may stand for those of a pane.
"""


@jit_inline
def free_node(nodes: Integers, pool: Integers, node: Word) -> None:
    """Give a node back."""
    nodes[node, LEFT] = pool[FREE_NODE]
    pool[FREE_NODE] = node
    pool[NODES_FREE] += 1


@jit_apart
def enter_extreme(
    words: Integers, row: Word, base: Word, pool_of_nodes: NodePool, key: Word, ranks: tuple[Word, KeyOrder, Word]
) -> None:
    """Enter a key at the end of the chain at `words[row, base:]`, in place of those that it surpasses.

    Parameters
    ----------
    ranks
        Whether the greatest key comes first, the order of keys, and whether rows never leave.
    """
    nodes, pool = pool_of_nodes
    is_greatest, order, is_growing = ranks
    last = index(words[row, base + LAST])
    while last != 0:
        held = nodes[last, KEY]
        # Of equal keys the later one stays longer.
        if is_less(key, held, order) if is_greatest else is_less(held, key, order):
            break
        before = index(nodes[last, LEFT])
        free_node(nodes, pool, last)
        last = before
    if is_growing and last != 0:
        # The chain of an earlier program may hold worse keys after it.
        words[row, base + LAST] = last
    else:
        append_node(words, row, base, pool_of_nodes, (last, key, key))


@jit_inline
def append_node(words: Integers, row: Word, base: Word, pool_of_nodes: NodePool, node: tuple[Word, Word, Word]) -> None:
    """Append a node to a chain: the one before, or 0, its key and its value."""
    nodes, pool = pool_of_nodes
    last, key, value = node
    fresh = index(pool[FREE_NODE])
    if fresh != 0:
        pool[FREE_NODE] = nodes[fresh, LEFT]
        pool[NODES_FREE] -= 1
    else:
        fresh = index(pool[NODES_USED])
        pool[NODES_USED] += 1
    nodes[fresh, KEY], nodes[fresh, VALUE], nodes[fresh, SIZE] = key, value, words[row, base + ENTERED]
    nodes[fresh, LEFT], nodes[fresh, RIGHT] = last, 0
    if last == 0:
        words[row, base + FIRST] = fresh
    else:
        nodes[last, RIGHT] = fresh
    words[row, base + LAST] = fresh
    words[row, base + ENTERED] += 1


@jit_apart
def enter_ends(words: Integers, row: Word, base: Word, pool: NodePool, first: Word, last: Word) -> None:
    """Enter the first and the last value of one or more rows at the end of a chain of all values."""
    append_node(words, row, base, pool, (index(words[row, base + LAST]), first, last))


@jit_inline
def leave_extreme(words: Integers, row: Word, base: Word, nodes: Integers, pool: Integers) -> None:
    """Let the oldest row leave."""
    first = index(words[row, index(base + FIRST)])
    if nodes[first, SIZE] == words[row, index(base + GONE)]:
        following = nodes[first, RIGHT]
        words[row, index(base + FIRST)] = following
        if following == 0:
            words[row, index(base + LAST)] = 0
        else:
            nodes[index(following), LEFT] = 0
        free_node(nodes, pool, first)
    words[row, index(base + GONE)] += 1
