"""Whether a trend in elevation helps: chosen by cross-validation on the stations that are interpolated.

A trend that elevation does not explain costs accuracy: its coefficients are fitted to noise, slice by slice. So the
candidates, none, a lapse rate and a profile, are compared by leaving out the stations in ten parts, on slices spread
evenly over those that are computed. The simplest candidate within one standard error of the best is taken (Breiman and
others 1984, section 3.4.3), the errors of a station taken together.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest, resolve_variogram
from hypergrid.interpolation.methods.registry import Method
from hypergrid.interpolation.points.points import Stations, Targets
from hypergrid.interpolation.solvers.trend import ELEVATION, FittedTrend, Trend, subtract_trend

Floats = NDArray[np.float64]

CANDIDATES: Final = (None, Trend("lapse_rate"), Trend("profile"))
"""From simple to complex."""
PARTS: Final = 10
MAX_SLICES: Final = 48
MAX_STATIONS: Final = 300
"""Stations that are compared at most, evenly of the network: their squares are known well enough."""
MIN_STATIONS: Final = 4
"""Stations below which nothing is compared."""


def choose_trend(
    method: Method, given: Mapping[str, Any], stations: Stations, values: Floats, network_m: Floats | None
) -> tuple[Trend | None, str]:
    """Return the trend that cross-validation favours, None for none, and a note of the comparison.

    Parameters
    ----------
    method, given
        What interpolates what a trend leaves, and its parameters.
    stations, values
        Shape (slices, stations), NaN where missing; `stations` have elevations.
    network_m
        Elevations of all stations of the network [m], as `FittedTrend` takes them.
    """
    if np.isfinite(values).any(axis=0).sum() < MIN_STATIONS:
        return None, "trend: none (too few stations to compare)"
    stations, values = _thin_samples(stations, values)
    squares, compared = [], []
    for trend in CANDIDATES:
        # A candidate that the stations do not allow is no candidate.
        try:
            squares.append(_find_squares(method, given, stations, values, trend, network_m))
        except (InvalidQuery, SingularSystem):
            continue
        compared.append(trend)
    if not compared:
        return None, "trend: none (no candidate can be cross-validated)"
    everywhere = np.all([np.isfinite(each) for each in squares], axis=0)
    # One number a station: the errors of its slices belong together.
    count = everywhere.sum(axis=0)
    sums = np.array([np.where(everywhere, each, 0.0).sum(axis=0) for each in squares])
    means = sums[:, count > 0] / count[count > 0]
    if means.shape[1] < MIN_STATIONS:
        return None, "trend: none (too few stations to compare)"
    chosen = _find_simplest(means)
    roots = np.sqrt(sums.sum(axis=1) / count.sum())
    errors = ", ".join(f"{trend or 'none'} {root:.3g}" for trend, root in zip(compared, roots, strict=True))
    return compared[
        chosen
    ], f"trend: {compared[chosen] or 'none'}, by cross-validation (root-mean-square error {errors})"


def _find_simplest(means: Floats) -> int:
    """Return the first candidate within one standard error of the best, shape of `means` (candidates, stations)."""
    best = int(means.mean(axis=1).argmin())
    excess = means - means[best]
    error = excess.std(axis=1, ddof=1) / np.sqrt(means.shape[1])
    return int(np.flatnonzero(excess.mean(axis=1) <= error)[0])


def _thin_samples(stations: Stations, values: Floats) -> tuple[Stations, Floats]:
    reporting_rows = np.flatnonzero(np.isfinite(values).any(axis=1))
    rows = reporting_rows[np.unique(np.linspace(0, len(reporting_rows) - 1, MAX_SLICES).astype(int))]
    columns = np.unique(np.linspace(0, stations.count - 1, MAX_STATIONS).astype(int))
    return stations.take_stations(columns), values[np.ix_(rows, columns)]


def _find_squares(
    method: Method,
    given: Mapping[str, Any],
    stations: Stations,
    values: Floats,
    trend: Trend | None,
    network_m: Floats | None,
) -> Floats:
    """Return the squared errors of values that were left out, shape (slices, stations)."""
    left = (
        values
        if trend is None
        else subtract_trend(values, _fit_trend(trend, stations, values, network_m).estimate_at_stations())
    )
    given = dict(given)
    wanted = given.get("variogram")
    if isinstance(wanted, VariogramRequest):
        # One variogram a candidate: leaving a tenth of the stations out hardly changes it.
        given["variogram"] = resolve_variogram(wanted, stations, left).variogram
    squares = np.full(values.shape, np.nan)
    numbers = np.arange(stations.count)
    for part in range(min(PARTS, stations.count)):
        out, kept = numbers[numbers % PARTS == part], numbers[numbers % PARTS != part]
        inside, outside = stations.take_stations(kept), stations.take_stations(out)
        targets = Targets(outside.positions_m, outside.covariates)
        known, added = values[:, kept], np.zeros((len(values), len(out)))
        if trend is not None:
            fitted = _fit_trend(trend, inside, known, network_m)
            known = subtract_trend(known, fitted.estimate_at_stations())
            added = fitted.coefficients @ fitted.columns(outside.covariates[ELEVATION]).T
        squares[:, out] = np.square(method.prepare(inside, known, given).estimate(targets) + added - values[:, out])
    return squares


def _fit_trend(trend: Trend, stations: Stations, values: Floats, network_m: Floats | None) -> FittedTrend:
    return FittedTrend(trend, stations.covariates[ELEVATION], values, network_m)
