"""Topologies: a time axis crossed with places; bands of elevation; and the blocks and lengths of time cells."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS
from hypergrid.core.tokens import token
from hypergrid.topology.axes import PER_UNIT, Instants, Regular
from hypergrid.topology.bins import Bins
from hypergrid.topology.levels import Levels
from hypergrid.topology.periodic import Periodic
from hypergrid.topology.points import Points
from hypergrid.topology.space import Grid, SeriesAxis
from hypergrid.topology.zone_cells import ZoneCells


@dataclass(frozen=True, eq=False)
class Bands:
    """Elevation bands over stations, or over the cells of a ground grid."""

    z: Levels
    """Band axis [mm above sea level]."""
    source: SeriesAxis | Grid
    """Space whose cells the bands contain."""
    heights_m: NDArray[np.float64]
    """Heights of the source cells above sea level, NaN if unknown, shape (source cells,)."""
    terrain: str = ""
    """Token of the elevation layer of a grid; empty for stations."""
    clipped_from: Levels | None = None
    """Originally requested bands, if these are a subset."""

    @property
    def count(self) -> int:
        return self.z.count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.z.count,)

    @property
    def axes(self) -> tuple[Levels, ...]:
        return (self.z,)

    def replace_axes(self, axes: Sequence[Levels]) -> "Bands":
        return replace(self, z=axes[0], clipped_from=self.clipped_from or self.z)

    def token(self) -> str:
        """Content token of bands and terrain; the stations are in the token of the source."""
        return token("bands", self.z, self.terrain)

    @cached_property
    def band(self) -> NDArray[np.intp]:
        """Band of each source cell, -1 if outside all bands, shape (source cells,)."""
        return self._find_bands(self.z)

    @cached_property
    def is_outside(self) -> NDArray[np.bool_]:
        """Whether a source cell's height is outside all requested bands, shape (source cells,)."""
        return np.isfinite(self.heights_m) & (self._find_bands(self.clipped_from or self.z) < 0)

    def _find_bands(self, z: Levels) -> NDArray[np.intp]:
        ends = z.ends if isinstance(z, Bins) else z.corners + z.length
        # In whole millimetres, like the edges: a height at an edge is not misplaced by rounding.
        height = np.rint(np.where(np.isfinite(self.heights_m), self.heights_m, 0.0) * PER_UNIT["mm"])
        bands = np.searchsorted(z.corners, height, side="right") - 1
        inside = np.isfinite(self.heights_m) & (bands >= 0) & (height < ends[np.maximum(bands, 0)])
        return np.where(inside, bands, -1).astype(np.intp)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Source cells grouped by band, in source order within it; shape (cells in a band,)."""
        # Stable, to keep the source order within a band. Cells outside all bands (-1) come first and are dropped.
        order = np.argsort(self.band, kind="stable")
        return order[np.count_nonzero(self.band < 0) :]

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Start of each band in `order`, then the total; shape (bands + 1,)."""
        return np.searchsorted(self.band[self.order], np.arange(self.count + 1)).astype(np.int64)

    @property
    def max_cells(self) -> int:
        """Largest number of cells in a band."""
        return int(np.diff(self.edges).max())


Integers = NDArray[np.int64]

TimeCells = Regular | Bins | Periodic
"""Axes whose cells have an extent and can be the target of an aggregate."""

TimeAxis = TimeCells | Instants


def blocks_of(axis: TimeCells) -> tuple[Integers, Integers]:
    """Return the starts and ends of the time blocks of cells, in order, shape (blocks,) each.

    Each cell is one block, except for `Periodic`, where `owners` maps blocks to cells.
    """
    if isinstance(axis, Regular):
        return axis.corners, axis.corners + axis.length
    return axis.starts, axis.ends


def sum_per_cell(axis: TimeCells, of_blocks: Integers) -> Integers:
    """Sum block values per cell, shape (count,)."""
    if not isinstance(axis, Periodic):
        return of_blocks
    totals = np.zeros(axis.count, dtype=np.int64)
    np.add.at(totals, axis.owners, of_blocks)
    return totals


def _find_civil_lengths_ns(axis: TimeCells) -> Integers:
    """Return block lengths in local time [ns], shape (blocks,): a 23-hour day counts as a day."""
    starts, ends = blocks_of(axis)
    calendar = axis.calendar if isinstance(axis, Bins) else axis.cycle.calendar if isinstance(axis, Periodic) else None
    if calendar is None or calendar.clock.zone is None or not len(starts):
        return ends - starts
    stretches = np.array(calendar.clock.stretches(int(starts.min()), int(ends.max()) + 1), dtype=np.int64)

    def local_ns(instants: Integers) -> Integers:
        shifts: Integers = stretches[np.searchsorted(stretches[:, 0], instants, side="right") - 1, 2]
        return instants + shifts

    return local_ns(ends) - local_ns(starts)


def count_fitting_intervals(axis: TimeCells, interval_ns: int) -> Integers:
    """Return the number of whole intervals per cell, shape (count,).

    Days are civil days of the axis. A block cut by the edge of the axis counts only what fits into it. If every block
    of a cell is shorter than the interval (hours of the day, readings every three hours), each block counts as one.
    """
    starts, ends = blocks_of(axis)
    # Intervals of whole days are civil days, which may last 23 or 25 hours.
    lengths = ends - starts if interval_ns % DAY_NS else _find_civil_lengths_ns(axis)
    counts = sum_per_cell(axis, lengths // interval_ns)
    # A cell over all instants ends 1 ns after the last one, which it contains.
    closing = sum_per_cell(axis, (lengths % interval_ns == 1).astype(np.int64))
    return np.where(counts > 0, counts + closing, sum_per_cell(axis, np.ones_like(lengths)))


def shortest_ns(axis: TimeCells) -> int:
    """Return the length of the shortest cell [ns].

    For a periodic axis this is the length of an uncut block.
    """
    if isinstance(axis, Regular):
        # Without listing the cells: an axis that is about to be refused may have 10^13 of them.
        return axis.length
    starts, ends = blocks_of(axis)
    if not len(starts):
        return 1
    return int((ends - starts).max() if isinstance(axis, Periodic) else (ends - starts).min())


Space = SeriesAxis | Grid | Points | ZoneCells | Bands


def axes_of(space: Space) -> tuple[Levels, ...]:
    """Return the axes of a space, slowest first; for points the levels, else none."""
    return space.axes if isinstance(space, Grid | Points | Bands) else ()


def replace_axes(space: Space, axes: Sequence[Levels]) -> Space:
    """Return a space with other cells along its axes."""
    return space.replace_axes(axes) if isinstance(space, Grid | Points | Bands) else space


def changes_cells(source: Space, target: Space) -> bool:
    """Return whether an aggregate between two spaces combines cells, not only times."""
    if isinstance(target, Bands):
        return not isinstance(source, Bands)
    return isinstance(source, Grid) and source != target


@dataclass(frozen=True, eq=False)
class Topology:
    """Cells of a perspective: all pairs of time cells and space cells."""

    time: TimeAxis
    space: Space

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of time cells, then the shape of one slice."""
        return (self.time.count, *self.space.shape)

    @property
    def count(self) -> int:
        return self.time.count * self.space.count

    def token(self) -> str:
        return self._token

    @cached_property
    def _token(self) -> str:
        time = self.time.times_ns if isinstance(self.time, Instants) else self.time
        return token(time, self.space.token())
