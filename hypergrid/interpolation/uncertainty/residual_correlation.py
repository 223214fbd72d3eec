"""Correlation time of interpolation errors, from leave-one-out residuals.

A leave-one-out error is a linear map of its slice, with the same weights in every slice of one mask; if space and time
are separable, its correlation at lag h is therefore `a r(h)`: r that of the field, and a below 1 if readings carry
white noise.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points import Floats, group_masks
from hypergrid.interpolation.uncertainty.mean_variance import INDEPENDENT, Correlation

MIN_PAIRS = 30
"""Minimum pairs of neighbouring slices with residuals of the same station."""
MAX_LAGS = 400
"""Maximum number of lags."""
FADED = 0.1
"""Correlation below which longer lags are ignored."""
# In a shorter record the correlation is hardly known.
SPANS = 10.0
"""Minimum length of a record in e-folding times."""
MISFIT = 0.1
"""Root mean square misfit of the correlation above which it is not exponential."""


@dataclass(frozen=True, eq=False)
class CorrelationFit:
    """Estimated correlation in time, and its reliability."""

    correlation: Correlation
    share: float
    """Share of the residuals' variance correlated in time, 0 to 1; the rest is white noise."""
    lags_s: Floats
    """Lags used [s], shape (lags,)."""
    correlations: Floats
    """Correlation at each lag, shape (lags,)."""
    pairs: NDArray[np.int64]
    """Pairs at each lag, shape (lags,)."""
    poor: str | None
    """Reason to doubt the fit; None if there is none."""

    def describe(self) -> str:
        """Describe the fit in one line."""
        text = f"e-folding time {self.correlation.e_folding_s:.3g} s, estimated from leave-one-out residuals"
        if self.correlation.e_folding_s:
            text += f" ({self.share:.0%} of their variance has a memory)"
        return text + (f"; poor: {self.poor}" if self.poor else "")


def standardise_residuals(core: Floats, present: NDArray[np.bool_], complete: Floats) -> Floats:
    """Compute leave-one-out errors over their standard deviation, shape (slices, stations), NaN where missing.

    Parameters
    ----------
    core
        The stations' block of the system's inverse P, shape (stations, stations).
    present
        Which station reports in which slice, shape (slices, stations).
    complete
        Values with kriged gaps (minus a known mean), shape (slices, stations). With them `P z` equals that of the
        present stations alone, and 0 for the others.
    """
    carried = np.where(present.any(axis=1, keepdims=True), complete, 0.0) @ core
    result = np.full(complete.shape, np.nan)
    for mask, slices in group_masks(present):
        present_stations, missing = np.flatnonzero(mask), np.flatnonzero(~mask)
        if len(present_stations) < 2:
            continue
        across = core[np.ix_(missing, present_stations)]
        lost = np.einsum("mh,mh->h", across, np.linalg.solve(core[np.ix_(missing, missing)], across))
        precision = np.diagonal(core)[present_stations] - lost
        result[np.ix_(slices, present_stations)] = carried[np.ix_(slices, present_stations)] / np.sqrt(precision)
    return result


def estimate_correlation(residuals: Floats, times_s: Floats) -> CorrelationFit:
    """Fit an exponential correlation to residuals, pooled over stations.

    Parameters
    ----------
    residuals
        Shape (slices, stations), NaN where missing.
    times_s
        Times of the slices, increasing [s].

    Raises
    ------
    InvalidQuery
        Too few pairs of neighbouring slices.
    """
    lags_s, correlations, pairs = _make_correlogram(residuals, times_s)
    if not len(pairs) or pairs[0] < MIN_PAIRS:
        raise InvalidQuery(
            f"the correlation in time is estimated from at least {MIN_PAIRS} pairs of neighbouring readings of a "
            f"station; got {int(pairs[0]) if len(pairs) else 0}; give correlation_time, such as '6h', or leave it out "
            "to get the bracket from independent to fully correlated slices"
        )
    # Within two standard errors of zero.
    if correlations[0] <= 2.0 / math.sqrt(pairs[0]):
        return CorrelationFit(INDEPENDENT, 0.0, lags_s[:1], correlations[:1], pairs[:1], None)
    faded = np.flatnonzero(correlations < FADED)
    kept = slice(0, max(int(faded[0]) + 1 if len(faded) else len(correlations), min(3, len(correlations))))
    lags_s, correlations, pairs = lags_s[kept], correlations[kept], pairs[kept]
    weight = np.sqrt(pairs / pairs.sum())

    def off(parameters: Floats) -> Floats:
        return np.asarray(
            weight * (parameters[0] * np.exp(-lags_s / lags_s[0] * np.exp(-parameters[1])) - correlations)
        )

    start = math.log(max(lags_s[-1] / lags_s[0] / 2, 1.0))
    max_log_range = math.log(100.0 * max(float(np.ptp(times_s)) / lags_s[0], 1.0))
    fitted = scipy.optimize.least_squares(
        off, [min(float(correlations[0]), 0.99), start], bounds=([0.0, -3.0], [1.0, max_log_range])
    )
    e_folding_s = float(lags_s[0] * math.exp(fitted.x[1]))
    misfit = float(np.sqrt(2 * fitted.cost))
    poor = _find_doubt(e_folding_s, float(np.ptp(times_s)), float(lags_s[0]), misfit)
    return CorrelationFit(Correlation(e_folding_s), float(fitted.x[0]), lags_s, correlations, pairs, poor)


def _make_correlogram(residuals: Floats, times_s: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Compute lags [s], correlations and pairs, binned by the median time between slices."""
    slices = len(times_s)
    if slices < 2:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    step = float(np.median(np.diff(times_s)))
    max_lag = min(max(slices // 2, 1), MAX_LAGS)
    # No mean is subtracted: a persistent error of a station (such as its height) is part of the error.
    known = np.isfinite(residuals)
    values = np.where(known, residuals, 0.0)
    # By lag bin: pairs, sums of lags, of products, and of either's squares.
    sums = np.zeros((max_lag + 1, 5))
    # Without lag 0, white noise lowers a and not the e-folding time.
    for offset in range(1, max_lag + 1):
        lag_s = times_s[offset:] - times_s[:-offset]
        classes = np.rint(lag_s / step).astype(np.intp)
        inside = (classes >= 1) & (classes <= max_lag)
        if not inside.any():
            break
        first, second = values[:-offset], values[offset:]
        both = known[:-offset] & known[offset:]
        rows = both.sum(axis=1)
        each = [rows, lag_s * rows, (first * second).sum(axis=1), (first**2 * both).sum(axis=1)]
        each.append((second**2 * both).sum(axis=1))
        np.add.at(sums, classes[inside], np.stack(each, axis=1)[inside])
    sums = sums[1:]
    sums = sums[(sums[:, 0] > 0) & (sums[:, 3] > 0) & (sums[:, 4] > 0)]
    return sums[:, 1] / sums[:, 0], sums[:, 2] / np.sqrt(sums[:, 3] * sums[:, 4]), sums[:, 0].astype(np.int64)


def _find_doubt(e_folding_s: float, record_s: float, step_s: float, misfit: float) -> str | None:
    if record_s < SPANS * e_folding_s:
        return f"the record is only {record_s / e_folding_s:.1f} e-folding times long"
    if misfit > MISFIT:
        return f"the correlation is not exponential (off by {misfit:.2f} in the mean)"
    if e_folding_s < step_s / 2:
        return "it is shorter than half the time between slices"
    return None
