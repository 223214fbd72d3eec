"""The kriging system of a network: covariances bordered by the drift functions.

Covariances are taken as `c0 - gamma`: with an unknown constant mean any c0 gives the same estimate, and 0 gives
PyKrige's signs; simple kriging, whose mean is known, takes the sill.
"""

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.blas import threads_for
from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.kernels.covariance import carried, negative_semivariance
from hypergrid.interpolation.points.distance import COINCIDENT_M, separations
from hypergrid.interpolation.points.points import Stations, Targets
from hypergrid.interpolation.solvers.drift import Drift, PlacedDrift
from hypergrid.interpolation.variograms.variogram import Variogram

Floats = NDArray[np.float64]

MAX_ROUNDING = 1e-6
"""How far a system times its inverse may be from one; beyond, its solution has lost all but a few digits."""
MIN_COVARIANCE = 1e-100
"""Largest covariance of a system below which, and above the inverse of which, products leave the range of numbers."""


@dataclass(frozen=True, eq=False)
class KrigingSystem:
    """What a network, a variogram and a drift make: the left and the right sides of its kriging system."""

    stations: Stations
    isotropic_m: Floats
    """Positions whose plain distances the variogram takes, shape (stations, 2 or 3)."""
    model: Variogram
    drift: PlacedDrift
    origin: float
    """Covariance at distance 0: the sill where the mean is known, else 0."""

    @classmethod
    def of(cls, label: str, stations: Stations, model: Variogram, drift: Drift) -> "KrigingSystem":
        """Build the system of a method; `who` is its name, for messages.

        Raises
        ------
        InvalidQuery
            A known mean and a variogram without a sill; anisotropy on the sphere.
        SingularSystem
            Stations in one place without a nugget.
        """
        if drift.mean is not None and not model.is_bounded:
            message = f"{label} needs a variogram with a sill; {model.model} has none: use ordinary_kriging"
            raise InvalidQuery(message)
        if model.anisotropy and stations.positions_m.shape[1] != 2:
            message = (
                f"{label} with anisotropy needs a plane; this network spans so much of the earth that its places are "
                f"on "
                "the sphere; leave anisotropy out, or ask for distance='plane' and accept its distortion"
            )
            raise InvalidQuery(message)
        refuse_coincident(label, stations, model)
        origin = model.sill if drift.mean is not None else 0.0
        return cls(stations, model.isotropic(stations.positions_m), model, drift.place_on(stations), origin)

    @property
    def size(self) -> int:
        """Rows of the system: stations, then drift functions."""
        return self.stations.count + self.drift.drift.count_coefficients()

    def matrix(self) -> Floats:
        """Return the bordered matrix, shape (size, size)."""
        count = self.stations.count
        matrix = np.zeros((self.size, self.size))
        matrix[:count, :count] = self.covariance(self.isotropic_m, self.isotropic_m)
        columns = self.drift.columns(self.stations)
        matrix[:count, count:], matrix[count:, :count] = columns, columns.T
        matrix[np.arange(count), np.arange(count)] = self.origin
        return matrix

    def invert(self, label: str) -> Floats:
        """Return the inverse of the bordered matrix, same shape.

        Raises
        ------
        SingularSystem
            The system has no unique solution.
        """
        return invert(self.matrix(), label=label, functions=self.drift.drift.count_coefficients())

    def covariance(self, a_m: Floats, b_m: Floats) -> Floats:
        """Return `c0 - gamma` between isotropic places, also of one place with itself; shape (a, b)."""
        return np.asarray(self.origin - self.model.semivariance(separations(a_m, b_m)))

    def sides(self, targets: Targets, *, job_pairs: int = 0) -> Floats:
        """Return the right-hand sides of targets, shape (targets, size); `job_pairs` as for `negative_semivariance`.

        A station at a point itself has the covariance at distance 0, so that the estimate is exact there. Where the
        nugget is measurement error, the estimate is of the noise-free value, from which a reading at the point itself
        differs by the nugget as any other does; and so it is where the mean of a cell is wanted.
        """
        count = self.stations.count
        sides = np.empty((targets.count, self.size))
        points_m = self.model.isotropic(targets.positions_m)
        into = sides[:, :count] if targets.parts == 1 else None
        values = negative_semivariance(
            points_m,
            self.isotropic_m,
            self.model,
            origin=self.origin,
            exact_within_m=self._find_exact_m(targets),
            job_pairs=job_pairs,
            out=into,
        )
        if into is None:
            sides[:, :count] = targets.mean(values)
        sides[:, count:] = self.drift.columns(targets)
        return sides

    def multiply_sides(self, dual: Floats, targets: Targets, *, job_pairs: int = 0) -> Floats:
        """Return the product of a dual form with the right-hand sides of points, shape (columns, targets).

        The right-hand sides of many points are not stored where the dual form, shape (size, columns), has few columns.
        """
        count = self.stations.count
        product = carried(
            self.model.isotropic(targets.positions_m),
            self.isotropic_m,
            self.model,
            dual[:count],
            origin=self.origin,
            exact_within_m=self._find_exact_m(targets),
            job_pairs=job_pairs,
        )
        return np.asarray(product + dual[count:].T @ self.drift.columns(targets).T)

    def _find_exact_m(self, targets: Targets) -> float | None:
        return COINCIDENT_M if targets.parts == 1 and self.model.nugget_is == "micro-scale" else None

    def within_variance(self, targets: Targets) -> Floats | float:
        """Return the variance of each target by itself, as `c0 - gamma`: `c0` for points, less for means of cells."""
        if targets.parts == 1:
            return self.origin
        shape = (targets.count, targets.parts, targets.positions_m.shape[1])
        isotropic_m = self.model.isotropic(targets.positions_m).reshape(shape)
        # All cells of a grid have one size but for the projection; still each gets its own, there are only few parts.
        gamma = self.model.semivariance(separations(isotropic_m, isotropic_m))
        return np.asarray(self.origin - np.einsum("tij,i,j->t", gamma, targets.weights, targets.weights))


