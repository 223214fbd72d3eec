"""Interpolation in time: values of a series between two of its readings (thesis 5.5.3.3).

Readings of a series form runs: consecutive ones within the maximum gap share a run, and gaps are not bridged. All
methods are local, so readings beyond the method's reach have no influence, and a clip in time changes no value. Each is
a linear map of the readings that it uses.

* nearest: the reading nearest to the instant, within half the maximum gap; of two equally near, the earlier.
* linear: the straight line between the readings on both sides.
* spline: the piecewise cubic with Bessel's slopes (de Boor, A Practical Guide to Splines, chapter IV): at each reading
  the slope of the parabola through it and its two neighbours, at the ends of a run that of the last parabola. Smooth in
  its first derivative, exact for parabolas; a run of two readings is a straight line.

At the instant of a reading every method returns that reading.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.pacing import split_work
from hypergrid.core.parameters import Parameter
from hypergrid.core.times import DAY_NS, format_duration, parse_duration
from hypergrid.interpolation.methods.registry import METHODS, Method, Over
from hypergrid.interpolation.points import Floats, Stations

Integers = NDArray[np.int64]

_FAR_NS: Final = 2**62
"""Longer than any gap [ns], and within 64 bits."""

# The dozen arrays of this size stay in a core's share of the cache.
CELLS_AT_ONCE: Final = 2**17
"""Cells processed together, but at least one series."""


@dataclass(frozen=True)
class Ticks:
    """Instants at a regular step."""

    origin_ns: int
    """First instant [ns since 1970 UTC]."""
    step_ns: int
    count: int

    @property
    def instants_ns(self) -> Integers:
        """The instants [ns since 1970 UTC], shape (count,)."""
        return self.origin_ns + self.step_ns * np.arange(self.count, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class KnownReadings:
    """Readings of several series, ordered by series, each at strictly increasing instants, without NaN."""

    begins: Integers
    """First reading of each series, and the end of the last, shape (series + 1,)."""
    instants_ns: Integers
    """Instant of each reading [ns since 1970 UTC], shape (n,)."""
    value: Floats
    """Shape (n,)."""

    @classmethod
    def of(cls, index: NDArray[np.integer], instants_ns: Integers, value: Floats, *, series: int) -> "KnownReadings":
        """Select the usable readings: not NaN, and the first of several at the same instant.

        Parameters
        ----------
        index, instants_ns, value
            Series, instant and value of each reading, shape (n,), ordered by series, then instant.
        series
            Number of series.
        """
        present = np.isfinite(value)
        if not present.all():
            index, instants_ns, value = index[present], instants_ns[present], value[present]
        repeated = np.zeros(len(value), dtype=bool)
        repeated[1:] = (index[1:] == index[:-1]) & (instants_ns[1:] == instants_ns[:-1])
        if repeated.any():
            index, instants_ns, value = index[~repeated], instants_ns[~repeated], value[~repeated]
        begins = np.searchsorted(index, np.arange(series + 1)).astype(np.int64)
        return cls(begins, instants_ns, value)

    def part(self, first: int, stop: int) -> "KnownReadings":
        """Select the readings of series `first` to `stop` (exclusive)."""
        begin, end = int(self.begins[first]), int(self.begins[stop])
        return KnownReadings(self.begins[first : stop + 1] - begin, self.instants_ns[begin:end], self.value[begin:end])

    def mark_joined(self, max_gap_ns: Integers) -> NDArray[np.bool_]:
        """Mark whether each reading and the next share a run, shape (n - 1,); `max_gap_ns` is per series."""
        index = np.repeat(np.arange(len(self.begins) - 1), np.diff(self.begins))
        near = np.diff(self.instants_ns) <= max_gap_ns[index[:-1]]
        return np.asarray(near & (index[1:] == index[:-1]))


@dataclass(frozen=True, eq=False)
class SurroundingReadings:
    """Readings on both sides of every instant of every series; all arrays have shape (series, instants)."""

    known: KnownReadings
    ticks: Ticks
    max_gap_ns: Integers
    """Longest gap between two readings that is bridged [ns], shape (series,)."""

    @cached_property
    def _stop_index(self) -> Integers:
        # Each reading is assigned to the first instant not before it, so that one pass covers all series.
        known, ticks = self.known, self.ticks
        width = ticks.count + 1
        first = np.clip(-((ticks.origin_ns - known.instants_ns) // ticks.step_ns), 0, ticks.count)
        first += np.repeat(np.arange(len(known.begins) - 1) * width, np.diff(known.begins))
        counted = np.bincount(first, minlength=width * (len(known.begins) - 1))
        return np.asarray(np.cumsum(counted).reshape(-1, width)[:, : ticks.count])

    @cached_property
    def before_index(self) -> Integers:
        """Last reading at or before the instant; an arbitrary one if there is none."""
        return np.maximum(self._stop_index - 1, 0)

    @cached_property
    def after_index(self) -> Integers:
        """First reading after the instant; an arbitrary one if there is none."""
        return np.minimum(self._stop_index, len(self.known.value) - 1)

    @cached_property
    def since_ns(self) -> Integers:
        """Time since the previous reading [ns]; `_FAR_NS` if there is none."""
        has = self._stop_index > self.known.begins[:-1, None]
        return np.where(has, self.ticks.instants_ns - self.known.instants_ns[self.before_index], _FAR_NS)

    @cached_property
    def until_ns(self) -> Integers:
        """Time until the next reading [ns]; `_FAR_NS` if there is none."""
        has = self._stop_index < self.known.begins[1:, None]
        return np.where(has, self.known.instants_ns[self.after_index] - self.ticks.instants_ns, _FAR_NS)

    @cached_property
    def is_hit(self) -> NDArray[np.bool_]:
        """Whether a reading lies exactly at the instant."""
        return np.asarray(self.since_ns == 0)

    @cached_property
    def is_inside(self) -> NDArray[np.bool_]:
        """Whether the instant lies in a run."""
        # Compared without a sum, which could overflow 64 bits.
        return np.asarray((self.since_ns < _FAR_NS) & (self.until_ns <= self.max_gap_ns[:, None] - self.since_ns))


Estimate = Callable[[SurroundingReadings], tuple[Floats, Integers]]
"""Maps surrounding readings to values, NaN where missing, and counts of the readings used; shapes (series, instants).
"""


def estimate(method: Estimate, known: KnownReadings, ticks: Ticks, max_gap_ns: Integers) -> tuple[Floats, Integers]:
    """Estimate every series at every instant, and count the readings used.

    Parameters
    ----------
    method
        `nearest`, `linear` or `spline`.
    known
        The readings.
    ticks
        Instants of the estimates.
    max_gap_ns
        Longest gap between two readings that is bridged [ns], shape (series,).

    Returns
    -------
    Values, NaN where missing, and counts, 0 there; both of shape (instants, series).
    """
    series = len(known.begins) - 1
    value = np.full((series, ticks.count), np.nan)
    count = np.zeros((series, ticks.count), dtype=np.int64)
    for batch in split_work(series, CELLS_AT_ONCE // ticks.count):
        part = known.part(batch.start, batch.stop)
        if len(part.value):
            value[batch], count[batch] = method(SurroundingReadings(part, ticks, max_gap_ns[batch]))
    return value.T, count.T


def nearest(around: SurroundingReadings) -> tuple[Floats, Integers]:
    """Return the nearest reading within half the maximum gap; of two equally near, the earlier."""
    later = around.until_ns < around.since_ns
    near = np.where(later, around.until_ns, around.since_ns) <= around.max_gap_ns[:, None] // 2
    value = around.known.value[np.where(later, around.after_index, around.before_index)]
    return np.where(near, value, np.nan), near.astype(np.int64)


def linear(around: SurroundingReadings) -> tuple[Floats, Integers]:
    """Estimate by the straight line between the readings on both sides."""
    start = around.known.value[around.before_index]
    with np.errstate(over="ignore", invalid="ignore"):
        value = start + _find_share(around) * (around.known.value[around.after_index] - start)
    return _mask_estimates(around, value, np.int64(2))


def spline(around: SurroundingReadings) -> tuple[Floats, Integers]:
    """Estimate by the piecewise cubic with Bessel's slopes."""
    known = around.known
    joined = known.mark_joined(around.max_gap_ns)
    slopes = _find_slopes(known, joined)
    length_s = (known.instants_ns[around.after_index] - known.instants_ns[around.before_index]) * 1e-9
    start, share = known.value[around.before_index], _find_share(around)
    with np.errstate(over="ignore", invalid="ignore"):
        rise = known.value[around.after_index] - start
        first, last = slopes[around.before_index] * length_s, slopes[around.after_index] * length_s
        value = start + share * (first + share * (3 * rise - 2 * first - last + share * (first + last - 2 * rise)))
    outer = np.concatenate([[False], joined]), np.concatenate([joined, [False]])
    used = 2 + outer[0][around.before_index].astype(np.int64) + outer[1][around.after_index]
    return _mask_estimates(around, value, used)


