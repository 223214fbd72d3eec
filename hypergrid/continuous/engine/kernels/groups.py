"""Aggregates of groups: one pass over elements in order of time, in which groups change and report at each instant."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine.batch import Integers, Signs
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.extremes import FIRST, LAST, enter_ends, enter_extreme, leave_extreme
from hypergrid.continuous.engine.kernels.ordered import (
    KEY,
    NODES_FREE,
    NODES_USED,
    SIZE,
    VALUE,
    KeyOrder,
    NodePool,
    insert_key,
    remove_key,
    select_node,
    sortable,
)
from hypergrid.continuous.engine.kernels.sums import INFINITY_BITS, MAGNITUDE, NAN_BITS, add_number, read_sum

ROWS, STATUS, VALUES = 0, 1, 2
"""Words of a group: rows, the sum of `REPORTED` and `TOUCHED`, the values of the row that is out.

The words of accumulators follow.
"""
REPORTED, TOUCHED = 1, 2
"""Whether the row of a group is out, and whether the group changed at this instant."""
COUNTING, SUMMING, SUMMING_WHOLE, SQUARING, SORTING, ORDERING, LEAST, GREATEST, QUEUEING = range(9)
"""Accumulators: values, exact sum, sum of integers (two halves), exact sum of squares, values in order, by age.

The last three are extremes and values of rows that leave in the order in which they enter.
"""
ENDING, LEAST_EVER, GREATEST_EVER = 9, 10, 11
"""Accumulators of rows that never leave: first and last value, extremes."""
FIRST_WORD, COUNTER, ACCUMULATOR_WORDS = 2, 6, 7
"""Columns of `GroupState.program`, and their number."""
HALF: Final = (1 << 32) - 1
ROOT, NODES = 0, 1
"""Words of accumulators in order: root of the tree, distinct keys."""
KEYS, CALLS = 0, 1
"""Positions in `GroupState.sizes`."""
COUNT_ROWS, COUNT_VALUES, SUM, SUM_WHOLE, MEAN, DEVIATION, RANK, AGE, DISTINCT, EXTREME, END = range(11)
"""Functions of calls; RANK is min, max, median and quantile, AGE first and last.

Of rows that leave in the order in which they enter, or never, EXTREME is min and max, END first and last.
"""


class GroupState(NamedTuple):
    """Groups and what is computed of them."""

    words: Integers
    """Shape (groups, words)."""
    nodes: Integers
    """Pool of the ordered multisets."""
    pool: Integers
    program: Integers
    """Accumulators, shape (m, `ACCUMULATOR_WORDS`): kind, argument, word, bits of NULL, order, is number, counter.

    The counter is the word in which values are counted, 0 if that is done by another one.
    """
    calls: Integers
    """Calls, shape (k, 6): function, word of the count, word of the accumulator, of another, NULL, is number."""
    shares: NDArray[np.float64]
    """Share of each call: 0 is the least or the oldest, 1 the greatest or the newest."""
    sizes: Integers
    """Number of keys (0: a single group that is always there) and of calls.

    Short loops end by these values in memory, not by the shape of an array: the compiler unrolls and vectorises loops
    whose end it knows, which takes longer than one or two steps.
    """


class PlainCall(NamedTuple):
    """The usual aggregate: one sum or mean by one key. Its loop is compiled apart, with all that is known of it.

    `is_plain` is a constant where loops are inlined: what follows from it is decided when they are compiled.
    """

    is_plain: Word
    function: Word
    counter: Word
    base: Word
    null: Word


class GroupElements(NamedTuple):
    """Elements with their groups."""

    tau: Integers
    sign: Signs
    group: Integers
    """Number of each element's group; it may be written over by that of a part of its pane."""
    order: Integers
    """Number of each element's age; empty if no accumulator goes by age."""
    arguments: Integers
    """Bits, shape (arguments, n): equal ones of equal values if any accumulator compares or returns them."""
    ranks: Integers
    """Ranks of texts, shape (texts, 1)."""
    ages: Integers
    """Rows that order the ages, shape (ages, columns)."""
    keys: Integers
    """Keys of each group, shape (groups, keys)."""
    touched: Integers
    """Scratch: groups that changed at an instant from the front, those without rows before their number at the end."""


class GroupOutput(NamedTuple):
    """Changes of groups."""

    sign: Signs
    columns: Integers
    """Instants, then keys, then calls, shape (columns, rows)."""
    fresh: Integers
    """Scratch, shape (calls,)."""


