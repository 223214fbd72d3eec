"""Bags of numbered rows: net changes, multiplicities, kept rows and the relation at an instant."""

from typing import Final, NamedTuple

from hypergrid.continuous.engine.batch import Integers, Signs
from hypergrid.continuous.engine.kernels.compiled import Word, jit, jit_inline

DISTINCT, EXCEPT, INTERSECT = 0, 1, 2
"""Bags that are computed of multiplicities m, and n: min(m, 1), max(m - n, 0), min(m, n)."""
NONE: Final = -1
FEW: Final = 32
"""Most elements of an instant whose rows are compared with each other, and need no numbers."""


class NetOutput(NamedTuple):
    """Net changes."""

    element: Integers
    """An element with the row."""
    sign: Signs


class NetElements(NamedTuple):
    """Changes of rows."""

    tau: Integers
    sign: Signs
    rows: Integers
    """Rows of bits, shape (n, columns)."""
    number: Integers
    """Number of each row, from n on; -1 where rows have none, and are compared with each other.

    These then have that of the first element of their instant with an equal row.
    """
    counts: Integers
    """Zero for each number; zero again afterwards."""
    first: Integers
    """Scratch, shape (n,)."""


@jit_inline
def number_row(elements: NetElements, start: Word, at: Word) -> None:
    """Let the number of a row be the first element of its instant that has the same."""
    rows = elements.rows
    for other in range(start, at):
        is_equal = True
        for column in range(rows.shape[1]):
            if rows[other, column] != rows[at, column]:
                is_equal = False
        if is_equal:
            elements.number[at] = elements.number[other]
            return
    elements.number[at] = at


@jit_inline
def write_leaving(elements: NetElements, out: NetOutput, changed: Word, written: Word) -> Word:
    """Write the rows of an instant that leave more often than they enter; returns the number of rows written so far."""
    for step in range(changed):
        element = elements.first[step]
        row = elements.number[element]
        for _ in range(-elements.counts[row]):
            out.element[written], out.sign[written] = element, -1
            written += 1
        if elements.counts[row] < 0:
            # What is written is not written again where the row is met a second time.
            elements.counts[row] = 0
    return written


@jit_inline
def write_entering(elements: NetElements, out: NetOutput, start: Word, stop: Word, written: Word) -> Word:
    """Write the rows of an instant that enter more often than they leave; returns the number of rows written so far."""
    for element in range(start, stop):
        row = elements.number[element]
        if elements.sign[element] > 0 and elements.counts[row] > 0:
            elements.counts[row] -= 1
            out.element[written], out.sign[written] = element, 1
            written += 1
    return written


@jit
def net_changes(elements: NetElements, out: NetOutput, shown: Word) -> Word:
    """Write the net changes at each instant: rows that leave in order of their first elements, then those that enter.

    What enters keeps the order of its elements, whatever else leaves: what others cancel are the last of equal ones.

    There must be room for n rows. Returns how many there are; -1 if the rows of an instant of more than `FEW` elements,
    of which some leave, have no numbers. Counts are zero then, too, and once these rows have numbers, the call can be
    made again.

    Parameters
    ----------
    shown
        Sign of the changes that are written, 0 for all.
    """
    tau, sign, number, first = elements.tau, elements.sign, elements.number, elements.first
    count = elements.counts
    written, at, n = 0, 0, len(tau)
    while at < n:
        now, start, changed = tau[at], at, 0
        leaving, stop = 0, at
        while stop < n and tau[stop] == now:
            leaving += sign[stop] < 0
            stop += 1
        # A single element, as usual, and elements that all enter need no counting.
        if leaving == 0 or stop == start + 1:
            while at < stop:
                if sign[at] != -shown:
                    out.element[written], out.sign[written] = at, sign[at]
                    written += 1
                at += 1
            continue
        if stop > start + FEW and number[at] < n:
            return -1
        while at < stop:
            if number[at] < 0:
                number_row(elements, start, at)
            if count[number[at]] == 0:
                first[changed] = at
                changed += 1
            count[number[at]] += sign[at]
            at += 1
        after_leaving = write_leaving(elements, out, changed, written)
        if shown <= 0:
            written = after_leaving
        if shown >= 0:
            written = write_entering(elements, out, start, stop, written)
        for step in range(start, at):
            count[number[step]] = 0
    return written


@jit_inline
def multiplicity(form: Word, left: Word, right: Word) -> Word:
    """Return how often a row is in a bag that is computed of others."""
    if form == DISTINCT:
        return min(left, 1)
    if form == EXCEPT:
        return max(left - right, 0)
    return min(left, right)


@jit
def change_bags(counts: Integers, number: Integers, side: Signs, sign: Signs, form: Word, out: Signs) -> None:
    """Write what each element changes: +1, -1 or 0 rows.

    Parameters
    ----------
    counts
        Multiplicity of each row on both sides, shape (rows, 2).
    side
        Side of each element, 0 or 1.
    """
    for at in range(len(number)):
        row = number[at]
        before = multiplicity(form, counts[row, 0], counts[row, 1])
        counts[row, side[at]] += sign[at]
        out[at] = multiplicity(form, counts[row, 0], counts[row, 1]) - before


@jit
def keep_rows(
    ends: Integers, following: Integers, number: Integers, sign: Signs, fresh: Integers, out: Integers
) -> Word:
    """Write the slot of each element: a fresh one for a row that is added, for one removed the oldest of equal rows.

    Parameters
    ----------
    ends
        Oldest and newest slot of each number, shape (numbers, 2); the oldest is `NONE` if there is none.
    following
        Next younger slot with the same row.
    fresh
        Free slots, one for each row that is added.

    Returns
    -------
    int
        The first element that removes a row that is not there; n if there is none.
    """
    used = 0
    for at in range(len(number)):
        row = number[at]
        if sign[at] > 0:
            slot = fresh[used]
            used += 1
            following[slot] = NONE
            if ends[row, 0] == NONE:
                ends[row, 0] = slot
            else:
                following[ends[row, 1]] = slot
            ends[row, 1] = slot
        else:
            slot = ends[row, 0]
            if slot == NONE:
                return at
            ends[row, 0] = following[slot]
        out[at] = slot
    return len(number)


class RelationState(NamedTuple):
    """Rows of a relation."""

    alive: Integers
    """Slots, in any order."""
    position: Integers
    """Position of each slot in `alive`."""
    state: Integers
    """Number of rows, next element."""


class RelationOutput(NamedTuple):
    """The relation at instants."""

    tau: Integers
    slot: Integers


@jit
def list_relation(
    relation: RelationState, tau: Integers, sign: Signs, slot: Integers, instants: Integers, out: RelationOutput
) -> tuple[Word, Word]:
    """Write all rows of a relation at each instant, after the elements up to it.

    Returns how many instants are done and how many rows are written; the rest waits for room.
    """
    alive, position, state = relation
    written = 0
    for number in range(len(instants)):
        now = instants[number]
        while state[1] < len(tau) and tau[state[1]] <= now:
            at = state[1]
            if sign[at] > 0:
                alive[state[0]], position[slot[at]] = slot[at], state[0]
                state[0] += 1
            else:
                state[0] -= 1
                last = alive[state[0]]
                alive[position[slot[at]]], position[last] = last, position[slot[at]]
            state[1] += 1
        if written + state[0] > len(out.tau):
            return number, written
        for at in range(state[0]):
            out.tau[written], out.slot[written] = now, alive[at]
            written += 1
    return len(instants), written
