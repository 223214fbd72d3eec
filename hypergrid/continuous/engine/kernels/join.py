"""Join of n relations: each element probes the indexes of the others and is entered into its own.

An index has exact chains, newest first: the rows of one key and no others. What a row has in all indexes of its input
stands side by side in one record: its keys, then for each index the next older and the next younger row.
"""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers, Signs
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.grid import NEIGHBOURS
from hypergrid.continuous.engine.kernels.rows import mix, spread

DONE, OUTPUT_FULL, INDEX_FULL = 0, 1, 2
"""Why the loop returns."""
RECORD, STRIDE, KEYS, FIRST_INDEX, INDEXES, IS_PASSING, INPUT_WORDS = 0, 1, 2, 3, 4, 5, 6
"""Words of an input: first word of its records, words a record, keys, indexes, and whether rows probe only."""
OWNER, TABLE, MASK, FILLED, LINK, PARTS, FIRST_PART, INDEX_WORDS = 0, 1, 2, 3, 4, 5, 6, 7
"""Words of an index: input, first word and mask of its table, cells in use, first link, keys, first of them."""
PROBED, INDEX, FIRST_SOURCE, CHAIN, CHAIN_STRIDE, CELLS, CELL_MASK, COUNT, BOUND, KEY, KEY_STRIDE = range(11)
"""Words of a step: input whose index is probed, index, first source of the key; and what follows of them.

These are the first link and the words a record of the chains, table and mask of the index, its number of keys, and of
the first source the input, the first key and the words a record. The number of keys is negative where the last one is
a cell, around which others are searched.
"""
COMPARED_KEY, COMPARED_CLASS, COMPARED_WORDS = 0, 1, 2
"""Words of how combinations of an input are compared: the number of a key and its class; both -1 without one."""
COMPARED_ELEMENTS = 8
"""Elements of an instant that enter, up to which those that leave are compared with them."""
IS_NEAR, NEIGHBOUR, STEP_WORDS = 11, 12, 13
"""Words of a step that searches cells: that it does, and scratch: the number of the neighbour that follows."""
VACANT = -1
"""Head of a cell whose chain is empty; 0 is a cell never used; others are slots + 1."""


class JoinArrays(NamedTuple):
    """What a join holds."""

    records: Integers
    tables: Integers
    """Two words a cell: key or hash of the keys, head."""
    inputs: Integers
    """Shape (inputs, `INPUT_WORDS`)."""
    indexes: Integers
    """Shape (indexes, `INDEX_WORDS`)."""
    parts: Integers
    """Positions of keys in records, for all indexes."""
    steps: Integers
    """Order of probing for each arriving input, shape (inputs * (inputs - 1), `STEP_WORDS`)."""
    sources: Integers
    """Input and position of the key, for all steps, shape (k, 2)."""
    bound: Integers
    """Scratch: slot of each input in the combination at hand."""
    cursors: Integers
    """Scratch: slot of each step."""
    compared: Integers
    """Shape (inputs, `COMPARED_WORDS`): combinations with other values of this key are other rows above the join."""
    entering_keys: Integers
    """Scratch: class and key of the elements of an instant that enter, shape (`COMPARED_ELEMENTS`, 2)."""


class JoinElements(NamedTuple):
    """Elements of all inputs, those of the first input first, each in order of time."""

    tau: Integers
    sign: Signs
    slot: Integers
    keys: Integers
    """Shape (n, keys): those of the input first."""
    ends: Integers
    """Next element and end of the elements of each input, shape (inputs, 2); elements that are done are passed."""


class JoinOutput(NamedTuple):
    """Combinations of rows."""

    element: Integers
    slots: Integers
    """Shape (inputs, rows)."""


@jit_inline
def find_cell(join: JoinArrays, number: Word, key: Word, record: Word) -> Word:
    """Return the first word of the cell with the key of a record of the index's own input; -1 if there is none.

    Parameters
    ----------
    key
        Key, or hash of the keys.
    record
        First word of the record.
    """
    tables, indexes, records, parts = join.tables, join.indexes, join.records, join.parts
    table, mask, count = indexes[number, TABLE], indexes[number, MASK], indexes[number, PARTS]
    owner, first = indexes[number, OWNER], indexes[number, FIRST_PART]
    base, stride = join.inputs[owner, RECORD], join.inputs[owner, STRIDE]
    cell = (spread(key) if count == 1 else key) & mask
    while True:
        word = index(table + 2 * cell)
        head = tables[index(word + 1)]
        if head == 0:
            return -1
        if head != VACANT and tables[word] == key:
            if count <= 1:
                return word
            other = base + (head - 1) * stride
            is_equal = True
            for part in range(count):
                if records[other + parts[first + part]] != records[record + parts[first + part]]:
                    is_equal = False
            if is_equal:
                return word
        cell = (cell + 1) & mask