@jit_inline
def is_nan(bits: Word) -> Word:
    """Return whether the bits of a number are those of any NaN."""
    return (bits & MAGNITUDE) > INFINITY_BITS


@jit_inline
def is_null(bits: Word, null: Word) -> Word:
    """Return whether bits are those of NULL, which is any NaN if its own are."""
    return (bits == null) | ((null == NAN_BITS) & is_nan(bits))


@jit_inline
def split_square(bits: Word) -> tuple[Word, Word]:
    """Return the bits of the rounded square of a number and of its error, which is 0 for the greatest squares."""
    x = np.int64(bits).view(np.float64)
    square = x * x
    split = 134217729.0 * x
    upper = split - (split - x)
    lower = x - upper
    error: Word = ((upper * upper - square) + 2.0 * upper * lower) + lower * lower
    if not abs(square) < 1e300:
        error = 0.0
    return np.float64(square).view(np.int64), np.float64(error).view(np.int64)


@jit_inline
def add_square(words: Integers, row: Word, base: Word, bits: Word, sign: Word) -> None:
    """Add the square of a number to a sum, as two numbers: the rounded square and its error."""
    square, error = split_square(bits)
    add_number(words, row, base, square, sign)
    add_number(words, row, base, error, sign)


@jit_inline
def multiply_exactly(a: Word, b: Word) -> tuple[Word, Word]:
    """Return a product and its rounding error."""
    product = a * b
    split = 134217729.0 * a
    a_upper = split - (split - a)
    a_lower = a - a_upper
    split = 134217729.0 * b
    b_upper = split - (split - b)
    b_lower = b - b_upper
    error = ((a_upper * b_upper - product) + a_upper * b_lower + a_lower * b_upper) + a_lower * b_lower
    return product, error


@jit_inline
def read_pair(words: Integers, row: Word, base: Word) -> tuple[Word, Word]:
    """Return a sum as a number and what it lacks."""
    value = read_sum(words, row, base)
    add_number(words, row, base, np.float64(value).view(np.int64), -1)
    rest = read_sum(words, row, base)
    add_number(words, row, base, np.float64(value).view(np.int64), 1)
    return value, rest


@jit_apart
def read_deviation(words: Integers, row: Word, sum_base: Word, square_base: Word, count: Word) -> Word:
    """Return the standard deviation of a sample, in double-double arithmetic.

    Of values 1e10 times as large as their deviation, nine digits are right; squares need to be within 1e-280 and 1e300.
    """
    total, total_rest = read_pair(words, row, sum_base)
    squares, squares_rest = read_pair(words, row, square_base)
    n = float(count)
    a, a_rest = multiply_exactly(squares, n)
    b, b_rest = multiply_exactly(total, total)
    upper = a - b
    shift = upper - a
    lower = (a - (upper - shift)) - (b + shift)
    lower += (a_rest - b_rest) + (squares_rest * n - 2.0 * total * total_rest)
    spread = upper + lower
    lower -= spread - upper
    if not spread > 0.0:
        return np.nan if spread != spread else 0.0
    pairs = n * (n - 1.0)
    variance = spread / pairs
    product, rest = multiply_exactly(variance, pairs)
    return np.sqrt(variance + ((spread - product) - rest + lower) / pairs)


@jit_inline
def read_call(groups: GroupState, group: Word, call: Word) -> Word:
    """Return the bits of an aggregate."""
    words, calls = groups.words, groups.calls
    function, counter, base = calls[call, 0], index(calls[call, 1]), index(calls[call, 2])
    if function == COUNT_ROWS:
        return words[group, ROWS]
    count = words[group, counter]
    if function == COUNT_VALUES:
        return count
    if function == DISTINCT:
        return words[group, index(base + NODES)]
    if count == 0:
        return calls[call, 4]
    if (function == SUM) | (function == MEAN):
        value = read_sum(words, group, base) / (count if function == MEAN else 1)
        return calls[call, 4] if value != value else np.float64(value + 0.0).view(np.int64)
    # Apart, as the arguments of a call cost more than a mean.
    return read_rare_call(groups, group, call, count)


