"""Join of n relations: each element probes the indexes of the others and is entered into its own.

An index has exact chains, newest first: the rows of one key and no others. Inputs whose keys must be equal share a
table, in which a cell holds the heads of a key's chains in all their indexes: a key is looked up once, when its row
enters, and what follows goes by the cell. Indexes of several keys, and of cells of near points, have tables of their
own. What a row has in all indexes of its input stands side by side in one record: its keys, then for each index the
next older and the next younger row, then where the cells of its keys are.

What the loop knows of inputs, entries, steps and runs are words of one array, which refer to each other by position:
with an array for each, whose addresses do not fit the registers, a row took 15 to 50 ns more than its 94.
"""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.grid import NEIGHBOURS
from hypergrid.continuous.engine.kernels.rows import mix, spread
from hypergrid.continuous.expressions import GREATEST_INTEGER

DONE, OUTPUT_FULL, TABLE_FULL = 0, 1, 2
"""Why the loop returns."""
FIRST_RUN, STOP_RUN, ENTERED, FULL, IS_LEAVING_READ, IS_CONTINUED, FIRST_WORD = range(7)
"""First words: positions of the runs, of what lists the elements that enter at an instant, and of a table that is full.

Then 0 if combinations that leave are not read where no equal row enters at the same instant. Elements that leave are
then not probed where nothing can enter (half of all, for windows of time without a slide), nor where all that enters
has another value of the compared key (most, in windows of rows). Then 1 if some elements were done by a call before,
perhaps those of the instant at hand. Others follow.
"""
NUMBER, RECORD, STRIDE, KEYS, NULLS, IS_PASSING, FIRST_ENTRY, STOP_ENTRY, FIRST_STEP, LAST_STEP = range(10)
"""Words of an input: number, first word of its records, words a record, keys, and where NULL of each key is.

Then whether its rows probe only, where they are entered, and the steps of an element that arrives.
"""
COMPARED_KEY, COMPARED_CLASS, SLOT, ROW, INPUT_WORDS = range(10, 15)
"""More words of an input: the number and the class of a key, and its row in the combination at hand.

Combinations with other values of the key are other rows above the join; the number is -1 without one. Of the row there
are the slot and the first word of the record.
"""
OF_RECORD, OF_KEY, LINK, HEAD, PARTS, FIRST_PART, TABLE, HASHED, MASK, START, ENTRY_WORDS = range(11)
"""Words of an entry, by which the rows of an input are entered into a table under a key or under several.

Words of the record for the cell and of the single key, first link and head of the index, keys and where their words are
listed, and the table, with what does not change of it while the loop runs. The head is 0 if no index has these keys.
"""
USED, FREE, ALIVE, FILLED, SPAN, TABLE_WORDS = range(6)
"""Words of a table: first cell that was never used, first free one or 0, cells with rows, hashed words in use.

Then the words of a cell. The words in use are -1 while the cells are not hashed. Cells are given by their position
after the first one, `NOWHERE`; there is room for half as many as there are hashed words.
"""
CELL_ROWS, HEADS = 1, 2
"""Words of a cell after the key or the hash of the keys: rows, newest slot + 1 of each index, 0 if it has none.

A free cell has no rows, and the next free one in place of the key.
"""
NOWHERE = 0
"""An empty cell, for keys that no row has; also the first cell of a record that is not held."""
VACANT = -1
"""Hashed word at which no cell is any more, and which searches pass; at 0 they end."""
PROBED, PROBED_ENTRY, BOUND, CELL, SOURCES, COUNT, NEIGHBOUR, STEP_WORDS = range(8)
"""Words of a step: the input that is probed, its entry, and where the index has a single key an input that is bound.

Then the word of that input's records with the cell of the key; inputs and words of all keys, and their number, which is
negative where the last one is a cell of near points, around which others are searched. The last word is scratch: the
neighbour that follows.
"""
NEXT, STOP, SIGN, DUE, OWNER, RUN_WORDS = range(6)
"""Words of a run of elements: the next one, their end, their sign or 0 where each has its own, and the input.

Scratch is the instant of the next one, behind the end the greatest integer.
"""
COMPARED_ELEMENTS = 8
"""Elements of an instant that enter, up to which those that leave are compared with them; each has class and key."""


