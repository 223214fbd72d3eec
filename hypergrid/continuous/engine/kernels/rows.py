"""Hash table of rows: each distinct row of 64-bit integers has a number, which is free again once nothing holds it."""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_apart, jit_inline

FREE, USED, FILLED = 0, 1, 2
"""Positions in `RowState.state`: first free number or -1, numbers ever given, cells of the table not empty.

The last is -1 where all cells are empty, and have yet to be filled with the rows in use.
"""
EMPTY, REMOVED = 0, -1
"""Cells of the table; others hold the number of a row + 1."""


class RowState(NamedTuple):
    """Arrays of a table of rows."""

    table: Integers
    """Cells, a power of two."""
    direct: Integers
    """Number + 1 of rows of a single small integer, such as the code of a text, by the integer; else without length."""
    keys: Integers
    """Rows, shape (capacity, width)."""
    hashes: Integers
    """Hash of each row, shape (capacity,)."""
    following: Integers
    """Next free number; -2 for numbers in use."""
    state: Integers


@jit_inline
def mix(value: Word) -> Word:
    """Return 64 bits that depend on all bits of the value, different for different values."""
    bits = np.uint64(value)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    bits = (bits ^ (bits >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return np.int64(bits ^ (bits >> np.uint64(32)))


@jit_inline
def spread(key: Word) -> Word:
    """Return a hash of a single key, whose lower bits depend on all of it."""
    bits = np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64(bits ^ (bits >> np.uint64(32)))


@jit_inline
def hash_row(rows: Integers, at: Word) -> Word:
    """Return the hash of a row."""
    if rows.shape[1] == 1:
        return spread(rows[index(at), 0])
    code = np.int64(0)
    for column in range(rows.shape[1]):
        code = mix(code * np.int64(31) + rows[index(at), index(column)])
    return code


@jit_inline
def is_row(rows: RowState, number: Word, given: Integers, at: Word) -> Word:
    """Return whether a row has a number."""
    is_equal = rows.keys[number, 0] == given[at, 0] if given.shape[1] > 0 else True
    for column in range(1, given.shape[1]):
        is_equal &= rows.keys[number, index(column)] == given[at, index(column)]
    return is_equal


@jit_inline
def find_row(rows: RowState, given: Integers, at: Word, cell: Word) -> tuple[Word, Word]:
    """Return the number of a row that is searched from a cell on, and where it stands; -1 and a cell for it if absent.

    That cell is the first whose row was removed, or else the empty one at which the search ends.
    """
    table = rows.table
    mask = len(table) - 1
    vacant: Word = -1
    while table[cell] != EMPTY:
        held = table[cell] - 1
        if held < 0:
            vacant = cell if vacant < 0 else vacant
        elif is_row(rows, index(held), given, at):
            return held, cell
        cell = index((cell + 1) & mask)
    return -1, cell if vacant < 0 else index(vacant)


@jit_inline
def note_small(rows: RowState, number: Word, noted: Word) -> None:
    """Write a word where the row of a number is found directly, if it can be."""
    if len(rows.direct) > 0:
        key = rows.keys[number, 0]
        if np.uint64(key) < np.uint64(len(rows.direct)):
            rows.direct[index(key)] = noted


@jit_inline
def add_row(rows: RowState, given: Integers, at: Word, code: Word, cell: Word) -> Word:
    """Enter a new row, whose hash is `code`, at a cell; returns its number, -1 if there is no room."""
    table, direct, keys, hashes, following, state = rows
    is_again = state[FREE] >= 0
    number = state[FREE] if is_again else state[USED]
    if not is_again and number == len(keys):
        return -1
    if table[cell] == EMPTY:
        if 2 * (state[FILLED] + 1) > len(table):
            return -1
        state[FILLED] += 1
    if is_again:
        state[FREE] = following[number]
    else:
        state[USED] += 1
    table[cell] = number + 1
    hashes[number] = code
    following[number] = -2
    for column in range(given.shape[1]):
        keys[number, column] = given[at, column]
    note_small(rows, number, number + 1)
    return number


@jit_inline
def pass_direct(direct: Integers, given: Integers, codes: Integers, start: Word) -> Word:
    """Write the numbers of rows that are found directly, from `start` on; returns the first that is not."""
    at, limit = index(start), np.uint64(len(direct))
    # A loop that does no more than this takes a third of the time of one that could.
    if limit > 0:
        while at < len(given):
            key = given[at, 0]
            if np.uint64(key) >= limit:
                break
            number = direct[index(key)] - 1
            if number < 0:
                break
            codes[at] = number
            at = index(at + 1)
    return at


@jit_apart
def fill_table(rows: RowState) -> None:
    """Fill an empty table with the rows in use."""
    table, _, _, hashes, following, state = rows
    mask = len(table) - 1
    filled = 0
    for number in range(state[USED]):
        if following[number] == -2:
            cell = hashes[number] & mask
            while table[cell] != EMPTY:
                cell = (cell + 1) & mask
            table[cell] = number + 1
            note_small(rows, number, number + 1)
            filled += 1
    state[FILLED] = filled


@jit
def intern_rows(rows: RowState, given: Integers, codes: Integers, start: Word) -> Word:
    """Write the number of each given row, shape (n, width), from `start` on.

    Fills the table first where that is still to be done. Returns the first row without room; n if all have it.
    """
    if rows.state[FILLED] < 0:
        fill_table(rows)
    table = rows.table
    mask = len(table) - 1
    at = pass_direct(rows.direct, given, codes, index(start))
    while at < len(given):
        code = hash_row(given, at)
        cell = index(code & mask)
        number = table[cell] - 1
        # Most rows are known, and in the first cell.
        if number < 0 or not is_row(rows, index(number), given, at):
            number, cell = find_row(rows, given, at, cell)
            if number < 0:
                number = add_row(rows, given, at, code, cell)
                if number < 0:
                    return at
        codes[at] = number
        at = pass_direct(rows.direct, given, codes, index(at + 1))
    return at


@jit
def release_rows(rows: RowState, numbers: Integers) -> None:
    """Free the numbers of rows."""
    table, _, _, hashes, following, state = rows
    mask = len(table) - 1
    for at in range(len(numbers)):
        number = numbers[at]
        if following[number] != -2:
            continue
        cell = hashes[number] & mask
        while table[cell] != number + 1:
            cell = (cell + 1) & mask
        # A cell before an empty one ends no search.
        if table[(cell + 1) & mask] == EMPTY:
            table[cell] = EMPTY
            state[FILLED] -= 1
        else:
            table[cell] = REMOVED
        note_small(rows, number, 0)
        following[number] = state[FREE]
        state[FREE] = number
