"""Empirical variograms: half the mean squared difference of pairs by distance, pooled over slices.

Matheron's estimator, `semivariance(h) = sum of (z_i - z_j)^2 / (2 N(h))` over the N(h) pairs of a bin, in which a pair
of stations counts once per slice that has both. For any gaps the sum over slices is three matrix products: `sum_t p_i
p_j (z_i - z_j)^2 = (z^2)' p + p' z^2 - 2 z' z`, with p the presence and z zero where a value is missing.
"""

from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import split_work
from hypergrid.interpolation.points import COINCIDENT_M, Floats, refuse_sphere, separations
from hypergrid.interpolation.variograms.variogram import Anisotropy

ROWS_AT_ONCE = 1024
"""Maximum stations whose pairs with all others are held together."""
# Matrices of 2 MB stay in the cache, and took a third of the time of 32 MB.
PAIRS_AT_ONCE = 2**18
"""Maximum pairs held together."""


@dataclass(frozen=True)
class Binning:
    """Binning of pairs by distance.

    Raises
    ------
    InvalidQuery
        A cutoff that is not above zero, or no bin.
    """

    cutoff_m: float | None = None
    """Greatest distance [m]; defaults to a third of the diagonal of the stations' extent (gstat's)."""
    bins: int = 15
    """Bins of equal width up to the cutoff; each includes its upper edge (gstat's)."""
    anisotropy: Anisotropy | None = None
    """Distances are computed after its `isotropic`; a fitted variogram carries it."""

    def __post_init__(self) -> None:
        # Written so that NaN is refused as well.
        if (self.cutoff_m is not None and not 0 < self.cutoff_m < np.inf) or self.bins < 1:
            raise InvalidQuery(
                f"binning needs a cutoff above zero metres and one bin or more; got {self.cutoff_m}, {self.bins}"
            )


@dataclass(frozen=True, eq=False)
class EmpiricalVariogram:
    """Empirical variogram: nonempty bins, in order of distance."""

    distance_m: Floats
    """Mean distance of the pairs [m], shape (bins,)."""
    semivariance: Floats
    """Half the mean squared difference [square of the variable's unit], shape (bins,)."""
    pairs: NDArray[np.int64]
    """Pairs of values, counted once per slice, shape (bins,)."""
    cutoff_m: float
    """Greatest distance requested [m]."""


def empirical_variogram(positions_m: Floats, values: Floats, *, binning: Binning | None = None) -> EmpiricalVariogram:
    """Compute the empirical variogram, pooled over slices.

    Parameters
    ----------
    positions_m
        Stations (x, y) [m], shape (stations, 2), or on the sphere, shape (stations, 3).
    values
        Values, NaN where missing, shape (slices, stations); a single slice may have shape (stations,).
    binning
        Binning of pairs by distance.

    Returns
    -------
    Bins
        Coincident pairs have no bin: a variogram is undefined at distance zero.

    Raises
    ------
    InvalidQuery
        Inconsistent shapes, a position that is not finite, or no pair within the cutoff.
    """
    places, lines = _check_values(positions_m, values)
    how = binning or Binning()
    if how.anisotropy:
        refuse_sphere("an anisotropic empirical variogram", places)
        places = how.anisotropy.isotropic(places)
    cutoff = how.cutoff_m or float(np.linalg.norm(np.ptp(places, axis=0))) / 3
    if not cutoff > COINCIDENT_M:
        _refuse(f"all {len(places)} stations at one place, or no extent", "select stations that lie apart")
    edges = np.linspace(0.0, cutoff, how.bins + 1)
    pairs, distances, squares = _sum_by_bin(places, lines, edges)
    filled = pairs > 0
    if not filled.any():
        _refuse(f"no pair of values within {cutoff:g} m in any slice", "raise cutoff_m, or give more slices")
    count = pairs[filled]
    return EmpiricalVariogram(
        distances[filled] / count, squares[filled] / count / 2, np.rint(count).astype(np.int64), cutoff
    )


def _sum_by_bin(places: Floats, lines: Floats, edges: Floats) -> Floats:
    """Sum pairs, their distances and their squared differences by bin; shape (3, bins)."""
    present = np.isfinite(lines)
    weights = present.astype(np.float64)
    # Subtracting a slice's mean changes no difference, and keeps the squares small against rounding.
    counts = np.maximum(present.sum(axis=1, keepdims=True), 1)
    means = np.where(present, lines, 0.0).sum(axis=1, keepdims=True) / counts
    centred = np.where(present, lines - means, 0.0)
    squares = centred**2
    sums = np.zeros((3, len(edges) - 1))
    for rows in split_work(len(places), min(ROWS_AT_ONCE, PAIRS_AT_ONCE // max(len(places), 1))):
        distance = separations(places[rows], places)
        later = np.arange(len(places)) > np.arange(len(places))[rows, None]
        chosen = later & (distance > COINCIDENT_M) & (distance <= edges[-1])
        distances_m = distance[chosen]
        bins = np.searchsorted(edges, distances_m, side="left") - 1
        counted = (weights[:, rows].T @ weights)[chosen]
        squared = squares[:, rows].T @ weights + weights[:, rows].T @ squares - 2 * (centred[:, rows].T @ centred)
        for row, each in enumerate((counted, counted * distances_m, np.maximum(squared[chosen], 0.0))):
            sums[row] += np.bincount(bins, each, minlength=sums.shape[1])
    return sums


def _check_values(positions_m: Floats, values: Floats) -> tuple[Floats, Floats]:
    places = np.asarray(positions_m, dtype=np.float64)
    lines = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if places.ndim != 2 or places.shape[1] not in (2, 3) or lines.ndim != 2 or lines.shape[1] != len(places):
        _refuse(
            f"positions of shape {places.shape} and values of shape {lines.shape}",
            "give positions (stations, 2), or on the sphere (stations, 3), and values (slices, stations)",
        )
    if not np.isfinite(places).all():
        lost = np.flatnonzero(~np.isfinite(places).all(axis=1))
        _refuse(f"no position for stations {lost[:5].tolist()} (counted from 0)", "leave them out")
    if len(places) < 2:
        _refuse(f"{len(places)} stations", "give two or more")
    return places, lines


def _refuse(problem: str, remedy: str) -> NoReturn:
    raise InvalidQuery(f"an empirical variogram needs pairs of values at different places; got {problem}; {remedy}")
