"""Check aggregates against the values and cells of their source, before execution."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.core.units import is_amount
from hypergrid.perspective.build.restrict import are_instants
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.sources.array_source import has_intervals
from hypergrid.perspective.tree import Aggregate, Base, Convert, InterpolateInTime, Perspective, Recur
from hypergrid.topology import Bins, Instants, Regular, SeriesAxis, TimeAxis
from hypergrid.topology.axes import AGREEMENT


def check_aggregate(row: AggregateRow, dimensions: tuple[str, ...], node: Perspective) -> None:
    """Refuse an aggregate that is meaningless for its values.

    Raises
    ------
    InvalidQuery
        Dimensions the function does not support, a mean of maxima, a mean of directions, time-weighted amounts of
        values without duration, increments of values that are not a counter, or a mean of counter readings.
    """
    _refuse_dimensions(row, dimensions)
    kinds = [] if row.of_extremes else sorted(node.extremes)
    if kinds:
        raise InvalidQuery(
            f"a {row.name} of {kinds[0]} values is not the {row.name} of the readings; "
            f"{_list_other_statistics(node, without=('max', 'min'))}"
        )
    # Minimum and maximum get an error message of their own.
    if not row.of_directions and row.idempotent:
        refuse_direction_extremes(row.name, node)
    elif not row.of_directions:
        refuse_directions(f"a {row.name} of directions", node, instead="circular_mean, ")
    if row.lasting:
        _refuse_unknown_lengths(row, node)
    if row.prepare is not None:
        _refuse_no_counter(row, node)
    counters = [] if row.of_counters else sorted(node.counters)
    if counters:
        raise InvalidQuery(
            f"a {row.name} of {counters[0]!r} has no meaning: its readings are those of an ever-growing counter; use "
            "rain_accumulation first, or last; where they are amounts already, give the array another name"
        )


def _list_other_statistics(node: Perspective, *, without: tuple[str, ...]) -> str:
    """Describe how to select series of other statistics, listing the available ones."""
    there = sorted({kind for base in node.bases for kind in base.source.statistics})
    fitting = [kind for kind in there if kind not in without]
    if not fitting:
        return f"there are series of {' and '.join(there)} alone: use min, max, first or last"
    chosen = fitting[0] if len(fitting) == 1 else tuple(fitting)
    return f"select others with .select(statistic={chosen!r}); there are {', '.join(there)}"


def refuse_odd_totals(row: AggregateRow, time: TimeAxis, node: Perspective) -> None:
    """Refuse sums of totals over regular cells that would cut some totals."""
    if row.weigh != "share" or not isinstance(time, Regular):
        return
    lengths_ns = {round(series.interval_s * SECOND_NS) for series in node.series if series.statistic == "total"}
    # A cell that is not a multiple of the totals' interval cuts some of them.
    odd = sorted(length for length in lengths_ns if length > 0 and time.length % length)
    if odd:
        raise InvalidQuery(
            f"time cells of {_format_length(time.length)} hold no whole number of totals of {_format_length(odd[0])}: "
            f"a {row.name} would cut some of them; choose a multiple, or .select(interval_s=…) totals that fit"
        )


def refuse_direction_extremes(name: str, node: Perspective) -> None:
    if node.unit == "degree":
        raise InvalidQuery(
            f"a {name} of directions has no meaning: they go round, and 359 degree is next to 1; use circular_mean, or "
            "sample, first or last for single readings"
        )


def check_window_coverage(time: TimeAxis, node: Perspective, min_coverage: float) -> None:
    """Refuse windows if none can reach the requested coverage: every value would be missing.

    Partial cells are computed, and their counts show it. Calendar cells and given edges are kept whatever was read.
    """
    source = _find_extent(node)
    if source is None or not isinstance(time, Regular):
        return
    length_ns, extent_ns = time.length, source.stop_ns - source.start_ns
    # A source this long contains at least one whole window.
    if extent_ns >= length_ns + time.step or any(
        _holds_enough(time, source, interval_ns, min_coverage) for interval_ns in source.intervals_ns
    ):
        return
    what = (
        f"are longer than the {_format_length(extent_ns)} that there are"
        if length_ns > extent_ns
        else f"lie across the edges of the {_format_length(extent_ns)} that there are"
    )
    raise InvalidQuery(
        f"time cells of {_format_length(length_ns)} {what}: none can hold the {min_coverage:.0%} that min_coverage "
        "asks for, and every value would be missing; choose shorter cells, or min_coverage=0 to take what there is"
    )


def _holds_enough(time: Regular, source: "_ValueExtent", interval_ns: int, min_coverage: float) -> bool:
    """Return whether some cell can reach the coverage with values at this interval."""
    # The content of a cell grows with its start until the cell lies within the source, then shrinks. The maximum is at
    # a cell next to one of the two turning points, so the others, up to 10^13, need not be listed.
    turns = (source.start_ns - time.origin, source.stop_ns - time.length - time.origin)
    near = np.array([turn // time.step + more for turn in turns for more in (0, 1)], dtype=np.int64)
    starts = time.origin + np.clip(near, 0, time.count - 1) * time.step
    held_ns = np.minimum(starts + time.length, source.stop_ns) - np.maximum(starts, source.start_ns)
    # Unaligned values may start anywhere within an interval, so one more may fit.
    max_values = np.where(held_ns > 0, held_ns // interval_ns + (0 if source.is_aligned else 1), 0)
    # The factor tolerates rounding of the product.
    needed = min_coverage * max(time.length // interval_ns, 1) * (1 - 1e-12)
    return bool((max_values >= needed).any())


def _format_length(length_ns: int) -> str:
    # Rounded, because a cell over all instants is 1 ns longer.
    return format_duration(round(length_ns / SECOND_NS) * SECOND_NS) if length_ns > SECOND_NS else f"{length_ns}ns"


@dataclass(frozen=True)
class _ValueExtent:
    """Time range and spacing of the values of a source."""

    start_ns: int
    stop_ns: int
    intervals_ns: tuple[int, ...]
    is_aligned: bool
    """Whether values are cells, of which only whole ones count."""


def _find_extent(node: Perspective) -> _ValueExtent | None:
    """Return the time range of a source's values; None if possible counts are unknown."""
    time = node.topology.time
    if not node.holds_readings:
        if not isinstance(time, Regular) or are_instants(time) or time.step != time.length:
            return None
        return _ValueExtent(time.origin, time.stop, (time.step,), is_aligned=True)
    intervals_s = {series.interval_s for series in node.series}
    if not intervals_s or min(intervals_s) <= 0:
        return None
    window, intervals_ns = node.bases[0].window, tuple(sorted(round(interval * SECOND_NS) for interval in intervals_s))
    return _ValueExtent(window.start_ns, window.stop_ns, intervals_ns, is_aligned=False)


