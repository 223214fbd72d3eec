"""Formulas of aggregates that are not a single fold: spread, quantiles, directions, degree days, trends.

They use plain arrays and numbers. The accumulators of cells are a tuple of arrays, one number per cell each.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import DIMENSIONLESS_TEXT, difference_of

Floats = NDArray[np.float64]

LISTED_AT_ONCE: Final = 2**19
"""Maximum number of values listed together, unless one cell has more; ten such arrays take 40 MB."""


@dataclass(frozen=True, eq=False)
class ValueInstants:
    """Timestamps and durations of values along an axis."""

    at_days: Floats
    """Timestamps relative to a shared instant [day], shape (n,)."""
    for_days: Floats
    """Durations [day], NaN if unknown, shape (n,)."""

    def of(self, places: NDArray[np.intp]) -> "ValueInstants":
        return ValueInstants(self.at_days[places], self.for_days[places])


@dataclass(frozen=True, eq=False)
class Listing:
    """Numbers of members per cell, for members listed cell by cell."""

    sizes: NDArray[np.int64]
    """Members per cell, shape (cells,)."""

    def total(self, numbers: Floats) -> Floats:
        """Sum numbers per cell, 0 if empty: shape (members,) to (cells,)."""
        sums = np.zeros(len(self.sizes))
        # For an empty cell `reduceat` would return the next cell's first number.
        has_members = self.sizes > 0
        if has_members.any():
            sums[has_members] = np.add.reduceat(numbers, (np.cumsum(self.sizes) - self.sizes)[has_members])
        return sums

    def mean(self, numbers: Floats) -> Floats:
        """Average numbers per cell, 0 if empty: shape (members,) to (cells,)."""
        return self.total(numbers) / np.maximum(self.sizes, 1)

    def repeat_per_member(self, numbers: Floats) -> Floats:
        """Repeat cell numbers for each member: shape (cells,) to (members,)."""
        return np.repeat(numbers, self.sizes)

    def number_members(self) -> NDArray[np.int64]:
        """Return the index of each member within its cell, shape (members,)."""
        return np.arange(int(self.sizes.sum())) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)


@dataclass(frozen=True, eq=False)
class RaggedCells(Listing):
    """Values listed cell by cell, in time order within a cell, none missing."""

    value: Floats
    """Shape (members,)."""
    instants: ValueInstants | None = None
    """Timestamps of the members, for timed functions."""

    def table(self) -> Floats:
        """Return a row per cell with its values ascending, padded with infinity."""
        filled = np.full((len(self.sizes), int(self.sizes.max(initial=0))), np.inf)
        filled[np.repeat(np.arange(len(self.sizes)), self.sizes), self.number_members()] = self.value
        filled.sort(axis=1)
        return filled

    def columns(self, cells: NDArray[np.intp]) -> Floats:
        """Return the values of some cells as columns, padded with NaN.

        Returns
        -------
        Shape (largest size, cells).
        """
        first = (np.cumsum(self.sizes) - self.sizes)[cells]
        rows = np.arange(int(self.sizes[cells].max(initial=0)))[:, None]
        inside = rows < self.sizes[cells]
        return np.where(inside, self.value[np.where(inside, first + rows, 0)], np.nan)

    def sort_values(self) -> Floats:
        """Return the values cell by cell, ascending within each cell, shape (members,)."""
        cells, width = len(self.sizes), int(self.sizes.max(initial=0))
        # Sorting rows of a padded table is about five times as fast as sorting by two keys, unless it is mostly
        # padding.
        if cells * width <= 2 * len(self.value) + 1:
            table = self.table()
            return table[np.arange(width) < self.sizes[:, None]]
        order = np.lexsort((self.value, np.repeat(np.arange(cells), self.sizes)))
        return self.value[order]


def split_pieces(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Yield ranges of cells with at most `LISTED_AT_ONCE` members, or one larger cell.

    Without cells, one empty range is yielded.
    """
    ends = np.cumsum(sizes)
    if not len(sizes):
        yield slice(0, 0)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        # At least one cell, even if it exceeds the limit.
        stop = max(int(np.searchsorted(ends, before + LISTED_AT_ONCE, side="right")), begin + 1)
        yield slice(begin, stop)
        begin = stop


Counts = NDArray[np.int64]
Given = Mapping[str, Any]
States = tuple[Floats, ...]

CALM: Final = 1e-9
"""Length of the mean unit vector below which directions cancel."""

DAYS_IN: Final = {"day": 1.0, "year": 365.25, "decade": 3652.5}
"""Days per trend period; the year is the Julian one, as in pint."""

_SAME_TIME_DAYS: Final = 1e-9
"""Spread below which all values share one timestamp [day]; rounding alone gives about 1e-12."""


def find_spread(members: RaggedCells, _given: Given) -> States:
    """Return the mean of each cell and the sum of squared deviations from it.

    Two passes with a correction for the rounding of the mean (Chan, Golub and LeVeque, 1983, equation 1.7).
    """
    # One pass would lose a small spread far from 0.
    mean = members.mean(members.value)
    off = members.value - members.repeat_per_member(mean)
    rest = members.mean(off)
    return mean + rest, np.maximum(members.total(off**2) - members.sizes * rest**2, 0.0)


def merge_spread(states: States, count: Counts, cells: Listing) -> States:
    """Merge means and squared deviations of cell parts (Chan and others, 1983, section 3)."""
    means, squares = states
    mean = _pool_means(means, count, cells)
    off = means - cells.repeat_per_member(mean)
    return mean, cells.total(squares + count * off**2)


