"""Formulas of aggregates that are no single fold: spread, quantiles, directions, degree days, trends.

All are of arrays and numbers alone. What a cell keeps while it is folded is a tuple of arrays, one number a cell.
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
"""Values that are listed at once, unless a single cell has more: some ten arrays of them then take 40 MB."""


@dataclass(frozen=True, eq=False)
class ValueInstants:
    """Where in time the values along an axis stand, and how long each stands for."""

    at_days: Floats
    """Since an instant that all of them share [day], shape (n,)."""
    for_days: Floats
    """How long each stands for [day], NaN where that is not known, shape (n,)."""

    def of(self, places: NDArray[np.intp]) -> "ValueInstants":
        """Return those of some values."""
        return ValueInstants(self.at_days[places], self.for_days[places])


@dataclass(frozen=True, eq=False)
class Listing:
    """How many members each cell has, where the members of all cells are listed cell by cell."""

    sizes: NDArray[np.int64]
    """Members of each cell, shape (cells,)."""

    def total(self, numbers: Floats) -> Floats:
        """Return the sum of each cell's numbers, 0 where it has none: shape (members,) to (cells,)."""
        sums = np.zeros(len(self.sizes))
        has_members = self.sizes > 0
        if has_members.any():
            sums[has_members] = np.add.reduceat(numbers, (np.cumsum(self.sizes) - self.sizes)[has_members])
        return sums

    def mean(self, numbers: Floats) -> Floats:
        """Return the mean of each cell's numbers, 0 where it has none: shape (members,) to (cells,)."""
        return self.total(numbers) / np.maximum(self.sizes, 1)

    def repeat_per_member(self, numbers: Floats) -> Floats:
        """Return a number of each cell for each of its members: shape (cells,) to (members,)."""
        return np.repeat(numbers, self.sizes)

    def number_members(self) -> NDArray[np.int64]:
        """Return which member of its cell each is, from 0 on, shape (members,)."""
        return np.arange(int(self.sizes.sum())) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)


@dataclass(frozen=True, eq=False)
class RaggedCells(Listing):
    """Values of cells, listed cell by cell, those of a cell in the order of time; none is missing."""

    value: Floats
    """Shape (members,)."""
    instants: ValueInstants | None = None
    """Of the members, for functions that are timed."""

    def table(self) -> Floats:
        """Return a row for each cell with its values in ascending order, then as much infinity as fills the row."""
        filled = np.full((len(self.sizes), int(self.sizes.max(initial=0))), np.inf)
        filled[np.repeat(np.arange(len(self.sizes)), self.sizes), self.number_members()] = self.value
        filled.sort(axis=1)
        return filled

    def columns(self, cells: NDArray[np.intp]) -> Floats:
        """Return a column for each of some cells with its values in order, then NaN, shape (largest size, cells)."""
        first = (np.cumsum(self.sizes) - self.sizes)[cells]
        rows = np.arange(int(self.sizes[cells].max(initial=0)))[:, None]
        inside = rows < self.sizes[cells]
        return np.where(inside, self.value[np.where(inside, first + rows, 0)], np.nan)

    def sort_values(self) -> Floats:
        """Return the values cell by cell, those of a cell in ascending order, shape (members,)."""
        cells, width = len(self.sizes), int(self.sizes.max(initial=0))
        # Rows of a table are sorted some five times as fast as two keys, where it is not mostly filling.
        if cells * width <= 2 * len(self.value) + 1:
            table = self.table()
            return table[np.arange(width) < self.sizes[:, None]]
        order = np.lexsort((self.value, np.repeat(np.arange(cells), self.sizes)))
        return self.value[order]