class JoinArrays(NamedTuple):
    """What a join holds."""

    records: Integers
    tables: Integers
    """Of each table its hashed words, each of which is the cell of a key or 0 or `VACANT`, then its cells."""
    words: Integers
    """Inputs, entries, steps, runs and lists."""


TAU, SLOT_OF_ELEMENT, SIGN_OF_ELEMENT, FIRST_KEY = range(4)
"""Rows of what the loop is given of elements: instants, slots, signs of those of runs without one, and keys.

Elements of all inputs are in runs that are in order of time: two of each input, of which the second one leaves. At an
instant the first run comes before the second. Keys of the input come first; they are not read of what leaves, nor are
those beyond the keys of an input and signs of runs that have one.
"""
ELEMENT, SIGN_OF_COMBINATION, FIRST_SLOT = range(3)
"""Rows of combinations: elements, signs, and the slot of each input."""


@jit_inline
def read_key(join: JoinArrays, entry: Word, record: Word) -> Word:
    """Return the key of a record at an entry, or the hash of its keys."""
    if join.words[index(entry + PARTS)] != 1:
        return hash_keys(join, entry, record)
    return join.records[index(record + join.words[index(entry + OF_KEY)])]


@jit_apart
def hash_keys(join: JoinArrays, entry: Word, record: Word) -> Word:
    """Return the hash of the keys of a record at an entry of several keys or of none."""
    first, code = join.words[entry + FIRST_PART], 0
    for part in range(first, first + join.words[entry + PARTS]):
        code = mix(code * 31 + join.records[record + join.words[part]])
    return code


@jit_apart
def has_keys(join: JoinArrays, owner: Word, entry: Word, record: Word, slot: Word) -> Word:
    """Return whether a record has the keys of the row of a slot, at an entry of several keys or of none."""
    words, records, is_equal = join.words, join.records, True
    other, first = words[owner + RECORD] + slot * words[owner + STRIDE], words[entry + FIRST_PART]
    for part in range(first, first + words[entry + PARTS]):
        if records[other + words[part]] != records[record + words[part]]:
            is_equal = False
    return is_equal


@jit_inline
def find_cell(join: JoinArrays, owner: Word, entry: Word, record: Word) -> Word:
    """Return the cell of a record's keys; if there is none, -1 less the position of a hashed word for one."""
    tables, words = join.tables, join.words
    parts, key = words[index(entry + PARTS)], read_key(join, entry, record)
    hashed, mask, start = words[index(entry + HASHED)], words[index(entry + MASK)], words[index(entry + START)]
    vacant: Word = np.int64(-1)
    code = spread(key) & mask
    while True:
        at = index(hashed + code)
        cell = tables[at]
        if cell > 0:
            word = index(start + cell)
            if tables[word] == key and (parts == 1 or has_keys(join, owner, entry, record, tables[word + HEADS] - 1)):
                return cell
        elif cell == 0:
            return -1 - (np.int64(at) if vacant < 0 else vacant)
        elif vacant < 0:
            vacant = np.int64(at)
        code = (code + 1) & mask


@jit_apart
def hash_cells(join: JoinArrays, entry: Word) -> None:
    """Write the hashed words of a table again."""
    tables, words = join.tables, join.words
    table, hashed, mask, start = (
        words[entry + TABLE],
        words[entry + HASHED],
        words[entry + MASK],
        words[entry + START],
    )
    for code in range(mask + 1):
        tables[hashed + code] = 0
    span = words[table + SPAN]
    for cell in range(span, words[table + USED], span):
        if tables[start + cell + CELL_ROWS] > 0:
            code = spread(tables[start + cell]) & mask
            while tables[hashed + code] != 0:
                code = (code + 1) & mask
            tables[hashed + code] = cell
    words[table + FILLED] = words[table + ALIVE]


