"""Aggregation over cells of a perspective: along time, and along the axes of a grid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from hypergrid.execution.cells import Cells, covered
from hypergrid.execution.fold import cell_hashes, choose_ranges, fold_again, fold_values
from hypergrid.execution.stations import series_keys
from hypergrid.perspective.functions import AggregateRow
from hypergrid.perspective.operators import Aggregate
from hypergrid.topology import Grid, Regular, SeriesAxis, Space, TimeAxis, ZoneCells, cover
from hypergrid.topology.areas import cell_areas
from hypergrid.topology.zone_cells import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpaceCover:
    """Which source cells each target cell of a block covers, as ranges over a list of pairs."""

    needed: NDArray[np.intp]
    """Flat source cells that the block needs, each once, shape (needed,)."""
    members: NDArray[np.intp]
    """Positions in `needed`, target by target, shape (pairs,)."""
    first: NDArray[np.int64]
    """First pair of each target cell, shape (targets,)."""
    stop: NDArray[np.int64]
    """After its last pair, shape (targets,)."""
    full: NDArray[np.int64]
    """Source cells under a whole target cell, shape (targets,), or (1,) where they are the same for all."""
    weights: Floats | None = None
    """What each pair weighs in the aggregate, shape (pairs,); None where all weigh alike."""
    of_sum: bool = False
    """Whether weights are shares in a sum; else they matter relative to each other, as in a mean."""
    parts: Floats | None = None
    """Share of its target's area that each pair stands for, shape (pairs,); None where coverage counts cells."""

    def matrix(self, data: Floats | None) -> sparse.csr_array:
        """Return numbers of the pairs, 1 for None, as a matrix of shape (targets, needed)."""
        data = np.ones(len(self.members)) if data is None else data
        pointers = np.append(self.first, self.stop[-1:])
        return sparse.csr_array((data, self.members, pointers), (len(self.first), len(self.needed)))

    def weighted(self, folded: Floats, count: NDArray[np.int64]) -> Floats:
        """Return weighted sums over the pairs of each target.

        Where weights matter relative to each other, those of what is present are scaled to add up to its count: what
        makes a mean of a sum and a count, then makes a weighted one.

        Parameters
        ----------
        folded
            Sums, 0 where there is nothing, shape (needed, n).
        count
            How many values each is of, shape (needed, n), or (1, n) where it is the same for all.
        """
        matrix = self.matrix(self.weights)
        sums = matrix @ folded
        if self.of_sum:
            return np.asarray(sums)
        mass, number = _totals(matrix, count), _totals(self.matrix(None), count)
        return np.asarray(sums * (number / np.where(mass > 0, mass, 1.0)))

    def counts(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of counts, shape (targets, n), of counts as `weighted` takes them."""
        return np.rint(_totals(self.matrix(None), count)).astype(np.int64)

    def coverage(self, count: NDArray[np.int64], slices: NDArray[np.int64]) -> Floats:
        """Return the share of each target, by area and over time, that has values, shape (targets, n).

        Parameters
        ----------
        count
            Slices of each source cell that have a value, shape (needed, n) or (1, n).
        slices
            How many a target cell could have, shape (1, n) or (1, 1).
        """
        return _totals(self.matrix(self.parts), count) / np.maximum(slices, 1)


def _totals(matrix: sparse.csr_array, count: NDArray[np.int64]) -> Floats:
    if len(count) == 1:
        return np.asarray(matrix.sum(axis=1))[:, None] * count
    return np.asarray(matrix @ count.astype(np.float64))


def cover_space(source: Grid, target: Space, cells: NDArray[np.intp], row: AggregateRow) -> SpaceCover:
    """Return the source cells under some target cells of a coarser grid, or in some zones, and what they weigh.

    A mean weighs source cells by their true area inside the new cell; a sum over zones takes of each cell the share
    that is inside, so that zones that tile the grid add up to it. All other functions take each cell alike: below a
    coarser cell every one, in a zone those that belong to it (`ZoneCells.belonging`).
    """
    if isinstance(target, ZoneCells):
        return _cover_zones(target, cells, row)
    if not isinstance(target, Grid):
        message = "an aggregate over space goes from a grid to cells above it"
        raise TypeError(message)
    rows, columns = np.divmod(cells, target.x.count)
    by_row, by_column = cover(source.y, target.y), cover(source.x, target.x)
    heights = (by_row.stop - by_row.first)[rows]
    widths = (by_column.stop - by_column.first)[columns]
    sizes = heights * widths
    stop = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(stop - sizes, sizes)
    width = np.repeat(widths, sizes)
    of_row = np.repeat(by_row.first[rows], sizes) + within // np.maximum(width, 1)
    column = np.repeat(by_column.first[columns], sizes) + within % np.maximum(width, 1)
    needed, members = np.unique(of_row * source.x.count + column, return_inverse=True)
    full = np.array([(target.y.length // source.y.step) * (target.x.length // source.x.step)])
    by_area = row.weigh == "area" and source.system == "lonlat" and source.y != target.y
    weights = cell_areas(source.y, source.x)[of_row] if by_area else None
    return SpaceCover(needed, members, stop - sizes, stop, full, weights)


def _cover_zones(target: ZoneCells, cells: NDArray[np.intp], row: AggregateRow) -> SpaceCover:
    pairs = target.overlap
    begin, end = (np.searchsorted(pairs.zone, cells, side="left"), np.searchsorted(pairs.zone, cells, side="right"))
    before = np.cumsum(end - begin) - (end - begin)
    chosen = np.arange(int((end - begin).sum())) + np.repeat(begin - before, end - begin)
    of = np.repeat(np.arange(len(cells)), end - begin)
    if row.weigh is None:
        belongs = target.belonging[chosen]
        chosen, of = chosen[belongs], of[belongs]
    area_m2 = pairs.area_m2[chosen] if row.weigh else np.ones(len(chosen))
    weights = {"area": area_m2, "share": pairs.share[chosen], None: None}[row.weigh]
    whole = np.bincount(of, area_m2, len(cells))
    parts = area_m2 * (target.held[cells] / np.where(whole > 0, whole, 1.0))[of]
    sizes = np.bincount(of, minlength=len(cells))
    stop = np.cumsum(sizes)
    needed, members = np.unique(pairs.cell[chosen], return_inverse=True)
    return SpaceCover(needed, members, stop - sizes, stop, sizes, weights, row.weigh == "share", parts)


def aggregate_cells(
    source: Cells,
    operator: Aggregate,
    *,
    times: tuple[TimeAxis, Regular] | None,
    space: SpaceCover | None,
    full_space: int | NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> Cells:
    """Return the aggregate of a block.

    Parameters
    ----------
    source
        The source cells that the block needs.
    operator
        Function and coverage.
    times
        Source and target axis, where time cells change.
    space
        What covers what, where the cells of the grid change.
    full_space
        Source cells under a whole target cell, one number or shape (targets,); 1 where the space stays.
    keys
        Keys of the target's cells in space, for functions that choose.
    """
    row, share = operator.row, None
    possible = np.asarray(full_space, dtype=np.int64).reshape(1, -1)
    ranges = cover(*times) if times else None
    if row.rank is not None or row.finish is None:
        return _choose(source, operator, times, keys)
    if ranges is None:
        value, count = source.value, np.isfinite(source.value).astype(np.int64)
        folded = value if row.part is None else np.where(count > 0, value, row.part.empty)
    else:
        values = source.value if ranges.members is None else source.value[ranges.members]
        folded, count = fold_values(row, values, ranges.first, ranges.stop)
        possible = possible * possible_slices(*times) if times else possible
    if space is not None:
        if space.parts is not None:
            slices = possible_slices(*times).T if times else np.ones((1, 1), np.int64)
            share = space.coverage(count.T, slices).T
        folded, count = _over_space(row, folded.T, count.T, space)
    # Where nothing is missing the counts are one column, and so is what follows from counts alone.
    value = np.broadcast_to(row.finish(folded, count), folded.shape)
    if share is not None:
        value = np.where(share < operator.min_coverage * (1 - WHOLE), np.nan, value)
        return Cells(value, count, possible)
    return Cells(covered(value, count, possible, operator.min_coverage), count, possible)


def _over_space(
    row: AggregateRow, folded: Floats, count: NDArray[np.int64], space: SpaceCover
) -> tuple[Floats, NDArray[np.int64]]:
    """Return what is folded in time, (needed, time), folded over space, (time, targets), and its counts."""
    if space.weights is not None:
        return space.weighted(folded, count).T, space.counts(count).T
    count = np.broadcast_to(count, folded.shape)
    found, counts = fold_again(row, folded[space.members], count[space.members], space.first, space.stop)
    return found.T, counts.T


def _choose(
    source: Cells, operator: Aggregate, times: tuple[TimeAxis, Regular] | None, keys: NDArray[np.uint64]
) -> Cells:
    if times is None:
        message = f"{operator.function} chooses a value in time"
        raise TypeError(message)
    ranges = cover(*times)
    values = source.value if ranges.members is None else source.value[ranges.members]
    offsets = np.arange(values.shape[1], dtype=np.int64) * values.shape[0]
    first, stop = ranges.first[:, None] + offsets, ranges.stop[:, None] + offsets
    hashes = cell_hashes(times[1].corners, keys)
    value, count = choose_ranges(operator.row, values.T.ravel(), first, stop, hashes)
    possible = possible_slices(*times)
    return Cells(covered(value, count, possible, operator.min_coverage), count, possible)


def possible_slices(source: TimeAxis, target: Regular) -> NDArray[np.int64]:
    """Return how many source cells a whole target cell covers, shape (time or 1, 1)."""
    if isinstance(source, Regular):
        first = -((source.origin - target.corners) // source.step)
        last = (target.corners + (target.length - source.length - source.origin)) // source.step
        counts = np.maximum(last - first + 1, 0)
        same = bool(np.all(counts == counts[0]))
        return np.asarray(counts[: 1 if same else None, None], dtype=np.int64)
    ranges = cover(source, target)
    return (ranges.stop - ranges.first)[:, None]


def space_keys(space: Space, cells: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return a key of each cell of a space from its corner alone, shape (cells,)."""
    if isinstance(space, SeriesAxis):
        return series_keys(space)[cells]
    if isinstance(space, ZoneCells):
        message = "no function chooses among the cells of a zone"
        raise TypeError(message)
    rows, columns = np.divmod(cells, space.x.count)
    corners = cell_hashes(space.y.corners, space.x.corners.view(np.uint64))
    return corners[rows, columns]
