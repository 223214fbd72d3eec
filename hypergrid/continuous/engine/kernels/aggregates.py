"""Loops of aggregates: groups that change by elements of both signs, or by panes of a sliding window."""

from hypergrid.continuous.engine.kernels.compiled import Word, index, jit, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.groups import (
    CALLS,
    KEYS,
    MEAN,
    ROWS,
    STATUS,
    SUM,
    TOUCHED,
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


@jit_inline
def pass_elements(groups: GroupState, elements: GroupElements, plain: PlainCall, out: GroupOutput) -> Word:
    """Add and remove elements in order of time, as `change_groups` does without panes."""
    words, tau, touched = groups.words, elements.tau, elements.touched
    written, at, n, dead = 0, index(0), len(tau), 0
    while at < n:
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