@jit_inline
def read_source(join: JoinArrays, source: Word) -> Word:
    """Return a key of a row that is bound."""
    owner = join.sources[source, 0]
    record = join.inputs[owner, RECORD] + join.bound[owner] * join.inputs[owner, STRIDE]
    return join.records[record + join.sources[source, 1]]


@jit_inline
def own_key(join: JoinArrays, number: Word, record: Word) -> Word:
    """Return the key of a record in an index, or the hash of its keys."""
    count, first = join.indexes[number, PARTS], join.indexes[number, FIRST_PART]
    if count == 1:
        return join.records[index(record + join.parts[first])]
    code = 0
    for part in range(count):
        code = mix(code * 31 + join.records[record + join.parts[first + part]])
    return code


@jit_apart
def find_near_head(join: JoinArrays, step: Word, neighbour: Word) -> Word:
    """Return the newest slot of the first cell that has one, of those around what is bound; -1 if there is none.

    Parameters
    ----------
    neighbour
        Number of the first cell that is searched, of `NEIGHBOURS`.
    """
    steps, tables, records, parts = join.steps, join.tables, join.records, join.parts
    count, source = -steps[step, COUNT], steps[step, FIRST_SOURCE]
    number, mask, table = steps[step, INDEX], steps[step, CELL_MASK], steps[step, CELLS]
    owner, first = steps[step, PROBED], join.indexes[number, FIRST_PART]
    base, stride = join.inputs[owner, RECORD], join.inputs[owner, STRIDE]
    last = count - 1
    code = 0
    for part in range(last):
        code = mix(code * 31 + read_source(join, source + part))
    centre = read_source(join, source + last)
    while neighbour < len(NEIGHBOURS):
        key = near = centre + NEIGHBOURS[neighbour]
        neighbour += 1
        if last > 0:
            key = mix(code * 31 + near)
        cell = (spread(key) if last == 0 else key) & mask
        while True:
            head = tables[table + 2 * cell + 1]
            if head == 0:
                break
            if head != VACANT and tables[table + 2 * cell] == key:
                record = base + (head - 1) * stride
                is_equal = records[record + parts[first + last]] == near
                for part in range(last):
                    is_equal &= records[record + parts[first + part]] == read_source(join, source + part)
                if is_equal:
                    steps[step, NEIGHBOUR] = neighbour
                    return head - 1
            cell = (cell + 1) & mask
    steps[step, NEIGHBOUR] = neighbour
    return -1


@jit_apart
def find_head_of_many(join: JoinArrays, step: Word) -> Word:
    """Return the newest slot whose keys, several or none, match what is bound, -1 if there is none."""
    if join.steps[step, COUNT] < 0:
        return find_near_head(join, step, 0)
    steps, tables, records, parts = join.steps, join.tables, join.records, join.parts
    count, source = steps[step, COUNT], steps[step, FIRST_SOURCE]
    number, mask, table = steps[step, INDEX], steps[step, CELL_MASK], steps[step, CELLS]
    owner, first = steps[step, PROBED], join.indexes[number, FIRST_PART]
    base, stride = join.inputs[owner, RECORD], join.inputs[owner, STRIDE]
    key = 0
    for part in range(count):
        key = mix(key * 31 + read_source(join, source + part))
    cell = key & mask
    while True:
        head = tables[table + 2 * cell + 1]
        if head == 0:
            return -1
        if head != VACANT and tables[table + 2 * cell] == key:
            record = base + (head - 1) * stride
            is_equal = True
            for part in range(count):
                if records[record + parts[first + part]] != read_source(join, source + part):
                    is_equal = False
            if is_equal:
                return head - 1
        cell = (cell + 1) & mask


@jit_inline
def find_head(join: JoinArrays, step: Word) -> Word:
    """Return the newest slot that matches what is bound, -1 if there is none."""
    steps, tables = join.steps, join.tables
    if steps[step, COUNT] != 1:
        return find_head_of_many(join, step)
    key = join.records[index(steps[step, KEY] + join.bound[index(steps[step, BOUND])] * steps[step, KEY_STRIDE])]
    table, mask = steps[step, CELLS], steps[step, CELL_MASK]
    cell = spread(key) & mask
    while True:
        word = index(table + 2 * cell)
        head = tables[index(word + 1)]
        if head == 0:
            return -1
        if tables[word] == key and head != VACANT:
            return head - 1
        cell = (cell + 1) & mask


