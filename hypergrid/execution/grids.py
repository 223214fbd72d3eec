"""Aggregation over cells of a perspective: along time, and along the axes of a grid."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.cells import Cells, covered
from hypergrid.execution.fold import cell_hashes, choose_ranges, fold_again, fold_values
from hypergrid.execution.stations import series_keys
from hypergrid.perspective.operators import Aggregate
from hypergrid.topology import Grid, Regular, Space, TimeAxis, cover
from hypergrid.topology.cover import Cover


@dataclass(frozen=True, eq=False)
class TimePart:
    """Some time cells of an aggregate, and which of the source cells that are given each of them covers."""

    times: NDArray[np.intp]
    """Numbers of the target's time cells, shape (chosen,)."""
    ranges: Cover
    """Of these, over the source cells that are given."""


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


def cover_space(source: Grid, target: Grid, cells: NDArray[np.intp]) -> SpaceCover:
    """Return the source cells under some target cells of a coarser grid."""
    rows, columns = np.divmod(cells, target.x.count)
    by_row, by_column = cover(source.y, target.y), cover(source.x, target.x)
    heights = (by_row.stop - by_row.first)[rows]
    widths = (by_column.stop - by_column.first)[columns]
    sizes = heights * widths
    stop = np.cumsum(sizes)
    within = np.arange(int(sizes.sum())) - np.repeat(stop - sizes, sizes)
    width = np.repeat(widths, sizes)
    row = np.repeat(by_row.first[rows], sizes) + within // np.maximum(width, 1)
    column = np.repeat(by_column.first[columns], sizes) + within % np.maximum(width, 1)
    needed, members = np.unique(row * source.x.count + column, return_inverse=True)
    return SpaceCover(needed, members, stop - sizes, stop)


def aggregate_cells(
    source: Cells,
    operator: Aggregate,
    *,
    times: tuple[TimeAxis, Regular] | None,
    space: SpaceCover | None,
    full_space: int,
    keys: NDArray[np.uint64],
    part: TimePart | None = None,
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
        Source cells under a whole target cell, 1 where the space stays.
    keys
        Keys of the target's cells in space, for functions that choose.
    part
        Which time cells are wanted, where not all are; the source then has just those that they need.
    """
    row = operator.row
    possible = np.full((1, 1), full_space, dtype=np.int64)
    ranges = _ranges(times, part) if times else None
    if row.rank is not None or row.finish is None:
        return _choose(source, operator, times, keys, part)
    if ranges is None:
        value, count = source.value, np.isfinite(source.value).astype(np.int64)
        folded = value if row.part is None else np.where(count > 0, value, row.part.empty)
    else:
        values = source.value if ranges.members is None else source.value[ranges.members]
        folded, count = fold_values(row, values, ranges.first, ranges.stop)
        possible = possible * _possible(times, part) if times else possible
    if space is not None:
        count = np.broadcast_to(count, folded.shape)
        folded, count = fold_again(row, folded.T[space.members], count.T[space.members], space.first, space.stop)
        folded, count = folded.T, count.T
    # Where nothing is missing the counts are one column, and so is what follows from counts alone.
    value = np.broadcast_to(row.finish(folded, count), folded.shape)
    return Cells(covered(value, count, possible, operator.min_coverage), count, possible)


def _choose(
    source: Cells,
    operator: Aggregate,
    times: tuple[TimeAxis, Regular] | None,
    keys: NDArray[np.uint64],
    part: TimePart | None,
) -> Cells:
    if times is None:
        message = f"{operator.function} chooses a value in time"
        raise TypeError(message)
    ranges = _ranges(times, part)
    values = source.value if ranges.members is None else source.value[ranges.members]
    offsets = np.arange(values.shape[1], dtype=np.int64) * values.shape[0]
    first, stop = ranges.first[:, None] + offsets, ranges.stop[:, None] + offsets
    corners = times[1].corners if part is None else times[1].corners[part.times]
    hashes = cell_hashes(corners, keys)
    value, count = choose_ranges(operator.row, values.T.ravel(), first, stop, hashes)
    possible = _possible(times, part)
    return Cells(covered(value, count, possible, operator.min_coverage), count, possible)


def _ranges(times: tuple[TimeAxis, Regular], part: TimePart | None) -> Cover:
    return cover(*times) if part is None else part.ranges


def _possible(times: tuple[TimeAxis, Regular], part: TimePart | None) -> NDArray[np.int64]:
    possible = possible_slices(*times)
    return possible if part is None or len(possible) == 1 else possible[part.times]


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
    if not isinstance(space, Grid):
        return series_keys(space)[cells]
    rows, columns = np.divmod(cells, space.x.count)
    corners = cell_hashes(space.y.corners, space.x.corners.view(np.uint64))
    return corners[rows, columns]
