"""Aggregates as an oracle takes them: the values of one cell, in order of time, to one number."""

import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

from tests.support.own_functions import OWN_AGGREGATES

WORD = 2**64
DAY_NS = 86_400_000_000_000
DAYS = {"day": 1.0, "year": 365.25, "decade": 3652.5}

MIN_COVERAGE = {
    **dict.fromkeys(("mean", "median", "quantile", "variance", "standard_deviation", "exceedance"), 0.8),
    **dict.fromkeys(("circular_mean", "trend", "rain_accumulation"), 0.8), **dict.fromkeys(("sum", "degree_days"), 1.0),
}  # fmt: skip
"""Share of what is possible below which a cell is missing, where the question does not say it."""

BY_AREA = ("mean", "exceedance")
"""Functions that weigh cells of a grid by their size, and by how much of it a zone holds."""
WEIGHED = (*BY_AREA, "sum")
"""Functions that take of a cell of a grid the part that a zone holds."""

REPEATABLE = ("min", "max", "first", "last", "sample")
"""Functions that take every interval within a cell, also those that overlap."""


@dataclass(frozen=True)
class Member:
    """One value of a cell."""

    value: float
    at_ns: int
    """Where in time it stands [ns since 1970 UTC]."""
    for_days: float = math.nan
    """How long it stands for [day]."""
    weight: float = 1.0
    """In a mean, or in a sum."""


def aggregated(name: str, members: Sequence[Member], given: Mapping[str, Any], cell: int = 0) -> float:
    """Return the aggregate of values in order of time.

    Parameters
    ----------
    name, given
        The function and its parameters.
    members
        Values, none of them missing; of a counter, what it grew by.
    cell
        The cell's hash, by which a sample is drawn.
    """
    values = [member.value for member in members]
    if name == "count":
        return float(len(values))
    if not values:
        return math.nan
    if name in OWN_AGGREGATES:
        return OWN_AGGREGATES[name](values, **given)
    ways: dict[str, Callable[[], float]] = {
        "mean": lambda: _weighted(members) / math.fsum(member.weight for member in members),
        "sum": lambda: _weighted(members),
        "rain_accumulation": lambda: math.fsum(values),
        "min": lambda: min(values),
        "max": lambda: max(values),
        "first": lambda: values[0],
        "last": lambda: values[-1],
        "sample": lambda: values[cell % len(values)],
        "median": lambda: statistics.median(values),
        "quantile": lambda: _quantile(sorted(values), given["q"]),
        "variance": lambda: statistics.variance(values) if len(values) > 1 else math.nan,
        "standard_deviation": lambda: statistics.stdev(values) if len(values) > 1 else math.nan,
        "exceedance": lambda: (
            math.fsum(member.weight for member in members if _exceeds(member.value, given))
            / math.fsum(member.weight for member in members)
        ),
        "circular_mean": lambda: _direction(values),
        "degree_days": lambda: math.fsum(_warm(member, given) for member in members),
        "trend": lambda: _slope(members) * DAYS[given.get("per", "day")],
    }
    return float(ways[name]())


def _weighted(members: Sequence[Member]) -> float:
    return math.fsum(member.weight * member.value for member in members)


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    above = ordered[min(low + 1, len(ordered) - 1)]
    return ordered[low] + (place - low) * (above - ordered[low])


def _exceeds(value: float, given: Mapping[str, Any]) -> bool:
    compare = operator.lt if given.get("side") == "below" else operator.gt
    return bool(compare(value, given["threshold"]))


def _direction(degrees: Sequence[float]) -> float:
    east = statistics.fmean(math.sin(math.radians(value)) for value in degrees)
    north = statistics.fmean(math.cos(math.radians(value)) for value in degrees)
    return math.degrees(math.atan2(east, north)) % 360 if math.hypot(east, north) >= 1e-9 else math.nan


def _warm(member: Member, given: Mapping[str, Any]) -> float:
    above: float = min(member.value, given.get("upper", math.inf)) - given["base"]
    return max(above, 0.0) * member.for_days


def _slope(members: Sequence[Member]) -> float:
    """Return the least-squares slope [per day], by fractions, so that nothing cancels."""
    times = [Fraction(member.at_ns, DAY_NS) for member in members]
    if len(members) < 3 or len(set(times)) < 2:
        return math.nan
    mean_time, values = sum(times) / len(times), [Fraction(member.value) for member in members]
    mean = sum(values) / len(values)
    products = sum((t - mean_time) * (v - mean) for t, v in zip(times, values, strict=True))
    return float(products / sum((t - mean_time) ** 2 for t in times))


def is_enough(count: float, possible: float, share: float) -> bool:
    """Return whether a cell has the share of what is possible that it needs."""
    return Fraction(count) >= Fraction(str(share)) * Fraction(possible)


def hash_of(key: int) -> int:
    """Return 64 bits mixed (SplitMix64)."""
    key = (key + 0x9E3779B97F4A7C15) % WORD
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB % WORD
    return key ^ (key >> 31)


def cell_hash(first: int, second: int) -> int:
    """Return the hash of a cell from its corner in time and its key in space, or of two corners."""
    return hash_of((hash_of(first % WORD) + 0x9E3779B97F4A7C15 * second) % WORD)


def tiled(intervals: Sequence[tuple[int, int]], start: int, stop: int) -> tuple[list[int], list[int]]:
    """Return which intervals of a block of time lie within it, and which of them tile it; all where none overlaps.

    Parameters
    ----------
    intervals
        Of equal length, in order of their starts, which lie in the block [ns].
    start, stop
        The block [ns].
    """
    every = list(range(len(intervals)))
    steps = [later - begin for (begin, _), (later, _) in pairwise(intervals)]
    if not steps:
        return every, every
    length, step = intervals[0][1] - intervals[0][0], statistics.median_low(steps)
    alike = [abs(one - step) <= step * 0.1 for one in steps]
    regular = len(steps) > 1 and step <= 0.95 * length and sum(alike) / len(alike) >= 0.9
    if not (step <= 0.55 * length or regular):
        return every, every
    tolerance = min(int(length * 0.01), 60 * 10**9)
    last = stop + (intervals[0][0] - start) % max(step, 1) + tolerance
    inside = [i for i in every if intervals[i][1] <= last]
    tiles: list[int] = []
    free = intervals[0][0]
    for i in inside:
        begin = intervals[i][0]
        if not tiles or begin >= free - tolerance:
            end = max(free, begin) + length
            if end > last:
                break
            tiles.append(i)
            free = end
    return inside, tiles