@jit_inline
def enter_chain(join: JoinArrays, number: Word, record: Word, slot: Word) -> None:
    """Enter a record at the head of its chain."""
    tables, indexes, records = join.tables, join.indexes, join.records
    owner, link = indexes[number, OWNER], indexes[number, LINK]
    base, stride = join.inputs[owner, RECORD], join.inputs[owner, STRIDE]
    key = own_key(join, number, record)
    word = find_cell(join, number, key, record)
    head: Word = -1
    if word >= 0:
        head = tables[index(word + 1)] - 1
        records[index(base + head * stride + link + 1)] = slot
    else:
        table, mask = indexes[number, TABLE], indexes[number, MASK]
        cell = (spread(key) if indexes[number, PARTS] == 1 else key) & mask
        while tables[index(table + 2 * cell + 1)] > 0:
            cell = (cell + 1) & mask
        word = table + 2 * cell
        if tables[index(word + 1)] == 0:
            indexes[number, FILLED] += 1
        tables[index(word)] = key
    records[index(record + link)] = head
    records[index(record + link + 1)] = -1
    tables[index(word + 1)] = slot + 1


@jit_inline
def leave_chain(join: JoinArrays, number: Word, record: Word) -> None:
    """Take a record out of its chain."""
    tables, indexes, records = join.tables, join.indexes, join.records
    owner, link = indexes[number, OWNER], indexes[number, LINK]
    base, stride = join.inputs[owner, RECORD], join.inputs[owner, STRIDE]
    older, younger = records[index(record + link)], records[index(record + link + 1)]
    if older >= 0:
        records[index(base + older * stride + link + 1)] = younger
    if younger >= 0:
        records[index(base + younger * stride + link)] = older
        return
    word = index(find_cell(join, number, own_key(join, number, record), record))
    if older >= 0:
        tables[index(word + 1)] = older + 1
        return
    table, mask = indexes[number, TABLE], indexes[number, MASK]
    # A cell before one that was never used ends no search.
    if tables[index(table + 2 * ((((word - table) >> 1) + 1) & mask) + 1)] == 0:
        tables[index(word + 1)] = 0
        indexes[number, FILLED] -= 1
    else:
        tables[index(word + 1)] = VACANT


@jit_inline
def write_chain(join: JoinArrays, out: JoinOutput, at: Word, step: Word, slot: Word, written: Word) -> Word:
    """Write an element's combination with each row of the last chain, from a slot on.

    Returns the number of rows written so far, -1 if the output is full.
    """
    count, room = len(join.inputs), len(out.element)
    probed, chain, stride = index(join.steps[step, PROBED]), join.steps[step, CHAIN], join.steps[step, CHAIN_STRIDE]
    while slot >= 0:
        if written == room:
            return -1
        row = index(written)
        out.element[row] = at
        for number in range(count):
            out.slots[number, row] = join.bound[number]
        out.slots[probed, row] = slot
        written += 1
        slot = join.records[index(chain + slot * stride)]
    return written


@jit_inline
def probe_indexes(join: JoinArrays, out: JoinOutput, arriving: Word, at: Word, written: Word) -> Word:
    """Write an element's combinations with the rows of the other inputs.

    Returns the number of rows written so far, -1 if the output is full.
    """
    steps, bound, cursors = join.steps, join.bound, join.cursors
    count = len(join.inputs)
    step = first_step = index(arriving * (count - 1))
    last = first_step + count - 2
    slot = find_head(join, step)
    while True:
        if slot >= 0:
            if step < last:
                bound[index(steps[step, PROBED])] = slot
                cursors[step - first_step] = slot
                step = index(step + 1)
                slot = find_head(join, step)
                continue
            written = write_chain(join, out, at, step, slot, written)
            if written < 0:
                return written
        if steps[step, COUNT] < 0:
            slot = find_near_head(join, step, steps[step, NEIGHBOUR])
            if slot >= 0:
                continue
        if step == first_step:
            return written
        step = index(step - 1)
        slot = join.records[index(steps[step, CHAIN] + cursors[step - first_step] * steps[step, CHAIN_STRIDE])]


@jit_inline
def list_entering(join: JoinArrays, elements: JoinElements, now: Word) -> Word:
    """Return how many elements of an instant, none of which is done, add a row; the keys of the first are listed."""
    entering: Word = np.int64(0)
    for number in range(len(elements.ends)):
        at = index(elements.ends[number, 0])
        while at < elements.ends[number, 1] and elements.tau[at] == now:
            if elements.sign[at] > 0:
                if entering < COMPARED_ELEMENTS:
                    key, row = join.compared[number, COMPARED_KEY], index(entering)
                    join.entering_keys[row, 0] = join.compared[number, COMPARED_CLASS]
                    join.entering_keys[row, 1] = 0 if key < 0 else elements.keys[at, index(key)]
                entering += 1
            at = index(at + 1)
    return entering


