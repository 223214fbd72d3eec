"""Ordered multisets: insertion, removal and the k-th value in logarithmic time, for many groups in one pool of nodes.

A treap whose priorities are hashes of the keys, so that its form depends on what it holds only, not on its history.
"""

from typing import Final, NamedTuple

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.rows import mix

LEFT, RIGHT, SIZE, COUNT, KEY, VALUE, PRIORITY, NODE_WORDS = 0, 1, 2, 3, 4, 5, 6, 8
"""Words of a node: children, keys in its subtree, equal keys in the node, key, value of the key, priority.

Node 0 is the empty tree.
"""
FREE_NODE, NODES_USED, NODES_FREE = 0, 1, 2
"""Words of the pool's state: first free node or 0, nodes ever used, length of the list of free nodes."""
BY_KEY, BY_RANK, BY_ROW = 0, 1, 2
"""Orders: by the key, by its rank in `ranks`, by the row of `ranks` that the key is the number of."""
MAX_BITS: Final = (1 << 63) - 1


class NodePool(NamedTuple):
    """Nodes of all trees."""

    nodes: Integers
    """Shape (nodes, `NODE_WORDS`)."""
    state: Integers


class KeyOrder(NamedTuple):
    """Order of keys."""

    form: Word
    ranks: Integers


@jit_inline
def sortable(bits: Word) -> Word:
    """Return an integer ordered as the number with these bits; its own inverse."""
    return bits ^ ((bits >> 63) & MAX_BITS)


@jit_inline
def is_less(key: Word, other: Word, order: KeyOrder) -> bool:
    """Return whether a key is before another."""
    ranks = order.ranks
    if order.form == BY_KEY:
        return bool(key < other)
    if order.form == BY_RANK:
        return bool(ranks[key, 0] < ranks[other, 0])
    for column in range(ranks.shape[1]):
        if ranks[key, column] != ranks[other, column]:
            return bool(ranks[key, column] < ranks[other, column])
    return False


@jit_apart
def insert_key(pool_of_nodes: NodePool, root: Word, key: Word, value: Word, order: KeyOrder) -> Word:
    """Insert a key with a value, which belongs to it; returns the root."""
    nodes, pool = pool_of_nodes
    node = root
    while node != 0 and nodes[node, KEY] != key:
        node = nodes[node, RIGHT if is_less(nodes[node, KEY], key, order) else LEFT]
    if node != 0:
        nodes[node, COUNT] += 1
        match, node = node, root
        while node != match:
            nodes[node, SIZE] += 1
            node = nodes[node, RIGHT if is_less(nodes[node, KEY], key, order) else LEFT]
        nodes[match, SIZE] += 1
        return root
    fresh = pool[FREE_NODE]
    if fresh != 0:
        pool[FREE_NODE] = nodes[fresh, LEFT]
        pool[NODES_FREE] -= 1
    else:
        fresh = pool[NODES_USED]
        pool[NODES_USED] += 1
    priority = mix(key)
    nodes[fresh, KEY], nodes[fresh, VALUE], nodes[fresh, COUNT], nodes[fresh, PRIORITY] = key, value, 1, priority
    parent, side, node = 0, LEFT, root
    while node != 0 and nodes[node, PRIORITY] >= priority:
        nodes[node, SIZE] += 1
        parent = node
        side = RIGHT if is_less(nodes[node, KEY], key, order) else LEFT
        node = nodes[node, side]
    total = nodes[node, SIZE] if node != 0 else 0
    # How many values of the subtree are less: they become the left side of the new node.
    less, at = 0, node
    while at != 0:
        if is_less(nodes[at, KEY], key, order):
            less += nodes[nodes[at, LEFT], SIZE] + nodes[at, COUNT]
            at = nodes[at, RIGHT]
        else:
            at = nodes[at, LEFT]
    nodes[fresh, SIZE] = total + 1
    if parent == 0:
        root = fresh
    else:
        nodes[parent, side] = fresh
    left_of, left_side, right_of, right_side = fresh, LEFT, fresh, RIGHT
    while node != 0:
        if is_less(nodes[node, KEY], key, order):
            nodes[left_of, left_side] = node
            left_of, left_side = node, RIGHT
            below = nodes[node, RIGHT]
            nodes[node, SIZE] = less
            less -= nodes[nodes[node, LEFT], SIZE] + nodes[node, COUNT]
            total = nodes[below, SIZE]
        else:
            nodes[right_of, right_side] = node
            right_of, right_side = node, LEFT
            below = nodes[node, LEFT]
            nodes[node, SIZE] = total - less
            total = nodes[below, SIZE]
        node = below
    nodes[left_of, left_side] = 0
    nodes[right_of, right_side] = 0
    return root


@jit_apart
def remove_key(pool_of_nodes: NodePool, root: Word, key: Word, order: KeyOrder) -> Word:
    """Remove a key that is held; returns the root."""
    nodes, pool = pool_of_nodes
    parent, side, node = 0, LEFT, root
    while nodes[node, KEY] != key:
        nodes[node, SIZE] -= 1
        parent = node
        side = RIGHT if is_less(nodes[node, KEY], key, order) else LEFT
        node = nodes[node, side]
        if node == 0:
            return -1
    if nodes[node, COUNT] > 1:
        nodes[node, COUNT] -= 1
        nodes[node, SIZE] -= 1
        return root
    left, right = nodes[node, LEFT], nodes[node, RIGHT]
    nodes[node, LEFT] = pool[FREE_NODE]
    pool[FREE_NODE] = node
    pool[NODES_FREE] += 1
    # Merge both sides, which are in order, into the cell where the node was.
    while True:
        if left == 0:
            below = right
        elif right == 0 or nodes[left, PRIORITY] > nodes[right, PRIORITY]:
            below = left
        else:
            below = right
        if parent == 0:
            root = below
        else:
            nodes[parent, side] = below
        if left == 0 or right == 0:
            return root
        if below == left:
            nodes[left, SIZE] += nodes[right, SIZE]
            parent, side = left, RIGHT
            left = nodes[left, RIGHT]
        else:
            nodes[right, SIZE] += nodes[left, SIZE]
            parent, side = right, LEFT
            right = nodes[right, LEFT]


@jit_apart
def select_node(nodes: Integers, root: Word, rank: Word) -> Word:
    """Return the node of the value at a rank, from 0."""
    node = root
    while True:
        left = nodes[node, LEFT]
        before = nodes[left, SIZE]
        if rank < before:
            node = left
        elif rank < before + nodes[node, COUNT]:
            return node
        else:
            rank -= before + nodes[node, COUNT]
            node = nodes[node, RIGHT]