def explain_unknown_coverage(node: Perspective) -> str:
    """Explain why an aggregate cannot check `min_coverage`; empty if it can."""
    operator = node.operator
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions:
        return ""
    source, of_array = node.source, isinstance(node.source.topology.time, Instants)
    asked = " is not asked" if operator.min_coverage else ""
    if of_array and source.is_at_stations and not any(item.interval_s > 0 for item in source.series):
        return (
            (
                f"coverage is not known, and min_coverage={operator.min_coverage:g}{asked}: the instants of the array "
                "are not evenly spaced (90 % of the spacings within 10 % of their median), so that how many a "
                "cell could have is unknown"
            )
            if operator.row.min_coverage or operator.min_coverage
            else ""
        )
    if not operator.min_coverage or not (source.holds_readings or of_array):
        return ""
    unknown = [series.station for series in source.series if not series.interval_s > 0]
    if not unknown:
        return ""
    return (
        f"the coverage of {len(unknown)} of {len(source.series)} series cannot be judged, and min_coverage="
        f"{operator.min_coverage:g} is not asked of them: their interval is unknown ({_shorten_list(unknown)})"
    )


def describe_odd_cells(node: Perspective) -> str:
    """Explain that cells do not contain whole numbers of intervals; empty if they do."""
    operator, time = node.operator, node.topology.time
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions:
        return ""
    source = node.source
    counts_intervals = source.holds_readings or has_intervals(source.topology.time, source.topology.space)
    # A single cell spans the available data and is not laid out by a length.
    if not isinstance(time, Regular) or time.count == 1 or not counts_intervals:
        return ""
    lengths_ns = [round(series.interval_s * SECOND_NS) for series in source.series]
    odd = [length for length in lengths_ns if 0 < length < time.length and time.length % length]
    if not odd:
        return ""
    several = ", ".join(_format_length(length) for length in sorted(set(odd))[:3]) + (
        ", …" if len(set(odd)) > 3 else ""
    )
    return (
        f"time cells of {_format_length(time.length)} hold no whole number of intervals of {several} ({len(odd)} of "
        f"{len(lengths_ns)} series): count_possible is how many fit wholly, and count may be one more"
    )


