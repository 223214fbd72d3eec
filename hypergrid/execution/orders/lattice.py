"""Rows and columns of the cells of a surface while they are computed."""

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import SECOND_NS
from hypergrid.perspective import Aggregate, Base, Convert, Merge, Perspective
from hypergrid.topology import Grid, Regular

DAY_NS: Final = 86_400 * SECOND_NS


@dataclass(frozen=True)
class Lattice:
    """Cells row by row; the last row may be short.

    Along space they are the places of every slice, along time the time cells of the only place.
    """

    along: Literal["space", "time"]
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
