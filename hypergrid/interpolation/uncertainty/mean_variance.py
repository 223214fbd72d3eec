"""Error variance of weighted means over time.

With P the inverse of the system of all stations, K the covariances of readings, w the weights of all stations for a
target, and M the stations missing from slice t, the error of the slice's estimate is `e + w' d`: e the error with all
stations, d that of the gap-filled values. The two are uncorrelated, because `P (K w - k0) = 0`, and `d = -G P z` with
`G = inv(P_MM)`, zero elsewhere. If the correlation is separable, with `r(t, t')` between slices, a mean with weights u
has the error variance

    sum u u' r * full + w' S w,    S = sum u u' r G P G'                                         (sums over t and t')

A measurement error nugget is white noise: only K less the nugget v is correlated in time. With `F = I - G P`, so that
`F w` are the weights of the present readings, S is then reduced by

    v T,    T = sum over t != t' of u u' r F F'

Exponential correlation is Markov, so the double sums are one pass with `H = p H + u G`, p the correlation to the
previous slice, for any steps between slices: half of S less its diagonal is `sum u G P H`. Only rows and columns of
stations missing from some slice of the mean can differ from zero, and only those are held; for T, which is
`2 c I - P H - H P …`, this holds for the weights w and for P w.

If the same stations report in all slices, the variance grows with the correlation. If they change, the errors of two
slices may have opposite signs, as for estimates from opposite sides, and the variance may peak at a correlation time of
some hours: `make_ladder` lists the times to evaluate.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points import Floats, group_masks


@dataclass(frozen=True)
class Correlation:
    """Exponential correlation in time, `exp(-lag / e_folding_s)`.

    Raises
    ------
    InvalidQuery
        An e-folding time that is negative or NaN.
    """

    e_folding_s: float
    """Lag at which the correlation is 1/e [s]; 0 for independent slices, infinite for fully correlated ones."""

    def __post_init__(self) -> None:
        if not self.e_folding_s >= 0:
            raise InvalidQuery(
                f"a correlation in time needs an e-folding time of zero or more seconds; got {self.e_folding_s}"
            )

    def evaluate(self, lag_s: Floats) -> Floats:
        """Evaluate the correlation at lags above zero [s], same shape."""
        if self.e_folding_s == 0:
            return np.zeros_like(lag_s)
        return np.exp(-lag_s / self.e_folding_s)


INDEPENDENT = Correlation(0.0)
"""Errors of different slices are independent."""
ALIKE = Correlation(math.inf)
"""Errors of all slices are equal, except for missing stations and noise of the readings."""

# With 1.7, a mean between two stations that report alternately had, between two rungs, a variance 1.3 % above all
# rungs.
RUNG = 1.4
"""Maximum ratio of consecutive e-folding times of the ladder."""
MIN_RUNGS = 8
"""Minimum e-folding times of the ladder between its two ends."""


def make_ladder(step_s: float, span_s: float) -> tuple[Correlation, ...]:
    """List correlations from independent to fully correlated slices, by increasing e-folding time.

    Parameters
    ----------
    step_s
        Shortest time between two slices [s]; at a quarter of it, slices are practically independent.
    span_s
        Longest time between two slices of one mean [s]; at ten times it, they are almost fully correlated.
    """
    first, last = step_s / 4, 10 * max(span_s, step_s)
    count = max(MIN_RUNGS, 1 + math.ceil(math.log(last / first, RUNG)))
    return (INDEPENDENT, *map(Correlation, np.geomspace(first, last, count).tolist()), ALIKE)


@dataclass(frozen=True, eq=False)
class Combination:
    """Error of one weighted mean of slices, for any target."""

    correlated: float
    """Sum of `u u' r` over pairs of slices: remaining share of the all-station variance."""
    white: float
    """Sum of squared weights: the remaining share of a white-noise variance."""
    gone: NDArray[np.intp]
    """Stations that are missing from some of the slices."""
    form: Floats
    """Quadratic form of their weights w, shape (gone, gone)."""
    mixed: Floats
    """Bilinear form of `P w` and w, shape (gone, gone); zero without noise."""
    noise: float
    """Factor of the subtracted sum of squared weights of all stations; zero without noise."""

    @property
    def nbytes(self) -> int:
        """Memory used [bytes]."""
        return self.gone.nbytes + self.form.nbytes + self.mixed.nbytes

    def variance(self, weights: Floats, projected: Floats, full: Floats) -> Floats:
        """Compute the error variance of the mean at targets, shape (targets,).

        Parameters
        ----------
        weights
            Weights of all stations, w, shape (targets, stations).
        projected
            `P w`, same shape; may have no columns without noise.
        full
            Variance of a slice in which all stations report, of the value without instrument noise; shape (targets,).
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
    """Combine slices into a weighted mean (or sum), and describe its error.

    Parameters
    ----------
    core
        The stations' block of the system's inverse P, shape (stations, stations).
    present
        Which station reports in which slice, shape (slices, stations).
    weights
        Weights of the slices, shape (slices,); 0 for slices outside the mean, which includes every slice without
        stations.
    times_s
        Times of the slices, increasing [s], shape (slices,).
    correlation
        Correlation between slices.
    noise
        Measurement error nugget [square of the variable's unit]; 0 if it is micro-scale, which belongs to the field and
        has its correlation.

    Raises
    ------
    ValueError
        A slice without stations has a weight.
    """
    used = np.flatnonzero(weights)
    weights, times_s, present = weights[used], times_s[used], present[used]
    if not present.any(axis=1).all():
        raise ValueError("a slice without stations cannot be in a mean; give it the weight 0")
    gone = np.flatnonzero(~present.all(axis=0))
    before = np.concatenate([[0.0], correlation.evaluate(np.diff(times_s))])
    inner = core[np.ix_(gone, gone)]
    squared = core[gone] @ core[:, gone] if noise else inner
    gains = _list_gains(inner, present[:, gone], weights, before)
    return _pass_gains(gains, gone, inner, squared, noise)


