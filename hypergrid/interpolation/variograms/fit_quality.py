"""When to doubt a fitted variogram."""

import numpy as np

from hypergrid.interpolation.variograms.empirical import EmpiricalVariogram
from hypergrid.interpolation.variograms.models import Floats
from hypergrid.interpolation.variograms.variogram import Variogram

MIN_PAIRS = 30
"""Pairs that a bin needs for its semivariance to mean something (Journel and Huijbregts 1978, III.42)."""

SPARE_BINS = 2
"""EmpiricalVariogram beyond one a parameter below which a fit follows the noise."""

MIN_EXPLAINED = 0.3
"""Share of the variation between bins below which a pure nugget does about as well."""

MAX_MISFIT = 0.25
"""Weighted root-mean-square misfit over that of the semivariance itself, above which the shape does not fit."""


def list_doubts(
    variogram: Variogram, bins: EmpiricalVariogram, *, explained: float, weight: Floats, free: int
) -> tuple[str, ...]:
    """Return why a fit is poor, a sentence each; empty where nothing speaks against it.

    Parameters
    ----------
    variogram, bins, explained
        The fit, what it was fitted to, and the share of the weighted variation between bins that it explains.
    weight
        Weights of the bins, shape (bins,).
    free
        Parameters that were fitted.
    """
    reasons = []
    few = int(np.count_nonzero(bins.pairs < MIN_PAIRS))
    if few:
        reasons.append(
            f"{few} of {len(bins.pairs)} bins hold fewer than {MIN_PAIRS} pairs (give more slices, or fewer bins)"
        )
    if len(bins.pairs) < free + SPARE_BINS:
        reasons.append(f"{len(bins.pairs)} bins are few for {free} parameters (raise bins, or take a simpler model)")
    misfit = bins.semivariance - variogram.semivariance(bins.distance_m)
    off = float(np.sqrt((weight @ misfit**2) / (weight @ bins.semivariance**2)))
    if off > MAX_MISFIT:
        reasons.append(f"it misses the bins by {off:.0%} of their semivariance (try another model)")
    if any(term.model != "nugget" for term in variogram.structures):
        reasons.extend(_list_structural_doubts(variogram, bins, explained))
    return tuple(reasons)


def _list_structural_doubts(variogram: Variogram, bins: EmpiricalVariogram, explained: float) -> list[str]:
    if explained < MIN_EXPLAINED:
        return [
            f"it explains {max(explained, 0.0):.0%} of how the bins differ: no structure shows at these distances, and "
            "a pure nugget does about as well"
        ]
    reach = max((t.effective_range_m for t in variogram.structures if np.isfinite(t.effective_range_m)), default=0.0)
    if reach > bins.cutoff_m:
        return [
            f"its range of {reach:,.0f} m lies beyond the greatest distance, {bins.cutoff_m:,.0f} m: range and sill "
            "are extrapolated, only their ratio is known (raise cutoff_m, take out the trend, or take a linear model)"
        ]
    if 0 < reach < bins.distance_m[0]:
        return [
            f"its range of {reach:,.0f} m lies below the shortest distance, {bins.distance_m[0]:,.0f} m: range and "
            "nugget cannot be told apart"
        ]
    return []
