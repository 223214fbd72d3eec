"""The method that suits a network: kriging, with the drift that its own stations support.

Candidates differ in the drift: a constant mean, elevation, a plane, both. Each has a variogram fitted by likelihood
(`variograms/likelihood.py`) and is judged by leaving out one station after the other. The simplest within one standard
error of the best is taken (Breiman et al. 1984), and the constant mean where no structure predicts a station left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.blas import one_thread
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import give_way
from hypergrid.interpolation.methods.fitted_variogram import (
    MAX_KEYED_BYTES,
    VariogramRequest,
    build_fitted,
)
from hypergrid.interpolation.methods.kriging_methods import COMMON, EmptyField, make_kriging_field, parse_kriging
from hypergrid.interpolation.methods.registry import METHODS, Method
from hypergrid.interpolation.points import Field, Floats, Stations, are_on_sphere, group_masks, separations
from hypergrid.interpolation.solvers.drift import Drift
from hypergrid.interpolation.variograms.likelihood import LikelihoodFit, fit_by_likelihood
from hypergrid.interpolation.variograms.variogram import Variogram
from hypergrid.interpolation.weight_cache import WEIGHTS, key_of

AUTO: Final = "auto"
MOST_STUDIED: Final = 150
"""Maximum stations of which the choice is made; of more, a random sample."""
MOST_SLICES: Final = 60
"""Maximum slices of which the choice is made; of more, a sample at even distances."""
# A set of some 40 stations screens those behind it; solving all would take time with the cube of their number.
MOST_IN_ONE_SYSTEM: Final = 400
"""Stations up to which all enter each estimate; of more, the nearest `NEAREST`."""
NEAREST: Final = 40
NOTABLE_WIDENING: Final = 1.1
"""Factor of the variances from which a note states it."""
# Five stations on slopes have an error 2.2 to 3.4 times as large without the trend in elevation: of 90 fields of 5 to
# 15 stations 73 % were within 1.1 times the best method with 4 stations each, and 79 % with 2.5.
STATIONS_EACH: Final = 2.5
"""Minimum stations for each coefficient of a drift."""


@dataclass(frozen=True)
class Choice:
    """The drift and variogram of choice, and why."""

    drift: Drift
    variogram: Variogram
    notes: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        """Approximate memory used [bytes]."""
        return 1024 + sum(map(len, self.notes))

    def find_variogram(self, given: Mapping[str, Any]) -> Variogram:
        """Return the variogram for parameters of kriging: for a noise-free variance the nugget is instrument noise."""
        noise_free = given.get("variance_of") == "noise-free"
        return replace(self.variogram, nugget_is="measurement error") if noise_free else self.variogram


@dataclass(frozen=True)
class _Candidate:
    label: str
    drift: Drift
    fit: LikelihoodFit
    squares: Floats
    """Mean squared error of each station left out, shape (stations,), NaN where it never reports."""


def choose_drift(stations: Stations, values: Floats, covariates: tuple[str, ...] = ()) -> Choice:
    """Choose drift and variogram by leaving out one station after the other; choices are cached.

    Parameters
    ----------
    stations, values
        Stations, and values of shape (slices, stations), NaN where missing.
    covariates
        Names of the covariates that are known at the targets, too.

    Raises
    ------
    InvalidQuery
        Too few stations or values that do not vary, of which nothing can be learned.
    """
    if values.nbytes > MAX_KEYED_BYTES:
        return _choose(stations, values, covariates)
    key = key_of(AUTO, stations.positions_m, values, *covariates, *(stations.covariates[name] for name in covariates))
    return WEIGHTS.get(key, lambda: _choose(stations, values, covariates))


def _choose(stations: Stations, values: Floats, covariates: tuple[str, ...]) -> Choice:
    drawn = _draw(stations.count, values)
    stations, values = stations.take_stations(drawn[1]), values[np.ix_(*drawn)]
    drifts = _list_drifts(stations, covariates)
    # Hundreds of small products, between which threads of BLAS would spin.
    with one_thread():
        candidates = [_judge(label, drift, stations, values) for label, drift in drifts.items()]
    scores = np.array([np.nanmean(candidate.squares) for candidate in candidates])
    best = candidates[int(scores.argmin())]
    for candidate in candidates:
        excess = candidate.squares - best.squares
        known = np.isfinite(excess)
        error = np.std(excess[known]) / np.sqrt(max(known.sum() - 1, 1))
        if np.mean(excess[known]) <= error:
            break
    return _explain(candidate, candidates, stations, values)


def _draw(count: int, values: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the slices and stations to study."""
    reporting = np.flatnonzero(np.isfinite(values).any(axis=1))
    each = np.linspace(0, len(reporting) - 1, min(MOST_SLICES, len(reporting))).round().astype(np.intp)
    if count <= MOST_STUDIED:
        return reporting[each], np.arange(count)
    return reporting[each], np.sort(np.random.default_rng(0).choice(count, MOST_STUDIED, replace=False))


