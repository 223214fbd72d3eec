"""Interpolation of residuals from a trend, by any method."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest, resolve_variogram
from hypergrid.interpolation.methods.registry import Method
from hypergrid.interpolation.points import Field, Floats, Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.trend import (
    ELEVATION,
    NETWORK_M,
    PARAMETER,
    FittedTrend,
    Trend,
    parse_trend,
    subtract_trend,
    trend_of,
)
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache

# `trend="auto"` selects an elevation trend by cross-validation on the stations themselves.
#
# An unneeded trend costs accuracy: its coefficients are fitted to noise, slice by slice. The candidates (none, lapse
# rate, profile) are therefore compared by ten-fold cross-validation over stations, on slices spread evenly over those
# computed. The simplest candidate within one standard error of the best wins (Breiman and others 1984, section 3.4.3),
# with the errors of a station pooled.

CANDIDATES: Final = (None, Trend("lapse_rate"), Trend("profile"))
"""Ordered from simple to complex."""
PARTS: Final = 10
MAX_SLICES: Final = 48
# This many suffice to estimate the squared errors.
MAX_STATIONS: Final = 300
"""Maximum stations compared, spread evenly over the network."""
MIN_STATIONS: Final = 4
"""Minimum stations for a comparison."""


def choose_trend(
    method: Method, given: Mapping[str, Any], stations: Stations, values: Floats, network_m: Floats | None
) -> tuple[Trend | None, str]:
    """Select the trend by cross-validation, None for none, with a note on the comparison.

    Parameters
    ----------
    method, given
        Method that interpolates the residuals, and its parameters.
    stations, values
        Shape (slices, stations), NaN where missing; `stations` have elevations.
    network_m
        Elevations of all stations of the network [m], as in `FittedTrend`.
    """
    if np.isfinite(values).any(axis=0).sum() < MIN_STATIONS:
        return None, "trend: none (too few stations to compare)"
    stations, values = _thin_samples(stations, values)
    squares, compared = [], []
    for trend in CANDIDATES:
        # Candidates that the stations do not support are skipped.
        try:
            squares.append(_find_squares(method, given, stations, values, trend, network_m))
        except (InvalidQuery, SingularSystem):
            continue
        compared.append(trend)
    if not compared:
        return None, "trend: none (no candidate can be cross-validated)"
    everywhere = np.all([np.isfinite(each) for each in squares], axis=0)
    # One number per station: the errors of its slices are correlated.
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
    """Find the first candidate within one standard error of the best; `means` has shape (candidates, stations)."""
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
    """Compute the squared errors of left-out values, shape (slices, stations)."""
    left = (
        values
        if trend is None
        else subtract_trend(values, _fit_trend(trend, stations, values, network_m).estimate_at_stations())
    )
    given = dict(given)
    wanted = given.get("variogram")
    if isinstance(wanted, VariogramRequest):
        # One variogram per candidate: leaving out a tenth of the stations hardly changes it.
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


class DetrendedField(Field):
    """Field of many slices around an elevation trend.

    An estimate is a linear map of the values present in its slice if the inner method's is; the map depends on the
    mask.
    """

    def __init__(self, inner: Field, trend: FittedTrend) -> None:
        self._inner = inner
        self._trend = trend
        self.inner_fields = (inner,)
        self.notes = (*trend.notes, *inner.notes)

    @property
    def counts(self) -> NDArray[np.int32]:
        return self._inner.counts

    def expect(self, places: int, slices: int, *, cache: WeightCache | None = WEIGHTS) -> None:
        self._inner.expect(places, slices, cache=cache)

    def take_slices(self, slices: NDArray[np.intp]) -> "DetrendedField":
        part = type(self)(self._inner.take_slices(slices), self._trend.take_slices(slices))
        part.notes = self.notes
        return part

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets); missing where the inner method's estimates are."""
        estimates = self._inner.estimate(targets)
        estimates += self._trend.coefficients @ self._columns(targets).T
        return estimates

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        return self._inner.counts_at(targets)

    def variance(self, targets: Targets) -> Floats:
        """Return the inner method's variance, shape (slices, targets).

        Raises
        ------
        InvalidQuery
            The trend was fitted: the variance would omit the uncertainty of the trend.
        """
        refuse_variance(self._trend.trend)
        return self._inner.variance(targets)

    def mask_outside(self, targets: Targets) -> NDArray[np.bool_]:
        """Mask targets wholly or partly outside the stations' elevation range; shape (targets,)."""
        parts = self._trend.mask_outside(targets.covariates[ELEVATION])
        return np.asarray(parts.reshape(targets.count, targets.parts).any(axis=1))

    def _columns(self, targets: Targets) -> Floats:
        return targets.mean(self._trend.columns(targets.covariates[ELEVATION]))


