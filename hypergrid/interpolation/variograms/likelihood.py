"""Fit variograms by restricted maximum likelihood (REML), for which few stations suffice.

An empirical variogram of 8 stations has 28 pairs, and its fit hangs on where the bins begin. The likelihood uses all
differences at once: with H a basis of what is orthogonal to the drift functions, `H'z` is normal with the covariance
`sigma^2 H' ((1 - g) R + g I) H` (Patterson and Thompson 1971). For one correlation matrix R a single decomposition of
`H'RH` gives the likelihood under every nugget share g, and sigma^2 has a closed form: what remains is a search of two
dimensions, on a grid.

The variogram is the average of all on the grid, weighted by posterior density, a nested sum: one best fit would be a
pure nugget in one field of ten, and a flat map.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import give_way
from hypergrid.interpolation.points import COINCIDENT_M, Floats, are_on_sphere, group_masks, separations
from hypergrid.interpolation.variograms.models import MODELS
from hypergrid.interpolation.variograms.variogram import Structure, Variogram

NUGGET_SHARES: Final = np.array([0.0, 0.01, 0.03, 0.06, 0.1, 0.16, 0.25, 0.36, 0.5, 0.65, 0.8, 0.9, 0.96, 1.0])
"""Nugget shares that are tried."""
RANGES: Final = 20
"""Number of ranges that are tried, from half the shortest distance to `LONGEST` extents."""
LONGEST: Final = 4.0
SHAPES: Final = (("exponential", None), ("matern", 1.5))
"""Models that are tried, with their smoothness; the second is that of a smooth field."""
# From 4 to 40 stations, fits without a prior drew flat or spotty maps in one field of five: short ranges and long ones
# explain few pairs about equally well.
PRIOR_RANGE: Final = 0.8
"""Mode of the prior of the range [extents of the network]."""
PRIOR_SPREAD: Final = 1.2
"""Standard deviation of the prior of the range's logarithm."""
MOST_TERMS: Final = 9
"""Maximum structures of the averaged variogram."""
ROUNDING: Final = 1e-12
"""Relative size below which a difference is rounding."""
MOST_MASKS: Final = 12
"""Maximum sets of reporting stations that enter a fit, those with most values."""
MASK_WORK: Final = 7e6
"""Maximum of the sets times their stations cubed: beyond it, fewer sets enter."""


@dataclass(frozen=True)
class LikelihoodFit:
    """Variogram averaged over its posterior density, and what it rests on."""

    variogram: Variogram
    independent_slices: float
    """Slices that would tell as much if they were independent of each other; at least 1."""
    widening: float
    """Factor by which the sills are larger than estimated, as they rest on few values; at least 1."""


class _Spectrum(NamedTuple):
    """One set of stations under one correlation: eigenvalues, and the values along its eigenvectors."""

    eigenvalues: Floats
    """Shape (m,)."""
    scaled: Floats
    """Squares of each slice's values over its mean square, averaged over slices, shape (m,)."""
    raw: Floats
    """The same of the values as they are."""
    slices: int


def fit_by_likelihood(positions_m: Floats, columns: Floats, values: Floats) -> LikelihoodFit:
    """Fit range, nugget and sill to all slices together.

    Slices are scaled to equal variance, so that one stormy slice does not decide, and count as far as they are
    independent of each other.

    Parameters
    ----------
    positions_m
        Stations, shape (stations, 2) on a plane or (stations, 3) on the sphere [m].
    columns
        Drift functions at the stations, shape (stations, functions); ones for a constant mean.
    values
        Shape (slices, stations), NaN where missing.

    Raises
    ------
    InvalidQuery
        No slice has two stations more than drift functions, or the values do not vary beside the drift.
    """
    sets = [(mask, values[np.ix_(slices, np.flatnonzero(mask))]) for mask, slices in group_masks(np.isfinite(values))]
    sets = [(mask, lines) for mask, lines in sets if mask.sum() >= columns.shape[1] + 2]
    count = max(1, min(MOST_MASKS, int(MASK_WORK / max(len(positions_m), 1) ** 3)))
    sets = sorted(sets, key=lambda pair: -pair[1].size)[:count]
    bases = [_null_space(columns[mask]) for mask, _ in sets]
    contrasts = [lines @ basis for (_, lines), basis in zip(sets, bases, strict=True)]
    if not any(_differ(part, lines) for part, (_, lines) in zip(contrasts, sets, strict=True)):
        raise InvalidQuery(
            f"a variogram needs a slice with at least {columns.shape[1] + 2} stations and values that vary; got "
            f"{len(positions_m)} stations"
        )
    independent = _count_independent(contrasts)
    weight = independent / sum(map(len, contrasts))
    extent = float(np.linalg.norm(np.ptp(positions_m, axis=0)))
    distance = separations(positions_m, positions_m)
    candidates = list(_list_candidates(distance, extent, on_sphere=are_on_sphere(positions_m)))
    if not candidates:
        raise InvalidQuery(f"a variogram needs stations that lie apart; got {len(positions_m)} at one place")
    density, sill = np.empty((2, len(candidates), len(NUGGET_SHARES)))
    for row, (model, smoothness, range_m) in enumerate(candidates):
        give_way()
        share = MODELS[model](distance / range_m, smoothness or 0.0)
        spectra = [
            _decompose(1.0 - share[np.ix_(mask, mask)], basis, part)
            for (mask, _), basis, part in zip(sets, bases, contrasts, strict=True)
        ]
        prior = -0.5 * (np.log(range_m / (PRIOR_RANGE * extent)) / PRIOR_SPREAD) ** 2
        for column, nugget_share in enumerate(NUGGET_SHARES):
            density[row, column] = weight * _log_likelihood(spectra, nugget_share) + prior
            sill[row, column] = _sill(spectra, nugget_share)
    posterior = np.exp(density - density.max())
    posterior /= posterior.sum()
    psill = (posterior * sill * (1.0 - NUGGET_SHARES)).sum(axis=1)
    nugget = float((posterior * sill * NUGGET_SHARES).sum())
    # With a sill estimated from f differences, errors over their stated deviation follow Student's t: its 97.5 %
    # quantile in place of 1.96. Intervals of the mean of 5 to 12 stations held 87 to 94 % without it, 92 to 96 with it.
    freedom = independent * float(np.mean([basis.shape[1] for basis in bases]))
    widening = float((scipy.stats.t.ppf(0.975, freedom) / scipy.stats.norm.ppf(0.975)) ** 2)
    variogram = _join_terms(candidates, psill * widening, nugget * widening)
    return LikelihoodFit(variogram, independent, widening)


