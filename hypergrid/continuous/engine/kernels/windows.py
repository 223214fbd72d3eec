"""Windows: rows that enter and leave, in order of time; and whether instants are in that order."""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers, Signs
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_inline


@jit
def are_in_order(instants: Integers) -> Word:
    """Return whether no instant is before the one that precedes it."""
    # Four quarters side by side: read from start to end, a large array takes a third longer to come from memory.
    part = max(len(instants) - 1, 0) // 4
    first, second = instants[: part + 1], instants[part : 2 * part + 1]
    third, fourth = instants[2 * part : 3 * part + 1], instants[3 * part : 4 * part + 1]
    earlier = np.int64(0)
    for at in range(part):
        earlier |= np.int64(first[at + 1] < first[at]) | np.int64(second[at + 1] < second[at])
        earlier |= np.int64(third[at + 1] < third[at]) | np.int64(fourth[at + 1] < fourth[at])
    for at in range(4 * part, len(instants) - 1):
        earlier |= np.int64(instants[at + 1] < instants[at])
    return earlier == 0


class WindowOutput(NamedTuple):
    """Changes of a window."""

    tau: Integers
    sign: Signs
    slot: Integers


class WindowRows(NamedTuple):
    """Rows of a window that enter, or that leave, oldest first."""

    tau: Integers
    """Instants in order."""
    slot: Integers


@jit_inline
def write_change(
    enter: WindowRows, leave: WindowRows, out: WindowOutput, rows: tuple[Word, Word, Word], is_leaving: Word
) -> None:
    """Write one of two rows: the number of the change, the row that enters, the one that leaves, and which of them."""
    at, right, left = index(rows[0]), index(rows[1]), index(rows[2])
    out.tau[at] = leave.tau[left] if is_leaving else enter.tau[right]
    out.sign[at] = 1 - 2 * is_leaving
    out.slot[at] = leave.slot[left] if is_leaving else enter.slot[right]


@jit
def merge_changes(enter: WindowRows, leave: WindowRows, out: WindowOutput) -> None:
    """Merge rows that enter with rows that leave; of an instant, those that enter come first.

    Parameters
    ----------
    out
        Exactly as long as both together.
    """
    right, left, right_stop, left_stop = index(0), index(0), index(len(enter.tau)), index(len(leave.tau))
    # Which side is next is as good as random: it is computed, as branches would be mispredicted. As each waits for the
    # one before, two are looked for at a time, from the front and from the back, while both sides have one for each.
    while index(right + 1) < right_stop and index(left + 1) < left_stop:
        is_leaving = np.int64(leave.tau[left] < enter.tau[right])
        write_change(enter, leave, out, (right + left, right, left), is_leaving)
        right, left = index(right + 1 - is_leaving), index(left + is_leaving)
        last_right, last_left = index(right_stop - 1), index(left_stop - 1)
        is_leaving = np.int64(leave.tau[last_left] >= enter.tau[last_right])
        write_change(enter, leave, out, (last_right + left_stop, last_right, last_left), is_leaving)
        right_stop, left_stop = index(last_right + is_leaving), index(left_stop - is_leaving)
    while right < right_stop and left < left_stop:
        is_leaving = np.int64(leave.tau[left] < enter.tau[right])
        write_change(enter, leave, out, (right + left, right, left), is_leaving)
        right, left = index(right + 1 - is_leaving), index(left + is_leaving)
    while right < right_stop:
        out.tau[right + left], out.sign[right + left], out.slot[right + left] = enter.tau[right], 1, enter.slot[right]
        right = index(right + 1)
    while left < left_stop:
        out.tau[right + left], out.sign[right + left], out.slot[right + left] = leave.tau[left], -1, leave.slot[left]
        left = index(left + 1)


class QueueState(NamedTuple):
    """One queue of rows for each group."""

    ends: Integers
    """Oldest slot, newest slot and number of rows of each group, shape (groups, 3)."""
    following: Integers
    """Next younger slot."""


@jit
def pass_queues(
    queues: QueueState, tau: Integers, group: Integers, slots: Integers, limit: Word, out: WindowOutput
) -> Word:
    """Append each row to the queue of its group, and drop the oldest of a queue that has more than `limit` rows.

    Parameters
    ----------
    slots
        Slot of each row.
    out
        Room for two changes a row. Returns their number.
    """
    ends, following = queues
    written = 0
    for at in range(len(tau)):
        queue, slot = group[at], slots[at]
        if ends[queue, 2] == 0:
            ends[queue, 0] = slot
        else:
            following[ends[queue, 1]] = slot
        ends[queue, 1] = slot
        ends[queue, 2] += 1
        out.tau[written], out.sign[written], out.slot[written] = tau[at], 1, slot
        written += 1
        if ends[queue, 2] > limit:
            oldest = ends[queue, 0]
            ends[queue, 0] = following[oldest]
            ends[queue, 2] -= 1
            out.tau[written], out.sign[written], out.slot[written] = tau[at], -1, oldest
            written += 1
    return written