@jit_inline
def may_cancel(join: JoinArrays, arriving: Word, record: Word, entering: Word) -> Word:
    """Return 1 if combinations of a record that leaves can be equal to some of those that enter at its instant.

    Parameters
    ----------
    entering
        Number of elements that enter.
    """
    key, own = join.compared[arriving, COMPARED_KEY], join.compared[arriving, COMPARED_CLASS]
    if key < 0 or entering > COMPARED_ELEMENTS:
        return 1
    leaving_key = join.records[index(record + key)]
    for row in range(entering):
        if join.entering_keys[row, 0] != own or join.entering_keys[row, 1] == leaving_key:
            return 1
    return 0


@jit
def join_elements(
    join: JoinArrays, elements: JoinElements, out: JoinOutput, is_leaving_read: Word, is_continued: Word
) -> tuple[Word, Word, Word]:
    """Write the combinations of each element with the rows of the other inputs, in order of time.

    Parameters
    ----------
    is_leaving_read
        0 if combinations that leave are not read where no equal row enters at the same instant. Elements that leave are
        then not probed where nothing can enter (half of all, for windows of time without a slide), nor where all that
        enters has another value of the compared key (most, in windows of rows).
    is_continued
        1 if some elements were done by a call before, perhaps those of the instant at hand.

    Returns
    -------
    tuple[int, int, int]
        Why it ended, the input of the first element that is not done (as if it had not been met), and the number of
        rows written.
    """
    records, inputs, indexes = join.records, join.inputs, join.indexes
    ends, tau = elements.ends, elements.tau
    count = len(inputs)
    written: Word = np.int64(0)
    # Of the instant at hand: whether it began in this call, elements that add a row, those of them still to come, and
    # rows that were written before it.
    is_first, is_whole = True, False
    now: Word = np.int64(0)
    entering, to_come, written_before = np.int64(0), np.int64(0), np.int64(0)
    while True:
        arriving: Word = np.int64(-1)
        at: Word = np.int64(0)
        for number in range(count):
            following: Word = index(ends[number, 0])
            if following < ends[number, 1] and (arriving < 0 or tau[following] < tau[index(at)]):
                arriving, at = np.int64(number), following
        if arriving < 0:
            return DONE, 0, written
        arriving, at = index(arriving), index(at)
        if not is_leaving_read and (is_first or tau[at] != now):
            is_whole, is_first = not (is_first and is_continued), False
            now, written_before = tau[at], written
            if is_whole:
                entering = to_come = list_entering(join, elements, now)
        slot = elements.slot[at]
        record = index(inputs[arriving, RECORD] + slot * inputs[arriving, STRIDE])
        first_index = index(inputs[arriving, FIRST_INDEX])
        stop_index = first_index + inputs[arriving, INDEXES]
        is_entering, kept = elements.sign[at] > 0, written
        if is_entering:
            for number in range(first_index, stop_index):
                if 2 * (indexes[number, FILLED] + 1) > indexes[number, MASK] + 1:
                    return INDEX_FULL, arriving, written
            for key in range(inputs[arriving, KEYS]):
                records[index(record + key)] = elements.keys[at, key]
            to_come -= 1
        can_enter = to_come > 0 or written > written_before
        if is_entering or not is_whole or (can_enter and may_cancel(join, arriving, record, entering)):
            join.bound[arriving] = slot
            written = probe_indexes(join, out, arriving, at, written)
            if written < 0:
                return OUTPUT_FULL, arriving, kept
        if inputs[arriving, IS_PASSING] == 0:
            for number in range(first_index, stop_index):
                if is_entering:
                    enter_chain(join, number, record, slot)
                else:
                    leave_chain(join, number, record)
        ends[arriving, 0] = at + 1


@jit
def refill_index(join: JoinArrays, number: Word, cells: Integers) -> None:
    """Enter the chains of former cells into the empty table of an index."""
    tables, indexes = join.tables, join.indexes
    table, mask = indexes[number, TABLE], indexes[number, MASK]
    filled = 0
    for former in range(0, len(cells), 2):
        if cells[former + 1] > 0:
            key = cells[former]
            cell = (spread(key) if indexes[number, PARTS] == 1 else key) & mask
            while tables[table + 2 * cell + 1] != 0:
                cell = (cell + 1) & mask
            tables[table + 2 * cell], tables[table + 2 * cell + 1] = key, cells[former + 1]
            filled += 1
    indexes[number, FILLED] = filled
