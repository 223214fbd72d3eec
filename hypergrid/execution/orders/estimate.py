"""A picture from what is computed: estimates of the rest, and how wrong they may be.

The weighted mean of a few near cells was chosen by measurement among the nearest one, linear interpolation over
triangles, radial functions and this: with 15 % of the cells of day-by-hour radiation, taken at random, the medians of
the completed picture's correlation with the full one were 0.89, 0.92, 0.94 and 0.94, and triangles of 200 x 200 cells
take 0.1 to 1 s.
"""

from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEIGHBOURS: Final = 6
"""Computed cells that an estimate is the mean of, weighted by 1 / distance**2."""
STRETCHES: Final = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125, 8.0)
"""What a row may count, in columns: a day is no hour."""
STRETCH_SCALES: Final = tuple(np.array([np.sqrt(ratio), 1.0 / np.sqrt(ratio)]) for ratio in STRETCHES)
"""The same as factors of rows and columns, which keep the area."""
ERROR_SAMPLE: Final = 200
"""Computed cells at most that are left out and estimated, to know the error."""
STRETCH_SAMPLE: Final = 1000
"""Computed cells at most among which the stretch is chosen."""
MAX_NEAR: Final = 24
"""Near cells among which those that are far enough are looked for."""
FARTHER_FACTOR: Final = 1.5
"""Times the distance of the nearest others, from which on others tell how errors grow with distance."""
MAX_POWER: Final = 1.0
"""Greatest power of the distance with which errors are taken to grow; 2 told too small ones on smooth fields."""


def complete(values: Floats, computed: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Return a picture with estimates where it is not computed, and their error.

    Parameters
    ----------
    values
        Shape (rows, columns), NaN where missing or not computed.
    computed
        Which cells are computed, shape (rows, columns).

    Returns
    -------
    The picture: values as they are where computed, else finite if any computed value is; and the root mean square error
    of the estimates: of computed cells when they are left out and estimated from others as far away as those that
    the other cells are estimated from. It is 0 where nothing is left to estimate, NaN where nothing can be known.
    """
    known = np.flatnonzero((computed & np.isfinite(values)).ravel())
    rest = np.flatnonzero(~computed.ravel())
    if not len(rest):
        return values.copy(), 0.0
    if not len(known):
        return values.copy(), np.nan
    points, held = _cell_positions(known, values.shape), values.ravel()[known]
    rest_distances = np.sort(scipy.ndimage.distance_transform_edt(~computed)[~computed])
    stretch = _find_stretch(points, held, rest_distances)
    tree = scipy.spatial.KDTree(points * stretch)
    distance, near = tree.query(
        _cell_positions(rest, values.shape) * stretch, k=range(1, min(NEIGHBOURS, len(known)) + 1)
    )
    completed = values.copy()
    completed.ravel()[rest] = _weighted_mean(distance, held[near])
    return completed, _error_at_distance(tree, points, held, stretch, rest_distances)


def _cell_positions(cells: NDArray[np.intp], shape: tuple[int, ...]) -> Floats:
    return np.stack(np.divmod(cells, shape[1]), axis=1).astype(np.float64)


def _weighted_mean(distance: Floats, values: Floats, use: NDArray[np.bool_] | None = None) -> Floats:
    weights = 1.0 / np.square(np.maximum(distance, 1e-9))
    if use is not None:
        weights *= use
    return np.asarray(np.einsum("ij,ij->i", weights, values) / weights.sum(axis=1))


def _find_stretch(points: Floats, values: Floats, excluded: Floats) -> Floats:
    """Return what a row and a column count, so that cells left out are estimated best."""
    chosen = np.unique(np.linspace(0, len(points) - 1, min(STRETCH_SAMPLE, len(points))).astype(np.intp))
    points, values = points[chosen], values[chosen]
    errors = [
        _left_out_error(scipy.spatial.KDTree(points * candidate), points, values, candidate, excluded)[0]
        for candidate in STRETCH_SCALES
    ]
    return STRETCH_SCALES[0] if np.isnan(errors).any() else STRETCH_SCALES[int(np.argmin(errors))]


def _error_at_distance(
    tree: "scipy.spatial.KDTree", points: Floats, values: Floats, stretch: Floats, excluded: Floats
) -> float:
    """Return the root mean square error of estimates as far from what is computed as the rest.

    On a lattice the nearest others of a cell that is left out lie farther away than those of the rest. How much the
    error grows with the distance is known from estimates by others that lie farther still: as some power of it.
    """
    error, distance = _left_out_error(tree, points, values, stretch, excluded)
    farther, longer = _left_out_error(tree, points, values, stretch, np.maximum(excluded, FARTHER_FACTOR * distance))
    if not (error > 0 and farther > error and longer > distance > excluded.mean()):
        return error
    power = min(np.log(farther / error) / np.log(longer / distance), MAX_POWER)
    return float(error * (excluded.mean() / distance) ** power)


def _left_out_error(
    tree: "scipy.spatial.KDTree", points: Floats, values: Floats, stretch: Floats, excluded: Floats
) -> tuple[float, float]:
    """Return the root mean square error of values that are left out, and how far the nearest used ones lie on average.

    Cells of a cluster would be told by their neighbours what no neighbour tells the rest: so each is estimated from
    those only that lie as far away as some cell of the rest lies from what is computed. Where there is but one, NaN.
    """
    if len(points) < 2:
        return np.nan, np.nan
    sample = np.unique(np.linspace(0, len(points) - 1, min(ERROR_SAMPLE, len(points))).astype(np.intp))
    # Distances of the rest, evenly from small to large, in an order that has nothing to do with where cells lie.
    order = np.random.default_rng(0).permutation(len(sample))
    min_distances = excluded[((order + 0.5) / len(sample) * len(excluded)).astype(np.intp)]
    distance, near = tree.query(points[sample] * stretch, k=range(1, min(MAX_NEAR, len(points)) + 1))
    separations = np.hypot(*np.moveaxis(points[near] - points[sample][:, None, :], -1, 0))
    enough = separations >= min_distances[:, None]
    enough[:, -1] |= ~enough.any(axis=1)
    use = enough & (np.cumsum(enough, axis=1) <= NEIGHBOURS)
    error = _weighted_mean(distance, values[near], use) - values[sample]
    nearest = np.where(use, separations, np.inf).min(axis=1)
    return float(np.sqrt(np.mean(np.square(error)))), float(nearest.mean())
