"""Watermarks: the key below which a stream should bring nothing more; idle streams; clock jumps.

`progress` (ours): the greatest key seen minus a quantile of the stream's disorder. `published`: tuples that follow a
tuple by more than the scrambling factor k have greater keys (definition 3.2.2). `window`: the same with the window
instead of k.
"""

import numpy as np

from hypergrid.wo_join.compiled import jit, jit_inline, jit_shared
from hypergrid.wo_join.observe import disorder_of, scrambling
from hypergrid.wo_join.state_layout import (
    ADVANCES,
    ASLEEP,
    AWAY,
    CEILING,
    CLOCK,
    COUNT,
    DEADLINE,
    END_RECORD,
    FIRST_RECORD,
    FLOOR,
    GREATEST,
    GREATEST_ALL,
    GUARDED,
    IDLE,
    JUMP,
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
    JoinState,
)

ADVANCES_JUDGED = 64
"""Minimum number of steps of the greatest key before clock jumps are detected."""
JUMP_STEPS = 10_000.0
"""A jump is at least this many mean steps of the greatest key …"""
JUMP_DISORDERS = 16
"""… and at least this many times the greatest disorder of the stream."""
SHOWN = 1.5
"""A new stream's disorder is trusted once its keys have advanced by this multiple of it."""
RETURNS_BELIEVED = 8
"""Number of consecutive tuples from far behind after which the stream's new clock is accepted."""


@jit_inline
def line_of(state: JoinState, stream: int) -> int:
    """Return the watermark of a stream; FLOOR while it is unknown."""
    join_state, stream_state, records = state.join_state, state.monitors.per, state.monitors.records
    if stream_state[stream, COUNT] == 0:
        return FLOOR
    if join_state[POLICY] == PROGRESS:
        known = stream_state[stream, KNOWN_DISORDER]
        if known >= 0:
            return int(stream_state[stream, GREATEST] - known)
        disorder, come = disorder_of(stream_state, stream), stream_state[stream, GREATEST] - records[stream, 0, 1]
        # While the first tuple is still in the ring: disorder cannot exceed the distance that the keys have advanced.
        growing = stream_state[stream, FIRST_RECORD] == 0 and come < SHOWN * disorder
        return (
            FLOOR if growing or stream_state[stream, COUNT] < WARM else int(stream_state[stream, GREATEST] - disorder)
        )
    behind = join_state[WINDOW]
    if join_state[POLICY] == PUBLISHED:
        if stream_state[stream, COUNT] < WARM and stream_state[stream, KNOWN_DISPLACED] < 0:
            return FLOOR
        behind = scrambling(stream_state, stream)
    line, mask = stream_state[stream, LINE], records.shape[1] - 1
    if stream_state[stream, REACHED] < stream_state[stream, FIRST_RECORD]:
        stream_state[stream, REACHED] = stream_state[stream, FIRST_RECORD]
        if stream_state[stream, END_RECORD] - stream_state[stream, FIRST_RECORD] == records.shape[1]:
            stream_state[stream, SHORT] = 1
    while stream_state[stream, REACHED] < stream_state[stream, END_RECORD]:
        record_index = stream_state[stream, REACHED] & mask
        by_time = join_state[POLICY] == WINDOW_TIME
        age = (
            join_state[CLOCK] - records[stream, record_index, 2]
            if by_time
            else stream_state[stream, COUNT] - records[stream, record_index, 0]
        )
        if age < behind:
            break
        # Later tuples have strictly greater keys.
        line = records[stream, record_index, 1] + 1
        stream_state[stream, REACHED] += 1
    return int(line)


@jit_shared
def find_lowest_lines(state: JoinState) -> None:
    """Find the two least watermarks of awake streams, at most one above the greatest key."""
    join_state, stream_state = state.join_state, state.monitors.per
    min_line, following, last_stream = CEILING, CEILING, NONE
    for stream in range(len(stream_state)):
        if not stream_state[stream, ASLEEP]:
            line = stream_state[stream, LINE]
            if line < min_line:
                following, min_line, last_stream = min_line, line, stream
            elif line < following:
                following = line
    # With all streams asleep the least watermark would be CEILING, and every later key late.
    beyond = join_state[GREATEST_ALL] + 1
    join_state[MOVED] = 1
    join_state[LEAST_LINE], join_state[NEXT_LINE], join_state[LAST_STREAM] = (
        min(min_line, beyond),
        min(following, beyond),
        last_stream,
    )


