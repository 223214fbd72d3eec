"""Geometry checks of methods without a variogram, and their sparse weights."""

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.points.distance import COINCIDENT_M
from hypergrid.interpolation.points.points import Floats, Stations, Targets

FLAT = 1e-9
"""Ratio of least to greatest singular value below which stations are on one line (or conic)."""


def determines(stations_m: Floats, degree: int) -> bool:
    """Check that values at these places determine a polynomial of x and y.

    Parameters
    ----------
    stations_m
        Positions [m], shape (stations, 2).
    degree
        0 needs one station, 1 three that are not on one line, 2 six that are not on one conic.
    """
    if len(stations_m) < count_needed(degree):
        return False
    centred = stations_m - stations_m.mean(axis=0)
    size = float(np.abs(centred).max())
    if degree == 0 or size == 0:
        return degree == 0
    x, y = (centred / size).T
    columns = [x**i * y**j for i in range(degree + 1) for j in range(degree + 1 - i)]
    singular = np.linalg.svd(np.stack(columns, axis=1), compute_uv=False)
    return bool(singular[-1] > FLAT * singular[0])


def count_needed(degree: int) -> int:
    """Count the stations needed for a polynomial of x and y."""
    return (degree + 1) * (degree + 2) // 2


def refuse_undetermined(label: str, stations_m: Floats, degree: int) -> None:
    """Reject a network on which no slice could be interpolated; an empty network is accepted.

    Raises
    ------
    InvalidQuery
        Too few stations, or all of them on one line (degree 1) or one conic (degree 2).
    """
    if not len(stations_m) or determines(stations_m, degree):
        return
    figure = {1: "line", 2: "conic"}.get(degree, "point")
    problem = f"{len(stations_m)}" if len(stations_m) < count_needed(degree) else f"{len(stations_m)} on one {figure}"
    raise InvalidQuery(
        f"{label} needs at least {count_needed(degree)} stations with values that are not on one {figure}; "
        f"got {problem}; use "
        "inverse_distance or nearest, or select more stations"
    )


def refuse_same_place(label: str, stations: Stations, remedy: str) -> None:
    """Reject coincident stations, at which a surface through all values would need two values.

    Raises
    ------
    SingularSystem
        Names the stations.
    """
    places_m, names = stations.positions_m, stations.names
    pairs = sorted(scipy.spatial.cKDTree(places_m).query_pairs(COINCIDENT_M)) if len(places_m) else []
    if pairs:
        named = ", ".join(f"{names[i]} and {names[j]}" for i, j in pairs[:5])
        raise SingularSystem(
            f"{label} cannot pass through two values in the same place: {named}; {remedy}, ask for coincident='merge', "
            "or select one of them"
        )


def apply_weights(values: Floats, near: NDArray[np.intp], weights: Floats) -> Floats:
    """Compute the weighted sums of each point's few stations, shape (slices, points).

    Parameters
    ----------
    values
        Shape (slices, stations); missing ones must have zero weight.
    near, weights
        Stations of each point and their weights, shape (points, few).
    """
    rows = np.repeat(np.arange(len(near)), near.shape[1])
    matrix = scipy.sparse.csr_array((weights.ravel(), (rows, near.ravel())), shape=(len(near), values.shape[1]))
    # Zero times NaN is NaN: replace missing values by a number.
    return np.asarray((matrix @ np.nan_to_num(values).T).T)


class WithoutVariance:
    """Base of fields whose method has no variance."""

    method: str

    def variance(self, targets: Targets) -> Floats:
        """Raise InvalidQuery.

        Raises
        ------
        InvalidQuery
            Always; the method's row has `has_variance=False`, so that queries are rejected earlier.
        """
        raise InvalidQuery(
            f"{self.method} has no variance; ask for it with a kriging method (got {targets.count} points)"
        )