def _shorten_list(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


def find_longest_interval_ns(node: Perspective) -> int:
    """Return the interval of the slowest series [ns], 0 if unknown.

    For instants this is the median spacing.
    """
    time = node.topology.time
    if node.holds_readings:
        return round(max((series.interval_s for series in node.series), default=0.0) * SECOND_NS)
    return int(time.lengths.max()) if isinstance(time, Bins) else _find_step_ns(time)


def find_declared(row: AggregateRow, node: Perspective, given: Mapping[str, Any]) -> dict[str, float]:
    """Return the declared resolution and rollover of a counter unless the query gives them.

    They apply to the readings and are scaled by any multiplying convert before the aggregate.
    """
    bases = node.bases
    factors = [_find_factor(item) for item in node.list_chain() if not isinstance(item.operator, Base | Aggregate)]
    # NaN compares false: after any step that does more than multiply, the declared values do not apply.
    if row.prepare is None or len(bases) != 1 or not all(factor > 0 for factor in factors):
        return {}
    variable, factor = bases[0].source.variable, math.prod(factors)
    held = {"resolution": variable.resolution, "rollover": variable.rollover}
    return {name: value * factor for name, value in held.items() if value is not None and given.get(name) is None}


def _find_factor(node: Perspective) -> float:
    """Return the factor a step applies to values; NaN for any other effect."""
    if not isinstance(node.operator, Convert):
        return math.nan
    factor = 1.0
    for call in node.operator.calls:
        if call.name != "valid_range":
            is_multiple = call.name == "scale" and call.arguments["offset"] == 0
            factor *= call.arguments["factor"] if is_multiple else math.nan
    return factor


def refuse_directions(what: str, node: Perspective, *, instead: str = "") -> None:
    """Refuse operations that average directions.

    `what` describes the operation, `instead` names valid alternatives.
    """
    if node.unit == "degree":
        raise InvalidQuery(
            f"{what} has no meaning: 350 and 10 degree would give 180; "
            f"use {instead}sample, first or last, and look at single instants"
        )


def _refuse_dimensions(row: AggregateRow, dimensions: tuple[str, ...]) -> None:
    along = [name for name in dimensions if name != "time"]
    if row.over == "any" or ("time" in dimensions and (row.over == "with time" or not along)):
        return
    if row.rank is not None:
        message = f"{row.name} chooses a value in time; over {', '.join(along)} use mean, min, max, sum or count"
    elif row.over == "with time":
        message = f"{row.name} needs time; got {', '.join(along)} alone: add time='all', or another length"
    else:
        message = (
            f"{row.name} follows each place in time; got {', '.join(dimensions)}: take it over time, and then the mean "
            f"over {', '.join(along)}"
        )
    raise InvalidQuery(message)


def _refuse_unknown_lengths(row: AggregateRow, node: Perspective) -> None:
    if not node.holds_readings:
        if are_instants(node.topology.time):
            raise InvalidQuery(
                f"{row.name} needs how long each value stands for, and instants stand for none; aggregate before it, "
                "for example aggregate('mean', time='1h')"
            )
        return
    unknown = [series.station for series in node.series if not series.interval_s > 0]
    if unknown:
        raise InvalidQuery(
            f"{row.name} needs how long each reading stands for; the interval of {len(unknown)} of "
            f"{len(node.series)} series "
            f"is not known ({_shorten_list(unknown)}); aggregate before it, for example aggregate('mean', time='1h')"
        )


def _refuse_no_counter(row: AggregateRow, node: Perspective) -> None:
    if node.is_accumulated:
        raise InvalidQuery(
            f"{row.name} needs the readings of an ever-growing counter; these are totals of their intervals, or what "
            f"a counter grew by: use sum, or {_list_other_statistics(node, without=('total', 'mean', 'max', 'min'))}"
        )
    if not is_amount(node.unit):
        raise InvalidQuery(
            f"{row.name} needs the readings of an ever-growing counter, such as rain in 'mm'; got values in "
            f"{node.unit!r}, which cannot be amassed; use mean, or trend"
        )


# Overlapping values: intervals longer than the step, which no aggregate separates. Aggregates of readings tile
# overlapping intervals (`execution/operators/intervals.py`), but interpolated values are cells and windows
# overlap as cells, so a sum over them would count the same amount several times.


@dataclass(frozen=True)
class _ValueOverlap:
    """Values whose intervals are longer than their step."""

    kind: str
    """Statistic of the stations ("total", "mean", "max", "min"), or "window" of an aggregate."""
    length_ns: int
    step_ns: int

    @property
    def times(self) -> int:
        """Maximum number of values that contain an instant."""
        return -(-self.length_ns // self.step_ns)

    def describe(self) -> str:
        length, step = (format_duration(round(ns / SECOND_NS) * SECOND_NS) for ns in (self.length_ns, self.step_ns))
        return f"windows of {length}, one every {step}" if self.kind == "window" else (
            f"{self.kind} values over {length} each, in steps of {step}"
        )  # fmt: skip

    def remedy(self) -> str:
        if self.kind == "window":
            return "take windows whose step is their length, or aggregate the readings themselves"
        return "aggregate before interpolating: the readings themselves are taken one after the other"


def refuse_overlapping(row: AggregateRow, node: Perspective) -> None:
    """Refuse a sum over time that would count the same amounts repeatedly.

    Raises
    ------
    InvalidQuery
        Totals longer than the step at which they were interpolated, or overlapping windows.
    """
    overlap = _find_overlap(node) if row.weigh == "share" else None
    if overlap is not None and overlap.kind in ("total", "window"):
        raise InvalidQuery(
            f"a {row.name} over {overlap.describe()}, would hold the same up to {overlap.times} times; "
            f"{overlap.remedy()}"
        )


def describe_overlap(node: Perspective) -> str:
    """Explain the effect of overlapping values on an aggregate; empty if there is none."""
    operator = node.operator
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions or operator.row.repeatable:
        return ""
    overlap = _find_overlap(node.source)
    if overlap is None:
        return ""
    # Which slices of an archive have a reading is known only after reading.
    counts = "counts" if overlap.kind == "window" else "may count"
    return (
        f"the {operator.function} is over {overlap.describe()}, which is longer than the step: an instant {counts} in "
        f"up to {overlap.times} of them, and those at the edges of a cell reach beyond it; {overlap.remedy()}"
    )


def _find_overlap(node: Perspective) -> _ValueOverlap | None:
    """Return how values overlap in time; None if they do not or are tiled."""
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
    # Overlaps that falsify a sum come first.
    return max(overlaps, key=lambda overlap: (overlap.kind in ("total", "window"), overlap.times), default=None)


def _find_series_overlap(axis: SeriesAxis, step_ns: int) -> _ValueOverlap | None:
    lengths = [(round(item.interval_s * SECOND_NS), item.statistic) for item in axis.series]
    # An interval equals the spacing within this tolerance.
    longer = [(kind == "total", length, kind) for length, kind in lengths if length * (1 - AGREEMENT) > step_ns]
    held = [candidate for candidate in longer if candidate[2] != "sample"]
    if not held or not step_ns:
        return None
    _, length, kind = max(held)
    return _ValueOverlap(kind, length, step_ns)


def _find_step_ns(time: TimeAxis) -> int:
    """Return the slice length or median spacing of a base's values [ns]; 0 for one."""
    if isinstance(time, Regular):
        return time.step
    several = isinstance(time, Instants) and time.count > 1
    return round(float(np.median(np.diff(time.corners)))) if several else 0
