"""Panes: what rows of a sliding window that enter and leave together add to each group, in place of the rows.

The stamps between two edges of a window that slides make a pane (Li and others, SIGMOD Record 34, 2005). A part is what
a pane holds of one group: the number of rows, counts, extremes, the first and the last value, and sums in 128 bits, in
the unit of the group's sum. Numbers that do not fit them are strays, which are kept by themselves. So sums stay exact,
and what leaves takes its bits away.
"""

from typing import NamedTuple

import numpy as np

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit_apart, jit_inline
from hypergrid.continuous.engine.kernels.extremes import enter_ends, enter_extreme, leave_extreme
from hypergrid.continuous.engine.kernels.groups import (
    COUNTER,
    COUNTING,
    FIRST_WORD,
    GREATEST,
    HALF,
    LEAST,
    QUEUEING,
    ROWS,
    SQUARING,
    STATUS,
    SUMMING,
    SUMMING_WHOLE,
    TOUCHED,
    GroupElements,
    GroupOutput,
    GroupState,
    PlainCall,
    is_nan,
    is_null,
    report_groups,
    split_square,
)
from hypergrid.continuous.engine.kernels.ordered import KeyOrder, NodePool, is_less, sortable
from hypergrid.continuous.engine.kernels.sums import (
    BELOW,
    LIMIT,
    LOWER,
    SHIFTS,
    UPPER,
    add_digits,
    add_near,
    add_number,
)
from hypergrid.continuous.expressions import GREATEST_INTEGER

GROUP, PART_ROWS, FOLLOWING, PART_WORDS = 0, 1, 2, 3
"""Words of a part: group, rows, next part of its pane + 1; those of accumulators follow."""
SUM_WORDS = 3
"""Words of a sum in a part: both halves of its 128 bits, and their limit, as in `sums`.

Squares have two, of the rounded ones and of their errors, which are too small for the unit of the first.
"""
ENTER, LEAVE, LAST_STAMP, PARTS_BEFORE, FIRST_PART, LAST_PART, FIRST_STRAY, LAST_STRAY, PANE_WORDS = range(9)
"""Words of a pane: instants, the last stamp that belongs to it, parts added before it, both ends of its chains + 1."""
STRAY_GROUP, STRAY_BASE, STRAY_BITS, STRAY_FOLLOWING, STRAY_WORDS = range(5)
"""Words of a stray: group, first word of the sum that it belongs to, the number, next one of its pane + 1."""
PARTS, USUAL_LIMIT, HOLDER_WORDS = range(3)
"""Words of a group: parts that refer to it, and the limit that the next one begins with where there is a single sum.

That is most often the limit of the sum, which would have to come from memory. Of any limit the result is the same.
"""
PARTS_USED, FREE_PART, STRAYS_USED, FREE_STRAY, LEFT, ENTERED, PANES, ADDED, UNTIL, SLIDE, SPAN = range(11)
STATE_WORDS = 11
"""Words of `PaneState.state`, and their number.

Parts (with part 0) and strays ever in use at a time and the first free one + 1; panes that left, that entered, and all
in `panes`; parts ever added; the last instant that shows; slide and length of the window [ns], 0 without one.
"""


class PaneState(NamedTuple):
    """Panes of a window, oldest first, and the parts of groups in them."""

    parts: Integers
    """Shape (parts, `PART_WORDS` and those of accumulators).

    Part 0 is a dummy that belongs to no group and stays zero: no number fits it, so the loop need not test whether a
    group has a part.
    """
    panes: Integers
    """Shape (panes, `PANE_WORDS`)."""
    strays: Integers
    """Numbers that do not fit the sum of their part, shape (strays, `STRAY_WORDS`)."""
    groups: Integers
    """Shape (groups, `HOLDER_WORDS`)."""
    current: Integers
    """Part of each group in the last pane, 0 if there is none, shape (groups,)."""
    layout: Integers
    """Of each accumulator its first word in a part, and the word in which its values are counted, shape (m, 2)."""
    state: Integers