def invert(matrix: Floats, *, label: str = "ordinary_kriging", functions: int = 0) -> Floats:
    """Return the inverse of one bordered system or of many, same shape.

    Systems are solved in units of their largest covariance, so that neither the unit of the values nor the size of the
    sill decides whether one is singular: drift functions are of the order of one whatever that unit is.

    Parameters
    ----------
    matrix
        Covariances bordered by the drift functions, shape (..., size, size).
    label
        Name of the method, for messages.
    functions
        Drift functions: the last rows and columns.

    Raises
    ------
    SingularSystem
        The system has no unique solution, or its covariances are too large or too small for 64-bit numbers.
    """
    root = _root_of_scale(matrix, functions, label)
    sizes = np.ones((*matrix.shape[:-2], matrix.shape[-1])) / root[..., None]
    sizes[..., matrix.shape[-1] - functions :] = root[..., None]
    scaled = matrix * sizes[..., :, None] * sizes[..., None, :]
    with threads_for(matrix.size * matrix.shape[-1]):
        try:
            inverted = np.linalg.inv(scaled)
        except np.linalg.LinAlgError:
            inverted = np.full_like(matrix, np.nan)
        if not np.isfinite(inverted).all():
            off = np.inf
        else:
            off = float(np.abs(scaled @ inverted - np.eye(matrix.shape[-1])).max(initial=0.0))
    if not off <= MAX_ROUNDING:
        condition = float(np.max(np.linalg.cond(scaled)))
        message = (
            f"{label} needs a variogram under which the stations differ; the system is singular to working "
            f"precision (off by {off:.1g} where {MAX_ROUNDING:g} is allowed, condition number {condition:.0e}); "
            f"raise the "
            "nugget, shorten the range, or use the exponential or spherical model"
        )
        raise SingularSystem(message)
    return np.asarray(inverted * sizes[..., :, None] * sizes[..., None, :], dtype=np.float64)


def _root_of_scale(matrix: Floats, functions: int, label: str) -> Floats:
    """Return about the root of the largest covariance of each system, shape (...,), 1 where all are 0.

    It is a power of two, so that scaling rounds nothing.
    """
    stations = matrix.shape[-1] - functions
    largest = np.abs(matrix[..., :stations, :stations]).max(axis=(-2, -1), initial=0.0)
    outside = ~((largest == 0.0) | ((largest > MIN_COVARIANCE) & (largest < 1.0 / MIN_COVARIANCE)))
    if outside.any():
        message = (
            f"{label} needs covariances from {MIN_COVARIANCE:g} to {1.0 / MIN_COVARIANCE:g}; the variogram's scale "
            f"gives {float(largest[outside][0]):.3g}; convert the values to a unit in which they are nearer to one"
        )
        raise SingularSystem(message)
    halved = np.frexp(np.where(largest > 0.0, largest, 1.0))[1] // 2
    return np.asarray(np.ldexp(1.0, halved), dtype=np.float64)


def refuse_coincident(label: str, stations: Stations, model: Variogram) -> None:
    """Refuse two stations in one place when no nugget tells them apart.

    Raises
    ------
    SingularSystem
        Names the stations.
    """
    if model.nugget > 0 or not stations.count:
        return
    pairs = sorted(scipy.spatial.cKDTree(stations.positions_m).query_pairs(COINCIDENT_M))
    if pairs:
        names = ", ".join(f"{stations.names[i]} and {stations.names[j]}" for i, j in pairs[:5])
        message = (
            f"{label} cannot tell stations in the same place apart without a nugget: {names}; "
            "give the variogram a nugget above zero, ask for coincident='merge', or select one of them"
        )
        raise SingularSystem(message)