@jit_inline
def take_cell(join: JoinArrays, owner: Word, entry: Word, record: Word) -> Word:
    """Return the cell of a record's keys, which is added if there is none; -1 if the table has no room."""
    tables, words = join.tables, join.words
    cell = find_cell(join, owner, entry, record)
    if cell >= 0:
        return cell
    table, size = index(words[index(entry + TABLE)]), words[index(entry + MASK)] + 1
    if 2 * (words[index(table + FILLED)] + 1) > size and 4 * (words[index(table + ALIVE)] + 1) <= size:
        # Most of the words in use are vacant.
        hash_cells(join, entry)
        cell = find_cell(join, owner, entry, record)
    at, cell = index(-1 - cell), words[index(table + FREE)]
    is_again = cell > 0
    if not is_again:
        cell = words[index(table + USED)]
    word = index(words[index(entry + START)] + cell)
    if 2 * (words[index(table + FILLED)] + 1) > size:
        words[FULL] = table
        return np.int64(-1)
    if is_again:
        words[index(table + FREE)] = tables[word]
    else:
        words[index(table + USED)] += words[index(table + SPAN)]
    words[index(table + ALIVE)] += 1
    if tables[at] == 0:
        words[index(table + FILLED)] += 1
    tables[at], tables[word], tables[index(word + CELL_ROWS)] = cell, read_key(join, entry, record), 0
    return cell


@jit_inline
def free_cell(join: JoinArrays, entry: Word, cell: Word) -> None:
    """Free a cell whose rows left."""
    tables, words = join.tables, join.words
    hashed, mask, word = words[index(entry + HASHED)], words[index(entry + MASK)], words[index(entry + START)] + cell
    code = spread(tables[index(word)]) & mask
    while tables[index(hashed + code)] != cell:
        code = (code + 1) & mask
    table = index(words[index(entry + TABLE)])
    # A word before one at which searches end is not passed by any.
    if tables[index(hashed + ((code + 1) & mask))] == 0:
        tables[index(hashed + code)] = 0
        words[index(table + FILLED)] -= 1
    else:
        tables[index(hashed + code)] = VACANT
    words[index(table + ALIVE)] -= 1
    tables[index(word)], words[index(table + FREE)] = words[index(table + FREE)], cell


@jit_inline
def enter_row(join: JoinArrays, owner: Word, slot: Word) -> Word:
    """Enter a record into the cells of its keys, at the heads of their chains; returns 0 if a table has no room."""
    tables, records, words = join.tables, join.records, join.words
    base, stride = words[index(owner + RECORD)], words[index(owner + STRIDE)]
    record = index(base + slot * stride)
    entry = index(words[index(owner + FIRST_ENTRY)])
    while entry < words[index(owner + STOP_ENTRY)]:
        cell = take_cell(join, owner, entry, record)
        if cell < 0:
            leave_row(join, owner, slot, entry)
            return 0
        records[index(record + words[index(entry + OF_RECORD)])] = cell
        word = index(words[index(entry + START)] + cell)
        tables[index(word + CELL_ROWS)] += 1
        head = words[index(entry + HEAD)]
        if head > 0:
            link, at = index(record + words[index(entry + LINK)]), index(word + head)
            older = tables[at] - 1
            records[link], records[index(link + 1)] = older, -1
            if older >= 0:
                records[index(link + (older - slot) * stride + 1)] = slot
            tables[at] = slot + 1
        entry = index(entry + ENTRY_WORDS)
    return 1


@jit_inline
def leave_row(join: JoinArrays, owner: Word, slot: Word, stop: Word) -> None:
    """Take a record out of the cells of its keys and out of their chains; cells without rows are free.

    Parameters
    ----------
    stop
        The entry behind the last one by which it was entered.
    """
    tables, records, words = join.tables, join.records, join.words
    stride = words[index(owner + STRIDE)]
    record = index(words[index(owner + RECORD)] + slot * stride)
    entry = index(words[index(owner + FIRST_ENTRY)])
    first = index(record + words[index(entry + OF_RECORD)])
    while entry < stop:
        cell = records[index(record + words[index(entry + OF_RECORD)])]
        word, head = index(words[index(entry + START)] + cell), words[index(entry + HEAD)]
        if head > 0:
            link = index(record + words[index(entry + LINK)])
            older, younger = records[link], records[index(link + 1)]
            if older >= 0:
                records[index(link + (older - slot) * stride + 1)] = younger
            if younger >= 0:
                records[index(link + (younger - slot) * stride)] = older
            else:
                tables[index(word + head)] = older + 1
        rows = tables[index(word + CELL_ROWS)] - 1
        tables[index(word + CELL_ROWS)] = rows
        if rows == 0:
            free_cell(join, entry, cell)
        entry = index(entry + ENTRY_WORDS)
    records[first] = NOWHERE


