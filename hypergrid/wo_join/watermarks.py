"""How far each stream has come: the key below which it brings nothing any more, by policy; sleep, and clocks that jump.

`progress` (ours): the greatest key seen less a quantile of the stream's disorder. `published`: by the scrambling factor
k, what follows a tuple by more than k places has a greater key (definition 3.2.2). `window`: the same with the window
in the place of k.
"""

import numpy as np

from hypergrid.wo_join.compiled import compiled, compiled_within
from hypergrid.wo_join.observe import disorder_of, scrambling
from hypergrid.wo_join.state_layout import (
    ADVANCES,
    ASLEEP,
    AWAY,
    CEILING,
    COUNT,
    DEADLINE,
    END_RECORD,
    FIRST_RECORD,
    FLOOR,
    GREATEST,
    GREATEST_ALL,
    GUARDED,
    KNOWN_DISORDER,
    KNOWN_DISPLACED,
    LAST,
    LAST_STREAM,
    LEAST_LINE,
    LINE,
    MOVED,
    NEXT_LINE,
    NONE,
    POLICY,
    PROGRESS,
    PUBLISHED,
    REACH,
    REACHED,
    RETURNS,
    SHORT,
    WARM,
    WINDOW,
    WINDOW_TIME,
    WORST,
    WORST_BEFORE,
    Floats,
    Ints,
)

ADVANCES_JUDGED = 64
"""Steps of the greatest key that must be known before a jump can be told."""
JUMP_STEPS = 10_000.0
"""A jump is as many mean steps of the greatest key, at least …"""
JUMP_DISORDERS = 16
"""… and as many times the greatest disorder of the stream."""
SHOWN = 1.5
"""A stream that begins shows all its disorder once its keys have come so many times as far."""
RETURNS_BELIEVED = 8
"""Tuples in a row from far behind after which a stream's clock is believed to be there."""


@compiled_within
def line_of(per: Ints, whole: Ints, records: Ints, stream: int, clock: int) -> int:
    """Return the key below which a stream is believed to bring nothing more; FLOOR where nothing is known."""
    if per[stream, COUNT] == 0:
        return FLOOR
    if whole[POLICY] == PROGRESS:
        known = per[stream, KNOWN_DISORDER]
        if known >= 0:
            return int(per[stream, GREATEST] - known)
        disorder, come = disorder_of(per, stream), per[stream, GREATEST] - records[stream, 0, 1]
        # As long as the first tuple is remembered: a stream shows no more disorder than it has come.
        growing = per[stream, FIRST_RECORD] == 0 and come < SHOWN * disorder
        return FLOOR if growing or per[stream, COUNT] < WARM else int(per[stream, GREATEST] - disorder)
    behind = whole[WINDOW]
    if whole[POLICY] == PUBLISHED:
        if per[stream, COUNT] < WARM and per[stream, KNOWN_DISPLACED] < 0:
            return FLOOR
        behind = scrambling(per, stream)
    line, mask = per[stream, LINE], records.shape[1] - 1
    if per[stream, REACHED] < per[stream, FIRST_RECORD]:
        per[stream, REACHED] = per[stream, FIRST_RECORD]
        if per[stream, END_RECORD] - per[stream, FIRST_RECORD] == records.shape[1]:
            per[stream, SHORT] = 1
    while per[stream, REACHED] < per[stream, END_RECORD]:
        place = per[stream, REACHED] & mask
        by_time = whole[POLICY] == WINDOW_TIME
        age = clock - records[stream, place, 2] if by_time else per[stream, COUNT] - records[stream, place, 0]
        if age < behind:
            break
        line = records[stream, place, 1] + 1
        per[stream, REACHED] += 1
    return int(line)


@compiled_within
def lowest(per: Ints, whole: Ints) -> None:
    """Find the two least lines of the streams that are awake; at most one beyond the greatest key of all."""
    least, following, which = CEILING, CEILING, NONE
    for stream in range(len(per)):
        if not per[stream, ASLEEP]:
            line = per[stream, LINE]
            if line < least:
                following, least, which = least, line, stream
            elif line < following:
                following = line
    beyond = whole[GREATEST_ALL] + 1
    whole[MOVED] = 1
    whole[LEAST_LINE], whole[NEXT_LINE], whole[LAST_STREAM] = min(least, beyond), min(following, beyond), which


@compiled
def doze(per: Ints, whole: Ints, idle: int, clock: int) -> None:
    """Put the streams to sleep that are silent for longer than `idle`, and note when the next may be."""
    deadline = CEILING
    for stream in range(len(per)):
        if not per[stream, ASLEEP]:
            if clock - per[stream, LAST] > idle:
                per[stream, ASLEEP] = 1
            else:
                deadline = min(deadline, per[stream, LAST] + idle)
    whole[DEADLINE] = deadline
    lowest(per, whole)


@compiled_within
def advance(whole: Ints, steps: Floats, key: int, jump: int) -> None:
    """Take note of a key greater than all before, and of what would be a jump from here."""
    if whole[GREATEST_ALL] > FLOOR and key - whole[GREATEST_ALL] <= whole[REACH]:
        whole[ADVANCES] += 1
        steps[0] += (key - whole[GREATEST_ALL] - steps[0]) / min(whole[ADVANCES], ADVANCES_JUDGED)
        if jump == 0 and whole[ADVANCES] >= ADVANCES_JUDGED:
            whole[REACH] = np.int64(min(JUMP_STEPS * max(steps[0], 1.0), 1e18))
    whole[GREATEST_ALL] = key


@compiled
def astray(per: Ints, whole: Ints, stream: int, key: int, jump: int) -> bool:
    """Judge a key beyond reach: True where its clock must have jumped.

    It is believed where more than half of the streams jump to the same time (the network was silent), or where a
    stream comes back to where another is, and stays there (what it said before was wrong).
    """
    reach = whole[REACH]
    if jump == 0:
        reach = max(reach, JUMP_DISORDERS * max(per[stream, WORST], per[stream, WORST_BEFORE]))
    if key > whole[GREATEST_ALL]:
        if key <= whole[GREATEST_ALL] + reach:
            return False
        per[stream, AWAY] = key
        agreeing = 0
        for other in range(len(per)):
            agreeing += per[other, AWAY] > FLOOR and abs(per[other, AWAY] - key) <= reach
        if 2 * agreeing <= len(per):
            return True
        for other in range(len(per)):
            per[other, AWAY] = FLOOR
        return False
    if key >= per[stream, GREATEST] - reach:
        return False
    per[stream, RETURNS] = per[stream, RETURNS] + 1 if abs(per[stream, AWAY] - key) <= reach else 1
    per[stream, AWAY] = key
    is_alone = True
    for other in range(len(per)):
        is_alone &= other == stream or abs(per[other, GREATEST] - key) > reach
    # A clock set back to its beginning would hold everything for ever.
    if per[stream, RETURNS] < RETURNS_BELIEVED or is_alone:
        return True
    per[stream, RETURNS], per[stream, AWAY] = 0, FLOOR
    per[stream, FIRST_RECORD] = per[stream, END_RECORD]
    per[stream, GUARDED] = 0
    per[stream, GREATEST] = FLOOR
    whole[GREATEST_ALL] = key
    for other in range(len(per)):
        whole[GREATEST_ALL] = max(whole[GREATEST_ALL], per[other, GREATEST])
    return False