@jit_inline
def round_up_to(stamp: Word, slide: Word) -> Word:
    """Return the next multiple of a slide; the greatest integer where that is beyond it."""
    rounded = -(-stamp // slide) * slide
    return GREATEST_INTEGER if rounded < stamp else rounded


@jit_inline
def open_pane(panes: PaneState, stamp: Word) -> None:
    """Append the pane of a stamp, and clear `current`: no group has a part in it yet."""
    state, slide, span = panes.state, panes.state[SLIDE], panes.state[SPAN]
    pane = index(state[PANES])
    # If the last pane left, no group has a part any more, and `close_pane` cleared `current`.
    if pane > index(state[LEFT]):
        following = panes.panes[index(pane - 1), FIRST_PART]
        while following > 0:
            panes.current[index(panes.parts[index(following - 1), GROUP])] = 0
            following = panes.parts[index(following - 1), FOLLOWING]
    enter = round_up_to(stamp, slide)
    leave: Word = GREATEST_INTEGER
    last: Word = enter
    if stamp <= GREATEST_INTEGER - span:
        leave = round_up_to(stamp + span, slide)
        last = min(enter, leave - span)
    panes.panes[pane, ENTER], panes.panes[pane, LEAVE], panes.panes[pane, LAST_STAMP] = enter, leave, last
    panes.panes[pane, PARTS_BEFORE] = state[ADDED]
    for word in range(FIRST_PART, PANE_WORDS):
        panes.panes[pane, word] = 0
    state[PANES] += 1


@jit_inline
def add_part(groups: GroupState, panes: PaneState, plain: PlainCall, group: Word) -> Word:
    """Append an empty part of a group to the last pane, and return it."""
    parts, state, pane = panes.parts, panes.state, index(panes.state[PANES] - 1)
    part = state[FREE_PART] - 1
    if part >= 0:
        state[FREE_PART] = parts[index(part), FOLLOWING]
    else:
        part = state[PARTS_USED]
        state[PARTS_USED] += 1
    part = index(part)
    for word in range(PART_ROWS, parts.shape[1]):
        parts[part, index(word)] = 0
    parts[part, GROUP] = group
    # Where numbers are like those of the group, a part is added to its sum without being moved.
    if plain.is_plain != 0:
        parts[part, index(PART_WORDS + 1 + LIMIT)] = panes.groups[group, USUAL_LIMIT]
    else:
        for number in range(len(panes.layout)):
            if groups.program[number, 0] == SUMMING or groups.program[number, 0] == SQUARING:
                limit = groups.words[group, index(groups.program[number, FIRST_WORD] + LIMIT)]
                parts[part, index(panes.layout[number, 0] + LIMIT)] = limit
    if panes.panes[pane, LAST_PART] > 0:
        parts[index(panes.panes[pane, LAST_PART] - 1), FOLLOWING] = part + 1
    else:
        panes.panes[pane, FIRST_PART] = part + 1
    panes.panes[pane, LAST_PART] = part + 1
    state[ADDED] += 1
    panes.groups[group, PARTS] += 1
    panes.current[group] = part
    return part


@jit_inline
def add_to_part(panes: PaneState, part: Word, base: Word, sum_base: Word, bits: Word) -> None:
    """Add a number to the sum of a part at `base`, whose group has its sum at `sum_base`."""
    parts = panes.parts
    below = parts[part, index(base + LIMIT)] - ((bits >> 52) & 0x7FF)
    if np.uint64(below - 1) < np.uint64(SHIFTS):
        add_near(parts, part, base, bits, 1, below)
    else:
        add_rare_to_part(panes, part, base, sum_base, bits)


@jit_apart
def add_rare_to_part(panes: PaneState, part: Word, base: Word, sum_base: Word, bits: Word) -> None:
    """Add a number that is 0, the first, or of another size than the first."""
    parts, strays, state, pane = panes.parts, panes.strays, panes.state, panes.state[PANES] - 1
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0 and bits & ((1 << 52) - 1) == 0:
        return
    if 0 < exponent < 0x7FF and (parts[part, base + LOWER] | parts[part, base + UPPER]) == 0:
        limit = min(max(exponent + BELOW, SHIFTS + 1), 0x7FF)
        parts[part, base + LIMIT] = panes.groups[parts[part, GROUP], USUAL_LIMIT] = limit
        add_near(parts, index(part), index(base), bits, 1, limit - exponent)
        return
    number = state[FREE_STRAY] - 1
    if number >= 0:
        state[FREE_STRAY] = strays[number, STRAY_FOLLOWING]
    else:
        number = state[STRAYS_USED]
        state[STRAYS_USED] += 1
    strays[number, STRAY_GROUP], strays[number, STRAY_BASE] = parts[part, GROUP], sum_base
    strays[number, STRAY_BITS], strays[number, STRAY_FOLLOWING] = bits, 0
    if panes.panes[pane, LAST_STRAY] > 0:
        strays[panes.panes[pane, LAST_STRAY] - 1, STRAY_FOLLOWING] = number + 1
    else:
        panes.panes[pane, FIRST_STRAY] = number + 1
    panes.panes[pane, LAST_STRAY] = number + 1


@jit_inline
def add_usual(elements: GroupElements, panes: PaneState, first: Word, stop: Word) -> Word:
    """Add elements from `first` to before `stop`, all of the last pane, until one is not usual.

    An element is usual if its group has a part in the pane and its number fits the 128 bits of the only sum. A loop
    that does no more than this takes half of the time of one that could. Returns the first element that was not added,
    or `stop`.
    """
    parts, current, numbers = panes.parts, panes.current, elements.group
    at, base = index(first), index(PART_WORDS + 1)
    while at < stop:
        bits = elements.arguments[0, at]
        part = index(current[index(numbers[at])])
        below = parts[part, index(base + LIMIT)] - ((bits >> 52) & 0x7FF)
        if np.uint64(below - 1) >= np.uint64(SHIFTS):
            break
        parts[part, PART_ROWS] += 1
        parts[part, PART_WORDS] += 1
        add_near(parts, part, base, bits, 1, below)
        at = index(at + 1)
    return at


@jit_inline
def find_part(groups: GroupState, elements: GroupElements, panes: PaneState, plain: PlainCall, at: Word) -> Word:
    """Return the part of an element's group in the last pane, which is added if absent."""
    group = index(elements.group[at])
    part = panes.current[group]
    return part if part > 0 else add_part(groups, panes, plain, group)


@jit_inline
def find_stop(tau: Integers, first: Word, stamp: Word) -> Word:
    """Return the first position whose instant is after `stamp`, found by galloping from `first`, whose own is not."""
    low, step = index(first), index(1)
    while index(low + step) < len(tau) and tau[index(low + step)] <= stamp:
        low, step = index(low + step), index(2 * step)
    stop = min(index(low + step), index(len(tau)))
    while stop - low > 1:
        middle = index((low + stop) // 2)
        if tau[middle] <= stamp:
            low = middle
        else:
            stop = middle
    return index(stop)


@jit_inline
def fill_pane(groups: GroupState, elements: GroupElements, panes: PaneState, plain: PlainCall, first: Word) -> Word:
    """Add elements, in order of time from `first` on, to the pane of the first; returns the first that is not in it."""
    parts, program, layout, tau, state = panes.parts, groups.program, panes.layout, elements.tau, panes.state
    at = index(first)
    if state[PANES] == 0 or tau[at] > panes.panes[index(state[PANES] - 1), LAST_STAMP]:
        open_pane(panes, tau[at])
    stop = find_stop(tau, at, panes.panes[index(state[PANES] - 1), LAST_STAMP])
    if plain.is_plain != 0:
        while True:
            at = add_usual(elements, panes, at, stop)
            if at == stop:
                return stop
            part, bits = index(find_part(groups, elements, panes, plain, at)), elements.arguments[0, at]
            parts[part, PART_ROWS] += 1
            if not is_nan(bits):
                parts[part, PART_WORDS] += 1
                add_to_part(panes, part, index(PART_WORDS + 1), plain.base, bits)
            at = index(at + 1)
    # In two loops, each of which has few arrays at hand and so waits less for memory; parts take the place of groups.
    for number in range(at, stop):
        elements.group[index(number)] = find_part(groups, elements, panes, plain, index(number))
    while at < stop:
        part = index(elements.group[at])
        parts[part, PART_ROWS] += 1
        for number in range(len(program)):
            bits = elements.arguments[index(program[number, 1]), at]
            if is_null(bits, program[number, 3]):
                continue
            kind, base = program[number, 0], index(layout[number, 0])
            if program[number, COUNTER] > 0:
                parts[part, index(layout[number, 1])] += 1
            if kind == SUMMING_WHOLE:
                parts[part, base] += bits & HALF
                parts[part, index(base + 1)] += bits >> 32
            elif kind == SUMMING:
                add_to_part(panes, part, base, program[number, FIRST_WORD], bits)
            elif kind == SQUARING:
                square, error = split_square(bits)
                add_to_part(panes, part, base, program[number, FIRST_WORD], square)
                add_to_part(panes, part, index(base + SUM_WORDS), program[number, FIRST_WORD], error)
            elif kind == QUEUEING:
                if parts[part, index(layout[number, 1])] == 1:
                    parts[part, base] = bits
                parts[part, index(base + 1)] = bits
            elif kind != COUNTING:
                key = sortable(bits) if program[number, 5] != 0 else bits
                order = KeyOrder(program[number, 4], elements.ranks)
                held, is_first = parts[part, base], parts[part, index(layout[number, 1])] == 1
                if is_first or (is_less(held, key, order) if kind == GREATEST else is_less(key, held, order)):
                    parts[part, base] = key
        at = index(at + 1)
    return stop


@jit_inline
def change_sum(words: Integers, group: Word, base: Word, part: tuple[Integers, Word, Word], sign: Word) -> None:
    """Add the sum of a part to that of its group, or remove it.

    Parameters
    ----------
    part
        All parts, the part and the first word of the sum in it.
    """
    parts, row, first = part
    lower, upper = parts[row, index(first + LOWER)], parts[row, index(first + UPPER)]
    if (lower | upper) == 0:
        return
    if sign > 0 and (words[group, index(base + LOWER)] | words[group, index(base + UPPER)]) == 0:
        words[group, index(base + LIMIT)] = parts[row, index(first + LIMIT)]
    if words[group, index(base + LIMIT)] != parts[row, index(first + LIMIT)]:
        add_digits(words, group, base, (lower, upper, parts[row, index(first + LIMIT)]), sign)
        return
    held = np.uint64(words[group, index(base + LOWER)])
    if sign > 0:
        total = held + np.uint64(lower)
        words[group, index(base + UPPER)] += upper + np.int64(total < held)
    else:
        total = held - np.uint64(lower)
        words[group, index(base + UPPER)] -= upper + np.int64(held < np.uint64(lower))
    words[group, index(base + LOWER)] = np.int64(total)


@jit_inline
def change_by_part(
    groups: GroupState, elements: GroupElements, panes: PaneState, plain: PlainCall, change: tuple[Word, Word]
) -> None:
    """Add a part to its group, or remove it, by the sign that is given with it."""
    words, program, parts, layout = groups.words, groups.program, panes.parts, panes.layout
    part, sign = index(change[0]), change[1]
    group = index(parts[part, GROUP])
    words[group, ROWS] += sign * parts[part, PART_ROWS]
    if plain.is_plain != 0:
        words[group, index(plain.counter)] += sign * parts[part, index(PART_WORDS)]
        change_sum(words, group, index(plain.base), (parts, part, index(PART_WORDS + 1)), sign)
        if sign < 0:
            panes.groups[group, USUAL_LIMIT] = words[group, index(plain.base + LIMIT)]
        return
    for number in range(len(program)):
        kind, base, first = program[number, 0], index(program[number, FIRST_WORD]), index(layout[number, 0])
        counter = index(program[number, COUNTER])
        if counter > 0:
            words[group, counter] += sign * parts[part, index(layout[number, 1])]
        if kind == COUNTING:
            continue
        if kind == SUMMING_WHOLE:
            words[group, base] += sign * parts[part, first]
            words[group, index(base + 1)] += sign * parts[part, index(first + 1)]
        elif kind == LEAST or kind == GREATEST or kind == QUEUEING:
            # What a part holds enters and leaves as that of a single row would.
            if parts[part, index(layout[number, 1])] == 0:
                continue
            if sign > 0 and kind == QUEUEING:
                ends = parts[part, first], parts[part, index(first + 1)]
                enter_ends(words, group, base, NodePool(groups.nodes, groups.pool), ends[0], ends[1])
            elif sign > 0:
                ranks = kind == GREATEST, KeyOrder(program[number, 4], elements.ranks), False
                enter_extreme(words, group, base, NodePool(groups.nodes, groups.pool), parts[part, first], ranks)
            else:
                leave_extreme(words, group, base, groups.nodes, groups.pool)
        else:
            change_sum(words, group, base, (parts, part, first), sign)
            if kind == SQUARING:
                change_sum(words, group, base, (parts, part, index(first + SUM_WORDS)), sign)


@jit_inline
def change_by_pane(
    groups: GroupState, elements: GroupElements, panes: PaneState, plain: PlainCall, change: tuple[Word, Word, Word]
) -> Word:
    """Add the parts of a pane to their groups, or remove them; returns how many groups changed at the instant so far.

    Parameters
    ----------
    change
        Pane, sign, and groups that changed so far, which are the first of `touched`.
    """
    words, touched, parts, strays = groups.words, elements.touched, panes.parts, panes.strays
    pane, sign, changed = index(change[0]), change[1], change[2]
    following = panes.panes[pane, FIRST_PART]
    while following > 0:
        part = index(following - 1)
        following = parts[part, FOLLOWING]
        group = index(parts[part, GROUP])
        change_by_part(groups, elements, panes, plain, (part, sign))
        if words[group, STATUS] < TOUCHED:
            words[group, STATUS] += TOUCHED
            touched[index(changed)] = group
            changed += 1
    following = panes.panes[pane, FIRST_STRAY]
    while following > 0:
        stray = index(following - 1)
        following = strays[stray, STRAY_FOLLOWING]
        group, base = index(strays[stray, STRAY_GROUP]), index(strays[stray, STRAY_BASE])
        add_number(words, group, base, strays[stray, STRAY_BITS], sign)
    return changed


@jit_inline
def close_pane(panes: PaneState, touched: Integers, pane: Word, dead: Word) -> Word:
    """Free the parts of a pane that left; returns how many groups have none any more.

    Those are the last ones of `touched`, in front of its end; `dead` is how many there were.
    """
    parts, strays, holder, state = panes.parts, panes.strays, panes.groups, panes.state
    following = panes.panes[pane, FIRST_PART]
    while following > 0:
        part = index(following - 1)
        following = parts[part, FOLLOWING]
        group = index(parts[part, GROUP])
        holder[group, PARTS] -= 1
        if holder[group, PARTS] == 0:
            panes.current[group] = 0
            dead += 1
            touched[index(len(touched) - 1 - dead)] = group
    if panes.panes[pane, LAST_PART] > 0:
        parts[index(panes.panes[pane, LAST_PART] - 1), FOLLOWING] = state[FREE_PART]
        state[FREE_PART] = panes.panes[pane, FIRST_PART]
    if panes.panes[pane, LAST_STRAY] > 0:
        strays[index(panes.panes[pane, LAST_STRAY] - 1), STRAY_FOLLOWING] = state[FREE_STRAY]
        state[FREE_STRAY] = panes.panes[pane, FIRST_STRAY]
    return dead


@jit_inline
def pass_panes(
    groups: GroupState, elements: GroupElements, panes: PaneState, plain: PlainCall, out: GroupOutput
) -> Word:
    """Add elements to panes, which enter and leave up to the last instant that shows; returns the rows written.

    There must be room for two rows of each instant of each group at which one of its parts enters or leaves, and in
    `touched` for a number of each, one of each group, and one; in the pool for a node of each chain for each part that
    enters. A group without parts may have some again later.
    """
    state, touched, tau, n = panes.state, elements.touched, elements.tau, len(elements.tau)
    written: Word = 0
    dead: Word = 0
    at: Word = index(0)
    while True:
        # What is due before the next element goes first, so that its parts are free for others.
        until = state[UNTIL]
        if at < n:
            until = min(until, tau[at] - 1)
        while True:
            left, entered, count = state[LEFT], state[ENTERED], state[PANES]
            now: Word = GREATEST_INTEGER
            if entered < count:
                now = panes.panes[index(entered), ENTER]
            if left < entered:
                now = min(now, panes.panes[index(left), LEAVE])
            if left == count or now > until:
                break
            changed: Word = 0
            # Those that enter come first, so that no sum is 0 in between and takes another unit.
            while state[ENTERED] < count and panes.panes[index(state[ENTERED]), ENTER] == now:
                changed = change_by_pane(groups, elements, panes, plain, (state[ENTERED], 1, changed))
                state[ENTERED] += 1
            while state[LEFT] < entered and panes.panes[index(state[LEFT]), LEAVE] == now:
                changed = change_by_pane(groups, elements, panes, plain, (state[LEFT], -1, changed))
                dead = close_pane(panes, touched, index(state[LEFT]), dead)
                state[LEFT] += 1
            written = report_groups(groups, elements, plain, out, (written, changed, now))
        if at == n:
            break
        at = fill_pane(groups, elements, panes, plain, at)
    touched[len(touched) - 1] = dead
    return written