@jit_inline
def find_cells(join: JoinArrays, owner: Word, record: Word) -> None:
    """Let the record of a row that probes only refer to the cells of its keys."""
    entry = index(join.words[index(owner + FIRST_ENTRY)])
    while entry < join.words[index(owner + STOP_ENTRY)]:
        cell = max(find_cell(join, owner, entry, record), NOWHERE)
        join.records[index(record + join.words[index(entry + OF_RECORD)])] = cell
        entry = index(entry + ENTRY_WORDS)


@jit_inline
def is_held(join: JoinArrays, owner: Word, record: Word) -> Word:
    """Return whether a record was entered."""
    entry = index(join.words[index(owner + FIRST_ENTRY)])
    return join.records[index(record + join.words[index(entry + OF_RECORD)])] != NOWHERE


@jit_inline
def read_source(join: JoinArrays, source: Word) -> Word:
    """Return a key of a row that is bound, given by the position of its input and its word."""
    words = join.words
    return join.records[words[words[source] + ROW] + words[source + 1]]


@jit_apart
def find_bound(join: JoinArrays, step: Word, key: Word, equal: Word, near: Word) -> Word:
    """Return the newest slot whose keys are equal to what is bound, -1 if there is none.

    Parameters
    ----------
    key
        Hash of the keys; the key, if it is a single one.
    equal
        How many of the keys are equal to what is bound.
    near
        The key that follows, if there is one.
    """
    tables, records, words = join.tables, join.records, join.words
    owner, entry, sources = words[step + PROBED], words[step + PROBED_ENTRY], words[step + SOURCES]
    first, count = words[entry + FIRST_PART], words[entry + PARTS]
    code = spread(key) & words[entry + MASK]
    while True:
        cell = tables[words[entry + HASHED] + code]
        if cell == 0:
            return -1
        word = words[entry + START] + cell
        if cell > 0 and tables[word] == key:
            slot = tables[word + HEADS] - 1
            record = words[owner + RECORD] + slot * words[owner + STRIDE]
            is_equal = equal == count or records[record + words[first + equal]] == near
            for part in range(equal):
                is_equal &= records[record + words[first + part]] == read_source(join, sources + 2 * part)
            if is_equal:
                return slot
        code = (code + 1) & words[entry + MASK]


@jit_apart
def find_near_head(join: JoinArrays, step: Word, neighbour: Word) -> Word:
    """Return the newest slot of the first cell that has one, of those around what is bound; -1 if there is none.

    Parameters
    ----------
    neighbour
        Number of the first cell that is searched, of `NEIGHBOURS`.
    """
    last, sources = -join.words[step + COUNT] - 1, join.words[step + SOURCES]
    code = 0
    for part in range(last):
        code = mix(code * 31 + read_source(join, sources + 2 * part))
    centre = read_source(join, sources + 2 * last)
    slot: Word = -1
    while slot < 0 and neighbour < len(NEIGHBOURS):
        near = centre + NEIGHBOURS[neighbour]
        neighbour += 1
        slot = find_bound(join, step, near if last == 0 else mix(code * 31 + near), last, near)
    join.words[step + NEIGHBOUR] = neighbour
    return slot


@jit_apart
def find_head_of_many(join: JoinArrays, step: Word) -> Word:
    """Return the newest slot whose keys, several or none, match what is bound, -1 if there is none."""
    count, sources = join.words[step + COUNT], join.words[step + SOURCES]
    if count < 0:
        return find_near_head(join, step, 0)
    key: Word = 0
    for part in range(count):
        key = mix(key * 31 + read_source(join, sources + 2 * part))
    return find_bound(join, step, key, count, 0)