class SliceGain(NamedTuple):
    """Slice of a mean, and what its missing stations add to the error."""

    missing: NDArray[np.intp]
    """Indices into the stations that are missing from some slice."""
    gain: Floats
    """G: inverse of their block of P."""
    weight: float
    correlation: float
    """Correlation with the previous slice; 0 for the first."""


def _list_gains(inner: Floats, present: NDArray[np.bool_], weights: Floats, before: Floats) -> list[SliceGain]:
    gains = [(np.empty(0, dtype=np.intp), np.empty((0, 0)))] * len(present)
    for mask, slices in group_masks(present):
        missing = np.flatnonzero(~mask)
        inverted = np.asarray(np.linalg.inv(inner[np.ix_(missing, missing)]), dtype=np.float64)
        for number in slices:
            gains[number] = missing, inverted
    parts = zip(gains, weights.tolist(), before.tolist(), strict=True)
    return [SliceGain(*gain, weight, correlation) for gain, weight, correlation in parts]


def _pass_gains(
    gains: list[SliceGain], gone: NDArray[np.intp], inner: Floats, squared: Floats, noise: float
) -> Combination:
    # Sums over t: u^2 G; u G P H; and for the noise u H plus u c G, and u G P P H.
    own, crossed, mixed, noisy = (np.zeros(inner.shape) for _ in range(4))
    # Sums over the previous slices, by their correlation with the next: H of u G, and c of u.
    history, total, pairs = np.zeros(inner.shape), 0.0, 0.0
    for missing, gain, weight, correlation in gains:
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
    white = float(np.sum(np.square([each.weight for each in gains])))
    return Combination(
        white + 2 * pairs, white, gone, own + half + half.T, 2 * noise * mixed, 2 * noise * pairs
    )  # fmt: skip