class DetrendedKriging(DetrendedField):
    """Kriging on all stations around a trend, linear in station values and trend coefficients.

    A mean over slices can therefore be taken before interpolating, as in `KrigingField`.
    """

    def __init__(self, inner: KrigingField, trend: FittedTrend) -> None:
        super().__init__(inner, trend)
        self._kriged = inner

    @property
    def mean(self) -> float:
        return self._kriged.mean

    @cached_property
    def complete(self) -> Floats:
        """Residuals of every station, and trend coefficients, in every slice; NaN if too few stations report."""
        left = self._kriged.complete
        unknown = np.isnan(left).any(axis=1, keepdims=True)
        return np.hstack([left, np.where(unknown, np.nan, self._trend.coefficients)])

    def dual(self, values: Floats) -> Floats:
        """Compute the dual form of `complete`, or of weighted means of it over slices."""
        stations = values.shape[1] - self._trend.coefficients.shape[1]
        return np.vstack([self._kriged.dual(values[:, :stations]), values[:, stations:].T])

    def carry(self, dual: Floats, targets: Targets) -> Floats:
        trend = self._trend.coefficients.shape[1]
        estimates = self._kriged.carry(dual[:-trend], targets)
        estimates += dual[-trend:].T @ self._columns(targets).T
        return estimates


def keeps_variance(trend: Trend | None) -> bool:
    """Check whether the inner method's variance applies: without a trend, or around a fixed one."""
    return trend is None or trend.kind == "fixed"


def refuse_variance(trend: Trend | None) -> None:
    """Reject a variance around a fitted trend.

    Raises
    ------
    InvalidQuery
        The trend is not a fixed one.
    """
    if not keeps_variance(trend):
        raise InvalidQuery(
            f"the variance around a fitted trend ({trend}) would leave out what is not known of the trend; give a "
            "fixed one, trend={'lapse_rate': -6.5}, or use external_drift_kriging, whose variance holds it"
        )


def with_trend(method: Method) -> Method:
    """Extend a method by the parameter `trend`."""

    def parse(given: Mapping[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in given.items() if name != PARAMETER.name}
        trend = parse_trend(given.get(PARAMETER.name))
        # Omitted if absent, so that queries without it keep their token.
        return {**method.parse(rest), **({PARAMETER.name: trend} if trend else {})}

    def prepare(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
        trend = trend_of(given)
        rest = {name: value for name, value in given.items() if name not in (PARAMETER.name, NETWORK_M)}
        if trend is None or not stations.count:
            return method.prepare(stations, values, rest)
        if trend.is_chosen:
            chosen, note = choose_trend(method, rest, stations, values, given.get(NETWORK_M))
            field = prepare(stations, values, {**given, PARAMETER.name: chosen})
            field.notes = (note, *field.notes)
            return field
        fitted = FittedTrend(trend, stations.covariates[ELEVATION], values, given.get(NETWORK_M))
        inner = method.prepare(stations, subtract_trend(values, fitted.estimate_at_stations()), rest)
        return DetrendedKriging(inner, fitted) if isinstance(inner, KrigingField) else DetrendedField(inner, fitted)

    def covariates(given: Mapping[str, Any]) -> tuple[str, ...]:
        named = method.covariates(given)
        return named if trend_of(given) is None or ELEVATION in named else (*named, ELEVATION)

    parameters = (*method.parameters, PARAMETER)
    return replace(method, parameters=parameters, parse=parse, prepare=prepare, covariates=covariates)