@jit_inline
def read_head(join: JoinArrays, step: Word, row: Word) -> Word:
    """Return the newest slot of a chain, -1 if there is none, by the record that knows the cell of its single key."""
    words, entry = join.words, index(join.words[index(step + PROBED_ENTRY)])
    cell = join.records[index(row + words[index(step + CELL)])]
    return join.tables[index(words[index(entry + START)] + cell + words[index(entry + HEAD)])] - 1


@jit_inline
def find_head(join: JoinArrays, step: Word) -> Word:
    """Return the newest slot that matches what is bound, -1 if there is none."""
    words = join.words
    if words[index(step + COUNT)] != 1:
        return find_head_of_many(join, step)
    return read_head(join, step, words[index(words[index(step + BOUND)] + ROW)])


@jit_inline
def bind_row(join: JoinArrays, step: Word, slot: Word) -> Word:
    """Bind a row that a step leads to; returns the first word of its record."""
    words, probed = join.words, index(join.words[index(step + PROBED)])
    record = index(words[index(probed + RECORD)] + slot * words[index(probed + STRIDE)])
    words[index(probed + SLOT)], words[index(probed + ROW)] = slot, record
    return record


@jit_inline
def write_chain(
    join: JoinArrays, out: Integers, element: tuple[Word, Word, Word], step: Word, slot: Word, written: Word
) -> Word:
    """Write an element, given with its sign and input, combined with each row of the last chain, from a slot on.

    Returns the number of rows written so far, -1 if the output is full.
    """
    words = join.words
    at, sign, arriving = element[0], element[1], index(element[2])
    own_row, own = index(FIRST_SLOT + words[index(arriving + NUMBER)]), words[index(arriving + SLOT)]
    probed = index(words[index(step + PROBED)])
    base, stride = words[index(probed + RECORD)], words[index(probed + STRIDE)]
    link = base + words[index(words[index(step + PROBED_ENTRY)] + LINK)]
    first, probed_row = words[index(arriving + FIRST_STEP)], index(FIRST_SLOT + words[index(probed + NUMBER)])
    while slot >= 0:
        if written == out.shape[1]:
            return -1
        row = index(written)
        out[ELEMENT, row], out[SIGN_OF_COMBINATION, row] = at, sign
        out[own_row, row], out[probed_row, row] = own, slot
        between = index(first)
        while between < step:
            other = index(words[between])
            out[index(FIRST_SLOT + words[index(other + NUMBER)]), row] = words[index(other + SLOT)]
            between = index(between + STEP_WORDS)
        written += 1
        slot = join.records[index(link + slot * stride)]
    return written


@jit_inline
def write_pairs(
    join: JoinArrays, out: Integers, element: tuple[Word, Word, Word], step: Word, slot: Word, written: Word
) -> Word:
    """Write an element combined with the rows of the last but one chain, from a slot on, and those of their last ones.

    Of the last step there must be a single key. Returns the number of rows written so far, -1 if the output is full.
    """
    words, last = join.words, index(step + STEP_WORDS)
    link = words[index(words[index(step + PROBED_ENTRY)] + LINK)]
    is_own, source = words[index(last + BOUND)] == words[index(step + PROBED)], words[index(last + BOUND)] + ROW
    while slot >= 0:
        record = bind_row(join, step, slot)
        head = read_head(join, last, record if is_own else words[index(source)])
        written = write_chain(join, out, element, last, head, written)
        if written < 0:
            return written
        slot = join.records[index(record + link)]
    return written


