"""Timestamps of values that are treated as instantaneous."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.perspective.tree.operators import Aggregate, Base
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.topology import Bins, Instants, Regular, SeriesAxis, TimeAxis

INSTANT_NS: Final = 1
"""Length of an instant cell [ns]: the shortest half-open interval."""


def are_instants(axis: TimeAxis) -> bool:
    return isinstance(axis, Instants) or (isinstance(axis, Regular) and axis.length == INSTANT_NS)


def find_standing_instants_ns(axis: TimeAxis) -> NDArray[np.int64]:
    """Return the timestamps of cell values [ns since 1970 UTC], shape (count,).

    Cells with an extent are stamped at their middle.
    """
    if isinstance(axis, Bins):
        return axis.starts + axis.lengths // 2
    return axis.corners + axis.length // 2 if isinstance(axis, Regular) else axis.corners


def find_reading_instants_ns(readings: Readings) -> NDArray[np.int64]:
    """Return the timestamps of readings [ns since 1970 UTC], shape (n,).

    A sample keeps its stamp; the value of an interval is stamped at its middle, or keeps its stamp if that does not say
    which end of the interval it marks.
    """
    shift = np.array([_find_shift_ns(series) for series in readings.series] or [0], np.int64)
    return readings.time_ns + shift[readings.index] if shift.any() else readings.time_ns


def _find_shift_ns(series: Series) -> int:
    if series.statistic == "sample" or series.stamp == "instant":
        return 0
    half = round(series.interval_s * SECOND_NS) // 2
    return half if series.stamp == "start" else -half


def describe_interval_values(node: Perspective) -> str | None:
    """Describe values that belong to whole intervals; None for all others."""
    operator, space = node.operator, node.topology.space
    if isinstance(operator, Base) and isinstance(space, SeriesAxis):
        statistics = {series.statistic for series in space.series} & {"total", "max", "min"}
        return f"{min(statistics)} values of the stations" if statistics else None
    if isinstance(operator, Aggregate) and not operator.row.of_instants:
        return f"a {operator.function} of each cell"
    return next(filter(None, map(describe_interval_values, node.sources)), None)
