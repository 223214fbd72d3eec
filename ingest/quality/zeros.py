"""Test of faulty zeros: blocked rain gauges, which report no rain while their neighbours do. Pure.

In blocks of three hours a gauge is wet, dry or silent. If nearly all of its neighbours are wet and it is dry, it missed
rain, which also happens to sound gauges: how often is estimated from all gauges together. A gauge that misses rain
repeatedly without a drop in between is less and less likely to be sound; once that probability is below a threshold,
its readings from the first missed rain to its next drop are suspect. (The spatial part of the check of faulty zeros of
de Vos and others 2019, Quality control for crowdsourced personal weather stations, Geophys. Res. Lett. 46, 8820-8829;
and of Blenkinsop and others 2017, Quality-control of an hourly rainfall dataset and climatology of extremes for the UK,
Int. J. Climatol. 37, 722-740.)
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.deployment.quality_settings import FaultyZeros
from ingest.quality.blocks import A_DAY, Blocks, term_blocks
from ingest.quality.neighbours import nearest_neighbours
from ingest.quality.spatial import Places

_ASKED: Final = 8
"""Number of neighbours of a gauge."""
_DOUBT: Final = (2.0, 20.0)
"""Prior counts: a sound gauge misses two of twenty rains that all neighbours have."""

Bools = NDArray[np.bool_]


def faulty_zeros(blocks: Blocks, settings: FaultyZeros, places: Places, first: int, stop: int) -> Bools:
    """Return which blocks of a gauge are faulty zeros, shape (series, stop - first).

    Parameters
    ----------
    blocks
        Sums of amounts, means of rates, or medians of counters, from the beginning of the term before `first` to the
        end of the term of `stop`, as far as available.
    first, stop
        Block indices.
    """
    term = term_blocks(settings.memory_days)
    is_faulty = np.zeros((len(blocks.value), stop - first), np.bool_)
    beside = nearest_neighbours(places, _ASKED)
    for number in range(first // term, -(-stop // term)):
        low, high = max(first, number * term), min(stop, (number + 1) * term)
        begin, end = (number - 1) * term, min((number + 1) * term, blocks.stop)
        if end > max(begin, blocks.first):
            part = _term(blocks, settings, beside, begin, end)[:, low - begin : high - begin]
            is_faulty[:, low - first : low - first + part.shape[1]] = part
    return is_faulty


def _term(blocks: Blocks, settings: FaultyZeros, beside: NDArray[np.intp], begin: int, end: int) -> Bools:
    fallen = blocks.part(begin, end)
    if settings.of == "counter":
        fallen = _increments(fallen)
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
        number, start = np.unique(run[row, at], return_index=True)
        for each, run_start, ended in zip(number.tolist(), start.tolist(), [*start[1:].tolist(), len(at)], strict=True):
            days = len(np.unique((at[run_start:ended] + begin) // A_DAY))
            if (ended - run_start) * worth >= settings.evidence and days >= settings.days:
                inside = run[row] == each
                inside[: at[run_start]] = False
                is_faulty[row] |= inside & (dry[row])
    return is_faulty


def _increments(content: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return increments since the previous reporting block; a fall counts as change by its absolute value."""
    seen = np.isfinite(content)
    last = np.maximum.accumulate(np.where(seen, np.arange(content.shape[1]), -1), axis=1)
    before = np.concatenate([np.full((len(content), 1), -1), last[:, :-1]], axis=1)
    earlier = np.where(before >= 0, np.take_along_axis(content, np.maximum(before, 0), 1), np.nan)
    return np.where(seen, np.abs(content - earlier), np.nan)