def _join_terms(candidates: list[tuple[str, float | None, float]], psill: Floats, nugget: float) -> Variogram:
    """Sum the structures, those of one model in a few groups of neighbouring ranges with about equal sills."""
    total, terms = float(psill.sum()), list[Structure]()
    for model, smoothness in SHAPES:
        own = np.array([row for row, candidate in enumerate(candidates) if candidate[0] == model], dtype=np.intp)
        share = psill[own] / (total or 1.0)
        groups = np.ceil(MOST_TERMS * share.sum() - 1e-9) * (np.cumsum(share) - share / 2) / (share.sum() or 1.0)
        for group in np.unique(groups.astype(np.intp)):
            rows = own[groups.astype(np.intp) == group]
            if psill[rows].sum() > 0:
                logarithm = np.log([candidates[row][2] for row in rows])
                range_m = float(np.exp(np.average(logarithm, weights=psill[rows])))
                terms.append(Structure(model, float(psill[rows].sum()), range_m, smoothness))
    if not terms:
        return Variogram("nugget", 0.0, candidates[0][2], nugget)
    first, *others = terms
    return Variogram(first.model, first.psill, first.range_m, nugget, smoothness=first.smoothness, nested=tuple(others))


def _list_candidates(distance: Floats, extent: float, *, on_sphere: bool) -> Iterator[tuple[str, float | None, float]]:
    separate = distance[distance > COINCIDENT_M]
    if not separate.size:
        return
    ranges = np.geomspace(min(float(separate.min()), 0.1 * extent) / 2.0, LONGEST * extent, RANGES)
    for model, smoothness in SHAPES[: 1 if on_sphere else None]:
        for range_m in ranges:
            yield model, smoothness, float(range_m)


def _differ(contrasts: Floats, values: Floats) -> bool:
    """Return whether values differ by more than rounding from the drift."""
    return bool(np.abs(contrasts).max(initial=0.0) > ROUNDING * np.abs(values).max(initial=0.0))


def _null_space(columns: Floats) -> Floats:
    """Return an orthonormal basis of what is orthogonal to the columns, shape (stations, m)."""
    left, sizes, _ = np.linalg.svd(columns, full_matrices=True)
    return left[:, int((sizes > 1e-9 * sizes[0]).sum()) :]


def _decompose(correlation: Floats, basis: Floats, contrasts: Floats) -> _Spectrum:
    eigenvalues, vectors = np.linalg.eigh(basis.T @ correlation @ basis)
    squares = (contrasts @ vectors) ** 2
    size = squares.mean(axis=1, keepdims=True)
    scaled = np.divide(squares, size, out=np.zeros_like(squares), where=size > 0)
    return _Spectrum(np.maximum(eigenvalues, 0.0), scaled.mean(axis=0), squares.mean(axis=0), len(contrasts))


def _log_likelihood(spectra: list[_Spectrum], nugget_share: float) -> float:
    """Evaluate the restricted log-likelihood with its best sigma^2, up to a constant."""
    count = logarithms = squares = 0.0
    for spectrum in spectra:
        shares = _variances(spectrum, nugget_share)
        count += spectrum.slices * len(shares)
        logarithms += spectrum.slices * float(np.log(shares).sum())
        squares += spectrum.slices * float((spectrum.scaled / shares).sum())
    return float(-0.5 * (count * np.log(squares / count) + logarithms))


def _sill(spectra: list[_Spectrum], nugget_share: float) -> float:
    count = sum(spectrum.slices * len(spectrum.raw) for spectrum in spectra)
    squares = sum(
        spectrum.slices * float((spectrum.raw / _variances(spectrum, nugget_share)).sum()) for spectrum in spectra
    )
    return float(squares / count)


def _variances(spectrum: _Spectrum, nugget_share: float) -> NDArray[np.float64]:
    # A floor, as the eigenvalues of smooth fields fall below what rounding leaves of them.
    return (1.0 - nugget_share) * spectrum.eigenvalues + nugget_share + 1e-6


def _count_independent(contrasts: list[Floats]) -> float:
    """Estimate the number of independent slices, from the correlation of each with the next of its set."""
    slices = sum(map(len, contrasts))
    products = sum(float((part[1:] * part[:-1]).sum()) for part in contrasts)
    squares = sum(float(((part[1:] ** 2 + part[:-1] ** 2) / 2.0).sum()) for part in contrasts)
    correlation = max(products / squares, 0.0) if squares > 0 else 0.0
    return max(1.0, slices * (1.0 - correlation) / (1.0 + correlation))
