"""Estimates of what was left out: by leaving it out, and for kriging on all stations in closed form.

With P the inverse of the bordered matrix of the stations present and z their values, the errors of a group G that is
estimated from all others are `inv(P_GG) (P z)_G`, value minus estimate, with the covariance `inv(P_GG)`; for one
station `(P z)_i / P_ii` and `1 / P_ii` (Dubrule 1983). One inverse a set of stations replaces a system a station.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.methods.detrended import keeps_variance
from hypergrid.interpolation.methods.registry import METHODS
from hypergrid.interpolation.points.points import Stations, Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.masks import group_masks
from hypergrid.interpolation.solvers.system import invert
from hypergrid.interpolation.solvers.trend import trend_of
from hypergrid.interpolation.variograms.variogram import Variogram

Floats = NDArray[np.float64]
Estimates = tuple[Floats, Floats | None]
"""Estimates and, where the method has them, variances; shape (slices, stations), NaN where there is none."""

LeaveOut = Callable[[str, Mapping[str, Any], Stations, Floats, NDArray[np.intp]], Estimates]


def has_closed_form(method: str, given: Mapping[str, Any], stations: int) -> bool:
    """Return whether leaving out is known without doing it: kriging on all stations, and nothing else."""
    neighbours = given.get("neighbours")
    known = ("variogram", "neighbours", "mean", "degree", "drift")
    plain = all(value is None for name, value in given.items() if name not in known)
    model = given.get("variogram")
    return (
        METHODS[method].has_variance
        and plain
        and isinstance(model, Variogram)
        and (neighbours is None or neighbours >= stations)
    )


def leave_out(
    method: str,
    given: Mapping[str, Any],
    stations: Stations,
    values: Floats,
    parts: NDArray[np.intp],
) -> Estimates:
    """Estimate each part of the stations from the others, one field a part.

    Parameters
    ----------
    method, given
        Name of the method, and its parameters as `prepare` takes them.
    stations
        Where the values were read, with the covariates that the method needs.
    values
        Shape (slices, stations), NaN where missing; there is no estimate of what is missing.
    parts
        Which part a station is left out with, shape (stations,).
    """
    row = METHODS[method]
    estimate = np.full(values.shape, np.nan)
    known = row.has_variance and keeps_variance(trend_of(given))
    variance = np.full(values.shape, np.nan) if known else None
    for part in np.unique(parts):
        out, kept = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        field = row.prepare(stations.take_stations(kept), values[:, kept], given)
        taken = stations.take_stations(out)
        targets = Targets(taken.positions_m, taken.covariates)
        estimate[:, out] = field.estimate(targets)
        if variance is not None:
            variance[:, out] = field.variance(targets)
    missing = ~np.isfinite(values)
    estimate[missing] = np.nan
    if variance is not None:
        variance[missing] = np.nan
    return estimate, variance


def leave_out_in_closed_form(
    method: str,
    given: Mapping[str, Any],
    stations: Stations,
    values: Floats,
    parts: NDArray[np.intp],
) -> Estimates:
    """Return what `leave_out` returns, for ordinary kriging on all stations, from one inverse a set of stations.

    Raises
    ------
    SingularSystem
        As for the method itself.
    """
    if not has_closed_form(method, given, stations.count):
        message = f"{method} with these parameters has no closed form of leaving out"
        raise ValueError(message)
    estimate, variance = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    if not stations.count:
        return estimate, variance
    field = METHODS[method].prepare(stations, values, given)
    if not isinstance(field, KrigingField):
        message = f"{method} has a closed form of leaving out, but no field of all stations"
        raise TypeError(message)
    matrix, drift = field.system.matrix(), field.system.drift
    columns, functions = drift.columns(stations), np.arange(stations.count, field.system.size)
    for mask, slices in group_masks(np.isfinite(values)):
        present = np.flatnonzero(mask)
        inner = parts[present]
        known = _mask_left_over(inner, columns[present], field)
        if not known.any():
            continue
        rows = np.concatenate([present, functions])
        solved = invert(matrix[np.ix_(rows, rows)], label=method, functions=len(functions))
        solved = solved[: len(present), : len(present)]
        line = values[np.ix_(slices, present)] - field.mean
        errors, grown = _leave_out_parts(solved, line @ solved, inner, known)
        estimate[np.ix_(slices, present)] = line - errors + field.mean
        variance[np.ix_(slices, present)] = grown
    return estimate, variance


def _mask_left_over(parts: NDArray[np.intp], columns: Floats, field: KrigingField) -> NDArray[np.bool_]:
    """Return for each station whether those outside its part determine an estimate, shape (stations,)."""
    if not len(parts):
        return np.zeros(0, dtype=bool)
    labels, part_index = np.unique(parts, return_inverse=True)
    drift, others = field.system.drift, parts != labels[:, None]
    enough = others.sum(axis=1) >= drift.drift.min_stations()
    return np.asarray((enough & drift.is_determined(columns * others[:, :, None]))[part_index])


def _leave_out_parts(
    solved: Floats, carried: Floats, parts: NDArray[np.intp], known: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return errors (slices, stations) and variances (stations,) of parts, each left out as a whole; NaN if unknown."""
    errors, variance = np.full(carried.shape, np.nan), np.full(len(parts), np.nan)
    labels = np.unique(parts[known])
    if len(np.unique(parts)) == len(parts):
        diagonal = np.diagonal(solved)[known]
        errors[:, known], variance[known] = carried[:, known] / diagonal, 1.0 / diagonal
        return errors, variance
    for label in labels:
        out = np.flatnonzero(parts == label)
        covariance = np.linalg.inv(solved[np.ix_(out, out)])
        errors[:, out] = carried[:, out] @ covariance
        variance[out] = np.diagonal(covariance)
    return errors, variance
