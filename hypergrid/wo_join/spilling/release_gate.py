"""What each arrival allows to be released, for strategies that let tuples wait: compiled."""

from hypergrid.wo_join.compiled import compiled
from hypergrid.wo_join.observe import observe
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
    Monitored,
)
from hypergrid.wo_join.watermarks import advance, astray, doze, line_of, lowest

NOT_YET = 2**61
"""A disorder below which nothing is dropped, far from overflowing."""


@compiled
def watch(seen: Monitored, whole: Ints, steps: Floats, batch: Batch, ordered: int, passed: Ints, start: int) -> int:
    """Take note of the tuples of a batch from `start` on; return the first that needs room for more running maxima.

    Parameters
    ----------
    ordered
        Whether streams are sorted: a stream has come to its line then, else to its greatest key.
    passed
        Written: after each tuple the key that all streams have come to, that all but the last have, the last stream,
        the key that the tuple's own stream has come to, and 1 where its clock must have jumped; shape (5, m).
    """
    per, records, rates, spread = seen[:4]
    batch_stream, batch_row, batch_key, _, batch_arrival = batch
    for t in range(start, len(batch_stream)):
        stream, key, echo = int(batch_stream[t]), batch_key[t], batch_row[t] < 0
        if per[stream, SHORT]:
            return t
        clock = max(whole[CLOCK], batch_arrival[t])
        whole[CLOCK] = clock
        whole[TAKEN] += 1
        away = (
            (key > whole[GREATEST_ALL] + whole[REACH] or key < per[stream, GREATEST] - whole[REACH])
            and whole[GREATEST_ALL] > FLOOR
            and astray(per, whole, stream, key, whole[JUMP])
        )
        if away:
            per[stream, LATE] += 1
        elif not echo:
            per[stream, AWAY] = FLOOR
            if key > whole[GREATEST_ALL]:
                advance(whole, steps, key, whole[JUMP])
            observe(per, records, rates, spread, stream, key, clock, whole[RARE])
            woken = per[stream, ASLEEP] != 0
            if woken:
                per[stream, ASLEEP] = 0
                whole[DEADLINE] = min(whole[DEADLINE], clock + whole[IDLE])
            line = line_of(per, whole, records, stream, clock) if ordered else per[stream, GREATEST]
            before = per[stream, LINE]
            if woken or line != before:
                per[stream, LINE] = line
                if woken or min(line, before) <= whole[NEXT_LINE] or stream == whole[LAST_STREAM]:
                    lowest(per, whole)
            if clock > whole[DEADLINE]:
                doze(per, whole, whole[IDLE], clock)
        passed[0, t], passed[1, t], passed[2, t] = whole[LEAST_LINE], whole[NEXT_LINE], whole[LAST_STREAM]
        passed[3, t], passed[4, t] = per[stream, LINE], away
    return len(batch_stream)


@compiled
def tell_disorder(seen: Monitored, whole: Ints, per: Ints) -> None:
    """Write into the fields of a join how far arrivals of each stream lie behind; a bound while that is not known."""
    mine, records = seen.per, seen.records
    for stream in range(len(mine)):
        line = line_of(mine, whole, records, stream, whole[CLOCK])
        per[stream, KNOWN_DISORDER] = mine[stream, GREATEST] - line if line > FLOOR else NOT_YET
