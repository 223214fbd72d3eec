"""Cells of points on the earth: cubes of a grid around its centre, numbered so that neighbours are at fixed steps."""

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.join_plan import CELL_BITS
from hypergrid.core.geodesy import RADIUS_M, places_m

NO_CELL: Final = -1
"""Cell of a point that is NULL or not finite."""
NEIGHBOURS: Final[Integers] = np.array(
    [x + (y << CELL_BITS) + (z << 2 * CELL_BITS) for z, y, x in itertools.product((-1, 0, 1), repeat=3)], np.int64
)
"""Steps from a cell to itself and the 26 around it."""


def cells_of(lon: NDArray[np.float64], lat: NDArray[np.float64], edge_m: float) -> Integers:
    """Return the number of the cube that each point is in, shape (n,).

    Parameters
    ----------
    lon, lat
        Degrees, shape (n,).
    edge_m
        Edge of the cubes [m], at least `LEAST_EDGE_M`.
    """
    with np.errstate(invalid="ignore"):
        # The first cube is number 1, so that its neighbours have numbers, too.
        along = np.floor((places_m(lon, lat) + RADIUS_M) / edge_m) + 1
    is_somewhere = np.isfinite(along).all(axis=-1)
    x, y, z = np.where(is_somewhere[:, np.newaxis], along, 0).astype(np.int64).T
    return np.where(is_somewhere, x + (y << CELL_BITS) + (z << 2 * CELL_BITS), NO_CELL)
