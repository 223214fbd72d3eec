"""Where in time the values of a block or of readings stand, and counters turned to what they grew by."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.aggregate_formulas import increments
from hypergrid.perspective.listing import Standing, pieces
from hypergrid.perspective.operators import Aggregate
from hypergrid.perspective.standing import reading_instants_ns, standing_instants_ns
from hypergrid.streams.elements import Readings
from hypergrid.times import SECOND_NS, format_duration
from hypergrid.topology import Bins, Regular, TimeAxis

DAY_NS = 86_400 * SECOND_NS


def of_readings(readings: Readings, operator: Aggregate, origin_ns: int) -> Standing | None:
    """Return where readings stand in time, in days since an origin; None where the function does not ask."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    intervals_s = np.array([series.interval_s for series in readings.series] or [0.0])
    for_days = np.where(intervals_s > 0, intervals_s * SECOND_NS / DAY_NS, np.nan)[readings.index]
    return Standing((reading_instants_ns(readings) - origin_ns) / DAY_NS, for_days)


def of_cells(axis: TimeAxis, operator: Aggregate, origin_ns: int) -> Standing | None:
    """Return where the values of time cells stand, in days since an origin; None where the function does not ask."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    at_days = (standing_instants_ns(axis) - origin_ns) / DAY_NS
    return Standing(at_days, _own_ns(axis) / DAY_NS)


def _own_ns(axis: TimeAxis) -> NDArray[np.float64]:
    """Return how long each cell stands for [ns], NaN where that is not known, shape (count,)."""
    if isinstance(axis, Bins):
        return axis.lengths.astype(np.float64)
    # Windows that overlap share their time; each stands for what is its own.
    return np.full(axis.count, min(axis.length, axis.step) if isinstance(axis, Regular) else np.nan)


def prepared_readings(readings: Readings, operator: Aggregate) -> Readings:
    """Return readings as a function takes them: of a counter, what it grew by; those not to be used left out.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing; those that the function looks back at are among them.
    """
    prepare, since_ns = operator.row.prepare, operator.since_ns
    if prepare is None:
        return readings
    value = prepare(readings.value, readings.time_ns, readings.index, operator.given)
    keep = np.isfinite(value)
    if since_ns is not None:
        keep &= readings.starts_ns() >= since_ns
    return replace(readings, value=value).take(keep)


def gaps_of_readings(readings: Readings, operator: Aggregate) -> str:
    """Return what a reader should know of the gaps between readings that a function looks back over; empty if nothing.

    Parameters
    ----------
    readings
        As `prepared_readings` takes them.
    """
    intervals_ns = np.array([round(series.interval_s * SECOND_NS) for series in readings.series] or [0], np.int64)
    counted = np.ones(len(readings), dtype=bool)
    if operator.since_ns is not None:
        counted = readings.starts_ns() >= operator.since_ns
    held = (readings.value, readings.time_ns, readings.index, intervals_ns[readings.index], counted)
    return _gaps(*held, operator.reach_ns)


def gaps_of_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> str:
    """Return the same of the gaps between time cells that hold a value, shape (time, space)."""
    place, time = np.nonzero(np.isfinite(value.T))
    interval_ns = np.full(len(time), axis.step if isinstance(axis, Regular) else 0, dtype=np.int64)
    counted = np.ones(len(time), dtype=bool)
    return _gaps(value[time, place], axis.corners[time], place, interval_ns, counted, operator.reach_ns)


def _gaps(  # noqa: PLR0913 - columns of readings
    value: NDArray[np.float64],
    at_ns: NDArray[np.int64],
    group: NDArray[Any],
    interval_ns: NDArray[np.int64],
    counted: NDArray[np.bool_],
    max_gap_ns: int,
) -> str:
    """Say over how many gaps a counter was followed, over how many it was not, and how much it grew in these."""
    gap_ns = np.diff(at_ns)
    same = (group[1:] == group[:-1]) & counted[1:]
    lost = same & (gap_ns > max_gap_ns)
    bridged = same & ~lost & (interval_ns[1:] > 0) & (2 * gap_ns > 3 * interval_ns[1:])
    said, longest = [], format_duration(max_gap_ns)
    if lost.any():
        # Where nothing is too long, everything that it grew by is known, but for what was before a reset.
        grown = increments(value, at_ns, group, np.iinfo(np.int64).max)[1:][lost].sum()
        said.append(
            f"{_gaps_are(lost)[0]} between readings of a counter {_gaps_are(lost)[1]} longer than max_gap = {longest}: "
            f"what it grew by there, {grown:.6g} at least, is in no cell"
        )
    if bridged.any():
        said.append(
            f"{_gaps_are(bridged)[0]} of missing readings, none longer than max_gap = {longest}, "
            f"{_gaps_are(bridged)[1]} bridged: what it grew by is in the cell of the later reading"
        )
    return "; ".join(said)


def _gaps_are(found: NDArray[np.bool_]) -> tuple[str, str]:
    count = int(found.sum())
    return ("1 gap", "is") if count == 1 else (f"{count:,} gaps", "are")


def prepared_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> NDArray[np.float64]:
    """Return the values of time cells as a function takes them, shape (time, space) as they are."""
    prepare = operator.row.prepare
    if prepare is None:
        return value
    corners, places = axis.corners, value.shape[1]
    found = np.full(value.shape, np.nan)
    for part in pieces(np.full(places, value.shape[0], dtype=np.int64)):
        columns = value[:, part]
        place, time = np.nonzero(np.isfinite(columns.T))
        found[:, part][time, place] = prepare(columns[time, place], corners[time], place, operator.given)
    return found
