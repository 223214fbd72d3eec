"""Errors of weighted means over time: what is left of the kriging variance when slices are averaged.

With P the inverse of the system of all stations, K the covariances of readings, w the weights of all stations for a
target, and M the stations missing from slice t, the error of the slice's estimate is `e + w' d`: e the error with all
stations, d that of the gap-filled values. The two are uncorrelated, because `P (K w - k0) = 0`, and `d = -G P z` with
`G = inv(P_MM)`, zero elsewhere. Where the correlation is separable, with `r(t, t')` between slices, a mean with weights
u has the error variance

    sum u u' r * full + w' S w,    S = sum u u' r G P G'                                         (sums over t and t')

A nugget of measurement error is noise without memory: the part of K that has a correlation in time is K less the
nugget v. With `F = I - G P`, so that `F w` are the weights of the readings present, S then loses

    v T,    T = sum over t != t' of u u' r F F'

Exponential correlation is Markov, so the double sums are one pass with `H = p H + u G`, p the correlation to the slice
before, whatever the steps between slices: half of S less its diagonal is `sum u G P H`. Only rows and columns of
stations that are missing from some slice of the mean ever differ from zero, and only those are held; of T, which is
`2 c I - P H - H P …`, they are so for the weights w and for P w.

Where the same stations report to all slices, the variance grows with the correlation. Where they change, errors of two
slices may have opposite signs, as those of an estimate from one side and of one from the other, and the variance may be
greatest for a correlation time of some hours: `make_ladder` holds the times at which it is to be looked at.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.solvers.masks import group_masks

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Correlation:
    """Exponential correlation in time, `exp(-lag / e_folding_s)`.

    Raises
    ------
    InvalidQuery
        An e-folding time that is negative or no number.
    """

    e_folding_s: float
    """Lag at which the correlation is 1/e [s]; 0 for independent slices, infinite for fully correlated ones."""

    def __post_init__(self) -> None:
        if not self.e_folding_s >= 0:
            message = f"a correlation in time needs an e-folding time of zero or more seconds; got {self.e_folding_s}"
            raise InvalidQuery(message)

    def evaluate(self, lag_s: Floats) -> Floats:
        """Return the correlation at lags above zero [s], same shape."""
        if self.e_folding_s == 0:
            return np.zeros_like(lag_s)
        return np.exp(-lag_s / self.e_folding_s)


INDEPENDENT = Correlation(0.0)
"""Each slice's error has nothing to do with any other's."""
ALIKE = Correlation(math.inf)
"""All slices' errors are the same, but for their missing stations and the noise of their readings."""

RUNG = 1.4
"""Most by which an e-folding time of the ladder is longer than the one below.

With 1.7, a mean between two stations that report in turn had a variance between two rungs 1.3 % above all rungs.
"""
MIN_RUNGS = 8
"""E-folding times of the ladder between its two ends, at least."""


def make_ladder(step_s: float, span_s: float) -> tuple[Correlation, ...]:
    """Return correlations from independent to fully correlated slices, by increasing e-folding time.

    Parameters
    ----------
    step_s
        Shortest time between two slices [s]; at a quarter of it, slices are as good as independent.
    span_s
        Longest time between two slices of one mean [s]; at ten times it, they are nearly alike.
    """
    first, last = step_s / 4, 10 * max(span_s, step_s)
    count = max(MIN_RUNGS, 1 + math.ceil(math.log(last / first, RUNG)))
    return (INDEPENDENT, *map(Correlation, np.geomspace(first, last, count).tolist()), ALIKE)


