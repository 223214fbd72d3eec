"""Windows: rows that enter and leave, in order of time."""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers, Signs
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit


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


@jit
def merge_changes(enter: WindowRows, leave: WindowRows, out: WindowOutput) -> None:
    """Merge rows that enter with rows that leave; of an instant, those that enter come first.

    Parameters
    ----------
    out
        Exactly as long as both together.
    """
    right, left = index(0), index(0)
    # Which side is next is as good as random: it is computed, as branches would be mispredicted.
    while right < len(enter.tau) and left < len(leave.tau):
        is_leaving = np.int64(leave.tau[left] < enter.tau[right])
        at = right + left
        out.tau[at] = leave.tau[left] if is_leaving else enter.tau[right]
        out.sign[at] = 1 - 2 * is_leaving
        out.slot[at] = leave.slot[left] if is_leaving else enter.slot[right]
        left = index(left + is_leaving)
        right = index(right + 1 - is_leaving)
    while right < len(enter.tau):
        out.tau[right + left], out.sign[right + left], out.slot[right + left] = enter.tau[right], 1, enter.slot[right]
        right = index(right + 1)
    while left < len(leave.tau):
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
