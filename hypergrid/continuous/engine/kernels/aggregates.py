"""Loops of aggregates: groups that change by elements of both signs, or by panes of a sliding window."""

import numpy as np

from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.groups import (
    CALLS,
    KEYS,
    MEAN,
    REPORTED,
    ROWS,
    STATUS,
    SUM,
    TOUCHED,
    VALUES,
    GroupElements,
    GroupOutput,
    GroupState,
    PlainCall,
    change_group,
    report_groups,
    report_leaving,
    write_row,
)
from hypergrid.continuous.engine.kernels.panes import SLIDE, PaneState, pass_panes
from hypergrid.continuous.engine.kernels.sums import (
    LIMIT,
    LOWER,
    SHIFTS,
    STOP,
    UPPER,
    is_small,
    read_small,
    sum_near,
)


@jit_inline
def pass_usual(
    groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput, start: tuple[Word, Word]
) -> tuple[Word, Word]:
    """Pass usual elements of one sum or mean by one key; returns the first that is not, and the rows written.

    Usual is what is alone at its instant and changes the row of a group that is out and stays so, by a number that fits
    the 128 bits of a sum that is nothing else. The last element is not, as there is none behind it to compare with. A
    loop that does no more than this takes a third of the time of one that could, as it needs no call.

    Parameters
    ----------
    start
        The first element, and the rows written so far.
    """
    words, tau, columns = groups.words, elements.tau, out.columns
    counter, base, last = index(plain.counter), index(plain.base), index(len(tau) - 1)
    at, written, is_mean = index(start[0]), index(start[1]), plain.function == MEAN
    while at < last:
        group, now = index(elements.group[at]), tau[at]
        bits, sign = elements.arguments[0, at], np.int64(elements.sign[at])
        limit, count = words[group, index(base + LIMIT)], words[group, counter] + sign
        below = limit - ((bits >> 52) & 0x7FF)
        lower, upper = words[group, index(base + LOWER)], words[group, index(base + UPPER)]
        lower, upper = sum_near(lower, upper, bits, sign, below)
        is_alone = (tau[index(at + 1)] != now) & (words[group, STATUS] == REPORTED) & (count > 0)
        is_near = (np.uint64(below - 1) < np.uint64(SHIFTS)) & (words[group, index(base + STOP)] == 0)
        if not (is_alone & is_near & is_small(upper, limit)):
            break
        words[group, ROWS] += sign
        words[group, counter] = count
        words[group, index(base + LOWER)], words[group, index(base + UPPER)] = lower, upper
        value = read_small(lower, upper, limit) / (count if is_mean else 1)
        before, key = words[group, VALUES], elements.keys[group, 0]
        value_bits = np.float64(value + 0.0).view(np.int64)
        if value_bits != before:
            words[group, VALUES] = value_bits
            entering = index(written + 1)
            columns[0, written], columns[1, written], columns[2, written], out.sign[written] = now, key, before, -1
            columns[0, entering], columns[1, entering], columns[2, entering], out.sign[entering] = (
                now,
                key,
                value_bits,
                1,
            )
            written = index(written + 2)
        at = index(at + 1)
    return at, written


@jit_inline
def pass_elements(groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput) -> Word:
    """Add and remove elements in order of time, as `change_groups` does without panes."""
    words, tau, touched = groups.words, elements.tau, elements.touched
    written, at, n, dead = 0, index(0), len(tau), 0
    while at < n:
        if plain.is_plain != 0:
            at, written = pass_usual(groups, elements, plain, out, (at, written))
        now, changed, start = tau[at], 0, at
        while True:
            group = index(elements.group[at])
            change_group(groups, elements, plain, at)
            at = index(at + 1)
            if words[group, ROWS] == 0:
                # Perhaps not at the end of the instant, or not for the last time.
                dead += 1
                touched[index(2 * n - dead)] = group
            is_last = at == n or tau[at] != now
            # A single element, as is usual, needs no list of groups.
            if is_last and at == index(start + 1):
                is_entering, written = report_leaving(groups, elements, plain, out, (written, group, now))
                if is_entering:
                    write_row(groups, elements, plain, out, (written, group, now, 1))
                    written += 1
                break
            if words[group, STATUS] < TOUCHED:
                words[group, STATUS] += TOUCHED
                touched[index(changed)] = group
                changed += 1
            if is_last:
                written = report_groups(groups, elements, plain, out, (written, changed, now))
                break
    touched[2 * n] = dead
    return written


@jit_apart
def pass_plain(groups: GroupState, elements: GroupElements, panes: PaneState, out: GroupOutput) -> Word:
    """Do what `change_groups` does for one sum or mean by one key."""
    calls = groups.calls
    plain = PlainCall(1, calls[0, 0], calls[0, 1], calls[0, 2], calls[0, 4])
    if panes.state[SLIDE] > 0:
        return pass_panes(groups, elements, panes, plain, out)
    return pass_elements(groups, elements, plain, out)


@jit
def change_groups(groups: GroupState, elements: GroupElements, panes: PaneState, out: GroupOutput) -> Word:
    """Add and remove all elements; writes what changes at each instant, and returns the number of rows written.

    There must be room for two rows an element, and for one node an element and ordered multiset; in `touched` for two
    numbers an element and one. Groups without rows are the last ones there, in front of their number. With panes, all
    elements are rows of a sliding window and need no signs; they are added to its panes, and room is needed as
    `pass_panes` says.
    """
    if groups.sizes[KEYS] == 1 and groups.sizes[CALLS] == 1 and len(groups.program) == 1:
        if groups.calls[0, 0] == SUM or groups.calls[0, 0] == MEAN:
            return pass_plain(groups, elements, panes, out)
    plain = PlainCall(0, 0, 0, 0, 0)
    if panes.state[SLIDE] > 0:
        return pass_panes(groups, elements, panes, plain, out)
    return pass_elements(groups, elements, plain, out)
