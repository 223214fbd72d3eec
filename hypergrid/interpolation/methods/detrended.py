"""Any method of interpolation around a trend: the trend off the stations, the rest interpolated, the trend on again."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.methods.fitted_variogram import VariogramRequest, resolve_variogram
from hypergrid.interpolation.methods.registry import Field, Method
from hypergrid.interpolation.points.points import Stations, Targets
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

Floats = NDArray[np.float64]


# Whether a trend in elevation helps: chosen by cross-validation on the stations that are interpolated.
#
# A trend that elevation does not explain costs accuracy: its coefficients are fitted to noise, slice by slice. So the
# candidates, none, a lapse rate and a profile, are compared by leaving out the stations in ten parts, on slices spread
# evenly over those that are computed. The simplest candidate within one standard error of the best is taken (Breiman
# and others 1984, section 3.4.3), the errors of a station taken together.

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


class DetrendedField:
    """The field of many slices around a trend in elevation.

    An estimate is a linear map of the values present in its slice, as long as the inner method's is; the map depends on
    which stations report.
    """

    def __init__(self, inner: Field, trend: FittedTrend) -> None:
        self._inner = inner
        self._trend = trend
        self.trend_notes: tuple[str, ...] = ()
        """How the trend was chosen, where it was not given."""

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        return self._inner.counts

    @property
    def inner_fields(self) -> tuple[Field, ...]:
        """The field of what the trend leaves."""
        return (self._inner,)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        return (*self.trend_notes, *self._trend.notes, *getattr(self._inner, "notes", ()))

    def expect(self, places: int, slices: int, *, keep: bool = True) -> None:
        """Tell the inner method how much will be asked for in all, and whether it may keep what does not change."""
        inner = getattr(self._inner, "expect", None)
        if inner is not None:
            inner(places, slices, keep=keep)

    def estimate(self, targets: Targets) -> Floats:
        """Return estimates, shape (slices, targets); missing where the inner method's are."""
        estimates = self._inner.estimate(targets)
        estimates += self._trend.coefficients @ self._columns(targets).T
        return estimates

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return the stations behind each estimate, shape (slices, targets or 1)."""
        by_target = getattr(self._inner, "counts_at", None)
        counts = self._inner.counts[:, None] if by_target is None else by_target(targets)
        return np.asarray(counts, dtype=np.int32)

    def variance(self, targets: Targets) -> Floats:
        """Return the inner method's variance, shape (slices, targets).

        Raises
        ------
        InvalidQuery
            The trend was fitted: the variance would not hold what is not known of it.
        """
        refuse_variance(self._trend.trend)
        return self._inner.variance(targets)

    def mask_outside(self, targets: Targets) -> NDArray[np.bool_]:
        """Return which targets lie outside the stations' range of elevation, wholly or in part; shape (targets,)."""
        parts = self._trend.mask_outside(targets.covariates[ELEVATION])
        return np.asarray(parts.reshape(targets.count, targets.parts).any(axis=1))

    def _columns(self, targets: Targets) -> Floats:
        return targets.mean(self._trend.columns(targets.covariates[ELEVATION]))


class DetrendedKriging(DetrendedField):
    """Kriging on all stations around a trend: as linear in the values of all stations, and in the trend of each slice.

    So a mean over slices can be taken before anything is interpolated, as in `KrigingField`.
    """

    def __init__(self, inner: KrigingField, trend: FittedTrend) -> None:
        super().__init__(inner, trend)
        self._kriged = inner

    @property
    def mean(self) -> float:
        """The known mean of simple kriging, else 0."""
        return self._kriged.mean

    @cached_property
    def complete(self) -> Floats:
        """What is left of every station, and the trend, in every slice; NaN where too few stations report."""
        left = self._kriged.complete
        unknown = np.isnan(left).any(axis=1, keepdims=True)
        return np.hstack([left, np.where(unknown, np.nan, self._trend.coefficients)])

    def dual(self, values: Floats) -> Floats:
        """Return the dual form of `complete`, or of weighted means of it over slices."""
        stations = values.shape[1] - self._trend.coefficients.shape[1]
        return np.vstack([self._kriged.dual(values[:, :stations]), values[:, stations:].T])

    def carry(self, dual: Floats, targets: Targets) -> Floats:
        """Return the estimates of a dual form, shape (slices, targets)."""
        trend = self._trend.coefficients.shape[1]
        estimates = self._kriged.carry(dual[:-trend], targets)
        estimates += dual[-trend:].T @ self._columns(targets).T
        return estimates


def keeps_variance(trend: Trend | None) -> bool:
    """Return whether the variance of the inner method is that of the estimates: of no trend, and of a fixed one."""
    return trend is None or trend.kind == "fixed"


def refuse_variance(trend: Trend | None) -> None:
    """Refuse a variance around a trend that is fitted.

    Raises
    ------
    InvalidQuery
        The trend is not a fixed one.
    """
    if not keeps_variance(trend):
        message = (
            f"the variance around a fitted trend ({trend}) would leave out what is not known of the trend; give a "
            "fixed one, trend={'lapse_rate': -6.5}, or use external_drift_kriging, whose variance holds it"
        )
        raise InvalidQuery(message)


def with_trend(method: Method) -> Method:
    """Return a method that also takes the parameter `trend`."""

    def parse(given: Mapping[str, Any]) -> dict[str, Any]:
        rest = {name: value for name, value in given.items() if name != PARAMETER.name}
        trend = parse_trend(given.get(PARAMETER.name))
        # Left out where there is none, so that a query that does not use it keeps its token.
        return {**method.parse(rest), **({PARAMETER.name: trend} if trend else {})}

    def prepare(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
        trend = trend_of(given)
        rest = {name: value for name, value in given.items() if name not in (PARAMETER.name, NETWORK_M)}
        if trend is None or not stations.count:
            return method.prepare(stations, values, rest)
        if trend.is_chosen:
            chosen, note = choose_trend(method, rest, stations, values, given.get(NETWORK_M))
            field = prepare(stations, values, {**given, PARAMETER.name: chosen})
            if isinstance(field, DetrendedField):
                field.trend_notes = (note,)
            else:
                field.notes = (note, *getattr(field, "notes", ()))  # type: ignore[attr-defined]
            return field
        fitted = FittedTrend(trend, stations.covariates[ELEVATION], values, given.get(NETWORK_M))
        inner = method.prepare(stations, subtract_trend(values, fitted.estimate_at_stations()), rest)
        return DetrendedKriging(inner, fitted) if isinstance(inner, KrigingField) else DetrendedField(inner, fitted)

    def covariates(given: Mapping[str, Any]) -> tuple[str, ...]:
        named = method.covariates(given)
        return named if trend_of(given) is None or ELEVATION in named else (*named, ELEVATION)

    parameters = (*method.parameters, PARAMETER)
    return replace(method, parameters=parameters, parse=parse, prepare=prepare, covariates=covariates)
