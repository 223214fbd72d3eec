"""Orders of the cells of a surface on its lattice: which come first in a refined answer."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Final, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import NotFound
from hypergrid.core.registry import Registry
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.orders.printed_walk import PrintedWalk
from hypergrid.execution.orders.walk import Walk, WalkSettings
from hypergrid.perspective import Aggregate, Base, Convert, Merge, Perspective
from hypergrid.topology import Grid, Regular

DAY_NS: Final = 86_400 * SECOND_NS


@dataclass(frozen=True)
class Lattice:
    """Cells row by row; the last row may be short.

    Along space they are the places of every slice, along time the time cells of the only place; "maps" are time cells
    with all their places.
    """

    along: Literal["space", "time", "maps"]
    cells: int
    columns: int

    @property
    def rows(self) -> int:
        """Number of rows, including a short one."""
        return -(-self.cells // self.columns)

    @property
    def full_shape(self) -> tuple[int, int]:
        """Number of full rows, and of columns."""
        return self.cells // self.columns, self.columns

    def arrange_values(self, values: NDArray[np.generic], fill: object) -> NDArray[np.generic]:
        """Arrange values, shape (cells,), in rows and columns; `fill` pads a short row."""
        missing = self.rows * self.columns - self.cells
        return np.append(values, np.full(missing, fill, dtype=values.dtype)).reshape(self.rows, self.columns)


def make_lattice(surface: Perspective) -> Lattice:
    """Return the lattice of a surface.

    A map has its rows and columns, one level after the other; a series of regular time cells at one station has days as
    rows and the cells of a day, from the clock time of the first one, as columns (thesis example 5.3.2: 28 days x 24
    hours). If a day is not a multiple of the cells, or if there are several series, all cells are in one row.
    """
    space, time = surface.topology.space, surface.topology.time
    if isinstance(space, Grid):
        return Lattice("space", space.count, space.shape[-1])
    if not isinstance(time, Regular) or time.count == 1 or not is_local_in_time(surface):
        return Lattice("space", space.count, space.count)
    per_day = DAY_NS // time.step if DAY_NS % time.step == 0 else time.count
    return Lattice("time", time.count, per_day if 1 < per_day < time.count else time.count)


def is_local_in_time(surface: Perspective) -> bool:
    """Return whether each time cell depends only on the readings within it."""
    # An interpolation over space may fit its variogram to all slices; one over time uses readings around a cell.
    chain = surface.list_chain()
    known = all(isinstance(item.operator, Base | Convert | Merge | Aggregate) for item in chain)
    return known and all(not isinstance(item.topology.space, Grid) and item.topology.space.count == 1 for item in chain)


Order = Callable[[tuple[int, ...]], Iterator[NDArray[np.intp]]]

ORDERS: Registry[Order] = Registry("order of blocks")
"""Orders known beforehand: name to a function from the shape of one slice to its flat cells.

Each cell occurs once; parts are made on demand.
"""

WALK: Final = "walk"
"""Name of our directed walk."""
PRINTED_WALK: Final = "algorithm_9"
"""Name of the directed walk as the thesis prints it."""
WALKS: Final[Mapping[str, type[Walk]]] = {WALK: Walk, PRINTED_WALK: PrintedWalk}
"""Orders that adapt to values, by name."""
BY_TIME: Final = "by_time"
"""Name of the order in which whole maps are computed, the earliest first."""

# A part takes some milliseconds, for which the first block waits.
PART_CELLS: Final = 1 << 18
"""Approximate number of cells examined for one part of an order."""


@dataclass(frozen=True)
class Watching:
    """How an answer is watched while it is computed."""

    order: str = "coarse_to_fine"
    """Name of the order of its cells: of `ORDERS`, of `WALKS`, or `BY_TIME`."""
    walking: WalkSettings = WalkSettings()
    """Settings of a walk."""


class CellOrder(Protocol):
    """An order of cells that may depend on the values computed so far."""

    def next_cells(self, count: int) -> NDArray[np.intp]:
        """Return up to `count` cells that were not served before; none once all are."""

    def add_values(self, cells: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Add the values of served cells, shape (time cells, cells), before more are requested."""


class FixedOrder:
    """An order that does not depend on values.

    Parameters
    ----------
    parts
        The cells, each once.
    """

    def __init__(self, parts: Iterator[NDArray[np.intp]]) -> None:
        self._parts = parts
        self._waiting = np.empty(0, np.intp)

    def next_cells(self, count: int) -> NDArray[np.intp]:
        """Return the next `count` cells, fewer at the end."""
        held = [self._waiting]
        missing = count - len(self._waiting)
        while missing > 0 and (part := next(self._parts, None)) is not None:
            held.append(part)
            missing -= len(part)
        cells = np.concatenate(held) if len(held) > 1 else self._waiting
        self._waiting = cells[count:]
        return cells[:count]

    def add_values(self, cells: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Ignore the values."""


def check_order(name: str) -> None:
    """Reject an unknown order.

    Raises
    ------
    NotFound
        Unknown order.
    """
    known = (*ORDERS, *WALKS, BY_TIME)
    if name not in known:
        raise NotFound.among(kind="order of blocks", given=name, existing=known)


def make_order(name: str, lattice: Lattice, walking: WalkSettings) -> CellOrder:
    """Make an order of the cells of a lattice; whole maps in the order of time are boxes of a run, no order of cells.

    Raises
    ------
    NotFound
        Unknown order.
    """
    check_order(name)
    if name == BY_TIME:
        name = "raster"
    parts = (coarse_to_fine if name in WALKS else ORDERS[name])((lattice.rows, lattice.columns))
    there = (part[part < lattice.cells] for part in parts)
    # The cells of a short row are served with the rest: walkers need a rectangle.
    walk = WALKS.get(name)
    return FixedOrder(there) if walk is None else walk(lattice.full_shape, walking, total=lattice.cells, order=there)


@ORDERS.register("raster")
def raster(shape: tuple[int, ...]) -> Iterator[NDArray[np.intp]]:
    cells = math.prod(shape)
    for first in range(0, cells, PART_CELLS):
        yield np.arange(first, min(first + PART_CELLS, cells), dtype=np.intp)


@ORDERS.register("coarse_to_fine")
def coarse_to_fine(shape: tuple[int, ...]) -> Iterator[NDArray[np.intp]]:
    """Yield the cells of a coarse lattice, then of lattices twice as fine.

    In a finer lattice, cells in the middle of four known ones come first, then those between two.
    """
    coarsest = int(np.log2(max(max(shape) - 1, 1)))
    # How often each row and column can be halved (`index & -index` is the lowest set bit): it belongs to all lattices
    # up to that level.
    halved = [np.log2(np.maximum(index & -index, 1)).astype(np.int8) for index in map(np.arange, shape)]
    for axis in halved:
        axis[0] = coarsest
    for level in range(coarsest, -1, -1):
        lattice = [np.flatnonzero(axis >= level) for axis in halved]
        rows = max(1, PART_CELLS // math.prod(map(len, lattice[1:])))
        # By `hypergrid bench orders` errors are 0.8 times those of serving the lattice row by row.
        for in_middle in (True, False):
            for first in range(0, len(lattice[0]), rows):
                lattice_index = np.ix_(lattice[0][first : first + rows], *lattice[1:])
                depths = [axis[index] for axis, index in zip(halved, lattice_index, strict=True)]
                min_depth, max_depth = reduce(np.minimum, depths), reduce(np.maximum, depths)
                wanted = (min_depth == level) & ((max_depth == level) == in_middle)
                yield np.ravel_multi_index(lattice_index, shape)[wanted].astype(np.intp, copy=False)
