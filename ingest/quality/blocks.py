"""Blocks of hours and terms, the input of the tests with a memory, and the test of faulty zeros. Pure.

A block has one number per series: the median, sum or mean of its values that pass the gross range and arrived without a
bad flag. No other test is involved, so that a block is a function of stored values alone. Time is divided into terms of
`memory_days` since 1970. The result for a block depends on the blocks of its term, of the previous term, and of the
first week of the next one, however readings are split into batches: memory is bounded, and the flags are the same.
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, MISSING, SUSPECT
from hypergrid.core.medians import medians_by_group
from hypergrid.core.readings import Readings, Series
from ingest.deployment.quality_settings import FaultyZeros, GrossRange, VariableTests
from ingest.quality.spatial import Places, nearest_neighbours
from ingest.quality.temporal import HOUR_NS, Floats, bits_of

BLOCK_HOURS: Final = 3
BLOCK_NS: Final = BLOCK_HOURS * HOUR_NS
A_DAY: Final = 24 // BLOCK_HOURS
"""Blocks per day."""
_DOUBT: Final = (2.0, 20.0)
"""Prior counts: a sound gauge misses two of twenty rains that all neighbours have."""
_GIVEN: Final = bits_of("given_suspect", "given_fail")


@dataclass(frozen=True, eq=False)
class Blocks:
    """One number per series and block, NaN if the series had no reading."""

    first: int
    """Index of the first block, counted from 1970."""
    value: Floats
    """Shape (series, blocks)."""

    @property
    def stop(self) -> int:
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
    """Return the sum of each series and block, NaN for empty blocks, shape (series, stop - first)."""
    group, value = _block_indices(readings, rows, first, stop)
    size = len(readings.series) * (stop - first)
    total = np.bincount(group, value, minlength=size).astype(np.float64)
    total[np.bincount(group, minlength=size) == 0] = np.nan
    return total.reshape(len(readings.series), stop - first)


def means(readings: Readings, rows: NDArray[np.intp], first: int, stop: int) -> Floats:
    """Return the mean of each series and block, NaN for empty blocks, shape (series, stop - first)."""
    ones = replace(readings, value=np.ones(len(readings)))
    return sums(readings, rows, first, stop) / sums(ones, rows, first, stop)


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


def blocks_of(readings: Readings, tests: VariableTests, first: int, stop: int) -> Floats:
    """Return the blocks that the level test and the zero test use, of the same readings.

    Shape (2, series, stop - first): medians, then sums or, of rates, means; those that no test uses are NaN.
    """
    blocks = np.full((2, len(readings.series), stop - first), np.nan)
    rows, zeros = usable(readings, tests.gross_range), tests.faulty_zeros
    if tests.level_shift or (zeros and zeros.of == "counter"):
        blocks[0] = medians(readings, rows, first, stop)
    if zeros and zeros.of != "counter":
        blocks[1] = (means if zeros.of == "rate" else sums)(readings, rows, first, stop)
    return blocks


@dataclass(frozen=True, eq=False)
class BlockBits:
    """Bits of failed tests, by series and block."""

    first: int
    """Index of the first block, counted from 1970."""
    tests: NDArray[np.uint16]
    """Bits of the tests, shape (series, blocks)."""
    series: tuple[Series, ...]

    def reading_bits(self, readings: Readings) -> NDArray[np.uint16]:
        """Return the bits of readings, shape (n,); 0 outside, and for unknown series."""
        number = {series: index for index, series in enumerate(self.series)}
        row = np.array([number.get(series, -1) for series in readings.series] or [0], np.intp)[readings.index]
        block = readings.time_ns // BLOCK_NS - self.first
        inside = (row >= 0) & (block >= 0) & (block < self.tests.shape[1]) & (readings.flag != MISSING)
        tests = np.zeros(len(readings), np.uint16)
        tests[inside] = self.tests[row[inside], block[inside]]
        return tests


def faulty_zeros(blocks: Blocks, settings: FaultyZeros, places: Places, number: int) -> NDArray[np.bool_]:
    """Test for blocked rain gauges, which report no rain while their neighbours do.

    In blocks of three hours a gauge is wet, dry or silent. If nearly all of its neighbours are wet and it is dry, it
    missed rain, which also happens to sound gauges: how often is estimated from all gauges together. A gauge that
    misses rain repeatedly without a drop in between is less and less likely to be sound; once that probability is below
    a threshold, its readings from the first missed rain to its next drop are suspect. (The spatial part of the check of
    faulty zeros of de Vos and others 2019, Quality control for crowdsourced personal weather stations, Geophys. Res.
    Lett. 46, 8820-8829; and of Blenkinsop and others 2017, Quality-control of an hourly rainfall dataset and
    climatology of extremes for the UK, Int. J. Climatol. 37, 722-740.)

    Parameters
    ----------
    blocks
        Sums of amounts, means of rates, or medians of counters, from the beginning of the term before to the end of the
        term, as far as available.
    number
        Number of the term.

    Returns
    -------
    ndarray
        Which blocks of the term are faulty zeros, shape (series, blocks of the term).
    """
    length = term_blocks(settings.memory_days)
    begin = (number - 1) * length
    fallen = blocks.part(begin, begin + 2 * length)
    if settings.of == "counter":
        fallen = _increments(fallen)
    beside = nearest_neighbours(places, 8)
    silent, dry = ~np.isfinite(fallen), fallen == 0.0
    report, wet = np.zeros(fallen.shape), np.zeros(fallen.shape)
    soaked = fallen > settings.wet
    for column in range(beside.shape[1]):
        other = beside[:, column]
        there = (other >= 0)[:, None]
        report += there & ~silent[other]
        wet += there & soaked[other]
    rained = (report >= settings.neighbours) & (wet >= settings.share * report)
    missed = rained & dry
    # Only from gauges that report drops now and then: a blocked one must not raise the usual rate.
    lively = missed.sum(axis=1) < 0.5 * np.maximum((rained & ~silent).sum(axis=1), 1)
    chance = (_DOUBT[0] + (missed & lively[:, None]).sum()) / (_DOUBT[1] + (rained & ~silent & lively[:, None]).sum())
    worth = -np.log10(min(chance, 0.5))
    # A run of zeros ends with the next drop; pauses do not end it.
    run = np.cumsum(fallen > 0.0, axis=1)
    is_faulty = np.zeros(fallen.shape, np.bool_)
    for row in np.flatnonzero(missed.sum(axis=1) * worth >= settings.evidence).tolist():
        at = np.flatnonzero(missed[row])
        runs, start = np.unique(run[row, at], return_index=True)
        for each, run_start, ended in zip(runs.tolist(), start.tolist(), [*start[1:].tolist(), len(at)], strict=True):
            days = len(np.unique((at[run_start:ended] + begin) // A_DAY))
            if (ended - run_start) * worth >= settings.evidence and days >= settings.days:
                inside = run[row] == each
                inside[: at[run_start]] = False
                is_faulty[row] |= inside & dry[row]
    return is_faulty[:, length:]


def _increments(content: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return increments since the previous reporting block; a fall counts as change by its absolute value."""
    seen = np.isfinite(content)
    last = np.maximum.accumulate(np.where(seen, np.arange(content.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(content), 1), -1), last[:, :-1]], axis=1)
    earlier = np.where(before >= 0, np.take_along_axis(content, np.maximum(before, 0), 1), np.nan)
    return np.where(seen, np.abs(content - earlier), np.nan)
