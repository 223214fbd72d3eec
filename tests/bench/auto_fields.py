"""Generated fields for judging the automatic method: five kinds, from 5 to 200 stations, the truth at 400 cells.

The truth at a cell is what a station there would read: the nugget is a part of the field, and differs from cell to
cell. Fields of one kind and size differ in their range, nugget and slices; they follow from `SEED` and their number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.variograms.variogram import Variogram

Floats = NDArray[np.float64]

SIZES: Final = (5, 8, 15, 40, 100, 200)
SEED: Final = 20_261
SIDE_M: Final = 100e3
CELLS: Final = 400
SLICES: Final = 6


@dataclass(frozen=True)
class GeneratedField:
    """Readings of a field at stations, and the field at other places."""

    kind: str
    positions_m: Floats
    """Shape (stations, 2)."""
    readings: Floats
    """Shape (slices, stations)."""
    elevation_m: Floats
    """Shape (stations,)."""
    cells_m: Floats
    """Shape (cells, 2)."""
    truth: Floats
    """Shape (slices, cells)."""
    cell_elevation_m: Floats
    """Shape (cells,)."""


def generate_field(kind: str, stations: int, number: int) -> GeneratedField:
    """Generate one field of `KINDS` with stations at random places."""
    rng = np.random.default_rng([SEED, list(KINDS).index(kind), stations, number])
    points = rng.uniform(0.0, SIDE_M, (stations + CELLS, 2))
    elevation = _draw_terrain(rng, points)
    values = KINDS[kind](rng, points, elevation)
    return GeneratedField(
        kind, points[:stations], values[:, :stations], elevation[:stations],
        points[stations:], values[:, stations:], elevation[stations:],
    )  # fmt: skip


def _draw_terrain(rng: np.random.Generator, points: Floats) -> Floats:
    """Draw hills and valleys of some 20 to 60 km, from 0 to 2,000 m."""
    height = np.zeros(len(points))
    for _ in range(12):
        direction, phase = rng.uniform(0.0, 2.0 * np.pi, 2)
        wave = 2.0 * np.pi / rng.uniform(20e3, 60e3)
        height += np.sin(wave * (points @ [np.cos(direction), np.sin(direction)]) + phase)
    return np.asarray(2000.0 * (height - height.min()) / np.ptp(height))


def _draw_gaussian(rng: np.random.Generator, points: Floats) -> Floats:
    """Draw slices of a field of mean 0 and variance 1, each correlated with the one before it."""
    model, smoothness = ("exponential", None) if rng.random() < 0.5 else ("matern", 1.5)
    nugget = rng.uniform(0.01, 0.1)
    variogram = Variogram(model, 1.0 - nugget, rng.uniform(30e3, 150e3), 0.0, smoothness=smoothness)
    distance = np.linalg.norm(points[:, None] - points[None], axis=2)
    covariance = 1.0 - nugget - variogram.semivariance(distance)
    np.fill_diagonal(covariance, 1.0)
    factor, memory = np.linalg.cholesky(covariance), rng.uniform(0.0, 0.95)
    values = np.empty((SLICES, len(points)))
    for row in range(SLICES):
        fresh = factor @ rng.normal(size=len(points))
        values[row] = fresh if row == 0 else memory * values[row - 1] + np.sqrt(1.0 - memory**2) * fresh
    return values


def _draw_smooth(rng: np.random.Generator, points: Floats, _elevation: Floats) -> Floats:
    return 10.0 + _draw_gaussian(rng, points)


def _draw_trend(rng: np.random.Generator, points: Floats, _elevation: Floats) -> Floats:
    direction = rng.uniform(0.0, 2.0 * np.pi)
    along = points @ [np.cos(direction), np.sin(direction)] / SIDE_M
    return np.asarray(10.0 + rng.uniform(4.0, 10.0) * along + _draw_gaussian(rng, points))


def _draw_lapse(rng: np.random.Generator, points: Floats, elevation: Floats) -> Floats:
    return np.asarray(15.0 - 0.0065 * elevation + _draw_gaussian(rng, points))


def _draw_noise(rng: np.random.Generator, points: Floats, _elevation: Floats) -> Floats:
    return np.asarray(10.0 + rng.normal(size=(SLICES, len(points))))


def _draw_rain(rng: np.random.Generator, points: Floats, _elevation: Floats) -> Floats:
    """Draw amounts that are 0 in some 40 % of the places, and skewed in the others."""
    return np.asarray(3.0 * np.maximum(_draw_gaussian(rng, points) + 0.25, 0.0) ** 1.7)


KINDS: Final[Mapping[str, Callable[[np.random.Generator, Floats, Floats], Floats]]] = {
    "smooth": _draw_smooth,
    "trend": _draw_trend,
    "elevation": _draw_lapse,
    "noise": _draw_noise,
    "rain": _draw_rain,
}
"""Kinds of fields: mean and covariance of a Gaussian field, or a function of one."""
