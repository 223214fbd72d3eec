"""Methods of interpolation in time, one row each, and the lookup of methods by dimension."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.parameters import Parameter
from hypergrid.core.times import DAY_NS, format_duration, parse_duration
from hypergrid.interpolation.methods.in_time import Estimate, linear, nearest, spline
from hypergrid.interpolation.methods.registry import METHODS, Method, Over
from hypergrid.interpolation.points import Stations

IN_TIME: Final = "_in_time"
"""Suffix of the rows over time: "linear" with time=… is the row `linear_in_time`."""

INTERVALS_IN_GAP: Final = 3
"""Default maximum gap in intervals of the series: two consecutive readings may be missing."""

LONGEST_GAP_NS: Final = 10 * 366 * DAY_NS
"""Upper limit of the maximum gap [ns]."""


@dataclass(frozen=True, kw_only=True)
class TimeMethod(Method):
    """Method that interpolates each series separately, from its readings before and after an instant."""

    over: Over = "time"
    estimate: Estimate
    """Maps readings to values and counts."""
    max_readings: int
    """Maximum readings per estimate."""
    reach: float
    """Distance from an instant within which a reading may matter, in maximum gaps."""

    def gap_of(self, interval_ns: int) -> int:
        """Compute the default maximum gap of a series [ns] from its reporting interval [ns]."""
        return min(INTERVALS_IN_GAP * interval_ns, LONGEST_GAP_NS)


def method_over(over: Over, name: str) -> Method:
    """Look up a method over space or over time.

    Parameters
    ----------
    over
        Dimension of the interpolation.
    name
        Name in a query; over time "linear" means `linear_in_time`.

    Raises
    ------
    NotFound
        No method of this name over this dimension.
    """
    row = METHODS.get(f"{name}{IN_TIME}") if over == "time" else None
    row = row or METHODS.get(name)
    if row is None or row.over != over:
        names = [row.name.removesuffix(IN_TIME) for row in METHODS.values() if row.over == over]
        error = NotFound.among(kind=f"interpolation method over {over}", given=name, existing=names)
        other = "; it is a method over " + ("time: give time='10min'" if over == "space" else "space: give a grid")
        raise NotFound(f"{error}{other if row else ''}")
    return row


def method_in_time(name: str) -> TimeMethod:
    """Look up a method over time; raises NotFound if unknown."""
    row = method_over("time", name)
    if not isinstance(row, TimeMethod):
        raise TypeError(f"{row.name} says that it is over time, and is no TimeMethod")
    return row


def _parse(given: Mapping[str, Any]) -> dict[str, Any]:
    gap = given["max_gap"]
    length = None if gap is None else parse_duration(gap)
    if length is not None and length > LONGEST_GAP_NS:
        raise InvalidQuery(f"'max_gap' needs a duration of up to {format_duration(LONGEST_GAP_NS)}; got {gap!r}")
    return {"max_gap_ns": length}


def _make_refusal(name: str) -> Callable[[Stations, object, Mapping[str, Any]], NoReturn]:
    def prepare(_stations: Stations, _values: object, _given: Mapping[str, Any]) -> NoReturn:
        raise InvalidQuery(
            f"{name} interpolates in time, not between stations; give time='10min', or a method over space"
        )

    return prepare


_MAX_GAP = Parameter(
    "max_gap", "text", f"longest time between two readings that is filled; {INTERVALS_IN_GAP} intervals where absent",
    required=False,
)  # fmt: skip


def _add_method(name: str, summary: str, estimate: Estimate, *, maximum: int, reach: float) -> None:
    full = f"{name}{IN_TIME}"
    row = TimeMethod(
        name=full, summary=summary, parameters=(_MAX_GAP,), linear=True, has_variance=False, parse=_parse,
        prepare=_make_refusal(full), estimate=estimate, max_readings=maximum, reach=reach,
    )  # fmt: skip
    METHODS.add(full, row)


_add_method("nearest", "The reading nearest in time, within half the maximum gap.", nearest, maximum=1, reach=0.5)
_add_method("linear", "Straight line between the readings before and after.", linear, maximum=2, reach=1.0)
_add_method(
    "spline",
    "Smooth cubic through the readings before and after, with slopes from two more (Bessel).",
    spline,
    maximum=4,
    reach=2.0,
)