@jit_apart
def read_rare_call(groups: GroupState, group: Word, call: Word, count: Word) -> Word:
    """Return the bits of a sum of integers, a deviation, a rank or a value by age."""
    words, nodes, calls = groups.words, groups.nodes, groups.calls
    function, base, null = calls[call, 0], index(calls[call, 2]), calls[call, 4]
    value: Word = 0.0
    if function == SUM_WHOLE:
        upper = words[group, base + 1] + (words[group, base] >> 32)
        if upper >= 1 << 31 or upper < -(1 << 31):
            return null
        return (upper << 32) | (words[group, base] & HALF)
    if function == DEVIATION:
        if count < 2:
            return null
        value = read_deviation(words, group, base, calls[call, 3], count)
    elif function == END:
        if groups.shares[call] == 0.0:
            return nodes[words[group, base + FIRST], KEY]
        return nodes[words[group, base + LAST], VALUE]
    elif function == EXTREME:
        held = nodes[words[group, base + FIRST], KEY]
        return sortable(held) if calls[call, 5] != 0 else held
    else:
        root, share = words[group, base + ROOT], groups.shares[call]
        size = nodes[root, SIZE]
        wanted = (size - 1) * share
        lower = np.int64(np.floor(wanted))
        node = select_node(nodes, root, lower)
        is_number = calls[call, 5] != 0
        if function == AGE:
            held = nodes[node, VALUE]
            return sortable(held) if is_number else held
        held = nodes[node, KEY]
        if wanted == lower:
            return sortable(held) if is_number else held
        # Between two values: only numbers are interpolated.
        above = nodes[select_node(nodes, root, lower + 1), KEY]
        low, high = np.int64(sortable(held)).view(np.float64), np.int64(sortable(above)).view(np.float64)
        value = low
        if low != high:
            value = low + (high - low) * (wanted - lower)
            if value - value != 0.0:
                # The difference is beyond all numbers, or one value is infinite.
                value = low * (1.0 - (wanted - lower)) + high * (wanted - lower)
    if value != value:
        return null
    return np.float64(value + 0.0).view(np.int64)


@jit_inline
def change_group(groups: GroupState, elements: GroupElements, plain: PlainCall, at: Word) -> None:
    """Add or remove an element."""
    words, program = groups.words, groups.program
    group, sign = index(elements.group[at]), np.int64(elements.sign[at])
    words[group, ROWS] += sign
    if plain.is_plain != 0:
        bits = elements.arguments[0, at]
        if not is_nan(bits):
            words[group, index(plain.counter)] += sign
            add_number(words, group, index(plain.base), bits, sign)
        return
    for number in range(len(program)):
        bits = elements.arguments[index(program[number, 1]), index(at)]
        if is_null(bits, program[number, 3]):
            continue
        kind, base, counter = program[number, 0], index(program[number, FIRST_WORD]), index(program[number, COUNTER])
        if counter > 0:
            words[group, counter] += sign
        if kind == COUNTING:
            continue
        if kind == SUMMING_WHOLE:
            # Two halves of 32 bits, whose sums do not leave 64 bits.
            words[group, base] += sign * (bits & HALF)
            words[group, base + 1] += sign * (bits >> 32)
        elif kind == SUMMING:
            add_number(words, group, base, bits, sign)
        elif kind == SQUARING:
            add_square(words, group, base, bits, sign)
        elif kind == ENDING and words[group, index(base + FIRST)] != 0:
            groups.nodes[index(words[group, index(base + FIRST)]), VALUE] = bits
        elif kind == QUEUEING or kind == ENDING:
            if sign > 0:
                enter_ends(words, group, base, NodePool(groups.nodes, groups.pool), bits, bits)
            else:
                leave_extreme(words, group, base, groups.nodes, groups.pool)
        else:
            value = sortable(bits) if program[number, 5] != 0 else bits
            if kind == LEAST or kind == GREATEST or kind == LEAST_EVER or kind == GREATEST_EVER:
                if sign > 0:
                    is_greatest = kind == GREATEST or kind == GREATEST_EVER
                    ranks = is_greatest, KeyOrder(program[number, 4], elements.ranks), kind >= LEAST_EVER
                    enter_extreme(words, group, base, NodePool(groups.nodes, groups.pool), value, ranks)
                else:
                    leave_extreme(words, group, base, groups.nodes, groups.pool)
            elif kind == ORDERING:
                order = KeyOrder(program[number, 4], elements.ages)
                change_tree(groups, order, (group, base), sign, elements.order[at], value)
            else:
                order = KeyOrder(program[number, 4], elements.ranks)
                change_tree(groups, order, (group, base), sign, value, value)