@dataclass(frozen=True, eq=False)
class Combination:
    """Error of one weighted mean of slices, for any target."""

    correlated: float
    """Sum of `u u' r` over pairs of slices: the share of the variance with all stations that is left."""
    white: float
    """Sum of squared weights: the share that is left of a variance without memory."""
    gone: NDArray[np.intp]
    """Stations that are missing from some of the slices."""
    form: Floats
    """Quadratic form of their weights w, shape (gone, gone)."""
    mixed: Floats
    """Bilinear form of `P w` and w, shape (gone, gone); zero without noise."""
    noise: float
    """What the sum of squared weights of all stations takes; zero without noise."""

    def variance(self, weights: Floats, projected: Floats, full: Floats) -> Floats:
        """Return the error variance of the mean at targets, shape (targets,).

        Parameters
        ----------
        weights
            Of all stations, w, shape (targets, stations).
        projected
            `P w`, same shape; without noise it may have no columns.
        full
            Variance of a slice to which all stations report, of the value without the instruments' noise; shape
            (targets,).
        """
        result = self.correlated * full
        if len(self.gone):
            inner = weights[:, self.gone]
            result = result + np.einsum("ts,ts->t", inner @ self.form, inner)
            if self.noise:
                result += np.einsum("ts,ts->t", projected[:, self.gone] @ self.mixed, inner)
        if self.noise:
            result -= self.noise * np.einsum("ts,ts->t", weights, weights)
        return np.asarray(result)


def combine(
    core: Floats,
    present: NDArray[np.bool_],
    *,
    weights: Floats,
    times_s: Floats,
    correlation: Correlation,
    noise: float = 0.0,
) -> Combination:
    """Return the error of a weighted mean (or sum) of slices.

    Parameters
    ----------
    core
        The stations' part of the system's inverse P, shape (stations, stations).
    present
        Which station reports in which slice, shape (slices, stations).
    weights
        Of the slices, shape (slices,); 0 for those that are not in the mean, as every slice without stations must be.
    times_s
        Of the slices, increasing [s], shape (slices,).
    correlation
        Between slices.
    noise
        Nugget that stands for measurement error [square of the variable's unit]; 0 where it is micro-scale, which
        belongs to the field and has its correlation.

    Raises
    ------
    ValueError
        A slice without stations has a weight.
    """
    used = np.flatnonzero(weights)
    weights, times_s, present = weights[used], times_s[used], present[used]
    if not present.any(axis=1).all():
        message = "a slice without stations cannot be in a mean; give it the weight 0"
        raise ValueError(message)
    gone = np.flatnonzero(~present.all(axis=0))
    before = np.concatenate([[0.0], correlation.evaluate(np.diff(times_s))])
    inner = core[np.ix_(gone, gone)]
    squared = core[gone] @ core[:, gone] if noise else inner
    return _pass_gains(gone, inner, squared, _list_gains(inner, present[:, gone]), weights, before, noise)


Gain = tuple[NDArray[np.intp], Floats]
"""Missing stations of a slice, counted among those that are ever missing, and the inverse of their part of P."""


def _list_gains(inner: Floats, present: NDArray[np.bool_]) -> list[Gain]:
    gains: list[Gain] = [(np.empty(0, dtype=np.intp), np.empty((0, 0)))] * len(present)
    for mask, slices in group_masks(present):
        missing = np.flatnonzero(~mask)
        inverted = np.asarray(np.linalg.inv(inner[np.ix_(missing, missing)]), dtype=np.float64)
        for number in slices:
            gains[number] = missing, inverted
    return gains


def _pass_gains(
    gone: NDArray[np.intp],
    inner: Floats,
    squared: Floats,
    gains: list[Gain],
    weights: Floats,
    before: Floats,
    noise: float,
) -> Combination:
    # Sums over t: of u^2 G; of u G P H; and for the noise of u H and u c G, and of u G P P H.
    own, crossed, mixed, noisy = (np.zeros(inner.shape) for _ in range(4))
    # Over the slices so far, by their correlation with the next: H = sum of u G, and c = sum of u.
    history, total, pairs = np.zeros(inner.shape), 0.0, 0.0
    for (missing, gain), weight, correlation in zip(gains, weights.tolist(), before.tolist(), strict=True):
        history *= correlation
        total *= correlation
        pairs += weight * total
        if noise and correlation:
            mixed += weight * history
        if len(missing):
            block = np.ix_(missing, missing)
            own[block] += weight**2 * gain
            if correlation:
                crossed[missing] += weight * (gain @ (inner[missing] @ history))
            if noise and correlation:
                mixed[block] += weight * total * gain
                noisy[missing] += weight * (gain @ (squared[missing] @ history))
            history[block] += weight * gain
        total += weight
    half = crossed - noise * noisy
    white = float(np.sum(weights**2))
    return Combination(
        white + 2 * pairs, white, gone, own + half + half.T, 2 * noise * mixed, 2 * noise * pairs
    )  # fmt: skip
