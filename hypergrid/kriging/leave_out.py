"""Estimates of what was left out: by leaving it out, and for ordinary kriging on all stations in closed form.

With P the inverse of the bordered matrix of the stations present and z their values, the errors of a group G that is
estimated from all others are `inv(P_GG) (P z)_G`, value minus estimate, with the covariance `inv(P_GG)`; for one
station `(P z)_i / P_ii` and `1 / P_ii` (Dubrule 1983). One inverse a set of stations replaces a system a station.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.kriging.masks import groups
from hypergrid.kriging.methods import METHODS
from hypergrid.kriging.system import bordered_matrix, inverse, refuse_coincident
from hypergrid.kriging.variogram import Variogram

Floats = NDArray[np.float64]
Estimates = tuple[Floats, Floats | None]
"""Estimates and, where the method has them, variances; shape (slices, stations), NaN where there is none."""

LeaveOut = Callable[[str, Mapping[str, Any], Floats, Floats, tuple[str, ...], NDArray[np.intp]], Estimates]


def has_closed_form(method: str, given: Mapping[str, Any], stations: int) -> bool:
    """Return whether leaving out is known without doing it: ordinary kriging on all stations and nothing else."""
    neighbours = given.get("neighbours")
    plain = all(value is None for name, value in given.items() if name not in ("variogram", "neighbours"))
    model = given.get("variogram")
    return (
        method == "ordinary_kriging"
        and plain
        and isinstance(model, Variogram)
        and (neighbours is None or neighbours >= stations)
    )


def leave_out(
    method: str,
    given: Mapping[str, Any],
    positions_m: Floats,
    values: Floats,
    names: tuple[str, ...],
    parts: NDArray[np.intp],
) -> Estimates:
    """Estimate each part of the stations from the others, one field a part.

    Parameters
    ----------
    method, given
        Name of the method, and its parameters as `prepare` takes them.
    positions_m
        Positions [m], shape (stations, 2).
    values
        Shape (slices, stations), NaN where missing; there is no estimate of what is missing.
    names
        Names of the stations.
    parts
        Which part a station is left out with, shape (stations,).
    """
    row = METHODS[method]
    estimate = np.full(values.shape, np.nan)
    variance = np.full(values.shape, np.nan) if row.has_variance else None
    for part in np.unique(parts):
        out, kept = np.flatnonzero(parts == part), np.flatnonzero(parts != part)
        field = row.prepare(positions_m[kept], values[:, kept], tuple(names[i] for i in kept), given)
        estimate[:, out] = field.at(positions_m[out])
        if variance is not None:
            variance[:, out] = field.variance(positions_m[out])
    missing = ~np.isfinite(values)
    estimate[missing] = np.nan
    if variance is not None:
        variance[missing] = np.nan
    return estimate, variance


def leave_out_in_closed_form(
    method: str,
    given: Mapping[str, Any],
    positions_m: Floats,
    values: Floats,
    names: tuple[str, ...],
    parts: NDArray[np.intp],
) -> Estimates:
    """Return what `leave_out` returns, for ordinary kriging on all stations, from one inverse a set of stations.

    Raises
    ------
    SingularSystem
        As for the method itself.
    """
    if not has_closed_form(method, given, len(positions_m)):
        message = f"{method} with these parameters has no closed form of leaving out"
        raise ValueError(message)
    model: Variogram = given["variogram"]
    refuse_coincident(positions_m, names, model)
    estimate, variance = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for mask, slices in groups(np.isfinite(values)):
        present = np.flatnonzero(mask)
        inner = parts[present]
        if len(np.unique(inner)) < 2:
            # Nothing is left to estimate from.
            continue
        solved = inverse(bordered_matrix(positions_m[present], model))[:-1, :-1]
        line = values[np.ix_(slices, present)]
        errors, grown = _of_parts(solved, line @ solved, inner)
        estimate[np.ix_(slices, present)] = line - errors
        variance[np.ix_(slices, present)] = grown
    return estimate, variance


def _of_parts(solved: Floats, carried: Floats, parts: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return errors (slices, stations) and variances (stations,) of parts, each left out as a whole."""
    labels, sizes = np.unique(parts, return_counts=True)
    diagonal = np.diagonal(solved)
    if len(labels) == len(parts):
        return carried / diagonal, 1.0 / diagonal
    errors, variance = np.empty_like(carried), np.empty(len(parts))
    for label in labels:
        out = np.flatnonzero(parts == label)
        covariance = np.linalg.inv(solved[np.ix_(out, out)])
        errors[:, out] = carried[:, out] @ covariance
        variance[out] = np.diagonal(covariance)
    return errors, variance
