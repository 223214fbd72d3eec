"""Neighbour tests after titanlib's definitions, vectorised over all times.

Readings are grouped into time cells; neighbours are given by one matrix of series by series, so that their counts, sums
and sums of squares are matrix products. Flagged readings are not neighbours in the next iteration. A failure is suspect
(3), never more: an isolated storm is not an error. If too few neighbours report, or a position or an elevation is
unknown, nothing is evaluated (2).

titanlib's `buddy_check` flags |x - mean| / max(min_std, sqrt(var + var/n)) > threshold over buddies reduced to the
elevation of the station, and iterates over those not flagged (Båserud and others 2020, TITAN automatic spatial quality
control of meteorological in-situ observations, Adv. Sci. Res. 17, 153-163).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.flags import GOOD, NOT_EVALUATED, SUSPECT
from hypergrid.core.geodesy import arc_m, chord_m, places_m
from ingest.deployment.quality_settings import MINUTE_NS, BuddyCheck, SpatialConsistency
from ingest.quality.temporal import Flags, Floats, Line

_LEAST_RADIUS_M, _MOST_RADIUS_M = 10_000.0, 160_000.0
_CELLS_AT_ONCE: Final = 1 << 20
"""Cells times series that are in memory at once, about 100 MB."""

# On a square grid, the fifth to eighth neighbour have the same distance.
_RANK: Final = 6
"""Rank of the neighbour whose distance determines the network's spacing."""
# Other series of the same station have the same position.
_SPARE: Final = 8
"""Number of extra results of the tree query."""


@dataclass(frozen=True, eq=False)
class Places:
    """Positions and kinds of the series of a variable; each of shape (series,)."""

    lon: Floats
    """[degree], NaN if unknown."""
    lat: Floats
    """[degree], NaN if unknown."""
    elevation_m: Floats
    """[m], NaN if unknown."""
    station: NDArray[np.int64]
    """Index of the station."""
    kind: NDArray[np.int64]
    """Index of the statistic; only series of the same kind are compared."""
    height_m: Floats
    """Height above ground [m], NaN if unknown."""

    spacing_m: float = float("nan")
    """Spacing of the whole network [m]; NaN: that of these places."""

    def neighbours(self, radius_m: float, most_elevation_m: float | None = None) -> "scipy.sparse.csr_array":
        """Return the sparse neighbour matrix: 1 for neighbours at different stations; shape (series, series)."""
        size = len(self.lon)
        known = np.isfinite(self.lon) & np.isfinite(self.lat)
        if most_elevation_m is not None:
            known &= np.isfinite(self.elevation_m)
        placed = np.flatnonzero(known)
        row, other = np.empty((2, 0), np.intp)
        # By a tree: memory grows with the number of neighbour pairs, not with series squared.
        if len(placed) > 1 and radius_m > 0.0:
            tree = scipy.spatial.cKDTree(places_m(self.lon[placed], self.lat[placed]))
            pairs = placed[tree.query_pairs(chord_m(radius_m), output_type="ndarray")]
            near = (self.station[pairs[:, 0]] != self.station[pairs[:, 1]]) & (
                self.kind[pairs[:, 0]] == self.kind[pairs[:, 1]]
            )
            if most_elevation_m is not None:
                near &= np.abs(self.elevation_m[pairs[:, 0]] - self.elevation_m[pairs[:, 1]]) <= most_elevation_m
            row, other = pairs[near].T
        ones = np.ones(2 * len(row))
        return scipy.sparse.csr_array((ones, (np.r_[row, other], np.r_[other, row])), shape=(size, size))

    def radius_m(self, radius_km: float | None, neighbours: float) -> float:
        """Return the neighbour radius [m]: the given one, else one derived from the network's spacing.

        It is wide enough for the required number of neighbours in a network of this density.
        """
        if radius_km is not None:
            return radius_km * 1000.0
        spacing_m = self.spacing_m if np.isfinite(self.spacing_m) else network_spacing_m(self.lon, self.lat)
        # A circle of this radius holds the required number of stations of a square grid, plus half as many for its
        # edge.
        wanted = spacing_m * np.sqrt(1.5 * (neighbours + 1.0) / np.pi) if np.isfinite(spacing_m) else 0.0
        # Doubled from 10 km up to 160 km, so that an added station hardly ever changes the radius.
        steps = np.ceil(np.log2(max(wanted, _LEAST_RADIUS_M) / _LEAST_RADIUS_M))
        return float(min(_LEAST_RADIUS_M * 2.0**steps, _MOST_RADIUS_M))