def _find_share(around: SurroundingReadings) -> Floats:
    """Compute each instant's relative position between the surrounding readings, 0 to 1; 0 outside a run."""
    share = np.zeros(around.since_ns.shape)
    np.divide(around.since_ns, around.since_ns + around.until_ns, out=share, where=around.is_inside)
    return share


def _mask_estimates(around: SurroundingReadings, value: Floats, used: Integers | np.int64) -> tuple[Floats, Integers]:
    """Mask estimates outside runs, and take the reading itself at its own instant."""
    value = np.where(around.is_hit, around.known.value[around.before_index], np.where(around.is_inside, value, np.nan))
    return value, np.where(around.is_hit, 1, np.where(around.is_inside, used, 0))


def _find_slopes(known: KnownReadings, joined: NDArray[np.bool_]) -> Floats:
    """Compute Bessel's slope at each reading [per s], shape (n,); 0 for a reading alone in its run."""
    length_s = np.where(joined, np.diff(known.instants_ns) * 1e-9, 1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        secant = np.where(joined, np.diff(known.value) / length_s, 0.0)
        # Slope at each inner reading: the parabola through it and its two neighbours.
        both = joined[:-1] & joined[1:]
        total = length_s[:-1] + length_s[1:]
        bent = (length_s[1:] * secant[:-1] + length_s[:-1] * secant[1:]) / total
        slopes = np.zeros(len(known.value))
        slopes[1:-1] = np.where(both, bent, 0.0)
        inner = np.zeros(len(known.value), dtype=bool)
        inner[1:-1] = both
        # The slopes of a parabola at both ends of an interval have the secant as their mean.
        opens, closes = ~inner[:-1] & joined, ~inner[1:] & joined
        ahead, behind = slopes[1:].copy(), slopes[:-1].copy()
        slopes[:-1] += np.where(opens, np.where(inner[1:], 2 * secant - ahead, secant), 0.0)
        slopes[1:] += np.where(closes, np.where(inner[:-1], 2 * secant - behind, secant), 0.0)
    return slopes


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
