"""What the intervals that readings stand for have to do with the cells that they are assigned to."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.overlapping import (
    MOST_TOLERANCE_NS,
    TOLERANCE,
    assigned_ns,
    blocks_under,
    crowded_series,
    intervals_ns,
    overlap_note,
)
from hypergrid.execution.remarks import Remarks
from hypergrid.perspective.operators import Aggregate
from hypergrid.streams.elements import Readings
from hypergrid.times import SECOND_NS, format_duration
from hypergrid.topology import Regular, TimeCells, blocks_of

Integers = NDArray[np.int64]

_HALF: Final = 0.5
"""Intervals are compared with the edges of cells where they are at least this share of them."""


def say_intervals(remarks: Remarks, about: str, readings: Readings, time: TimeCells, operator: Aggregate) -> None:
    """Say what a reader should know of the intervals of the readings that an aggregate takes, once.

    Parameters
    ----------
    remarks
        What is said beside the values.
    about
        The aggregate's token.
    readings
        Ordered by series and time, none missing.
    time
        The aggregate's cells.
    """
    if remarks.has_said(f"{about} overlap") or not operator.row.tiles or not intervals_ns(readings).any():
        return
    remarks.say(f"{about} overlap", overlap_note(readings, time, repeatable=operator.row.repeatable))
    if not isinstance(time, Regular) or time.length <= time.step:
        remarks.say(f"{about} edges", _edges_note(readings, time))
    if operator.row.weigh == "share":
        remarks.say(f"{about} negative", _negative_note(readings))


def _negative_note(readings: Readings) -> str:
    """Say how many totals that are summed lie below zero; of an amount such as rain none should."""
    totals = np.array([item.statistic == "total" for item in readings.series] or [False])
    below = totals[readings.index] & (readings.value < 0)
    if not below.any():
        return ""
    stations = sorted({readings.series[number].station for number in np.unique(readings.index[below]).tolist()})
    return (
        f"{int(below.sum()):,} totals below zero are in the sums, the least {readings.value[below].min():g} "
        f"({', '.join(stations[:5])}{', …' if len(stations) > 5 else ''}); convert('valid_range', low=0, high=…) "
        "leaves them out"
    )


def _edges_note(readings: Readings, time: TimeCells) -> str:
    """Say how many long intervals reach over the edges of their cells, such as totals of local days over UTC days."""
    lengths = intervals_ns(readings)
    starts, ends = blocks_of(time)
    longest = int((ends - starts).max(initial=1))
    long_series = (lengths >= _HALF * longest) & ~crowded_series(readings)
    rows = np.flatnonzero(long_series[readings.index])
    if not len(rows):
        return ""
    own = readings.take(rows)
    block = blocks_under(assigned_ns(own, time), time)
    held = block >= 0
    begin, length = own.starts_ns()[held], lengths[own.index[held]]
    start, end = starts[block[held]], ends[block[held]]
    # A day of 23 hours is a whole day: what a total of 24 hours is longer than it is no part of another day.
    longer = np.maximum(length - (end - start), 0)
    over = np.maximum(start - begin, begin + length - end) - longer
    tolerance = np.minimum(TOLERANCE * length, MOST_TOLERANCE_NS)
    beyond = over > tolerance
    if not beyond.any():
        return ""
    series = len(np.unique(own.index[held][beyond]))
    most = format_duration(int(over[beyond].max()) // SECOND_NS * SECOND_NS)
    kind = format_duration(int(length[beyond].max()))
    return (
        f"{int(beyond.sum()):,} of {int(held.sum()):,} readings over {kind} reach beyond their cells, by up to {most} "
        f"({series} series): each is wholly in the cell in which it begins; cells with the edges of the intervals, by "
        "an offset or a zone, hold them exactly"
    )