@jit
def mark_idle(state: JoinState) -> None:
    """Put streams to sleep after a silence longer than `IDLE`; set the next deadline."""
    join_state, stream_state = state.join_state, state.monitors.per
    deadline, idle = CEILING, join_state[IDLE]
    for stream in range(len(stream_state)):
        if not stream_state[stream, ASLEEP]:
            if join_state[CLOCK] - stream_state[stream, LAST] > idle:
                stream_state[stream, ASLEEP] = 1
            else:
                deadline = min(deadline, stream_state[stream, LAST] + idle)
    join_state[DEADLINE] = deadline
    find_lowest_lines(state)


@jit_inline
def note_greatest(state: JoinState, key: int) -> None:
    """Record a new greatest key, and update the distance that counts as a jump."""
    join_state, steps = state.join_state, state.steps
    if join_state[GREATEST_ALL] > FLOOR and key - join_state[GREATEST_ALL] <= join_state[REACH]:
        join_state[ADVANCES] += 1
        # A running mean at first, then an exponential one over about ADVANCES_JUDGED steps.
        steps[0] += (key - join_state[GREATEST_ALL] - steps[0]) / min(join_state[ADVANCES], ADVANCES_JUDGED)
        if join_state[JUMP] == 0 and join_state[ADVANCES] >= ADVANCES_JUDGED:
            join_state[REACH] = np.int64(min(JUMP_STEPS * max(steps[0], 1.0), 1e18))
    join_state[GREATEST_ALL] = key


@jit
def is_clock_jump(state: JoinState, stream: int, key: int) -> bool:
    """Judge a key beyond `REACH`: True if the clock must have jumped.

    The new time is accepted if more than half of the streams jump to the same time (the network was silent), or if a
    stream returns to where another one is and stays there (its earlier clock was wrong).
    """
    join_state, stream_state = state.join_state, state.monitors.per
    reach = join_state[REACH]
    if join_state[JUMP] == 0:
        reach = max(reach, JUMP_DISORDERS * max(stream_state[stream, WORST], stream_state[stream, WORST_BEFORE]))
    if key > join_state[GREATEST_ALL]:
        if key <= join_state[GREATEST_ALL] + reach:
            return False
        stream_state[stream, AWAY] = key
        agreeing = 0
        for other in range(len(stream_state)):
            agreeing += stream_state[other, AWAY] > FLOOR and abs(stream_state[other, AWAY] - key) <= reach
        if 2 * agreeing <= len(stream_state):
            return True
        for other in range(len(stream_state)):
            stream_state[other, AWAY] = FLOOR
        return False
    if key >= stream_state[stream, GREATEST] - reach:
        return False
    stream_state[stream, RETURNS] = (
        stream_state[stream, RETURNS] + 1 if abs(stream_state[stream, AWAY] - key) <= reach else 1
    )
    stream_state[stream, AWAY] = key
    is_alone = True
    for other in range(len(stream_state)):
        is_alone &= other == stream or abs(stream_state[other, GREATEST] - key) > reach
    # A clock reset to its epoch would keep every other stream's tuples held forever.
    if stream_state[stream, RETURNS] < RETURNS_BELIEVED or is_alone:
        return True
    stream_state[stream, RETURNS], stream_state[stream, AWAY] = 0, FLOOR
    # Records and greatest key of the wrong time are dropped.
    stream_state[stream, FIRST_RECORD] = stream_state[stream, END_RECORD]
    stream_state[stream, GUARDED] = 0
    stream_state[stream, GREATEST] = FLOOR
    join_state[GREATEST_ALL] = key
    for other in range(len(stream_state)):
        join_state[GREATEST_ALL] = max(join_state[GREATEST_ALL], stream_state[other, GREATEST])
    return False
