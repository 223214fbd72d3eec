"""How long errors of interpolation last: the correlation in time of what each station's neighbours do not know of it.

The error of leaving a station out is a linear map of its slice, with the same weights in every slice of one mask; so
where space and time are separable its correlation at lag h is `a r(h)`: r that of the field, and a below 1 where
readings carry noise without memory. Lag 0 is left out of the fit, so that such noise lowers a and not the e-folding
time. A lasting error of a station (such as its height) is part of the error, and no mean is taken off.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.solvers.masks import group_masks
from hypergrid.interpolation.uncertainty.mean_variance import INDEPENDENT, Correlation

Floats = NDArray[np.float64]

MIN_PAIRS = 30
"""Pairs of neighbouring slices with a residual of the same station, below which nothing is estimated."""
MAX_LAGS = 400
"""Lags that are looked at."""
FADED = 0.1
"""Correlation below which longer lags say nothing any more."""
SPANS = 10.0
"""E-folding times that a record should have at least; in a shorter one the correlation is hardly known."""
MISFIT = 0.1
"""Root mean square difference of found and fitted correlation above which the form is not exponential."""


@dataclass(frozen=True, eq=False)
class CorrelationFit:
    """A correlation in time as estimated, and how far to trust it."""

    correlation: Correlation
    share: float
    """Share of the residuals' variance that has a memory, 0 to 1; the rest is like noise."""
    lags_s: Floats
    """Lags that were used [s], shape (lags,)."""
    correlations: Floats
    """Correlation at each lag, shape (lags,)."""
    pairs: NDArray[np.int64]
    """Pairs behind each, shape (lags,)."""
    poor: str | None
    """Why not to trust it; None where nothing speaks against it."""

    def describe(self) -> str:
        """Return one line for people."""
        text = f"e-folding time {self.correlation.e_folding_s:.3g} s, estimated from leave-one-out residuals"
        if self.correlation.e_folding_s:
            text += f" ({self.share:.0%} of their variance has a memory)"
        return text + (f"; poor: {self.poor}" if self.poor else "")


def standardise_residuals(core: Floats, present: NDArray[np.bool_], complete: Floats) -> Floats:
    """Return leave-one-out errors over their standard deviation, shape (slices, stations), NaN where missing.

    Parameters
    ----------
    core
        The stations' part of the system's inverse P, shape (stations, stations).
    present
        Which station reports in which slice, shape (slices, stations).
    complete
        Values with gaps kriged (and a known mean taken off), shape (slices, stations). With them `P z` is that of the
        stations present alone, and 0 for the others.
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
        Of the slices, increasing [s].

    Raises
    ------
    InvalidQuery
        Too few pairs of neighbouring slices.
    """
    lags_s, correlations, pairs = _make_correlogram(residuals, times_s)
    if not len(pairs) or pairs[0] < MIN_PAIRS:
        message = (
            f"the correlation in time is estimated from at least {MIN_PAIRS} pairs of neighbouring readings of a "
            f"station; got {int(pairs[0]) if len(pairs) else 0}; give correlation_time, such as '6h', or leave it out "
            "to get the bracket from independent to fully correlated slices"
        )
        raise InvalidQuery(message)
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
    """Return lags [s], correlations and pairs, by lag in steps of the usual time between slices."""
    slices = len(times_s)
    if slices < 2:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    step = float(np.median(np.diff(times_s)))
    max_lag = min(max(slices // 2, 1), MAX_LAGS)
    known = np.isfinite(residuals)
    values = np.where(known, residuals, 0.0)
    # By class of lag: pairs, sum of lags, of products, and of squares of either.
    sums = np.zeros((max_lag + 1, 5))
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