def _pool_means(means: Floats, count: Counts, cells: Listing) -> Floats:
    """Merge means and counts of cell parts, as exact as the parts are."""
    whole = np.maximum(cells.total(count.astype(np.float64)), 1.0)
    rough = cells.total(count * means) / whole
    return rough + cells.total(count * (means - cells.repeat_per_member(rough))) / whole


def variance(states: States, count: Counts, _given: Given) -> Floats:
    """Return the sample variance; missing below two values."""
    return np.where(count > 1, states[1] / np.maximum(count - 1, 1), np.nan)


def standard_deviation(states: States, count: Counts, given: Given) -> Floats:
    return np.sqrt(variance(states, count, given))


def quantile(members: RaggedCells, given: Given) -> Floats:
    """Return a quantile per cell by numpy's linear interpolation of sorted values; NaN if empty."""
    quantiles = np.full(len(members.sizes), np.nan)
    filled_cells = np.flatnonzero(members.sizes)
    ordered = members.sort_values()
    rank = given["q"] * (members.sizes[filled_cells] - 1)
    low = np.floor(rank).astype(np.int64)
    first = (np.cumsum(members.sizes) - members.sizes)[filled_cells]
    below = ordered[first + low]
    above = ordered[first + np.minimum(low + 1, members.sizes[filled_cells] - 1)]
    share, step = rank - low, above - below
    # Interpolate from the nearer end, so that equal values yield exactly themselves.
    quantiles[filled_cells] = np.where(share < 0.5, below + share * step, above - (1 - share) * step)
    return quantiles


def median(members: RaggedCells, _given: Given) -> Floats:
    return quantile(members, {"q": 0.5})


def eastward(values: Floats, _for_days: Floats | None, _given: Given) -> Floats:
    """Return the sine of directions [degree]."""
    return np.asarray(np.sin(np.radians(values)))


def northward(values: Floats, _for_days: Floats | None, _given: Given) -> Floats:
    """Return the cosine of directions [degree]."""
    return np.asarray(np.cos(np.radians(values)))


def direction(states: States, count: Counts, _given: Given) -> Floats:
    """Return the direction of summed unit vectors [degree] in [0, 360); missing if they cancel."""
    east, north = states
    degrees = np.mod(np.rad2deg(np.arctan2(east, north)), 360.0)
    # The remainder of a tiny negative angle rounds up to 360.
    degrees = np.where(degrees >= 360.0, 0.0, degrees)
    return np.where((count > 0) & (np.hypot(east, north) >= CALM * count), degrees, np.nan)


def exceeds(values: Floats, _for_days: Floats | None, given: Given) -> Floats:
    compare = np.greater if given["side"] == "above" else np.less
    return np.asarray(compare(values, given["threshold"]), dtype=np.float64)


def degree_days(values: Floats, for_days: Floats | None, given: Given) -> Floats:
    if for_days is None:
        raise TypeError("degree days need how long each value stands for")
    upper = given.get("upper")
    capped = values if upper is None else np.minimum(values, upper)
    warm: Floats = np.maximum(capped - given["base"], 0.0)
    return warm * for_days


def find_trend(members: RaggedCells, _given: Given) -> States:
    """Return mean time [day], mean value, squared time deviations, and time-value products."""
    if members.instants is None:
        raise TypeError("a trend needs the times of the values")
    times = members.instants.at_days
    mean_time, mean = members.mean(times), members.mean(members.value)
    late, off = times - members.repeat_per_member(mean_time), members.value - members.repeat_per_member(mean)
    rest_time, rest = members.mean(late), members.mean(off)
    squares = members.total(late**2) - members.sizes * rest_time**2
    products = members.total(late * off) - members.sizes * rest_time * rest
    return mean_time + rest_time, mean + rest, np.maximum(squares, 0.0), products


def merge_trend(states: States, count: Counts, cells: Listing) -> States:
    """Merge the four accumulators of cell parts."""
    times, means, squares, products = states
    mean_time, mean = _pool_means(times, count, cells), _pool_means(means, count, cells)
    late, off = times - cells.repeat_per_member(mean_time), means - cells.repeat_per_member(mean)
    return mean_time, mean, cells.total(squares + count * late**2), cells.total(products + count * late * off)


def slope(states: States, count: Counts, given: Given) -> Floats:
    """Return the least-squares slope; missing below three values or with a single timestamp."""
    _, _, squares, products = states
    known = (count > 2) & (squares > count * _SAME_TIME_DAYS**2)
    return np.where(known, products / np.where(known, squares, 1.0), np.nan) * DAYS_IN[given["per"]]


def _plain_difference(unit: str) -> str:
    """Return the unit of a difference for use in products: K for degC."""
    try:
        difference = difference_of(unit)
    except InvalidUnit:
        # A factor of a unit need not be a unit by itself.
        return unit
    return "K" if difference == "delta_degC" else difference


def squared_unit(unit: str) -> str:
    if unit in DIMENSIONLESS_TEXT:
        return unit
    return " ".join(_square_word(_plain_difference(word)) for word in unit.split())


def _square_word(word: str) -> str:
    name = word.rstrip("0123456789")
    power = word[len(name) :] or "1"
    name, sign = (name[:-1], "-") if name.endswith("-") else (name, "")
    # A name that is not all letters cannot take an exponent in the unit parser.
    return f"{name}{sign}{2 * int(power)}" if name.isalpha() else f"{word} {word}"


def rate_unit(unit: str, per: str) -> str:
    """Return the unit of a change per day, year or decade."""
    if unit in DIMENSIONLESS_TEXT:
        return unit if unit == "unknown" else f"{per}-1"
    return f"{_plain_difference(unit)} {per}-1"