def find_isolated(
    places: Places, *, radius_m: float, neighbours: float, most_elevation_m: float | None = None
) -> NDArray[np.bool_]:
    """Return which series have too few neighbours, or no position (titanlib: `isolation_check`).

    Parameters
    ----------
    most_elevation_m
        Maximum difference in elevation to neighbours [m]; None: at any elevation, known or not.
    """
    return np.diff(places.neighbours(radius_m, most_elevation_m).indptr) < neighbours


def buddy_check(line: Line, settings: BuddyCheck, places: Places) -> Flags:
    """Flag readings far from the mean of their neighbours."""
    radius_m = places.radius_m(settings.radius_km, settings.neighbours)
    near = places.neighbours(radius_m, settings.most_elevation_m)

    def judge(cells: "_CellSums") -> tuple[Floats, Floats, Floats]:
        count, mean, square = cells.sums(near, places.elevation_m * settings.per_m)
        variance = np.maximum(square - mean * mean, 0.0)
        spread = np.sqrt(variance * (1.0 + 1.0 / np.maximum(count, 1.0)))
        return count, mean, np.maximum(settings.least_spread, spread)

    return _flags(line, settings, near, judge)


def spatial_consistency(line: Line, settings: SpatialConsistency, places: Places) -> Flags:
    """Flag readings far from a linear fit in elevation through their neighbours, without themselves.

    titanlib's `sct` uses one vertical profile for all and an optimal interpolation of the residuals; this is only its
    leave-one-out background, with a separate line for each station, and the spread of the neighbours around it.
    """
    near = places.neighbours(places.radius_m(settings.radius_km, settings.neighbours), np.inf)
    height = places.elevation_m
    middle = np.nanmean(height) if np.isfinite(height).any() else 0.0
    z = np.nan_to_num(height - middle)

    def judge(cells: "_CellSums") -> tuple[Floats, Floats, Floats]:
        known = _matrix(near)
        count = cells.present @ known
        share = 1.0 / np.maximum(count, 1.0)
        value = np.nan_to_num(cells.mean())
        mean_x, mean_z = (value @ known) * share, (cells.present * z @ known) * share
        var_x = np.maximum((value * value @ known) * share - mean_x**2, 0.0)
        var_z = np.maximum((cells.present * z * z @ known) * share - mean_z**2, 0.0)
        both = (value * z @ known) * share - mean_x * mean_z
        steep = np.sqrt(var_z) >= settings.least_elevation_m
        slope = np.where(steep, both / np.where(steep, var_z, 1.0), settings.per_m)
        left = np.maximum(var_x - 2.0 * slope * both + slope * slope * var_z, 0.0)
        # Degrees of freedom are reduced by the parameters of the line; a distant elevation makes the line less certain.
        free = np.maximum(count - np.where(steep, 2.0, 1.0), 1.0)
        lever = 1.0 + share + np.where(steep, (z - mean_z) ** 2 / np.maximum(count * var_z, 1e-12), 0.0)
        spread = np.sqrt(left * count / free * lever)
        return count, mean_x + slope * (z - mean_z), np.maximum(settings.least_spread, spread)

    return _flags(line, settings, near, judge)


@dataclass(frozen=True, eq=False)
class _CellSums:
    """Sums of the readings of each time cell, by series."""

    count: Floats
    total: Floats
    """Shape of both: (cells, series)."""

    @property
    def present(self) -> Floats:
        return (self.count > 0).astype(np.float64)

    def mean(self) -> Floats:
        return np.where(self.count > 0, self.total / np.maximum(self.count, 1.0), np.nan)

    def sums(self, near: "scipy.sparse.csr_array", offset: Floats) -> tuple[Floats, Floats, Floats]:
        """Return count, mean and mean square of the neighbours' values less `offset`, reduced to each series' place."""
        known, present = _matrix(near), self.present
        reduced = np.nan_to_num(self.mean() - offset)
        # Relative to the mean of the cell, so that squares keep their precision.
        middle = reduced.sum(axis=1, keepdims=True) / np.maximum(present.sum(axis=1, keepdims=True), 1.0)
        reduced = (reduced - middle) * present
        count = present @ known
        share = 1.0 / np.maximum(count, 1.0)
        mean, square = (reduced @ known) * share, (reduced * reduced @ known) * share
        variance = square - mean * mean
        mean = mean + middle + np.nan_to_num(offset)
        return count, mean, variance + mean * mean


