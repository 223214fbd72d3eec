"""Any method of interpolation around a trend: the trend off the stations, the rest interpolated, the trend on again."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.methods.registry import Field, Method
from hypergrid.interpolation.methods.trend_choice import choose_trend
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