def _list_drifts(stations: Stations, covariates: tuple[str, ...]) -> dict[str, Drift]:
    """List the drifts that the stations can determine, simplest first."""
    known = tuple(
        name
        for name in covariates
        if np.isfinite(stations.covariates[name]).all() and np.ptp(stations.covariates[name]) > 0
    )
    drifts = {"kriging": Drift()}
    if known:
        drifts[f"kriging with a trend of {' and '.join(known)}"] = Drift(covariates=known)
    if not are_on_sphere(stations.positions_m):
        drifts["kriging with a plane"] = Drift(degree=1)
        if known:
            drifts[f"kriging with a plane and a trend of {' and '.join(known)}"] = Drift(degree=1, covariates=known)
    usable = {}
    for label, drift in drifts.items():
        columns = drift.place_on(stations).columns(stations)
        determined = np.linalg.matrix_rank(columns, tol=1e-6 * np.sqrt(len(columns))) == columns.shape[1]
        if columns.shape[1] == 1 or (determined and stations.count >= STATIONS_EACH * columns.shape[1]):
            usable[label] = drift
    return usable


def _judge(label: str, drift: Drift, stations: Stations, values: Floats) -> _Candidate:
    columns = drift.place_on(stations).columns(stations)
    fit = fit_by_likelihood(stations.positions_m, columns, values)
    covariance = fit.variogram.sill - fit.variogram.semivariance(
        separations(stations.positions_m, stations.positions_m)
    )
    # Coincident stations without a nugget would be singular.
    np.fill_diagonal(covariance, fit.variogram.sill * (1.0 + 1e-9))
    errors = np.full(values.shape, np.nan)
    for mask, slices in group_masks(np.isfinite(values)):
        give_way()
        present = np.flatnonzero(mask)
        if len(present) <= columns.shape[1]:
            continue
        errors[np.ix_(slices, present)] = _leave_out(
            covariance[np.ix_(present, present)], columns[present], values[np.ix_(slices, present)]
        )
    return _Candidate(label, drift, fit, _mean_squares(errors))


def _leave_out(covariance: Floats, columns: Floats, values: Floats) -> Floats:
    """Return the errors of each station estimated from the others (Dubrule 1983), shape (slices, stations)."""
    solved = np.linalg.solve(covariance, np.column_stack([columns, np.eye(len(columns))]))
    weighted, inverse = solved[:, : columns.shape[1]], solved[:, columns.shape[1] :]
    projection = inverse - weighted @ np.linalg.pinv(columns.T @ weighted) @ weighted.T
    return np.asarray((values @ projection) / np.diagonal(projection))


def _mean_squares(errors: Floats) -> Floats:
    """Average squared errors over slices, shape (stations,), NaN without any."""
    known = np.isfinite(errors)
    sums = np.where(known, errors**2, 0.0).sum(axis=0)
    return np.asarray(np.where(known.any(axis=0), sums / np.maximum(known.sum(axis=0), 1), np.nan))


