"""Kriging system of a network: covariances bordered by the drift functions.

Covariances are `c0 - gamma`: with an unknown constant mean any c0 gives the same estimate, and 0 gives PyKrige's signs;
simple kriging, with its known mean, uses the sill.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hypergrid.core.blas import threads_for
from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.kernels.covariance import Covariance
from hypergrid.interpolation.points import COINCIDENT_M, Floats, Stations, Targets, name_coincident, separations
from hypergrid.interpolation.solvers.drift import Drift, PlacedDrift
from hypergrid.interpolation.variograms.variogram import Variogram
from hypergrid.interpolation.weight_cache import key_of

# Beyond it, a solution has only a few digits left.
MAX_ROUNDING = 1e-6
"""Largest deviation from identity of a system times its inverse."""
# Beyond the limits, products overflow or underflow.
MIN_COVARIANCE = 1e-100
"""Limit of a system's largest covariance; its inverse is the upper limit."""


@dataclass(frozen=True, eq=False)
class KrigingSystem:
    """Left- and right-hand sides of a kriging system."""

    label: str
    """Name of the method in messages."""
    stations: Stations
    isotropic_m: Floats
    """Coordinates whose Euclidean distances the variogram takes, shape (stations, 2 or 3)."""
    model: Variogram
    drift: PlacedDrift
    origin: float
    """Covariance at distance 0: the sill if the mean is known, otherwise 0."""

    @classmethod
    def of(
        cls, stations: Stations, model: Variogram, drift: Drift | None = None, *, label: str = "ordinary_kriging"
    ) -> "KrigingSystem":
        """Build the system of a method; by default the mean is an unknown constant.

        Raises
        ------
        InvalidQuery
            Known mean with a variogram without a sill; anisotropy on the sphere; too few stations for the drift.
        SingularSystem
            Coincident stations without a nugget; dependent drift functions.
        """
        drift = drift or Drift()
        if drift.mean is not None and not model.is_bounded:
            raise InvalidQuery(f"{label} needs a variogram with a sill; {model.model} has none: use ordinary_kriging")
        if model.anisotropy and stations.positions_m.shape[1] != 2:
            raise InvalidQuery(
                f"{label} with anisotropy needs a plane; this network spans so much of the earth that its places are "
                f"on "
                "the sphere; leave anisotropy out, or ask for distance='plane' and accept its distortion"
            )
        refuse_coincident(label, stations, model)
        placed = drift.place_on(stations)
        placed.refuse_undetermined(label, stations)
        origin = model.sill if drift.mean is not None else 0.0
        return cls(label, stations, model.isotropic(stations.positions_m), model, placed, origin)

    @cached_property
    def key(self) -> bytes:
        """Cache key of stations, variogram and drift."""
        covariates = (self.stations.covariates[name] for name in self.drift.drift.covariates)
        return key_of(self.stations.positions_m, self.model, self.drift.drift, *covariates)

    @cached_property
    def shift(self) -> float:
        """Constant that, added to each covariance, makes the matrix of any stations positive definite."""
        # An unknown constant mean absorbs any shift.
        if self.drift.drift.mean is not None:
            return 0.0
        return self.model.sill if self.model.is_bounded else self.semivariance_across

    @property
    def semivariance_across(self) -> float:
        """Semivariance across the network, about the largest among the stations."""
        extent_m = np.linalg.norm(np.ptp(self.isotropic_m, axis=0))
        return float(self.model.semivariance(np.array([extent_m]))[0])

    @property
    def size(self) -> int:
        """Rows of the system: stations, then drift functions."""
        return self.stations.count + self.drift.drift.count_coefficients()

    def matrix(self) -> Floats:
        """Build the bordered matrix, shape (size, size)."""
        count = self.stations.count
        matrix = np.zeros((self.size, self.size))
        matrix[:count, :count] = self.covariance(self.isotropic_m, self.isotropic_m)
        columns = self.drift.columns(self.stations)
        matrix[:count, count:], matrix[count:, :count] = columns, columns.T
        matrix[np.arange(count), np.arange(count)] = self.origin
        return matrix

    def invert(self) -> Floats:
        """Invert the bordered matrix, same shape.

        Raises
        ------
        SingularSystem
            The system has no unique solution.
        """
        return invert(self.matrix(), label=self.label, functions=self.drift.drift.count_coefficients())

    def covariance(self, a_m: Floats, b_m: Floats) -> Floats:
        """Compute `c0 - gamma` between isotropic places, nugget included at distance 0; shape (a, b)."""
        return np.asarray(self.origin - self.model.semivariance(separations(a_m, b_m)))

    def sides(self, targets: Targets, *, job_pairs: int = 0) -> Floats:
        """Compute the right-hand sides of targets, shape (targets, size); `job_pairs` as in `Covariance.evaluate`.

        A station at the target point itself has the covariance at distance 0, so that the estimate is exact there. If
        the nugget is measurement error, the noise-free value is estimated, from which a reading at the point differs by
        the nugget like any other; the same holds for cell means.
        """
        count = self.stations.count
        sides = np.empty((targets.count, self.size))
        points_m = self.model.isotropic(targets.positions_m)
        into = sides[:, :count] if targets.parts == 1 else None
        values = self._find_covariance(targets).evaluate(points_m, self.isotropic_m, job_pairs=job_pairs, out=into)
        if into is None:
            sides[:, :count] = targets.mean(values)
        sides[:, count:] = self.drift.columns(targets)
        return sides

    def multiply_sides(self, dual: Floats, targets: Targets, *, job_pairs: int = 0) -> Floats:
        """Multiply a dual form by the right-hand sides of points, shape (columns, targets).

        For a dual form, shape (size, columns), of few columns the right-hand sides of many points are not stored.
        """
        count, points_m = self.stations.count, self.model.isotropic(targets.positions_m)
        covariance = self._find_covariance(targets)
        product = covariance.multiply(points_m, self.isotropic_m, dual[:count], job_pairs=job_pairs)
        return np.asarray(product + dual[count:].T @ self.drift.columns(targets).T)

    def _find_covariance(self, targets: Targets) -> Covariance:
        is_exact = targets.parts == 1 and self.model.nugget_is == "micro-scale"
        return Covariance(self.model, self.origin, COINCIDENT_M if is_exact else None)

    def within_variance(self, targets: Targets) -> Floats | float:
        """Compute each target's own variance, as `c0 - gamma`: `c0` for points, less for means."""
        if targets.parts == 1:
            return self.origin
        shape = (targets.count, targets.parts, targets.positions_m.shape[1])
        isotropic_m = self.model.isotropic(targets.positions_m).reshape(shape)
        # The cells of a grid have equal size but for the projection; each is still computed, as there are few parts.
        gamma = self.model.semivariance(separations(isotropic_m, isotropic_m))
        return np.asarray(self.origin - np.einsum("tij,i,j->t", gamma, targets.weights, targets.weights))