def split_pieces(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Return the cells in parts of at most `LISTED_AT_ONCE` members, or of one cell that has more.

    Where there are no cells, one part is empty.
    """
    ends = np.cumsum(sizes)
    if not len(sizes):
        yield slice(0, 0)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        stop = max(int(np.searchsorted(ends, before + LISTED_AT_ONCE, side="right")), begin + 1)
        yield slice(begin, stop)
        begin = stop


Counts = NDArray[np.int64]
Given = Mapping[str, Any]
States = tuple[Floats, ...]

CALM: Final = 1e-9
"""Length of the mean unit vector below which directions cancel, and have no mean."""

DAYS_IN: Final = {"day": 1.0, "year": 365.25, "decade": 3652.5}
"""Days in what a trend is given for; the year is the Julian one, as pint has it."""

_SAME_TIME_DAYS: Final = 1e-9
"""Spread of times below which values all stand at one time [day]: rounding alone makes some 1e-12."""


def find_spread(members: RaggedCells, _given: Given) -> States:
    """Return the mean of each cell, and the sum of squared deviations from it.

    Two passes, with the rounding of the first mean taken out (Chan, Golub and LeVeque, 1983, equation 1.7), so that
    a small spread far from 0 is not lost.
    """
    mean = members.mean(members.value)
    off = members.value - members.repeat_per_member(mean)
    rest = members.mean(off)
    return mean + rest, np.maximum(members.total(off**2) - members.sizes * rest**2, 0.0)


def merge_spread(states: States, count: Counts, cells: Listing) -> States:
    """Return mean and squared deviations of cells from those of their parts (Chan and others, 1983, section 3)."""
    means, squares = states
    mean = _pool_means(means, count, cells)
    off = means - cells.repeat_per_member(mean)
    return mean, cells.total(squares + count * off**2)


def _pool_means(means: Floats, count: Counts, cells: Listing) -> Floats:
    """Return the mean of all values from the means and counts of parts, as exact as the parts are."""
    whole = np.maximum(cells.total(count.astype(np.float64)), 1.0)
    rough = cells.total(count * means) / whole
    return rough + cells.total(count * (means - cells.repeat_per_member(rough))) / whole


def variance(states: States, count: Counts, _given: Given) -> Floats:
    """Return the sample variance; missing below two values."""
    return np.where(count > 1, states[1] / np.maximum(count - 1, 1), np.nan)


def standard_deviation(states: States, count: Counts, given: Given) -> Floats:
    """Return the square root of the sample variance; missing below two values."""
    return np.sqrt(variance(states, count, given))


def quantile(members: RaggedCells, given: Given) -> Floats:
    """Return a quantile of each cell by linear interpolation between its ordered values, as numpy; NaN where empty."""
    quantiles = np.full(len(members.sizes), np.nan)
    filled_cells = np.flatnonzero(members.sizes)
    ordered = members.sort_values()
    rank = given["q"] * (members.sizes[filled_cells] - 1)
    low = np.floor(rank).astype(np.int64)
    first = (np.cumsum(members.sizes) - members.sizes)[filled_cells]
    below = ordered[first + low]
    above = ordered[first + np.minimum(low + 1, members.sizes[filled_cells] - 1)]
    share, step = rank - low, above - below
    # From the nearer end, so that equal values give themselves.
    quantiles[filled_cells] = np.where(share < 0.5, below + share * step, above - (1 - share) * step)
    return quantiles


def median(members: RaggedCells, _given: Given) -> Floats:
    """Return the median of each cell; NaN where empty."""
    return quantile(members, {"q": 0.5})


def eastward(values: Floats, _for_days: Floats | None, _given: Given) -> Floats:
    """Return the sine of directions [degree]."""
    east: Floats = np.sin(np.radians(values))
    return east


def northward(values: Floats, _for_days: Floats | None, _given: Given) -> Floats:
    """Return the cosine of directions [degree]."""
    north: Floats = np.cos(np.radians(values))
    return north


def direction(states: States, count: Counts, _given: Given) -> Floats:
    """Return the direction of the sum of unit vectors [degree], 0 <= direction < 360; missing where they cancel."""
    east, north = states
    degrees = np.mod(np.rad2deg(np.arctan2(east, north)), 360.0)
    # The remainder of a tiny negative angle rounds up to 360.
    degrees = np.where(degrees >= 360.0, 0.0, degrees)
    return np.where((count > 0) & (np.hypot(east, north) >= CALM * count), degrees, np.nan)


def exceeds(values: Floats, _for_days: Floats | None, given: Given) -> Floats:
    """Return 1 for values beyond the threshold, on the side that was asked for, else 0."""
    compare = np.greater if given["side"] == "above" else np.less
    return np.asarray(compare(values, given["threshold"]), dtype=np.float64)


def degree_days(values: Floats, for_days: Floats | None, given: Given) -> Floats:
    """Return how far each value lies above the base, up to the upper limit, times the days that it stands for."""
    if for_days is None:
        message = "degree days need how long each value stands for"
        raise TypeError(message)
    upper = given.get("upper")
    capped = values if upper is None else np.minimum(values, upper)
    warm: Floats = np.maximum(capped - given["base"], 0.0)
    return warm * for_days


def find_trend(members: RaggedCells, _given: Given) -> States:
    """Return mean time [day], mean value, squared deviations of the times, and products of the two's deviations."""
    if members.instants is None:
        message = "a trend needs the times of the values"
        raise TypeError(message)
    times = members.instants.at_days
    mean_time, mean = members.mean(times), members.mean(members.value)
    late, off = times - members.repeat_per_member(mean_time), members.value - members.repeat_per_member(mean)
    rest_time, rest = members.mean(late), members.mean(off)
    squares = members.total(late**2) - members.sizes * rest_time**2
    products = members.total(late * off) - members.sizes * rest_time * rest
    return mean_time + rest_time, mean + rest, np.maximum(squares, 0.0), products


def merge_trend(states: States, count: Counts, cells: Listing) -> States:
    """Return the four numbers of cells from those of their parts."""
    times, means, squares, products = states
    mean_time, mean = _pool_means(times, count, cells), _pool_means(means, count, cells)
    late, off = times - cells.repeat_per_member(mean_time), means - cells.repeat_per_member(mean)
    return mean_time, mean, cells.total(squares + count * late**2), cells.total(products + count * late * off)


def slope(states: States, count: Counts, given: Given) -> Floats:
    """Return the least-squares slope; missing below three values, or where all stand at one time."""
    _, _, squares, products = states
    known = (count > 2) & (squares > count * _SAME_TIME_DAYS**2)
    return np.where(known, products / np.where(known, squares, 1.0), np.nan) * DAYS_IN[given["per"]]


def difference_unit(unit: str) -> str:
    """Return the unit of a difference of values: one of temperatures in degC is no temperature."""
    return difference_of(unit)


def _plain_difference(unit: str) -> str:
    """Return the unit of a difference, to be multiplied with others: K for degC."""
    try:
        difference = difference_of(unit)
    except InvalidUnit:
        # A word of a unit need not be one by itself.
        return unit
    return "K" if difference == "delta_degC" else difference


def squared_unit(unit: str) -> str:
    """Return the unit of a squared difference of values."""
    if unit in DIMENSIONLESS_TEXT:
        return unit
    return " ".join(_square_word(_plain_difference(word)) for word in unit.split())


def _square_word(word: str) -> str:
    name = word.rstrip("0123456789")
    power = word[len(name) :] or "1"
    name, sign = (name[:-1], "-") if name.endswith("-") else (name, "")
    # A name with more than letters takes no power where units are read.
    return f"{name}{sign}{2 * int(power)}" if name.isalpha() else f"{word} {word}"


def rate_unit(unit: str, per: str) -> str:
    """Return the unit of a change per day, year or decade."""
    if unit in DIMENSIONLESS_TEXT:
        return unit if unit == "unknown" else f"{per}-1"
    return f"{_plain_difference(unit)} {per}-1"
