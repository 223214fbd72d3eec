"""Where in time a value stands, when it is taken for the value of an instant."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.tree.operators import Aggregate, Base
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.topology import Bins, Instants, Regular, SeriesAxis, TimeAxis

INSTANT_NS: Final = 1
"""Length of a cell that is an instant: the least that a half-open interval can have [ns]."""


def are_instants(axis: TimeAxis) -> bool:
    """Return whether time cells are instants rather than intervals."""
    return isinstance(axis, Instants) or (isinstance(axis, Regular) and axis.length == INSTANT_NS)


def find_standing_instants_ns(axis: TimeAxis) -> NDArray[np.int64]:
    """Return where the values of cells stand [ns since 1970 UTC]: in their middle, as a mean; shape (count,)."""
    if isinstance(axis, Bins):
        return axis.starts + axis.lengths // 2
    return axis.corners + axis.length // 2 if isinstance(axis, Regular) else axis.corners


def find_reading_instants_ns(readings: Readings) -> NDArray[np.int64]:
    """Return where readings stand [ns since 1970 UTC], shape (n,).

    A sample stands at its stamp; a value of an interval in the middle of it. Where the stamp does not say which end of
    the interval it marks, the value stands at its stamp.
    """
    shift = np.array([_find_shift_ns(series) for series in readings.series] or [0], np.int64)
    return readings.time_ns + shift[readings.index] if shift.any() else readings.time_ns


def _find_shift_ns(series: Series) -> int:
    if series.statistic == "sample" or series.stamp == "instant":
        return 0
    half = round(series.interval_s * SECOND_NS) // 2
    return half if series.stamp == "start" else -half


def describe_interval_values(node: Perspective) -> str | None:
    """Return what the values of a perspective are, where they belong to whole intervals; None for all others."""
    operator, space = node.operator, node.topology.space
    if isinstance(operator, Base) and isinstance(space, SeriesAxis):
        statistics = {series.statistic for series in space.series} & {"total", "max", "min"}
        return f"{min(statistics)} values of the stations" if statistics else None
    if isinstance(operator, Aggregate) and not operator.row.of_instants:
        return f"a {operator.function} of each cell"
    return next(filter(None, map(describe_interval_values, node.sources)), None)
