"""The ordinary kriging system, in PyKrige's signs: minus the semivariances, bordered by ones."""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from hypergrid.errors import SingularSystem
from hypergrid.kriging.variogram import Variogram

COINCIDENT_M = 1e-10
"""Below this distance [m] an estimate is at its station (PyKrige's tolerance)."""


def bordered_matrix(stations_m: NDArray[np.float64], model: Variogram) -> NDArray[np.float64]:
    """Return the matrix of the system, shape (..., stations + 1, stations + 1).

    Parameters
    ----------
    stations_m
        Positions [m], shape (..., stations, 2); leading dimensions are independent systems.
    """
    count = stations_m.shape[-2]
    stations_m = model.isotropic(stations_m)
    distance = np.linalg.norm(stations_m[..., :, None, :] - stations_m[..., None, :, :], axis=-1)
    matrix = np.ones((*stations_m.shape[:-2], count + 1, count + 1))
    matrix[..., :count, :count] = -model.semivariance(distance)
    diagonal = np.arange(count + 1)
    matrix[..., diagonal, diagonal] = 0.0
    return matrix


def right_hand_side(distance_m: NDArray[np.float64], model: Variogram) -> NDArray[np.float64]:
    """Return the right-hand sides for points at these distances from the stations.

    Parameters
    ----------
    distance_m
        Distances [m], shape (points, stations).

    Returns
    -------
    Shape (points, stations + 1); zero for a station at the point itself, so that the estimate is exact there. Where the
    nugget is measurement error, the estimate is of the noise-free value, from which a reading at the point itself
    differs by the nugget as any other does.
    """
    points, stations = distance_m.shape
    sides = np.ones((points, stations + 1))
    sides[:, :stations] = -model.semivariance(distance_m)
    if model.nugget_is == "micro-scale":
        sides[:, :stations][distance_m <= COINCIDENT_M] = 0.0
    return sides


UNIQUE_TO = 1e-6
"""How far a system times its inverse may be from one; beyond, its solution has lost all but a few digits."""


def inverse(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the inverse of one system or of many, same shape.

    Raises
    ------
    SingularSystem
        The system has no unique solution.
    """
    try:
        inverted = np.linalg.inv(matrix)
    except np.linalg.LinAlgError:
        inverted = np.full_like(matrix, np.nan)
    if not np.isfinite(inverted).all():
        off = np.inf
    else:
        off = float(np.abs(matrix @ inverted - np.eye(matrix.shape[-1])).max(initial=0.0))
    if not off <= UNIQUE_TO:
        message = (
            "ordinary_kriging needs a variogram under which the stations differ; the system is singular to working "
            f"precision (off by {off:.1g} where {UNIQUE_TO:g} is allowed); raise the nugget, shorten the range, or use "
            "the exponential or spherical model"
        )
        raise SingularSystem(message)
    return np.asarray(inverted, dtype=np.float64)


def refuse_coincident(stations_m: NDArray[np.float64], names: tuple[str, ...], model: Variogram) -> None:
    """Refuse two stations in one place when no nugget tells them apart.

    Raises
    ------
    SingularSystem
        Names the stations.
    """
    if model.nugget > 0:
        return
    distance = cdist(stations_m, stations_m)
    first, second = np.nonzero(np.triu(distance <= COINCIDENT_M, k=1))
    if len(first):
        pairs = ", ".join(f"{names[i]} and {names[j]}" for i, j in zip(first[:5], second[:5], strict=True))
        message = (
            f"ordinary_kriging cannot tell stations in the same place apart without a nugget: {pairs}; "
            "give the variogram a nugget above zero, or select one of them"
        )
        raise SingularSystem(message)
