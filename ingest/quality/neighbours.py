"""Neighbour search by a tree of station positions: memory grows with stations, not with their square."""

from typing import TYPE_CHECKING, Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

if TYPE_CHECKING:
    from ingest.quality.spatial import Places

EARTH_RADIUS_M: Final = 6_371_000.0
# On a square grid, the fifth to eighth neighbour have the same distance.
_RANK: Final = 6
"""Rank of the neighbour whose distance determines the network's spacing."""
# Other series of the same station have the same position.
_SPARE: Final = 8
"""Number of extra results of the tree query."""


def directions(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return points on the unit sphere, shape (n, 3); chords between them are ordered like distances."""
    east, north = np.radians(lon), np.radians(lat)
    return np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)], axis=1)


def nearest_neighbours(places: "Places", count: int) -> NDArray[np.intp]:
    """Return nearest series of other stations and the same kind, -1 padded, shape (series, count).

    Nearest first; ties are broken by station index. A series without a position gets others of its kind, those without
    a position first: all if there are few, else a sample spread over the network.
    """
    size = len(places.lon)
    neighbours = np.full((size, max(0, min(count, size - 1))), -1, np.intp)
    known = np.isfinite(places.lon) & np.isfinite(places.lat)
    for kind in np.unique(places.kind):
        members = np.flatnonzero(places.kind == kind)
        placed = members[known[members]]
        if len(placed) > 1:
            _query_tree(places, placed, neighbours)
        for member in members[~known[members]]:
            others = members[places.station[members] != places.station[member]]
            others = others[np.lexsort((places.station[others], known[others]))]
            if len(others) > neighbours.shape[1]:
                others = others[np.linspace(0, len(others) - 1, neighbours.shape[1]).astype(np.intp)]
            neighbours[member, : len(others)] = others
    return neighbours


def _query_tree(places: "Places", placed: NDArray[np.intp], neighbours: NDArray[np.intp]) -> None:
    tree = scipy.spatial.cKDTree(directions(places.lon[placed], places.lat[placed]))
    asked = min(neighbours.shape[1] + _SPARE + 1, len(placed))
    chord, at = tree.query(tree.data, k=asked)
    chord, at = chord.reshape(len(placed), asked), at.reshape(len(placed), asked)
    station = places.station[placed]
    for row, member in enumerate(placed.tolist()):
        # Rounded, so that ties do not depend on rounding errors.
        order = np.lexsort((station[at[row]], np.round(chord[row], 9)))
        others = at[row][order]
        others = others[station[others] != station[row]][: neighbours.shape[1]]
        neighbours[member, : len(others)] = placed[others]


def network_spacing_m(lon: NDArray[np.float64], lat: NDArray[np.float64]) -> float:
    """Return the network's spacing [m]; NaN for fewer than two places.

    It is the spacing of a square grid as dense as the network at its median station, and follows from the distance to
    the sixth of the other places: on a grid of that spacing, a circle of this radius holds 2 pi places.
    """
    known = np.isfinite(lon) & np.isfinite(lat)
    places = np.unique(np.stack([lon[known], lat[known]], axis=1), axis=0)
    if len(places) < 2:
        return float("nan")
    # The nearest place alone would give half the spacing if stations are placed at random.
    points, rank = directions(places[:, 0], places[:, 1]), min(_RANK, len(places) - 1)
    chord, _ = scipy.spatial.cKDTree(points).query(points, k=[rank + 1])
    reach_m = float(np.median(2.0 * EARTH_RADIUS_M * np.arcsin(np.minimum(chord[:, 0] / 2.0, 1.0))))
    return reach_m / np.sqrt(2.0) * np.sqrt(_RANK / rank)
