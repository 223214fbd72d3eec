"""Sources of questions: archives at the snapshot of each question, and arrays in memory."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.times import SECOND_NS, format_duration, parse_instant
from hypergrid.perspective.build.plan_memo import PlanMemo
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.perspective.sources.array_source import ArraySource
from hypergrid.perspective.sources.interval_spans import has_intervals
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.perspective.tree.operators import Aggregate, Base, InterpolateInTime, Recur
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.topology import Instants, Regular, SeriesAxis, TimeAxis
from hypergrid.topology.axes import AGREEMENT

ARRAY: Final = "array:"
"""Prefix of the snapshot of a question about an array; its content token follows."""


@dataclass(frozen=True, eq=False)
class SourceLookup:
    """Lookup of the source of a question or of merged queries."""

    archive: Archive | None = None
    arrays: Mapping[str, ArraySource] = field(default_factory=dict)
    """Arrays by the snapshot in their questions."""
    known: PlanMemo | None = field(default=None, compare=False)
    """Cache shared by queries that are built together."""

    def __call__(self, question: QuerySpec) -> ArchiveSource | ArraySource:
        """Return the source of a question.

        Raises
        ------
        NotFound
            Unknown array, snapshot or variable.
        InvalidQuery
            No series is selected, or flags or an arrival time are requested of an array.
        """
        if question.snapshot is not None and question.snapshot.startswith(ARRAY):
            if question.snapshot not in self.arrays:
                raise NotFound.among(kind="array", given=question.snapshot, existing=self.arrays)
            source = self.arrays[question.snapshot]
            if question.variable != source.variable.name:
                raise NotFound.among(kind="variable", given=question.variable, existing=[source.variable.name])
            if question.accept_flags != ACCEPTED_BY_DEFAULT:
                raise InvalidQuery(
                    f"the values of the array {source.variable.name!r} have no flags, so that accept_flags "
                    f"{', '.join(map(str, question.accept_flags))} cannot be asked of it; leave it out, and put NaN "
                    "where a value is not to be used"
                )
            if question.as_of is not None:
                raise InvalidQuery(
                    f"the values of the array {source.variable.name!r} have no arrival, so that as_of "
                    f"{question.as_of!r} cannot be asked of it; leave it out, or query an archive"
                )
            return source.select_series(question.select)
        if self.archive is None:
            raise NotFound(
                f"variable {question.variable!r} is to come from an archive, and this query has none; open one"
            )
        archive = self.archive
        if question.snapshot not in (None, archive.snapshot):
            archive = Archive.open(archive.path, snapshot=question.snapshot)
        archive = archive.as_of(None if question.as_of is None else parse_instant(question.as_of))
        return ArchiveSource(archive, archive.variable(question.variable), question.select)

    def join(self, other: "SourceLookup") -> "SourceLookup":
        """Combine two lookups.

        Raises
        ------
        InvalidQuery
            They use different archives.
        """
        if self.archive and other.archive and self.archive.path != other.archive.path:
            raise InvalidQuery(
                f"a merge reads one archive; got {self.archive.path} and {other.archive.path}; "
                "compute one of them, and merge it as an array (hg.base)"
            )
        return SourceLookup(self.archive or other.archive, {**self.arrays, **other.arrays}, self.known or other.known)


def pin_snapshot(question: QuerySpec, snapshot: str, as_of: str | None = None) -> QuerySpec:
    """Pin a question and its merged queries to one snapshot and arrival time.

    Merged queries keep a snapshot or arrival time of their own.
    """
    own, own_as_of = question.snapshot or snapshot, question.as_of or as_of
    steps = tuple(_pin_step(step, own, own_as_of) for step in question.steps)
    return replace(question, snapshot=own, as_of=own_as_of, steps=steps)


def _pin_step(step: Step, snapshot: str, as_of: str | None) -> Step:
    return (
        replace(step, others=tuple(pin_snapshot(other, snapshot, as_of) for other in step.others))
        if step.others
        else step
    )


# Overlapping values: intervals longer than the step, which no aggregate separates. Aggregates of readings tile
# overlapping intervals (`execution/operators/overlapping_intervals.py`), but interpolated values are cells and windows
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