@jit_apart
def change_tree(
    groups: GroupState, order: KeyOrder, accumulator: tuple[Word, Word], sign: Word, key: Word, value: Word
) -> None:
    """Insert or remove a value of an ordered multiset, whose group and first word are given."""
    words, held = groups.words, NodePool(groups.nodes, groups.pool)
    group, base = accumulator
    root = words[group, base + ROOT]
    before = held.state[NODES_USED] - held.state[NODES_FREE]
    if sign > 0:
        root = insert_key(held, root, key, value, order)
    else:
        root = remove_key(held, root, key, order)
    words[group, base + NODES] += held.state[NODES_USED] - held.state[NODES_FREE] - before
    words[group, base + ROOT] = root


@jit_inline
def count_of(groups: GroupState, plain: PlainCall, part: Word) -> Word:
    """Return the number of keys or of calls."""
    return 1 if plain.is_plain != 0 else groups.sizes[part]


@jit_inline
def read_value(groups: GroupState, plain: PlainCall, group: Word, call: Word) -> Word:
    """Return the bits of an aggregate."""
    if plain.is_plain == 0:
        return read_call(groups, group, call)
    count = groups.words[group, index(plain.counter)]
    if count == 0:
        return plain.null
    value = read_sum(groups.words, group, index(plain.base)) / (count if plain.function == MEAN else 1)
    return plain.null if value != value else np.float64(value + 0.0).view(np.int64)


@jit_inline
def write_row(
    groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput, row: tuple[Word, Word, Word, Word]
) -> None:
    """Write a row of the output: its number, group, instant and sign; its values are those that were reported."""
    at, group, keys = index(row[0]), index(row[1]), elements.keys
    out.columns[0, at], out.sign[at] = row[2], row[3]
    count, key, call = count_of(groups, plain, KEYS), index(0), index(0)
    while key < count:
        out.columns[index(1 + key), at] = keys[group, key]
        key = index(key + 1)
    count = count_of(groups, plain, CALLS)
    while call < count:
        out.columns[index(1 + key + call), at] = groups.words[group, index(VALUES + call)]
        call = index(call + 1)


@jit_inline
def report_leaving(
    groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput, row: tuple[Word, Word, Word]
) -> tuple[Word, Word]:
    """Write the row of a group that leaves, if it changes, and take its new values.

    Returns whether a row enters, and the number of rows written so far.

    Parameters
    ----------
    row
        Rows written so far, group and instant.
    """
    words, fresh, written, group = groups.words, out.fresh, row[0], index(row[1])
    is_there = (words[group, ROWS] > 0) | (count_of(groups, plain, KEYS) == 0)
    was_there = words[group, STATUS] != 0
    is_equal, count = is_there == was_there, count_of(groups, plain, CALLS)
    if is_there:
        call = index(0)
        while call < count:
            value = read_value(groups, plain, group, call)
            fresh[call] = value
            is_equal &= value == words[group, index(VALUES + call)]
            call = index(call + 1)
    if is_equal:
        return False, written
    if was_there:
        write_row(groups, elements, plain, out, (written, group, row[2], -1))
        written += 1
    words[group, STATUS] = np.int64(is_there)
    if is_there:
        call = index(0)
        while call < count:
            words[group, index(VALUES + call)] = fresh[call]
            call = index(call + 1)
    return is_there, written


@jit_inline
def report_groups(
    groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput, changed: tuple[Word, Word, Word]
) -> Word:
    """Write the changes of groups at an instant, rows that leave first; returns the number of rows written so far.

    Parameters
    ----------
    changed
        Rows written so far, number of the groups, and instant.
    """
    touched, written, tau = elements.touched, changed[0], changed[2]
    entering, number = 0, index(0)
    while number < changed[1]:
        group = index(touched[number])
        groups.words[group, STATUS] &= REPORTED
        is_entering, written = report_leaving(groups, elements, plain, out, (written, group, tau))
        if is_entering:
            # To the groups whose rows enter, which are written after those that leave.
            touched[index(entering)] = group
            entering += 1
        number = index(number + 1)
    number = index(0)
    while number < entering:
        write_row(groups, elements, plain, out, (written, index(touched[number]), tau, 1))
        written += 1
        number = index(number + 1)
    return written
