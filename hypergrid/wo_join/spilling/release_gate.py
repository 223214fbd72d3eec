"""Compiled release gate: which tuples each arrival releases from the reorder buffer."""

from hypergrid.wo_join.compiled import jit
from hypergrid.wo_join.observe import observe_tuple
from hypergrid.wo_join.state_layout import (
    ASLEEP,
    AWAY,
    CLOCK,
    DEADLINE,
    FLOOR,
    GREATEST,
    GREATEST_ALL,
    IDLE,
    KNOWN_DISORDER,
    LAST_STREAM,
    LATE,
    LEAST_LINE,
    LINE,
    NEXT_LINE,
    RARE,
    REACH,
    SHORT,
    TAKEN,
    Batch,
    Ints,
    JoinState,
)
from hypergrid.wo_join.watermarks import find_lowest_lines, is_clock_jump, line_of, mark_idle, note_greatest

NOT_YET = 2**61
"""Disorder that drops nothing, yet far from overflow."""


@jit
def observe_arrivals(state: JoinState, batch: Batch, ordered: int, passed: Ints, start: int) -> int:
    """Monitor a batch from `start` on; return the first tuple without room for records.

    Parameters
    ----------
    ordered
        Whether streams are sorted: a stream's progress is then its watermark, otherwise its greatest key.
    passed
        Output, shape (5, m). After each tuple: the least progress of all streams, the second least, the stream of the
        least, the progress of the tuple's own stream, and 1 if the tuple's clock must have jumped.
    """
    join_state, stream_state = state.join_state, state.monitors.per
    for t in range(start, len(batch.stream)):
        stream, key, echo = int(batch.stream[t]), batch.key[t], batch.row[t] < 0
        if stream_state[stream, SHORT]:
            return t
        clock = max(join_state[CLOCK], batch.arrival[t])
        join_state[CLOCK] = clock
        join_state[TAKEN] += 1
        away = (
            (
                key > join_state[GREATEST_ALL] + join_state[REACH]
                or key < stream_state[stream, GREATEST] - join_state[REACH]
            )
            and join_state[GREATEST_ALL] > FLOOR
            and is_clock_jump(state, stream, key)
        )
        if away:
            stream_state[stream, LATE] += 1
        elif not echo:
            stream_state[stream, AWAY] = FLOOR
            if key > join_state[GREATEST_ALL]:
                note_greatest(state, key)
            observe_tuple(state.monitors, stream, key, clock, join_state[RARE])
            woken = stream_state[stream, ASLEEP] != 0
            if woken:
                stream_state[stream, ASLEEP] = 0
                join_state[DEADLINE] = min(join_state[DEADLINE], clock + join_state[IDLE])
            line = line_of(state, stream) if ordered else stream_state[stream, GREATEST]
            before = stream_state[stream, LINE]
            if woken or line != before:
                stream_state[stream, LINE] = line
                if woken or min(line, before) <= join_state[NEXT_LINE] or stream == join_state[LAST_STREAM]:
                    find_lowest_lines(state)
            if clock > join_state[DEADLINE]:
                mark_idle(state)
        passed[0, t], passed[1, t], passed[2, t] = (
            join_state[LEAST_LINE],
            join_state[NEXT_LINE],
            join_state[LAST_STREAM],
        )
        passed[3, t], passed[4, t] = stream_state[stream, LINE], away
    return len(batch.stream)


@jit
def write_disorder(arrival_state: JoinState, stream_state: Ints) -> None:
    """Write the disorder of each stream's arrivals into a join's state, `NOT_YET` while unknown."""
    for stream in range(len(stream_state)):
        line, greatest = line_of(arrival_state, stream), arrival_state.monitors.per[stream, GREATEST]
        stream_state[stream, KNOWN_DISORDER] = greatest - line if line > FLOOR else NOT_YET
