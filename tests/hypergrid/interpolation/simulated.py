"""Simulated networks: a Gaussian field at stations and at further places, its readings with errors."""

from dataclasses import dataclass

import numpy as np

from hypergrid.interpolation.variograms.variogram import Variogram


@dataclass(frozen=True)
class Network:
    """Stations and readings of a simulated field, and its truth at further places."""

    positions_m: np.ndarray
    """Shape (stations, 2)."""
    readings: np.ndarray
    """Shape (slices, stations)."""
    places_m: np.ndarray
    """Shape (places, 2)."""
    truth: np.ndarray
    """Shape (slices, places)."""
    variogram: Variogram
    """Of the field with the errors of readings as nugget."""


def simulate_network(
    seed: int | np.random.Generator,
    *,
    stations: int,
    range_m: float,
    nugget: float,
    slices: int = 1,
    memory: float = 0.0,
    model: str = "exponential",
) -> Network:
    """Simulate a field of variance 1 and mean 10 in a square of 100 km; `memory` is the correlation of next slices."""
    rng, places = np.random.default_rng(seed), 200
    points = rng.uniform(0, 100_000, (stations + places, 2))
    smoothness = 1.5 if model == "matern" else None
    field = Variogram(model, 1.0, range_m, 0.0, smoothness=smoothness)
    covariance = 1.0 - field.semivariance(np.linalg.norm(points[:, None] - points[None], axis=2))
    np.fill_diagonal(covariance, 1.0 + 1e-8)
    factor = np.linalg.cholesky(covariance)
    values = np.empty((slices, len(points)))
    for number in range(slices):
        fresh = factor @ rng.normal(size=len(points))
        values[number] = fresh if number == 0 else memory * values[number - 1] + np.sqrt(1 - memory**2) * fresh
    readings = 10.0 + values[:, :stations] + np.sqrt(nugget) * rng.normal(size=(slices, stations))
    observed = Variogram(model, 1.0, range_m, nugget, smoothness=smoothness)
    return Network(points[:stations], readings, points[stations:], 10.0 + values[:, stations:], observed)
