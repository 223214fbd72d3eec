"""The directed random walk: cells where values change come first (thesis 5.7.3, algorithm 9); estimates of the rest.

As estimate, the weighted mean of a few near cells was chosen by measurement among the nearest one, linear interpolation
over triangles, radial functions and this mean: with 15 % of the cells of day-by-hour radiation, taken at random, the
medians of the completed picture's correlation with the full one were 0.89, 0.92, 0.94 and 0.94, and triangles of
200 x 200 cells take 0.1 to 1 s.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Final

import numpy as np
import scipy  # loads its parts lazily: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery

Floats = NDArray[np.float64]

NEIGHBOURS: Final = 6
"""Number of computed cells in an estimate, weighted by 1 / distance**2."""
DENSE_SHARE: Final = 1 / 8
"""Share of known cells from which the nearest offsets of most cells hold `NEIGHBOURS` of them."""
NEAR_OFFSETS: Final = 48
OFFSET_REACH: Final = 12
"""Rows and columns among which the nearest offsets lie, however a map is stretched."""
OFFSETS_AT_ONCE: Final = 8
"""Offsets after which the cells that are estimated are left out."""
STRETCHES: Final = (1.0, 0.5, 2.0, 0.25, 4.0, 0.125, 8.0)
"""Candidate distances between rows, in columns: a day is not an hour."""
STRETCH_SCALES: Final = tuple(np.array([np.sqrt(ratio), 1.0 / np.sqrt(ratio)]) for ratio in STRETCHES)
"""The same candidates as factors of rows and columns that keep the area."""
ERROR_SAMPLE: Final = 200
"""Maximum number of computed cells that are left out and estimated to measure the error."""
STRETCH_POINTS: Final = 1000
"""Maximum number of computed cells among which the stretch is chosen."""
MAX_NEAR: Final = 24
"""Number of near cells that are searched for those far enough away."""
FARTHER_FACTOR: Final = 1.5
"""Factor on the distance of the nearest others; cells beyond it show how errors grow with distance."""
# A power of 2 predicted too small errors on smooth fields.
MAX_POWER: Final = 1.0
"""Greatest power of the distance with which errors are assumed to grow."""


def complete(values: Floats, computed: NDArray[np.bool_]) -> tuple[Floats, float]:
    """Complete a picture with estimates of the uncomputed cells; return it and their error.

    Parameters
    ----------
    values
        Shape (rows, columns), NaN where missing or not computed.
    computed
        Mask of the computed cells, shape (rows, columns).

    Returns
    -------
    The picture, with computed values unchanged and finite estimates if any computed value is finite; and the root mean
    square error of the estimates, from computed cells that are left out and estimated from others as far away as those
    that the uncomputed cells are estimated from. It is 0 if nothing is left to estimate, NaN if it cannot be known.
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
    tree, estimates = _make_tree(points * stretch), np.full(len(rest), np.nan)
    if len(known) >= DENSE_SHARE * values.size:
        estimates = _estimate_by_offsets(values, rest, stretch)
    left = np.isnan(estimates)
    if left.any():
        places = _cell_positions(rest[left], values.shape) * stretch
        distance, near = tree.query(places, k=range(1, min(NEIGHBOURS, len(known)) + 1))
        estimates[left] = _weighted_mean(distance, held[near])
    completed = values.copy()
    completed.ravel()[rest] = estimates
    return completed, _error_at_distance(tree, points, held, stretch, rest_distances)


def _make_tree(points: Floats) -> "scipy.spatial.KDTree":
    # Cells lie evenly: median splits and tight bounds take twice as long to build, and save nothing.
    return scipy.spatial.KDTree(points, balanced_tree=False, compact_nodes=False)