@jit_inline
def probe_indexes(join: JoinArrays, out: Integers, element: tuple[Word, Word, Word], written: Word) -> Word:
    """Write the combinations of an element, given with its sign and input, with the rows of the other inputs.

    Returns the number of rows written so far, -1 if the output is full.
    """
    words = join.words
    first, last = index(words[index(element[2] + FIRST_STEP)]), index(words[index(element[2] + LAST_STEP)])
    step = first
    slot = find_head(join, step)
    while True:
        if step == last:
            written, slot = write_chain(join, out, element, step, slot, written), -1
        elif step + STEP_WORDS == last and words[index(last + COUNT)] == 1:
            written, slot = write_pairs(join, out, element, step, slot, written), -1
        if written < 0:
            return written
        if slot >= 0:
            bind_row(join, step, slot)
            step = index(step + STEP_WORDS)
            slot = find_head(join, step)
            continue
        if words[index(step + COUNT)] < 0:
            slot = find_near_head(join, step, words[index(step + NEIGHBOUR)])
            if slot >= 0:
                continue
        if step == first:
            return written
        step = index(step - STEP_WORDS)
        row, entry = words[index(words[index(step + PROBED)] + ROW)], words[index(step + PROBED_ENTRY)]
        slot = join.records[index(row + words[index(entry + LINK)])]


@jit_inline
def find_next(words: Integers) -> tuple[Word, Word]:
    """Return the least instant of a next element, and the first run with it."""
    first = index(words[FIRST_RUN])
    now, run = words[index(first + DUE)], index(first + RUN_WORDS)
    while run < words[STOP_RUN]:
        if words[index(run + DUE)] < now:
            now, first = words[index(run + DUE)], run
        run = index(run + RUN_WORDS)
    return now, first


@jit_inline
def list_entering(join: JoinArrays, given: Integers, first: Word, now: Word) -> Word:
    """Return how many elements of an instant, none of which is done, add a row; the keys of the first are listed.

    Parameters
    ----------
    first
        First run with elements of the instant.
    """
    words = join.words
    entering: Word = np.int64(0)
    run = index(first)
    while run < words[STOP_RUN]:
        if words[index(run + DUE)] == now and words[index(run + SIGN)] >= 0:
            at, sign, owner = index(words[index(run + NEXT)]), words[index(run + SIGN)], words[index(run + OWNER)]
            while at < words[index(run + STOP)] and given[TAU, at] == now:
                if sign > 0 or given[SIGN_OF_ELEMENT, at] > 0:
                    if entering < COMPARED_ELEMENTS:
                        key, row = words[index(owner + COMPARED_KEY)], index(words[ENTERED] + 2 * entering)
                        words[row] = words[index(owner + COMPARED_CLASS)]
                        words[index(row + 1)] = 0 if key < 0 else given[index(FIRST_KEY + key), at]
                    entering += 1
                at = index(at + 1)
        run = index(run + RUN_WORDS)
    return entering


@jit_inline
def may_cancel(join: JoinArrays, owner: Word, record: Word, entering: Word) -> Word:
    """Return 1 if combinations of a record that leaves can be equal to some of those that enter at its instant.

    Parameters
    ----------
    entering
        Number of elements that enter.
    """
    words = join.words
    key, own = words[index(owner + COMPARED_KEY)], words[index(owner + COMPARED_CLASS)]
    if key < 0 or entering > COMPARED_ELEMENTS:
        return 1
    leaving_key = join.records[index(record + key)]
    row = index(words[ENTERED])
    while row < words[ENTERED] + 2 * entering:
        if words[row] != own or words[index(row + 1)] == leaving_key:
            return 1
        row = index(row + 2)
    return 0


@jit_inline
def write_keys(join: JoinArrays, given: Integers, owner: Word, record: Word, at: Word) -> Word:
    """Write the keys of an element to its record; returns 0 if one is NULL."""
    is_whole: Word = 1
    key = index(0)
    # It ends by a number in memory, as the compiler unrolls short loops whose end it knows.
    while key < join.words[index(owner + KEYS)]:
        value = given[index(FIRST_KEY + key), at]
        if value == join.words[index(join.words[index(owner + NULLS)] + key)]:
            is_whole = 0
        join.records[index(record + key)] = value
        key = index(key + 1)
    return is_whole