def _matrix(near: "scipy.sparse.csr_array") -> "scipy.sparse.csr_array | Floats":
    """Return the matrix, dense for few series."""
    # Products are then faster, because most of few series are neighbours, and the matrix is small.
    return near.toarray() if near.shape[0] <= 256 else near


_Judge = Callable[[_CellSums], tuple[Floats, Floats, Floats]]
"""Returns the number of reporting neighbours, the expected value, and its spread."""


def _flags(
    line: Line, settings: BuddyCheck | SpatialConsistency, near: "scipy.sparse.csr_array", judge: _Judge
) -> Flags:
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    social = np.diff(near.indptr) >= settings.neighbours
    # Other series are neither evaluated nor neighbours of evaluated ones.
    has_neighbour = social | (social.astype(np.float64) @ near > 0.0)
    rows = np.flatnonzero(has_neighbour[line.index]) if social.any() else ()
    if not len(rows):
        return flag
    cell = line.time_ns[rows] // round(settings.minutes * MINUTE_NS)
    # By cell, so that a bounded number of cells is in memory at once.
    order = np.argsort(cell, kind="stable")
    rows, cell = rows[order], cell[order]
    series = near.shape[0]
    number = np.cumsum(np.r_[0, np.diff(cell) != 0])
    max_cells = max(1, _CELLS_AT_ONCE // series)
    for first in range(0, int(number[-1]) + 1, max_cells):
        span = slice(*np.searchsorted(number, [first, first + max_cells]).tolist())
        flag[rows[span]] = _judge_cells(line.take(rows[span]), number[span] - first, settings, series, judge)
    return flag


def _judge_cells(
    line: Line,
    cell: NDArray[np.int64],
    settings: BuddyCheck | SpatialConsistency,
    series: int,
    judge: _Judge,
) -> Flags:
    shape = (int(cell[-1]) + 1, series)
    group = cell * series + line.index
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    count = np.bincount(group, minlength=shape[0] * shape[1]).astype(np.float64)
    total = np.bincount(group, line.value, minlength=shape[0] * shape[1]).astype(np.float64)
    looked = np.arange(len(line))
    for _ in range(round(settings.iterations)):
        # Only cells in which a reading was flagged change in the next iteration.
        touched, local = np.unique(cell[looked], return_inverse=True)
        cells = _CellSums(count.reshape(shape)[touched], total.reshape(shape)[touched])
        buddies, expected, spread = judge(cells)
        at = local, line.index[looked]
        open_ = (buddies[at] >= settings.neighbours) & (flag[looked] != SUSPECT)
        is_outlier = open_ & (np.abs(line.value[looked] - expected[at]) > settings.threshold * spread[at])
        flag[looked[open_ & ~is_outlier]] = GOOD
        bad = looked[is_outlier]
        if not len(bad):
            break
        flag[bad] = SUSPECT
        # Outliers are not neighbours in the next iteration.
        np.subtract.at(count, group[bad], 1.0)
        np.subtract.at(total, group[bad], line.value[bad])
        looked = np.flatnonzero(np.isin(cell, cell[bad]))
    return flag


def nearest_neighbours(places: Places, count: int) -> NDArray[np.intp]:
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


def _query_tree(places: Places, placed: NDArray[np.intp], neighbours: NDArray[np.intp]) -> None:
    tree = scipy.spatial.cKDTree(places_m(places.lon[placed], places.lat[placed]))
    asked = min(neighbours.shape[1] + _SPARE + 1, len(placed))
    chord, at = tree.query(tree.data, k=asked)
    chord, at = chord.reshape(len(placed), asked), at.reshape(len(placed), asked)
    station = places.station[placed]
    for row, member in enumerate(placed.tolist()):
        # Rounded to centimetres, so that ties do not depend on rounding errors.
        order = np.lexsort((station[at[row]], np.round(chord[row], 2)))
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
    points, rank = places_m(places[:, 0], places[:, 1]), min(_RANK, len(places) - 1)
    chord, _ = scipy.spatial.cKDTree(points).query(points, k=[rank + 1])
    return float(np.median(arc_m(chord[:, 0]))) / np.sqrt(2.0) * np.sqrt(_RANK / rank)