def invert(matrix: Floats, *, label: str = "ordinary_kriging", functions: int = 0) -> Floats:
    """Invert one bordered system or a batch, same shape.

    Parameters
    ----------
    matrix
        Covariances bordered by the drift functions, shape (..., size, size).
    label
        Name of the method, for messages.
    functions
        Number of drift functions: the last rows and columns.

    Raises
    ------
    SingularSystem
        The system has no unique solution, or its covariances are too large or too small for 64-bit numbers.
    """
    # In units of the largest covariance, neither the unit of the values nor the sill decides whether a system is
    # singular: drift functions are of order one in any unit.
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
        raise SingularSystem(
            f"{label} needs a variogram under which the stations differ; the system is singular to working "
            f"precision (off by {off:.1g} where {MAX_ROUNDING:g} is allowed, condition number {condition:.0e}); "
            f"raise the "
            "nugget, shorten the range, or use the exponential or spherical model"
        )
    return np.asarray(inverted * sizes[..., :, None] * sizes[..., None, :], dtype=np.float64)


def _root_of_scale(matrix: Floats, functions: int, label: str) -> Floats:
    """Approximate the root of each system's largest covariance, shape (...,), by a power of two; 1 if all are 0."""
    stations = matrix.shape[-1] - functions
    largest = np.abs(matrix[..., :stations, :stations]).max(axis=(-2, -1), initial=0.0)
    outside = ~((largest == 0.0) | ((largest > MIN_COVARIANCE) & (largest < 1.0 / MIN_COVARIANCE)))
    if outside.any():
        raise SingularSystem(
            f"{label} needs covariances from {MIN_COVARIANCE:g} to {1.0 / MIN_COVARIANCE:g}; the variogram's scale "
            f"gives {float(largest[outside][0]):.3g}; convert the values to a unit in which they are nearer to one"
        )
    # Scaling by a power of two is free of rounding.
    halved = np.frexp(np.where(largest > 0.0, largest, 1.0))[1] // 2
    return np.asarray(np.ldexp(1.0, halved), dtype=np.float64)


def refuse_coincident(label: str, stations: Stations, model: Variogram) -> None:
    """Reject coincident stations unless the variogram has a nugget.

    Raises
    ------
    SingularSystem
        Names the stations.
    """
    if names := "" if model.nugget > 0 else name_coincident(stations):
        raise SingularSystem(
            f"{label} cannot tell stations in the same place apart without a nugget: {names}; "
            "give the variogram a nugget above zero, ask for coincident='merge', or select one of them"
        )
