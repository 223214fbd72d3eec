"""Simulation of Gaussian fields, unconditional or conditional on station values, through time.

A conditional realisation is the kriged field plus the kriging error of an unconditional one (Journel 1974): its spread
is the kriging variance at each target, and its values are correlated across targets like those of the field.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.interpolation.points import Floats, Targets, number_places, separations
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.uncertainty.mean_variance import Correlation
from hypergrid.interpolation.variograms.variogram import Variogram

# Their covariances take 512 MB, and factorising them some seconds.
MAX_PLACES: Final = 8_000
"""Maximum places of one simulation."""
ROUNDING: Final = 1e-10
"""Tolerated negative eigenvalues of a covariance matrix, relative to the largest one times the number of places."""


class Simulator:
    """Generator of realisations of a Gaussian field of mean 0 at fixed places."""

    def __init__(self, places_m: Floats, model: Variogram) -> None:
        """Factorise the covariances of the places.

        Parameters
        ----------
        places_m
            Shape (places, 2), or (places, 3) on the sphere [m]; places may coincide.
        model
            The variogram. A micro-scale nugget is part of the field, measurement error is not. Without a sill only
            differences between places are meaningful: the field is 0 at the first place.

        Raises
        ------
        TooLarge
            More than `MAX_PLACES` different places.
        InvalidQuery
            The variogram is invalid at these places, as a Gaussian one on the sphere may be.
        """
        # Coincident places share a row, since equal rows would make the covariance singular.
        _, first, self._place_index = np.unique(number_places(places_m), return_index=True, return_inverse=True)
        if len(first) > MAX_PLACES:
            remedy = "simulate on a coarser grid, or on a part of it by clip"
            raise TooLarge("simulate", "places (cells and stations)", len(first), MAX_PLACES, remedy)
        self._factor = _factorise(_make_covariance(model.isotropic(places_m[first]), model))

    def draw(self, count: int, generator: np.random.Generator) -> Floats:
        """Draw independent realisations, shape (count, places)."""
        noise = generator.standard_normal((count, self._factor.shape[1]))
        return np.asarray((noise @ self._factor.T)[:, self._place_index])

    def draw_through(
        self, times_s: Floats, count: int, generator: np.random.Generator, *, correlation: Correlation
    ) -> Floats:
        """Draw realisations through time, shape (count, times, places), separable in space and time.

        Parameters
        ----------
        times_s
            Increasing [s], shape (times,).
        count
            Number of realisations.
        generator
            Random number generator.
        correlation
            Correlation between times.
        """
        fields = self.draw(count * len(times_s), generator).reshape(count, len(times_s), -1)
        return _correlate_fields(fields, times_s, correlation)


def simulate_given(
    field: KrigingField,
    targets: Targets,
    times_s: Floats,
    *,
    count: int,
    generator: np.random.Generator,
    correlation: Correlation,
) -> Floats:
    """Simulate a field conditional on its readings, shape (count, slices, targets), NaN without stations.

    Parameters
    ----------
    field
        Kriged field of the readings.
    targets
        Points to simulate, or cells by their parts.
    times_s
        Times of the slices, increasing [s].
    count
        Number of realisations, above zero.
    generator
        Random number generator; the same state gives the same realisations.
    correlation
        Correlation of the field between slices.

    Raises
    ------
    InvalidQuery
        A count below one.
    TooLarge
        Too many places.
    """
    if count < 1:
        raise InvalidQuery(f"simulate needs a count of one or more; got {count}")
    stations, model, estimate = field.system.stations, field.system.model, field.estimate(targets)
    # A cell mean has no micro-scale nugget, however few parts the cell has, so only stations get one.
    is_apart = targets.parts > 1 and model.nugget_is == "micro-scale"
    simulated = replace(model, nugget_is="measurement error") if is_apart else model
    simulator = Simulator(np.concatenate([stations.positions_m, targets.positions_m]), simulated)
    result = np.empty((count, *estimate.shape))
    for number in range(count):
        drawn = simulator.draw_through(times_s, 1, generator, correlation=correlation)[0]
        read, truth = drawn[:, : stations.count], targets.mean(drawn[:, stations.count :].T).T
        if simulated.nugget_is == "measurement error":
            own = np.sqrt(model.nugget) * generator.standard_normal((1, *read.shape))
            read = read + (_correlate_fields(own, times_s, correlation) if is_apart else own)[0]
        # Add a known mean before and subtract it after: the simulated values have none.
        kriged = field.replace_values(np.where(field.present, read + field.mean, np.nan)).estimate(targets) - field.mean
        result[number] = estimate + truth - kriged
    return result


def _correlate_fields(fields: Floats, times_s: Floats, correlation: Correlation) -> Floats:
    """Correlate independent fields (count, times, places) in time, in place."""
    for number, before in enumerate(correlation.evaluate(np.diff(times_s)).tolist(), start=1):
        fields[:, number] *= np.sqrt(1.0 - before**2)
        fields[:, number] += before * fields[:, number - 1]
    return fields


def _make_covariance(isotropic_m: Floats, model: Variogram) -> Floats:
    gamma = model.semivariance(separations(isotropic_m, isotropic_m))
    diagonal = np.arange(len(gamma))
    gamma -= model.noise
    gamma[diagonal, diagonal] = 0.0
    if model.is_bounded:
        return np.asarray(model.sill - model.noise - gamma)
    # Covariance of the differences from the first place.
    return np.asarray(gamma[:, :1] + gamma[:1, :] - gamma)


def _factorise(covariance: Floats) -> Floats:
    """Compute B with B B' the covariance, shape (places, rank)."""
    if not len(covariance):
        return covariance
    try:
        return np.asarray(np.linalg.cholesky(covariance))
    except np.linalg.LinAlgError:
        # Smooth fields at close places have eigenvalues so small that rounding makes them negative.
        values, vectors = np.linalg.eigh(covariance)
    if values[0] < -ROUNDING * len(values) * values[-1]:
        raise InvalidQuery(
            f"the variogram is none at these places (its least eigenvalue is {values[0] / values[-1]:.1g} of the "
            "greatest); use the exponential or spherical model"
        )
    kept = values > 0
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))
