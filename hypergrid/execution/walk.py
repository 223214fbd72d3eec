"""The directed random walk: cells where values change come first (thesis 5.7.3, algorithm 9)."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from hypergrid.errors import InvalidQuery
from hypergrid.execution.visited import Visited

Floats = NDArray[np.float64]
Cells = NDArray[np.intp]

CELLS_A_WALKER: Final = 12
"""Cells that a walker computes, about, where the number of walkers is left open."""
STRIDE: Final = 3.0
"""Longest step [mean distance between the cells that a walk computes]."""
SHORTENED: Final = 0.7
"""Share of its longest step that a walker loses where interest is greatest."""
BACK_ABOVE: Final = 0.7
"""Interest above which a walker turns back."""
SPREAD_RAD: Final = (0.3, 2.3)
"""Standard deviation of the direction [rad] where interest is greatest, and where there is none."""
DRAWS: Final = 8
"""Steps that a walker draws; it takes the one that ends farthest from every computed cell."""
MET_COMPUTED: Final = 4
"""Steps in a row to computed cells after which a walker restarts in the largest gap."""


@dataclass(frozen=True)
class Walking:
    """What a user may say of a walk.

    Raises
    ------
    InvalidQuery
        A number that is out of its range.
    """

    fraction: float = 0.15
    """Share of the cells that is walked, above 0, at most 0.5; the rest is computed afterwards row by row."""
    walkers: int | None = None
    """How many walk at once; where absent, one for each `CELLS_A_WALKER` cells."""
    seed: int = 0
    """Equal seeds walk alike."""

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 0.5:
            message = f"a walk needs a fraction above 0 and at most 0.5; got {self.fraction}"
            raise InvalidQuery(message)
        if self.walkers is not None and self.walkers < 1:
            message = f"a walk needs at least one walker; got {self.walkers}; leave it out to have it chosen"
            raise InvalidQuery(message)
        if self.seed < 0:
            message = f"a walk needs a seed of at least 0; got {self.seed}"
            raise InvalidQuery(message)


class Walk:
    """Serves the cells that k walkers meet, and then the rest row by row; each cell once.

    All walkers step at once. What the thesis leaves open is decided here: interest f is |v(i) - v(i-1)|, the mean over
    the time cells, over the root mean square of all differences seen, at most 1. The standard deviation of the
    direction grows with 1 - f, and the longest step shrinks with f. Each walker draws several steps and takes the one
    that ends farthest from what is computed: with a single draw the walk gave worse pictures than cells taken at
    random, because walkers met one another. Steps are reflected at the edge and end at the centre of a cell. A walker
    that met only computed cells several times in a row restarts in the middle of the largest gap.

    Parameters
    ----------
    shape
        Rows and columns that are walked.
    walking
        Walkers, seed and share.
    cells
        Cells in all, rows times columns where absent; those beyond come with the rest.
    """

    def __init__(self, shape: tuple[int, int], walking: Walking, *, cells: int | None = None) -> None:
        walked = shape[0] * shape[1]
        self._shape = np.array(shape)
        self._total = walked if cells is None else cells
        self._random = np.random.default_rng(walking.seed)
        self._budget = max(1, min(walked, round(walking.fraction * self._total)))
        walkers = walking.walkers or max(1, round(self._budget / CELLS_A_WALKER))
        self._walkers = min(walkers, self._budget)
        self._stride = max(1.0, STRIDE * np.sqrt(walked / self._budget))
        self._served = np.zeros(self._total, dtype=bool)
        self._visited = Visited(walked, self._budget)
        self._here = self._next = stratified(self._shape, self._walkers, self._random)
        self._heading = self._random.uniform(0.0, 2.0 * np.pi, self._walkers)
        self._interest = np.zeros(self._walkers)
        self._met_computed = np.zeros(self._walkers, dtype=int)
        self._squares, self._differences = 0.0, 0
        self._waiting = self._fresh(self._flat(self._here))
        self._rest: Cells | None = None

    def next(self, count: int) -> Cells:
        """Return up to `count` cells to compute next; none where all are served."""
        if self._rest is None and not len(self._waiting):
            self._waiting = self._advance()
        if len(self._waiting):
            served, self._waiting = self._waiting[:count], self._waiting[count:]
            return served
        if self._rest is None:
            self._rest = np.flatnonzero(~self._served)
            self._visited = Visited(0, 0)
        served, self._rest = self._rest[:count], self._rest[count:]
        return served

    def tell(self, cells: Cells, values: Floats) -> None:
        """Take the values of cells that were served, shape (time cells, cells), before more are asked for."""
        if self._rest is None:
            self._visited.put(cells, values)

    def _fresh(self, cells: Cells) -> Cells:
        """Return the cells that were not served before, each once, as far as the share allows, as served from now."""
        _, first = np.unique(cells, return_index=True)
        cells = cells[np.sort(first)]
        fresh = cells[~self._served[cells]][: self._budget - int(np.count_nonzero(self._served))]
        self._served[fresh] = True
        return fresh

    def _advance(self) -> Cells:
        """Return the cells of the next step that meets any that is not computed; none where the share is used up."""
        fresh = np.empty(0, dtype=np.intp)
        while not len(fresh) and np.count_nonzero(self._served) < self._budget:
            self._look()
            gap = self._gap()
            self._next = self._step(gap)
            met = self._served[self._flat(self._next)]
            self._met_computed = np.where(met, self._met_computed + 1, 0)
            lost = np.flatnonzero(self._met_computed >= MET_COMPUTED)
            if len(lost):
                self._restart(lost, gap)
            fresh = self._fresh(self._flat(self._next))
        return fresh

    def _look(self) -> None:
        """Compare the cells that were reached with those before, and turn (lines 9 to 13)."""
        difference = self._visited.difference(self._flat(self._here), self._flat(self._next))
        moved = self._next - self._here
        went = moved.any(axis=1)
        self._squares += float(np.sum(difference[went] ** 2))
        self._differences += int(np.count_nonzero(went))
        scale = np.sqrt(self._squares / max(self._differences, 1))
        self._interest = np.minimum(difference / scale, 1.0) if scale > 0 else np.zeros(self._walkers)
        away = np.where(went, np.arctan2(moved[:, 0], moved[:, 1]), self._heading)
        self._heading = away + np.pi * (self._interest > BACK_ABOVE)
        self._here = self._next

    def _step(self, gap: Floats) -> NDArray[np.intp]:
        """Return the walkers' next cells, shape (walkers, 2) (line 14)."""
        narrow, wide = SPREAD_RAD
        interest = self._interest[:, None]
        spread = narrow + (wide - narrow) * (1.0 - interest)
        draws = (self._walkers, DRAWS)
        direction = self._heading[:, None] + spread * self._random.standard_normal(draws)
        length = self._random.random(draws) * self._stride * (1.0 - SHORTENED * interest)
        steps = np.stack([np.sin(direction), np.cos(direction)], axis=-1) * np.maximum(length, 1.0)[..., None]
        ends = np.rint(reflected(self._here[:, None, :] + steps, self._shape)).astype(np.intp)
        best = gap[ends[..., 0], ends[..., 1]].argmax(axis=1)
        return np.asarray(ends[np.arange(self._walkers), best])

    def _restart(self, lost: Cells, gap: Floats) -> None:
        """Put walkers in the middle of the largest gaps, each in its own."""
        rows, columns = np.arange(gap.shape[0])[:, None], np.arange(gap.shape[1])
        # Among gaps of one size any will do: the first ones would all lie at the top.
        gap = gap + 0.01 * self._random.random(gap.shape)
        for walker in lost:
            row, column = divmod(int(gap.argmax()), gap.shape[1])
            self._next[walker] = row, column
            gap = np.minimum(gap, np.hypot(rows - row, columns - column))
        self._here = np.array(self._here)
        # It begins anew: nothing was seen on the way.
        self._here[lost] = self._next[lost]
        self._met_computed[lost] = 0
        self._heading[lost] = self._random.uniform(0.0, 2.0 * np.pi, len(lost))

    def _gap(self) -> Floats:
        """Return how far each cell lies from every computed one, shape (rows, columns)."""
        served = self._served[: int(self._shape.prod())].reshape(self._shape)
        return np.asarray(ndimage.distance_transform_edt(~served), dtype=np.float64)

    def _flat(self, places: NDArray[np.intp]) -> Cells:
        return np.asarray(places[:, 0] * self._shape[1] + places[:, 1], dtype=np.intp)


def stratified(shape: NDArray[np.intp], count: int, random: np.random.Generator) -> NDArray[np.intp]:
    """Return cells that are spread evenly over a lattice, one at a random place in each of as many equal boxes.

    Parameters
    ----------
    shape
        Rows and columns.
    count
        How many cells; where boxes are left over, a random choice of them has none.
    random
        Where chance comes from.

    Returns
    -------
    Rows and columns, shape (count, 2).
    """
    down = int(np.clip(round(np.sqrt(count * shape[0] / shape[1])), 1, count))
    across = -(-count // down)
    boxes = np.stack(np.divmod(random.permutation(down * across)[:count], across), axis=1)
    inside = (boxes + random.random((count, 2))) * shape / np.array([down, across])
    return np.asarray(np.minimum(inside.astype(np.intp), shape - 1))


def reflected(places: Floats, shape: NDArray[np.intp]) -> Floats:
    """Return places (rows, columns; last axis) mirrored at the middles of the outermost cells until they lie within."""
    last = shape - 1.0
    period = np.maximum(2.0 * last, 1.0)
    folded = np.mod(places, period)
    return np.asarray(np.clip(np.minimum(folded, period - folded), 0.0, last))
