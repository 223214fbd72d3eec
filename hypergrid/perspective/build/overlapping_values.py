"""Values that stand for longer than the step at which they follow one another, where no aggregate tells them apart.

Readings are tiled by the aggregate that takes them (`execution/overlapping.py`). Once they are interpolated they
are cells, and once windows overlap so do their values: a sum over these holds the same more than once.
"""

from dataclasses import dataclass

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.sources.interval_spans import has_intervals
from hypergrid.perspective.tree.operators import Aggregate, Base, InterpolateInTime, Recur
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.topology import Instants, Regular, SeriesAxis, TimeAxis
from hypergrid.topology.spacing import AGREEMENT


@dataclass(frozen=True)
class _ValueOverlap:
    """Values that stand for longer than the step at which they follow one another."""

    kind: str
    """What they are: "total", "mean", "max" or "min" of the stations, or "window" of an aggregate."""
    length_ns: int
    step_ns: int

    @property
    def times(self) -> int:
        """In how many values an instant lies, at most."""
        return -(-self.length_ns // self.step_ns)

    def describe(self) -> str:
        """Return what they are, in words."""
        length, step = (format_duration(round(ns / SECOND_NS) * SECOND_NS) for ns in (self.length_ns, self.step_ns))
        return f"windows of {length}, one every {step}" if self.kind == "window" else (
            f"{self.kind} values over {length} each, in steps of {step}"
        )  # fmt: skip

    def remedy(self) -> str:
        """Return what to do instead."""
        if self.kind == "window":
            return "take windows whose step is their length, or aggregate the readings themselves"
        return "aggregate before interpolating: the readings themselves are taken one after the other"


def refuse_overlapping(row: AggregateRow, node: Perspective) -> None:
    """Refuse a sum over time that would hold the same amounts more than once.

    Raises
    ------
    InvalidQuery
        Totals that are longer than the step at which they were interpolated, or windows that overlap.
    """
    overlap = _find_overlap(node) if row.weigh == "share" else None
    if overlap is not None and overlap.kind in ("total", "window"):
        message = (
            f"a {row.name} over {overlap.describe()}, would hold the same up to {overlap.times} times; "
            f"{overlap.remedy()}"
        )
        raise InvalidQuery(message)


def describe_overlap(node: Perspective) -> str:
    """Return what a reader should know of an aggregate of values that overlap; empty if nothing."""
    operator = node.operator
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions or operator.row.repeatable:
        return ""
    overlap = _find_overlap(node.source)
    if overlap is None:
        return ""
    # Whether each slice of an archive has a reading is known only when they are read.
    counts = "counts" if overlap.kind == "window" else "may count"
    return (
        f"the {operator.function} is over {overlap.describe()}, which is longer than the step: an instant {counts} in "
        f"up to {overlap.times} of them, and those at the edges of a cell reach beyond it; {overlap.remedy()}"
    )


def _find_overlap(node: Perspective) -> _ValueOverlap | None:
    """Return how the values of a perspective overlap in time; None where they do not, or are told apart."""
    if node.holds_readings or has_intervals(node.topology.time, node.topology.space):
        return None
    return _find_overlap_below(node)


def _find_overlap_below(node: Perspective) -> _ValueOverlap | None:
    operator, time, space = node.operator, node.topology.time, node.topology.space
    if isinstance(operator, Aggregate) and "time" in operator.dimensions:
        if isinstance(time, Regular) and time.length > time.step:
            return _ValueOverlap("window", time.length, time.step)
        return None
    if isinstance(operator, InterpolateInTime | Recur):
        return None
    if isinstance(operator, Base):
        return _find_series_overlap(space, _find_step_ns(time)) if isinstance(space, SeriesAxis) else None
    overlaps = [overlap for overlap in map(_find_overlap_below, node.sources) if overlap is not None]
    return max(overlaps, key=lambda overlap: (overlap.kind in ("total", "window"), overlap.times), default=None)


def _find_series_overlap(axis: SeriesAxis, step_ns: int) -> _ValueOverlap | None:
    lengths = [(round(item.interval_s * SECOND_NS), item.statistic) for item in axis.series]
    # Spacings that agree with the interval within so much are taken for it.
    longer = [(kind == "total", length, kind) for length, kind in lengths if length * (1 - AGREEMENT) > step_ns]
    held = [candidate for candidate in longer if candidate[2] != "sample"]
    if not held or not step_ns:
        return None
    _, length, kind = max(held)
    return _ValueOverlap(kind, length, step_ns)


def _find_step_ns(time: TimeAxis) -> int:
    """Return how far the values of a base lie apart [ns]: its slices, or the median of its instants; 0 of one."""
    if isinstance(time, Regular):
        return time.step
    several = isinstance(time, Instants) and time.count > 1
    return round(float(np.median(np.diff(time.corners)))) if several else 0
