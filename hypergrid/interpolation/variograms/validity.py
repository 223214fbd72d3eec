"""Which variograms are variograms of great-circle distances: not all that are of distances on a plane.

Gneiting (2013), "Strictly and non-strictly positive definite functions on spheres", table 1: on the sphere the
exponential and the spherical model and Matern models of a smoothness up to 1/2 are valid for stations anywhere, and so
are the linear model and powers up to 1 of the distance. The Gaussian model and smoother Matern models are not: stations
exist to which they give a negative variance. Where the range is short against the earth, or with a nugget, that may not
happen at the stations at hand, which is therefore looked at.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.points.distance import are_on_sphere, separations
from hypergrid.interpolation.variograms.structure import Structure
from hypergrid.interpolation.variograms.variogram import Variogram

Floats = NDArray[np.float64]

ROUNDING = 1e-10
"""Variances below zero by less than this share of the largest semivariance are rounding."""

MAX_CHECKED = 5_000
"""Stations above which a model that may be invalid is refused unseen: the check takes the time of a kriging system."""


def is_valid_on_sphere(model: Variogram) -> bool:
    """Return whether a variogram is valid for great-circle distances between any stations."""
    return all(_is_valid(term) for term in model.structures if term.psill)


def check_validity(label: str, model: Variogram, stations_m: Floats) -> tuple[str, ...]:
    """Return a note where a variogram is valid for these stations but not for any, and nothing where it is for any.

    Parameters
    ----------
    who
        The step's method, for messages.
    stations_m
        Positions [m], shape (stations, 2), where nothing is to be checked, or (stations, 3) on the sphere.

    Raises
    ------
    InvalidQuery
        Weights of these stations exist under which the variance of a contrast is negative, or there are too many
        stations to tell.
    """
    if not are_on_sphere(stations_m) or is_valid_on_sphere(model) or len(stations_m) < 2:
        return ()
    remedy = "use the exponential or the spherical model, raise the nugget, or ask for distance='plane'"
    if len(stations_m) > MAX_CHECKED:
        message = (
            f"{label} cannot check the {model.model} model on a sphere for more than {MAX_CHECKED:,} stations, "
            f"where it "
            f"is not valid in general; got {len(stations_m):,}; {remedy}"
        )
        raise InvalidQuery(message)
    lowest = _find_lowest_variance(model, stations_m)
    if lowest < 0:
        message = (
            f"{label} cannot use the {model.model} model with great-circle distances between these {len(stations_m)} "
            f"stations: it is no valid variogram on a sphere, and gives a contrast of them the variance {lowest:.2g} "
            f"(below 0); {remedy}"
        )
        raise InvalidQuery(message)
    return (
        f"the {model.model} model is no valid variogram of great-circle distances in general; between these stations "
        "no variance is negative",
    )


def _is_valid(term: Structure) -> bool:
    if term.model == "matern":
        return term.smoothness is not None and term.smoothness <= 0.5
    if term.model == "power":
        return term.exponent is not None and term.exponent <= 1.0
    return term.model != "gaussian"


def _find_lowest_variance(model: Variogram, stations_m: Floats) -> float:
    """Return the least variance of a contrast of stations (weights of sum 0 and length 1); 0 where it is above 0."""
    gamma = model.semivariance(separations(stations_m, stations_m))
    np.fill_diagonal(gamma, 0.0)
    largest = float(gamma.max())
    means = gamma.mean(axis=0)
    contrasts = means + means[:, None] - gamma - means.mean()
    # The mean of all stations is no contrast: give it a variance of its own.
    contrasts += largest / len(contrasts)
    contrasts[np.diag_indices(len(contrasts))] += ROUNDING * largest * len(contrasts)
    try:
        np.linalg.cholesky(contrasts)
    except np.linalg.LinAlgError:
        return float(np.linalg.eigvalsh(contrasts)[0])
    return 0.0
