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
    JUMP,
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
    Floats,
    Ints,
    MonitorState,
)
from hypergrid.wo_join.watermarks import find_lowest_lines, is_clock_jump, line_of, mark_idle, note_greatest

NOT_YET = 2**61
"""Disorder that drops nothing, yet far from overflow."""


@jit
def observe_arrivals(
    monitors: MonitorState, join_state: Ints, steps: Floats, batch: Batch, ordered: int, passed: Ints, start: int
) -> int:
    """Monitor a batch from `start` on; return the first tuple without room for records.

    Parameters
    ----------
    ordered
        Whether streams are sorted: a stream's progress is then its watermark, otherwise its greatest key.
    passed
        Output, shape (5, m). After each tuple: the least progress of all streams, the second least, the stream of the
        least, the progress of the tuple's own stream, and 1 if the tuple's clock must have jumped.
    """
    stream_state, records, rates, spread = monitors[:4]
    batch_stream, batch_row, batch_key, _, batch_arrival = batch
    for t in range(start, len(batch_stream)):
        stream, key, echo = int(batch_stream[t]), batch_key[t], batch_row[t] < 0
        if stream_state[stream, SHORT]:
            return t
        clock = max(join_state[CLOCK], batch_arrival[t])
        join_state[CLOCK] = clock
        join_state[TAKEN] += 1
        away = (
            (
                key > join_state[GREATEST_ALL] + join_state[REACH]
                or key < stream_state[stream, GREATEST] - join_state[REACH]
            )
            and join_state[GREATEST_ALL] > FLOOR
            and is_clock_jump(stream_state, join_state, stream, key, join_state[JUMP])
        )
        if away:
            stream_state[stream, LATE] += 1
        elif not echo:
            stream_state[stream, AWAY] = FLOOR
            if key > join_state[GREATEST_ALL]:
                note_greatest(join_state, steps, key, join_state[JUMP])
            observe_tuple(stream_state, records, rates, spread, stream, key, clock, join_state[RARE])
            woken = stream_state[stream, ASLEEP] != 0
            if woken:
                stream_state[stream, ASLEEP] = 0
                join_state[DEADLINE] = min(join_state[DEADLINE], clock + join_state[IDLE])
            line = (
                line_of(stream_state, join_state, records, stream, clock) if ordered else stream_state[stream, GREATEST]
            )
            before = stream_state[stream, LINE]
            if woken or line != before:
                stream_state[stream, LINE] = line
                if woken or min(line, before) <= join_state[NEXT_LINE] or stream == join_state[LAST_STREAM]:
                    find_lowest_lines(stream_state, join_state)
            if clock > join_state[DEADLINE]:
                mark_idle(stream_state, join_state, join_state[IDLE], clock)
        passed[0, t], passed[1, t], passed[2, t] = (
            join_state[LEAST_LINE],
            join_state[NEXT_LINE],
            join_state[LAST_STREAM],
        )
        passed[3, t], passed[4, t] = stream_state[stream, LINE], away
    return len(batch_stream)


@jit
def write_disorder(monitors: MonitorState, join_state: Ints, stream_state: Ints) -> None:
    """Write the disorder of each stream's arrivals into a join's state, `NOT_YET` while unknown."""
    stream_rows, records = monitors.per, monitors.records
    for stream in range(len(stream_rows)):
        line = line_of(stream_rows, join_state, records, stream, join_state[CLOCK])
        stream_state[stream, KNOWN_DISORDER] = stream_rows[stream, GREATEST] - line if line > FLOOR else NOT_YET