def _estimate_by_offsets(values: Floats, rest: NDArray[np.intp], stretch: Floats) -> Floats:
    """Estimate cells from the nearest known ones, NaN for those with too few of them among the nearest offsets.

    All cells look at one offset after the other, nearest first: a fifth of the time that a tree takes.
    """
    rows, columns = np.mgrid[-OFFSET_REACH : OFFSET_REACH + 1, -OFFSET_REACH : OFFSET_REACH + 1].reshape(2, -1)
    squares = np.square(rows * stretch[0]) + np.square(columns * stretch[1])
    nearest = np.argsort(squares, kind="stable")[1 : NEAR_OFFSETS + 1]
    up, across = np.abs(rows[nearest]).max(), np.abs(columns[nearest]).max()
    padded = np.pad(values, ((up, up), (across, across)), constant_values=np.nan)
    steps, width = rows[nearest] * padded.shape[1] + columns[nearest], values.shape[1]
    known = np.isfinite(padded).ravel()
    held = np.where(known, padded.ravel(), 0.0)
    estimates, cells = np.full(len(rest), np.nan), np.arange(len(rest))
    at = (rest // width + up) * padded.shape[1] + rest % width + across
    count, weights, sums = np.zeros(len(rest), np.int8), np.zeros(len(rest)), np.zeros(len(rest))
    for number, (step, square) in enumerate(zip(steps, squares[nearest], strict=True), 1):
        used = known[at + step] & (count < NEIGHBOURS)
        weight = used / square
        count, weights, sums = count + used, weights + weight, sums + weight * held[at + step]
        if number % OFFSETS_AT_ONCE == 0:
            full = count == NEIGHBOURS
            estimates[cells[full]] = sums[full] / weights[full]
            cells, at, count, weights, sums = (each[~full] for each in (cells, at, count, weights, sums))
    return estimates


def _cell_positions(cells: NDArray[np.intp], shape: tuple[int, ...]) -> Floats:
    return np.stack(np.divmod(cells, shape[1]), axis=1).astype(np.float64)


def _weighted_mean(distance: Floats, values: Floats, use: NDArray[np.bool_] | None = None) -> Floats:
    # A left-out cell is at distance 0 from itself.
    weights = 1.0 / np.square(np.maximum(distance, 1e-9))
    if use is not None:
        weights *= use
    return np.asarray(np.einsum("ij,ij->i", weights, values) / weights.sum(axis=1))


def _find_stretch(points: Floats, values: Floats, excluded: Floats) -> Floats:
    """Choose the stretch of rows and columns that estimates left-out cells best."""
    chosen = np.unique(np.linspace(0, len(points) - 1, min(STRETCH_POINTS, len(points))).astype(np.intp))
    points, values = points[chosen], values[chosen]
    errors = [
        _left_out_error(_make_tree(points * candidate), points, values, candidate, excluded)[0]
        for candidate in STRETCH_SCALES
    ]
    return STRETCH_SCALES[0] if np.isnan(errors).any() else STRETCH_SCALES[int(np.argmin(errors))]


def _error_at_distance(
    tree: "scipy.spatial.KDTree", points: Floats, values: Floats, stretch: Floats, excluded: Floats
) -> float:
    """Return the root mean square error at the rest's distance from computed cells."""
    # On a lattice the nearest others of a left-out cell are farther away than those of the rest. Estimates by others
    # that are farther still show with which power of the distance the error grows.
    error, distance = _left_out_error(tree, points, values, stretch, excluded)
    farther, longer = _left_out_error(tree, points, values, stretch, np.maximum(excluded, FARTHER_FACTOR * distance))
    if not (error > 0 and farther > error and longer > distance > excluded.mean()):
        return error
    power = min(np.log(farther / error) / np.log(longer / distance), MAX_POWER)
    return float(error * (excluded.mean() / distance) ** power)


def _left_out_error(
    tree: "scipy.spatial.KDTree", points: Floats, values: Floats, stretch: Floats, excluded: Floats
) -> tuple[float, float]:
    """Return the root mean square error of left-out values, and the mean distance used.

    The distance is that of the nearest cell used in each estimate. Both are NaN for a single cell.
    """
    if len(points) < 2:
        return np.nan, np.nan
    # In a cluster, neighbours would help a left-out cell more than any neighbour helps the rest. So each is estimated
    # only from cells at least as far away as some cell of the rest is from the computed ones.
    sample = np.unique(np.linspace(0, len(points) - 1, min(ERROR_SAMPLE, len(points))).astype(np.intp))
    # Distances of the rest, evenly from small to large, in an order unrelated to the places of the cells.
    order = np.random.default_rng(0).permutation(len(sample))
    min_distances = excluded[((order + 0.5) / len(sample) * len(excluded)).astype(np.intp)]
    distance, near = tree.query(points[sample] * stretch, k=range(1, min(MAX_NEAR, len(points)) + 1))
    separations = np.hypot(*np.moveaxis(points[near] - points[sample][:, None, :], -1, 0))
    enough = separations >= min_distances[:, None]
    # If no near cell is far enough, use the farthest of them.
    enough[:, -1] |= ~enough.any(axis=1)
    use = enough & (np.cumsum(enough, axis=1) <= NEIGHBOURS)
    error = _weighted_mean(distance, values[near], use) - values[sample]
    nearest = np.where(use, separations, np.inf).min(axis=1)
    return float(np.sqrt(np.mean(np.square(error)))), float(nearest.mean())


# All time cells would be a second copy of the surface.
TIMES_COMPARED: Final = 32
"""Maximum number of time cells, evenly spaced, by which two cells are compared."""
STRETCH_SAMPLE: Final = 500
"""Maximum number of visited cells among which the stretch is chosen."""
ROUNDING: Final = 1e-9
"""Share of the greatest value below which a surprise is rounding error."""


def choose_times(count: int) -> NDArray[np.intp]:
    """Choose the time cells by which cells are compared, of `count`."""
    return np.unique(np.linspace(0, count - 1, min(count, TIMES_COMPARED)).astype(np.intp))


@dataclass(frozen=True, eq=False)
class PredictionErrors:
    """Surprises: how far visited cells are from predictions by the cells around them."""

    cells: NDArray[np.intp]
    """The visited cells, ascending."""
    sizes: Floats
    """Surprise of each cell over the root mean square of all; 0 if there is none."""
    ranks: Floats
    """Share of smaller surprises, the median of each cell and a few around it."""
    stretch: Floats
    """Factors of rows and columns in which cells are compared."""


class SamplingHistory:
    """Values of visited cells.

    Parameters
    ----------
    columns
        Number of cells in a row.
    maximum
        Number of cells that can be visited.
    """

    def __init__(self, columns: int, maximum: int) -> None:
        self._columns = columns
        self._cells = np.empty(maximum, dtype=np.intp)
        self._values = np.empty((0, maximum))
        self._count = 0

    def add_values(self, cells: NDArray[np.intp], values: Floats) -> None:
        """Add the values of cells, shape (time cells, cells), NaN where missing."""
        times = choose_times(len(values))
        if not len(self._values):
            self._values = np.empty((len(times), self._values.shape[1]))
        stop = self._count + len(cells)
        self._cells[self._count : stop] = cells
        self._values[:, self._count : stop] = values[times]
        self._count = stop

    def find_errors(self) -> PredictionErrors:
        """Compare each cell with the mean of near ones, in the best stretch."""
        # Sort them, whatever the order of visits: of neighbours at equal distances the first is used.
        order = np.argsort(self._cells[: self._count])
        cells, values = self._cells[order], self._values[:, order]
        places = np.stack(np.divmod(cells, self._columns), axis=1).astype(np.float64)
        scale = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
        values = values / scale if scale > 0 else values
        sample = np.unique(np.linspace(0, self._count - 1, min(self._count, STRETCH_SAMPLE)).astype(np.intp))
        errors = [
            np.mean(_find_deviations(_make_tree(places[sample] * candidate), values[:, sample])[0] ** 2)
            for candidate in STRETCH_SCALES
        ]
        stretch = STRETCH_SCALES[int(np.argmin(errors))]
        deviations, near = _find_deviations(_make_tree(places * stretch), values)
        deviations[deviations < ROUNDING] = 0.0
        usual = np.sqrt(np.mean(deviations**2))
        sizes = deviations / usual if usual > 0 else deviations
        shares = np.searchsorted(np.sort(sizes), sizes) / max(len(sizes), 1)
        around = np.concatenate([np.arange(len(sizes))[:, None], near[:, : NEIGHBOURS - 1]], axis=1)
        return PredictionErrors(cells, sizes, np.median(shares[around], axis=1), stretch)


def _find_deviations(tree: "scipy.spatial.KDTree", values: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Return the mean over time of |value - mean of near others|, shape (cells,), else 0, and which others."""
    count = values.shape[1]
    if count < 2:
        return np.zeros(count), np.empty((count, 0), dtype=np.intp)
    # The nearest cell is the cell itself, so start with the second.
    distance, near = tree.query(tree.data, k=range(2, min(NEIGHBOURS, count - 1) + 2))
    held, there = values.T, np.isfinite(values.T)
    # As a product with a sparse matrix: weighting a copy of all neighbours' values took half of a walk's own time.
    parts = (1.0 / np.square(distance).ravel(), near.ravel(), np.arange(0, near.size + 1, near.shape[1]))
    weights = scipy.sparse.csr_array(parts, shape=(count, count))
    if there.all():
        deviations = np.abs(held - weights @ held / weights.sum(axis=1)[:, None])
        return np.asarray(deviations.mean(axis=1)), near
    held, total = np.where(there, held, 0.0), weights @ there.astype(np.float64)
    expected = weights @ held / np.where(total > 0, total, 1.0)
    known = there & (total > 0)
    deviations = np.sum(np.abs(held - expected), axis=1, where=known)
    return np.asarray(deviations / np.maximum(np.count_nonzero(known, axis=1), 1)), near


CellNumbers = NDArray[np.intp]

CELLS_A_WALKER: Final = 6
"""Approximate number of cells that a walker computes, if the number of walkers is not given."""
MANY_CELLS: Final = 2000
"""Walked cells from which walkers step once: every step looks at the values of all cells so far."""
LARGE_SHARE: Final = 0.55
"""Walkers on a large map, over walked cells; above a half, as some walkers find no cell of their own."""
STRIDE: Final = 3.0
"""Longest step [mean distance between the cells that a walk computes]."""
RETURN_ABOVE: Final = 1.0
"""Surprise above which a walker stays at a cell until its neighbours are known [root mean square of all surprises]."""
SPREAD_RAD: Final = (0.3, 2.3)
"""Standard deviation of the direction [rad] at that surprise, and without surprise."""
DRAWS: Final = 32
"""Number of steps that a walker draws, if there are few walkers."""
MIN_DRAWS: Final = 4
"""Number of steps that each of many walkers draws."""
MAX_DRAWN: Final = 2**15
"""Maximum number of steps that all walkers draw at once, if each draws more than `MIN_DRAWS`."""
MIN_INTEREST: Final = 0.1
"""Share of a gap's size that counts even without any surprise."""
NEIGHBOUR_STEPS: Final = np.array([[0, 1], [1, 0], [0, -1], [-1, 0]])
"""The steps to a cell's neighbours."""


@dataclass(frozen=True)
class WalkSettings:
    """User settings of a walk.

    Raises
    ------
    InvalidQuery
        A number is out of its range.
    """

    fraction: float = 0.15
    """Share of the cells that is walked, above 0, at most 0.5; the rest is computed afterwards, coarse to fine."""
    walkers: int | None = None
    """Number of simultaneous walkers; by default one for each `CELLS_A_WALKER` cells, or `LARGE_SHARE` of many."""
    seed: int = 0
    """Random seed; equal seeds give equal walks."""
    min_gain: float = 2.0
    """Predicted time of the whole over that of the walked share, below which the cells come coarse to fine; 0 walks
    always."""

    def __post_init__(self) -> None:
        # Users give these values, so the declared types are not guaranteed.
        given: dict[str, object] = {"fraction": self.fraction, "seed": self.seed, "min_gain": self.min_gain}
        whole = {"seed", "walkers"}
        if self.walkers is not None:
            given["walkers"] = self.walkers
        for name, value in given.items():
            # `bool` is a subclass of `int`.
            if isinstance(value, bool) or not isinstance(value, Integral if name in whole else Real):
                raise InvalidQuery(f"a walk needs a {'whole ' if name in whole else ''}number as {name}; got {value!r}")
        if not 0 < self.fraction <= 0.5:
            raise InvalidQuery(f"a walk needs a fraction above 0 and at most 0.5; got {self.fraction}")
        if self.walkers is not None and self.walkers < 1:
            raise InvalidQuery(f"a walk needs at least one walker; got {self.walkers}; leave it out to have it chosen")
        if not self.min_gain >= 0:
            raise InvalidQuery(f"a walk needs a min_gain of at least 0; got {self.min_gain}; 0 walks always")
        if self.seed < 0:
            raise InvalidQuery(f"a walk needs a seed of at least 0; got {self.seed}")


def count_walkers(walking: WalkSettings, cells: int) -> int:
    """Count the simultaneous walkers of a walk of some cells."""
    share = LARGE_SHARE if cells >= MANY_CELLS else 1 / CELLS_A_WALKER
    return min(walking.walkers or max(1, round(cells * share)), cells)


class Walk:
    """Serves the cells that k walkers meet, then the rest in a given order.

    Each cell is served once. All walkers step at once. Decisions that the thesis leaves open are made here. Interest f
    is not |v(i) - v(i-1)|, which is large on any steep slope, such as at each dawn, but the surprise: how far v(i) is
    from a prediction by the cells around it, as a mean over the time cells. Above the root mean square of all
    surprises, a walker comes back (line 10) until the four adjacent cells are known, or one of them surprises more.
    Otherwise it goes on, the straighter the more it was surprised: it draws several steps and takes the one that ends
    in the largest gap among surprising cells. A walker that meets a computed cell restarts at such a gap anywhere.
    Steps are reflected at the edge and end at the centre of a cell. With |v(i) - v(i-1)| 37 walks of 100 showed that
    the rain events E1 and E3 of example 5.3.2 are dark; with surprises 62 do.

    Parameters
    ----------
    shape
        Rows and columns of the area to walk.
    walking
        Number of walkers, seed and fraction.
    total
        Number of cells; those beyond rows times columns, none by default, are served with the rest.
    order
        Parts of the order in which the rest is served, all cells each once; read when the rest begins. Row by row by
        default.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        walking: WalkSettings,
        *,
        total: int | None = None,
        order: Iterable[CellNumbers] | None = None,
    ) -> None:
        walked = shape[0] * shape[1]
        self._shape = np.array(shape)
        self._total = walked if total is None else total
        self._order = (np.arange(self._total),) if order is None else order
        self._random = np.random.default_rng(walking.seed)
        self._budget = max(1, min(walked, round(walking.fraction * self._total)))
        self._is_large = self._budget >= MANY_CELLS
        self._walkers = count_walkers(walking, self._budget)
        self._draws = max(MIN_DRAWS, min(DRAWS, MAX_DRAWN // self._walkers))
        self._stride = max(1.0, STRIDE * np.sqrt(walked / self._budget))
        self._served = np.zeros(self._total, dtype=bool)
        self._history = SamplingHistory(shape[1], self._budget)
        self._positions = self._next_positions = sample_stratified(self._shape, self._walkers, self._random)
        self._heading = self._random.uniform(0.0, 2.0 * np.pi, self._walkers)
        self._last_errors = np.zeros(self._walkers)
        self._waiting = self._select_new(self._flatten_positions(self._positions))
        self._remaining: CellNumbers | None = None

    def next_cells(self, count: int) -> CellNumbers:
        """Return up to `count` cells to compute next; none once all are served."""
        if self._remaining is None and not len(self._waiting):
            self._waiting = self._advance()
        if len(self._waiting):
            served, self._waiting = self._waiting[:count], self._waiting[count:]
            return served
        if self._remaining is None:
            order = np.concatenate([*self._order])
            self._remaining = order[~self._served[order]]
            # The rest is served in a fixed order: free the values.
            self._history = SamplingHistory(0, 0)
        served, self._remaining = self._remaining[:count], self._remaining[count:]
        return served

    def add_values(self, cells: CellNumbers, values: Floats) -> None:
        if self._remaining is None:
            self._history.add_values(cells, values)

    def _select_new(self, cells: CellNumbers) -> CellNumbers:
        """Mark unserved cells as served and return them, without duplicates, up to the walked share."""
        _, first = np.unique(cells, return_index=True)
        cells = cells[np.sort(first)]
        fresh = cells[~self._served[cells]][: self._budget - int(np.count_nonzero(self._served))]
        self._served[fresh] = True
        return fresh

    def _advance(self) -> CellNumbers:
        """Step until walkers meet uncomputed cells, and return them; none beyond the share."""
        fresh = np.empty(0, dtype=np.intp)
        if np.count_nonzero(self._served) == self._budget:
            return fresh
        surprises = self._history.find_errors()
        gain = self._find_gains(surprises)
        self._assess_cells(surprises)
        while not len(fresh):
            self._next_positions = self._step(gain)
            ends = self._flatten_positions(self._next_positions)
            is_lost = self._served[ends]
            if self._is_large:
                # A round is dear: of walkers that meet in one cell only the first stays there.
                is_first = np.zeros(len(ends), dtype=bool)
                is_first[np.unique(ends, return_index=True)[1]] = True
                is_lost |= ~is_first
            lost = np.flatnonzero(is_lost)
            if len(lost):
                self._restart(lost, gain)
            fresh = self._select_new(self._flatten_positions(self._next_positions))
        return fresh

    def _assess_cells(self, surprises: PredictionErrors) -> None:
        """Assess the reached cells, and go on or come back (lines 9 to 13)."""
        sizes = np.zeros(self._total)
        sizes[surprises.cells] = surprises.sizes
        there, before = (
            sizes[self._flatten_positions(self._next_positions)],
            sizes[self._flatten_positions(self._positions)],
        )
        moved = self._next_positions - self._positions
        self._heading = np.where(moved.any(axis=1), np.arctan2(moved[:, 0], moved[:, 1]), self._heading)
        back = (before > RETURN_ABOVE) & (before > there)
        self._positions = np.where(back[:, None], self._positions, self._next_positions)
        self._last_errors = np.where(back, before, there)

    def _step(self, gain: Floats) -> NDArray[np.intp]:
        """Choose the walkers' next cells, shape (walkers, 2) (line 14)."""
        narrow, wide = SPREAD_RAD
        spread = narrow + (wide - narrow) * (1.0 - np.minimum(self._last_errors / RETURN_ABOVE, 1.0))
        draws = (self._walkers, self._draws)
        direction = self._heading[:, None] + spread[:, None] * self._random.standard_normal(draws)
        length = np.maximum(self._random.random(draws) * self._stride, 1.0)
        steps = np.stack([np.sin(direction), np.cos(direction)], axis=-1) * length[..., None]
        # Neighbours in random order: of equally good ones the first is chosen.
        beside = NEIGHBOUR_STEPS[
            self._random.permuted(np.arange(self._draws) % len(NEIGHBOUR_STEPS) + np.zeros(draws, dtype=int), axis=1)
        ]
        steps = np.where((self._last_errors > RETURN_ABOVE)[:, None, None], beside, steps)
        ends = np.rint(reflect_positions(self._positions[:, None, :] + steps, self._shape)).astype(np.intp)
        return self._choose_best(ends, gain)

    def _restart(self, lost: CellNumbers, gain: Floats) -> None:
        """Restart walkers at the most informative of the uncomputed cells that each draws."""
        free = self._random.permutation(np.flatnonzero(gain.ravel()))
        drawn = np.resize(free, (min(2 * self._draws, -(-len(free) // len(lost))), len(lost))).T
        self._next_positions[lost] = self._choose_best(np.stack(np.divmod(drawn, self._shape[1]), axis=-1), gain)
        self._positions = np.array(self._positions)
        # A restarted walker has seen nothing on its way.
        self._positions[lost] = self._next_positions[lost]
        self._heading[lost] = self._random.uniform(0.0, 2.0 * np.pi, len(lost))

    def _choose_best(self, ends: NDArray[np.intp], gain: Floats) -> NDArray[np.intp]:
        """Choose for each walker the most informative of its cells, shape (walkers, draws, 2)."""
        learnt = gain[ends[..., 0], ends[..., 1]]
        return np.asarray(ends[np.arange(len(ends)), learnt.argmax(axis=1)])

    def _find_gains(self, surprises: PredictionErrors) -> Floats:
        """Return how informative each cell is, shape (rows, columns): its gap times the interest around it."""
        # The nearest cell stands for those around: to search them for every draw took half of the time of a walk. In
        # the dense samples of a large map, which is the nearest hardly depends on the stretch.
        served = self._served[: int(self._shape.prod())].reshape(self._shape)
        gap, nearest = scipy.ndimage.distance_transform_edt(~served, return_indices=True)
        if not self._is_large and (surprises.stretch != 1.0).any():
            nearest = scipy.ndimage.distance_transform_edt(
                ~served, sampling=surprises.stretch, return_distances=False, return_indices=True
            )
        ranks = np.zeros(served.shape)
        ranks.ravel()[surprises.cells] = surprises.ranks
        return np.asarray(gap * (MIN_INTEREST + ranks[tuple(nearest)]))

    def _flatten_positions(self, places: NDArray[np.intp]) -> CellNumbers:
        return np.asarray(places[:, 0] * self._shape[1] + places[:, 1], dtype=np.intp)


def sample_stratified(shape: NDArray[np.intp], count: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Draw cells spread evenly over a lattice, one at random in each of equal boxes.

    Parameters
    ----------
    shape
        Rows and columns.
    count
        Number of cells; surplus boxes, chosen at random, get none.
    random
        Random number generator.

    Returns
    -------
    Rows and columns, shape (count, 2).
    """
    down = int(np.clip(round(np.sqrt(count * shape[0] / shape[1])), 1, count))
    across = -(-count // down)
    boxes = np.stack(np.divmod(random.permutation(down * across)[:count], across), axis=1)
    inside = (boxes + random.random((count, 2))) * shape / np.array([down, across])
    return np.asarray(np.minimum(inside.astype(np.intp), shape - 1))


def reflect_positions(places: Floats, shape: NDArray[np.intp]) -> Floats:
    """Mirror places (rows, columns; last axis) at the outermost cell centres until they lie within."""
    last = shape - 1.0
    period = np.maximum(2.0 * last, 1.0)
    folded = np.mod(places, period)
    return np.asarray(np.clip(np.minimum(folded, period - folded), 0.0, last))
