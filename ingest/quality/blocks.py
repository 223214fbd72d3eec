"""Blocks of hours and terms, the input of the level and zero tests. Pure.

A block has one number per series: the median, sum or mean of its values that pass the gross range and arrived without a
bad flag. No other test is involved, so that a block is a function of stored values alone. Time is divided into terms of
`memory_days` since 1970. The result for a block depends on the blocks of its term, of the previous term, and of the
first week of the next one, however readings are split into batches: memory is bounded, and the flags are the same.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, MISSING, SUSPECT, TESTS
from hypergrid.core.medians import medians_by_group
from hypergrid.core.readings import Readings
from ingest.deployment.quality_settings import GrossRange
from ingest.quality.temporal import HOUR_NS, Floats

BLOCK_HOURS: Final = 3
BLOCK_NS: Final = BLOCK_HOURS * HOUR_NS
A_DAY: Final = 24 // BLOCK_HOURS
"""Blocks per day."""
_GIVEN: Final = np.uint16(sum(1 << TESTS.index(name) for name in ("given_suspect", "given_fail")))


@dataclass(frozen=True, eq=False)
class Blocks:
    """One number per series and block, NaN if the series had no reading."""

    first: int
    """Index of the first block, counted from 1970."""
    value: Floats
    """Shape (series, blocks)."""

    @property
    def stop(self) -> int:
        """Index after the last block."""
        return self.first + self.value.shape[1]

    def part(self, first: int, stop: int) -> Floats:
        """Return the values of some blocks, NaN outside, shape (series, stop - first)."""
        values = np.full((len(self.value), stop - first), np.nan)
        low, high = max(first, self.first), min(stop, self.stop)
        if low < high:
            values[:, low - first : high - first] = self.value[:, low - self.first : high - self.first]
        return values


def usable(readings: Readings, gross_range: GrossRange | None) -> NDArray[np.intp]:
    """Return the readings used in blocks: in the gross range, without a bad source flag."""
    tests = readings.tests_or_none_set()
    bad = (readings.flag == SUSPECT) | (readings.flag == FAIL)
    good = (readings.flag != MISSING) & np.isfinite(readings.value) & ((tests & _GIVEN) == 0) & ~(bad & (tests == 0))
    for span in (gross_range.fail, gross_range.suspect) if gross_range else ():
        if span is not None:
            good &= (readings.value >= span[0]) & (readings.value <= span[1])
    return np.flatnonzero(good)


def medians(readings: Readings, rows: NDArray[np.intp], first: int, stop: int) -> Floats:
    """Return the median of each series and block, shape (series, stop - first)."""
    group, value = _block_indices(readings, rows, first, stop)
    places, middle = medians_by_group(value, group)
    flat_medians = np.full(len(readings.series) * (stop - first), np.nan)
    flat_medians[places] = middle
    return flat_medians.reshape(len(readings.series), stop - first)


def sums(readings: Readings, rows: NDArray[np.intp], first: int, stop: int) -> Floats:
    """Return the sum of each series and block, shape (series, stop - first)."""
    return _sums_and_counts(readings, rows, first, stop)[0]


def means(readings: Readings, rows: NDArray[np.intp], first: int, stop: int) -> Floats:
    """Return the mean of each series and block, shape (series, stop - first)."""
    total, count = _sums_and_counts(readings, rows, first, stop)
    return total / np.maximum(count, 1)


def _sums_and_counts(
    readings: Readings, rows: NDArray[np.intp], first: int, stop: int
) -> tuple[Floats, NDArray[np.intp]]:
    """Return sums (NaN for empty blocks) and counts, shape (series, stop - first) each."""
    group, value = _block_indices(readings, rows, first, stop)
    shape = (len(readings.series), stop - first)
    count = np.bincount(group, minlength=shape[0] * shape[1])
    total = np.bincount(group, value, minlength=shape[0] * shape[1]).astype(np.float64)
    total[count == 0] = np.nan
    return total.reshape(shape), count.reshape(shape)


def _block_indices(
    readings: Readings, rows: NDArray[np.intp], first: int, stop: int
) -> tuple[NDArray[np.int64], Floats]:
    block = readings.time_ns[rows] // BLOCK_NS - first
    inside = (block >= 0) & (block < stop - first)
    rows, block = rows[inside], block[inside]
    return readings.index[rows].astype(np.int64) * (stop - first) + block, readings.value[rows]


def term_blocks(memory_days: float) -> int:
    """Return the number of blocks in a term: whole weeks, at least two."""
    return max(2, round(memory_days / 7.0)) * 7 * A_DAY


def median(values: Floats, axis: int) -> Floats:
    """Return the median of non-NaN values along an axis, NaN for empty slices."""
    # np.nanmedian would warn about empty slices.
    ordered = np.sort(values, axis=axis)
    count = np.isfinite(ordered).sum(axis=axis, keepdims=True)
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, values.shape[axis] - 1)
    middle = (np.take_along_axis(ordered, low, axis) + np.take_along_axis(ordered, high, axis)) / 2.0
    return np.asarray(np.where(count > 0, middle, np.nan).squeeze(axis))
