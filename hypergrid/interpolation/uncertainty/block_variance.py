"""Error variance of weighted means over space, by block kriging of a region's cells.

A regional mean with weights a is a linear functional of the field, so its right-hand side is the mean of its cells'
right-hand sides, and its own variance is `c0 - sum a a' gamma(c, c')` over all pairs of cells. Cells of point support
are distinct places: they differ by a micro-scale nugget, and each differs from itself by none. The mean of cells of
block support, or of values without instrument noise, has no nugget, which is `gamma(c, c) = nugget`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import scipy  # submodules load on first use: most queries need none

from hypergrid.core.pacing import split_work
from hypergrid.interpolation.kernels.tiled_cholesky import multiply
from hypergrid.interpolation.points import Floats, Targets, separations
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.uncertainty.mean_variance import Combination, Correlation, combine
from hypergrid.interpolation.variograms.variogram import Variogram

# All pairs take some seconds. 10,000 of 40,000 cells over 5 ranges gave the mean semivariance to a relative 5e-5.
MAX_CELLS = 20_000
"""Maximum places of a region for exact sums over all pairs; larger regions are sampled evenly."""
# 1 MiB stays in a core's cache, and took a third of the time of 16 MiB.
PAIRS_AT_ONCE = 2**17
"""Distances in one batch."""
# Below it, summing all pairs costs less than the detection.
MIN_ON_LATTICE = 1_000
"""Minimum places of a region for detecting a lattice."""
EVEN = 1e-9
"""Tolerance for places of a lattice, as a share of its step."""
SIDES_BYTES = 32 * 2**20
"""Memory budget of the right-hand sides of cells and their parts [bytes]."""


@dataclass(frozen=True, eq=False)
class Regions:
    """Kriging weights and variances of weighted means of cells."""

    weights: Floats
    """Weights of all stations, w, shape (regions, stations)."""
    projected: Floats
    """`P w`, P the stations' block of the system's inverse, same shape; no columns without noise."""
    full: Floats
    """Error variance of the noise-free value with all stations reporting, shape (regions,)."""
    white: Floats
    """Variance added by the readings' noise if the observable value is requested, shape (regions,)."""
    sampled: int
    """Places of the largest region whose own variance was computed from a sample; 0 if none was."""