@jit
def join_elements(
    records: Integers, tables: Integers, words: Integers, given: Integers, out: Integers
) -> tuple[Word, Word]:
    """Write the combinations of each element with the rows of the other inputs, in order of time.

    Parameters
    ----------
    records, tables, words
        Those of `JoinArrays`: numba takes single arrays in a quarter of the time of arrays in tuples. Words say where a
        call that ended before it was done goes on.
    given
        Elements, shape (3 + keys, n).
    out
        Room for combinations, shape (2 + inputs, n).

    Returns
    -------
    tuple[int, int]
        Why it ended, and the number of rows written; an element that could not be completed is undone.
    """
    join = JoinArrays(records, tables, words)
    written: Word = np.int64(0)
    is_leaving_read = words[IS_LEAVING_READ] != 0
    # Of the instant at hand: whether it began in this call, elements that add a row, and those of them still to come.
    is_whole = words[IS_CONTINUED] == 0
    words[IS_CONTINUED] = 1
    entering, to_come = np.int64(0), np.int64(0)
    for each in range(words[FIRST_RUN], words[STOP_RUN], RUN_WORDS):
        is_done = words[each + NEXT] == words[each + STOP]
        words[each + DUE] = GREATEST_INTEGER if is_done else given[TAU, words[each + NEXT]]
    while True:
        now, run = find_next(words)
        if now == GREATEST_INTEGER:
            words[IS_CONTINUED] = 0
            return DONE, written
        written_before = written
        if not is_leaving_read and is_whole:
            entering = to_come = list_entering(join, given, run, now)
        while run < words[STOP_RUN]:
            if words[index(run + DUE)] != now:
                run = index(run + RUN_WORDS)
                continue
            owner, at = index(words[index(run + OWNER)]), index(words[index(run + NEXT)])
            sign: Word = words[index(run + SIGN)]
            if sign == 0:
                sign = np.int64(given[SIGN_OF_ELEMENT, at])
            slot = given[SLOT_OF_ELEMENT, at]
            record = index(words[index(owner + RECORD)] + slot * words[index(owner + STRIDE)])
            is_probing: Word = 0
            if sign > 0:
                to_come -= 1
                if write_keys(join, given, owner, record, at):
                    is_probing = 1
                    if words[index(owner + IS_PASSING)] != 0:
                        find_cells(join, owner, record)
                    elif not enter_row(join, owner, slot):
                        return TABLE_FULL, written
            elif is_held(join, owner, record):
                can_enter = to_come > 0 or written > written_before
                if is_leaving_read or not is_whole or (can_enter and may_cancel(join, owner, record, entering)):
                    is_probing = 1
            if is_probing:
                words[index(owner + SLOT)], words[index(owner + ROW)] = slot, record
                kept, written = written, probe_indexes(join, out, (at, sign, owner), written)
                if written < 0:
                    if sign > 0 and words[index(owner + IS_PASSING)] == 0:
                        leave_row(join, owner, slot, words[index(owner + STOP_ENTRY)])
                    return OUTPUT_FULL, kept
            if sign < 0 and is_held(join, owner, record):
                leave_row(join, owner, slot, words[index(owner + STOP_ENTRY)])
            at = index(at + 1)
            words[index(run + NEXT)] = at
            words[index(run + DUE)] = GREATEST_INTEGER if at == words[index(run + STOP)] else given[TAU, at]
        is_whole = True


@jit
def refill_entry(join: JoinArrays, owner: Word, entry: Word, link: Word, heads: Integers, done: Word) -> Word:
    """Enter rows of an input into the cells of an entry, which are hashed first where they are not.

    Parameters
    ----------
    link, heads
        First link and newest slots of the chains of the entry's index; where it has none, -1 and all slots.
    done
        How many of these were entered.

    Returns
    -------
    int
        How many are entered before the table is full.
    """
    tables, records, words = join.tables, join.records, join.words
    if words[words[entry + TABLE] + FILLED] < 0:
        hash_cells(join, entry)
    while done < len(heads):
        slot: Word = heads[done]
        record = index(words[owner + RECORD] + slot * words[owner + STRIDE])
        cell = take_cell(join, index(owner), index(entry), record)
        if cell < 0:
            return done
        word = words[entry + START] + cell
        if link >= 0:
            tables[word + words[entry + HEAD]] = slot + 1
        while slot >= 0:
            record = index(words[owner + RECORD] + slot * words[owner + STRIDE])
            records[record + words[entry + OF_RECORD]] = cell
            tables[word + CELL_ROWS] += 1
            slot = records[record + link] if link >= 0 else -1
        done += 1
    return done