def _explain(chosen: _Candidate, candidates: list[_Candidate], stations: Stations, values: Floats) -> Choice:
    distance = separations(stations.positions_m, stations.positions_m)
    by_distance = _root(_mean_squares(_leave_out_of_weights(1.0 / np.maximum(distance, 1e-3) ** 2, values)))
    by_mean = _root(_mean_squares(_leave_out_of_weights(np.ones_like(distance), values)))
    variogram, label, error, reasons = chosen.fit.variogram, chosen.label, _root(chosen.squares), list[str]()
    if _is_noise(chosen, error, by_mean):
        sill = float(np.nanmean(_variances(values))) * chosen.fit.widening
        variogram = Variogram("nugget", 0.0, variogram.range_m, sill or variogram.sill)
        label, error = "the mean of the stations", by_mean
        reasons.append(
            "no station is estimated better from its neighbours than from the mean of all: the map is flat on purpose"
        )
    rest = "".join(f", {item.label} {_root(item.squares):.3g}" for item in candidates if item is not chosen)
    scores = f"{error:.3g} (by inverse distance {by_distance:.3g}, the mean of the others {by_mean:.3g}{rest})"
    reasons.insert(
        0, f"auto chose {label}: the root mean square error of {stations.count} stations left out is {scores}"
    )
    reasons.append(f"variogram by likelihood: {_describe(variogram)}")
    if chosen.fit.widening > NOTABLE_WIDENING:
        reasons.append(
            f"variances are enlarged {chosen.fit.widening:.2g} times, as few values tell how large the sill is"
        )
    return Choice(chosen.drift, variogram, tuple(reasons))


def _is_noise(chosen: _Candidate, error: float, by_mean: float) -> bool:
    """Return whether neither stations left out nor the likelihood show any structure beside the mean."""
    # Of few stations, leaving out alone is not enough: the maps of 6 of 20 networks of 8 were flat, where kriging under
    # the true covariance has a correlation of 0.69 to 0.87 with the truth.
    variogram = chosen.fit.variogram
    return chosen.drift.count_coefficients() == 1 and error >= by_mean and variogram.nugget > 0.5 * variogram.sill


def _describe(variogram: Variogram) -> str:
    """Describe an average of variograms by its sill and the mean of its ranges."""
    terms = [term for term in variogram.structures if term.psill > 0]
    text = f"nugget {variogram.nugget:.3g}, sill {variogram.sill:.3g}"
    if not terms:
        return text
    logarithms, weights = np.log([term.range_m for term in terms]), [term.psill for term in terms]
    return f"{text}, range {np.exp(np.average(logarithms, weights=weights)):,.0f} m (an average of {len(terms)} terms)"


def _leave_out_of_weights(weights: Floats, values: Floats) -> Floats:
    """Return the errors of weighted means of the other stations, shape (slices, stations)."""
    others = weights.copy()
    np.fill_diagonal(others, 0.0)
    present = np.isfinite(values)
    sums = np.where(present, values, 0.0) @ others
    total = present.astype(np.float64) @ others
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(values - sums / total)


def _root(squares: Floats) -> float:
    return float(np.sqrt(np.nanmean(squares)))


def _variances(values: Floats) -> Floats:
    known = np.isfinite(values)
    enough = known.sum(axis=1) > 1
    return np.asarray(np.nanvar(values[enough], axis=1, ddof=1))


def _prepare(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
    if not stations.count:
        return EmptyField(len(values))
    covariates = tuple(given.get("drift", ()))
    plain = {name: value for name, value in given.items() if name != "drift"}
    if plain.get("neighbours") is None and stations.count > MOST_IN_ONE_SYSTEM:
        plain["neighbours"] = NEAREST
    try:
        choice = choose_drift(stations, values, covariates)
    except InvalidQuery:
        # What is done where no variogram can be fitted is stated there.
        def build(model: Variogram, rows: slice) -> Field:
            return make_kriging_field(AUTO, Drift(), stations, values[rows], {**plain, "variogram": model})

        return build_fitted(VariogramRequest(), stations, values, build)
    field = make_kriging_field(
        AUTO, choice.drift, stations, values, {**plain, "variogram": choice.find_variogram(plain)}
    )
    field.notes = choice.notes
    return field


def _parse(given: Mapping[str, Any]) -> dict[str, Any]:
    parsed = parse_kriging({**given, "variogram": "fit"})
    return {name: value for name, value in parsed.items() if name != "variogram"}


def _covariates(given: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(given.get("drift", ()))


METHODS.add(
    AUTO,
    Method(
        AUTO,
        "Kriging with the drift (a constant, elevation, a plane) and the variogram that the stations support.",
        COMMON[1:],
        # The choice depends on all values.
        linear=False,
        has_variance=True,
        parse=_parse,
        prepare=_prepare,
        covariates=_covariates,
    ),
)