def regions_of(field: KrigingField, targets: Targets, weights: "scipy.sparse.csr_array") -> Regions:
    """Krige weighted means of cells.

    Parameters
    ----------
    field
        The kriged field.
    targets
        The cells.
    weights
        Weights of the cells in each region, shape (regions, cells).
    """
    model = field.system.model
    stations, size = field.system.stations.count, field.system.size
    sides = np.zeros((weights.shape[0], size))
    columns = weights.tocsc()
    for block in split_work(targets.count, SIDES_BYTES // (size * targets.parts * 8)):
        sides += columns[:, block] @ field.sides(targets.take_targets(block))
    solved = multiply(sides, field.inverse)
    own, sampled = mean_semivariance(targets, weights, model=model, nugget_at_0=model.noise > 0 or targets.parts > 1)
    total = np.asarray(weights.sum(axis=1)).ravel()
    full = field.system.origin * total**2 - own - np.einsum("rs,rs->r", solved, sides)
    noise = 0.0 if field.noise_free or targets.parts > 1 else model.noise
    white = noise * np.asarray(weights.multiply(weights).sum(axis=1)).ravel()
    shares = solved[:, :stations]
    projected = multiply(shares, field.inverse[:stations, :stations]) if model.noise else shares[:, :0]
    return Regions(shares, projected, full, white, sampled)


def slice_variance(field: KrigingField, regions: Regions) -> Floats:
    """Compute the error variance of each slice's regional means, shape (slices, regions), NaN without stations."""
    result = field.growth(regions.weights)
    result += regions.full + regions.white
    np.maximum(result, 0.0, out=result)
    return result


def combinations_of(
    field: KrigingField, weights: "scipy.sparse.csr_array", *, times_s: Floats, correlation: Correlation
) -> list[Combination | None]:
    """Describe the errors of weighted means over slices, one per mean; None for a mean without slices.

    Parameters
    ----------
    field
        The kriged field.
    weights
        Weights of the slices in each mean, shape (means, slices); none for slices without stations.
    times_s
        Times of the slices, increasing within each mean [s].
    correlation
        Correlation between slices.
    """
    stations = field.system.stations.count
    core = field.inverse[:stations, :stations]
    combinations: list[Combination | None] = []
    for first, stop in pairwise(weights.indptr.tolist()):
        order = np.argsort(weights.indices[first:stop])
        slices, share = weights.indices[first:stop][order], weights.data[first:stop][order]
        given = {"times_s": times_s[slices], "correlation": correlation, "noise": field.system.model.noise}
        combinations.append(combine(core, field.present[slices], weights=share, **given) if len(slices) else None)
    return combinations


def mean_variance(combinations: Sequence[Combination | None], regions: Regions) -> Floats:
    """Compute error variances of temporal means of regional means, shape (means, regions), NaN without slices."""
    result = np.full((len(combinations), len(regions.full)), np.nan)
    for number, combination in enumerate(combinations):
        if combination is not None:
            result[number] = combination.variance(regions.weights, regions.projected, regions.full)
            result[number] += combination.white * regions.white
    # Clip rounding errors below zero; NaN is preserved.
    np.maximum(result, 0.0, out=result)
    return result


def mean_semivariance(
    targets: Targets, weights: "scipy.sparse.csr_array", *, model: Variogram, nugget_at_0: bool
) -> tuple[Floats, int]:
    """Compute `sum a a' gamma(c, c')` of each region, shape (regions,), and the largest sampled region's size.

    Parameters
    ----------
    targets
        Cells, each of one or several parts.
    weights
        Weights of the cells in each region, shape (regions, cells).
    model
        The variogram.
    nugget_at_0
        Whether a place differs from itself by the nugget, as two readings do if it is noise.

    Returns
    -------
    The sums, and 0 if all pairs were used. Regular grids in metres always use all pairs. Any other region of more than
    `MAX_CELLS` places is sampled: every k-th place along the rows, with the least k that leaves at most `MAX_CELLS`;
    pairs of a place with itself are summed over all.
    """
    isotropic_m = model.isotropic(targets.positions_m)
    result, sampled = np.zeros(weights.shape[0]), 0
    counts = np.diff(weights.indptr)
    for count in np.unique(counts[counts > 0]).tolist():
        regions = np.flatnonzero(counts == count)
        places = count * targets.parts
        for span in split_work(len(regions), PAIRS_AT_ONCE // places**2):
            batch = regions[span]
            inside = weights.indptr[batch][:, None] + np.arange(count)
            cells, share = weights.indices[inside], weights.data[inside]
            parts = (cells[:, :, None] * targets.parts + np.arange(targets.parts)).reshape(len(batch), places)
            spread = (share[:, :, None] * targets.weights).reshape(len(batch), places)
            # Places of a lattice have few distinct separations, so all pairs are affordable for any number of them.
            lattice = _find_lattice(isotropic_m[parts[0]]) if len(batch) == 1 else None
            if lattice is not None:
                result[batch] = _sum_on_lattice(lattice, spread[0], model)
            elif places > MAX_CELLS:
                sampled = max(sampled, places)
                result[batch] = _sum_sampled(isotropic_m[parts[0]], spread[0], model)
            else:
                result[batch] = _sum_pairs(isotropic_m[parts], spread, model)
            nugget = spread.sum(axis=1) ** 2
            result[batch] += model.nugget * (nugget if nugget_at_0 else nugget - (spread**2).sum(axis=1))
    return result, sampled


def _find_structured(model: Variogram, distance_m: Floats) -> Floats:
    """Evaluate the semivariance without its nugget, 0 at distance 0."""
    return np.asarray(model.semivariance(distance_m) - model.nugget)


def _sum_pairs(places_m: Floats, weights: Floats, model: Variogram) -> Floats:
    """Sum over all pairs of places of each set: (sets, places, 2 or 3) and (sets, places) to (sets,)."""
    sets, count = weights.shape
    if count**2 <= PAIRS_AT_ONCE:
        return np.asarray(
            np.einsum("rij,ri,rj->r", _find_structured(model, separations(places_m, places_m)), weights, weights)
        )
    result = np.zeros(sets)
    for number in range(sets):
        here_m, share = places_m[number], weights[number]
        for block in split_work(count, PAIRS_AT_ONCE // count):
            # Each pair once: a block with itself, and twice with all later places.
            inner = _find_structured(model, separations(here_m[block], here_m[block]))
            result[number] += share[block] @ inner @ share[block]
            outer = _find_structured(model, separations(here_m[block], here_m[block.stop :]))
            result[number] += 2.0 * (share[block] @ outer @ share[block.stop :])
    return result


@dataclass(frozen=True, eq=False)
class _PlaceLattice:
    """Equally spaced rows and columns of places, row by row."""

    shape: tuple[int, int]
    along_m: Floats
    """Step along a row [m], shape (2,)."""
    across_m: Floats
    """Step from a row to the next [m], shape (2,)."""


def _find_lattice(places_m: Floats) -> _PlaceLattice | None:
    """Detect the lattice of places on a plane; None if they form none."""
    count = len(places_m)
    if places_m.shape[1] != 2 or count < MIN_ON_LATTICE:
        return None
    steps = np.diff(places_m, axis=0)
    along = steps[0]
    turns = np.flatnonzero(np.abs(steps - along).max(axis=1) > EVEN * np.abs(along).max())
    columns = int(turns[0]) + 1 if len(turns) else count
    if count % columns:
        return None
    across = places_m[columns] - places_m[0] if columns < count else along
    row, column = np.divmod(np.arange(count), columns)
    wanted = places_m[0] + row[:, None] * across + column[:, None] * along
    even = np.abs(wanted - places_m).max() <= EVEN * np.abs(along).max()
    return _PlaceLattice((count // columns, columns), along, across) if even else None


def _sum_on_lattice(lattice: _PlaceLattice, weights: Floats, model: Variogram) -> float:
    """Sum over all pairs by convolution of the weights, once per distinct separation."""
    spread = weights.reshape(lattice.shape)
    # Equivalent to scipy.signal.fftconvolve, whose import takes a third of a second.
    whole = [2 * size - 1 for size in spread.shape]
    fast = [scipy.fft.next_fast_len(size, real=True) for size in whole]
    turned = scipy.fft.rfft2(spread[::-1, ::-1], fast)
    pairs = scipy.fft.irfft2(scipy.fft.rfft2(spread, fast) * turned, fast)[: whole[0], : whole[1]]
    rows, columns = (np.arange(1 - size, size) for size in lattice.shape)
    apart_m = rows[:, None, None] * lattice.across_m + columns[None, :, None] * lattice.along_m
    return float(np.sum(pairs * _find_structured(model, np.linalg.norm(apart_m, axis=-1))))


def _sum_sampled(places_m: Floats, weights: Floats, model: Variogram) -> float:
    """Estimate the sum over all pairs of many places from every k-th of them."""
    kept = slice(None, None, -(-len(weights) // MAX_CELLS))
    share = weights[kept]
    different_weight = weights.sum() ** 2 - (weights**2).sum()
    return float(
        _sum_pairs(places_m[kept][None], share[None], model)[0] * different_weight / (share.sum() ** 2 - share @ share)
    )
