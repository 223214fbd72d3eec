"""Interpolation in time: apply its kernels to the station values of a run."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.execution.operators.cells import Cells
from hypergrid.interpolation.methods.in_time import KnownReadings, Ticks, estimate
from hypergrid.perspective import InterpolateInTime
from hypergrid.perspective.build.timestamps import find_reading_instants_ns, find_standing_instants_ns
from hypergrid.topology import Regular, SeriesAxis, TimeAxis


def order_readings(readings: Readings, series: int) -> KnownReadings:
    """Place readings, ordered by series and time, at the instants that they represent."""
    return KnownReadings.of(readings.index, find_reading_instants_ns(readings), readings.value, series=series)


def order_cells(cells: Cells, time: TimeAxis) -> KnownReadings:
    """Place the values of time cells, shape (time, series), in the middle of their cells."""
    count, series = cells.value.shape
    index = np.repeat(np.arange(series, dtype=np.int32), count)
    instants_ns = np.tile(find_standing_instants_ns(time), series)
    return KnownReadings.of(index, instants_ns, cells.value.T.ravel(), series=series)


def interpolate_at_instants(
    known: KnownReadings,
    operator: InterpolateInTime,
    target: Regular,
    axis: SeriesAxis,
    times: NDArray[np.intp] | None = None,
) -> Cells:
    """Interpolate each series at each instant, or at the instants numbered `times`.

    The count is the number of readings used; possible is one at the instant of a reading, else the most that the method
    uses.
    """
    span = target if times is None else target.part(int(times[0]), int(times[-1]) + 1)
    ticks = Ticks(span.origin, span.step, span.count)
    value, count = estimate(operator.row.estimate, known, ticks, operator.gaps_ns(axis))
    if times is not None and len(times) < span.count:
        value, count = value[times - times[0]], count[times - times[0]]
    return Cells(value, count, np.where(count == 1, 1, operator.row.max_readings))
