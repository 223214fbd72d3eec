"""Distances between places: Euclidean on a plane, great-circle on the sphere."""

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import FAR_CHORD, RADIUS_M, arc_m, chord_m
from hypergrid.interpolation.points.points import Floats, Stations

# 64-bit degrees projected to metres, or placed on the sphere, are off by some 1e-9 m; PyKrige uses 1e-10 m, in metres.
COINCIDENT_M = 1e-6
"""Places within this distance [m] are coincident."""


def are_on_sphere(places_m: Floats) -> bool:
    """Check whether places are on the sphere, shape (..., 3), rather than on a plane, shape (..., 2)."""
    return bool(places_m.shape[-1] == 3)


def separations(first_m: Floats, second_m: Floats) -> Floats:
    """Compute all distances [m] between two sets of places.

    Parameters
    ----------
    first_m, second_m
        x, y on a plane [m], shape (..., n, 2) and (..., m, 2), or places on the sphere from its centre [m], shape (...,
        n, 3) and (..., m, 3); leading dimensions are independent of each other and broadcast.

    Returns
    -------
    Shape (..., n, m): Euclidean on a plane, great-circle on the sphere.
    """
    straight = _straight_distances(first_m, second_m)
    if not are_on_sphere(first_m):
        return straight
    arc = arc_m(straight)
    if straight.size and straight.max() > FAR_CHORD * RADIUS_M:
        arc = np.where(
            straight > FAR_CHORD * RADIUS_M, np.pi * RADIUS_M - arc_m(_straight_distances(first_m, -second_m)), arc
        )
    return arc


def _straight_distances(first_m: Floats, second_m: Floats) -> Floats:
    if first_m.ndim == second_m.ndim == 2:
        return np.asarray(scipy.spatial.distance.cdist(first_m, second_m))
    # One coordinate at a time: all differences at once would take two or three times the memory.
    each = (first_m[..., :, None, i] - second_m[..., None, :, i] for i in range(first_m.shape[-1]))
    square = next(each) ** 2
    for difference in each:
        square += difference**2
    return np.asarray(np.sqrt(square, out=square))


def straight_radius(radius_m: float, places_m: Floats) -> float:
    """Convert a radius [m] along the surface to the Euclidean distance [m] for a search tree.

    Euclidean and great-circle order agree, so nearest neighbours need no conversion.
    """
    return chord_m(radius_m) if are_on_sphere(places_m) else radius_m


def number_places(places_m: Floats, within_m: float = 0.0) -> NDArray[np.intp]:
    """Label places in order of first occurrence, equally if coincident or linked by less than `within_m` [m].

    The distance is Euclidean; shape (places,).
    """
    count, reach = len(places_m), max(within_m, COINCIDENT_M)
    pairs = scipy.spatial.cKDTree(places_m).query_pairs(reach, output_type="ndarray") if count else np.empty((0, 2))
    if not len(pairs):
        return np.arange(count)
    near = scipy.sparse.coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return np.asarray(scipy.sparse.csgraph.connected_components(near, directed=False)[1], dtype=np.intp)


def name_coincident(stations: Stations) -> str:
    """Name the first five pairs of coincident stations for a message; empty if there are none."""
    places_m, names = stations.positions_m, stations.names
    pairs = sorted(scipy.spatial.cKDTree(places_m).query_pairs(COINCIDENT_M)) if len(places_m) else []
    return ", ".join(f"{names[i]} and {names[j]}" for i, j in pairs[:5])


def refuse_sphere(label: str, places_m: Floats) -> None:
    """Reject places on the sphere for methods that need a plane.

    Raises
    ------
    InvalidQuery
        Suggests a planar distance.
    """
    if are_on_sphere(places_m):
        raise InvalidQuery(
            f"{label} needs places on a plane; this network is so wide that its places are on the sphere; use "
            "ordinary_kriging, inverse_distance or nearest, or ask for distance='plane' and accept its distortion"
        )
