"""Aggregation over cells of a perspective: along time, and along the axes of a grid."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.cells import Cells, covered
from hypergrid.execution.fold import (
    cell_hashes,
    choose_ranges,
    fold_again,
    fold_single,
    fold_values,
    members_present,
)
from hypergrid.execution.listed import of_products
from hypergrid.execution.standing import of_cells, prepared_cells
from hypergrid.execution.stations import series_keys
from hypergrid.perspective.aggregates import AggregateRow
from hypergrid.perspective.listed import ListedRow
from hypergrid.perspective.listing import Listing, pieces
from hypergrid.perspective.operators import Aggregate
from hypergrid.topology import (
    Bins,
    Cover,
    Grid,
    Regular,
    Space,
    TimeAxis,
    TimeCells,
    bins_over,
    blocks_of,
    cover,
    per_cell,
)


@dataclass(frozen=True, eq=False)
class TimePart:
    """Some time cells of an aggregate, and which of the source cells that are given each of them covers."""

    times: NDArray[np.intp]
    """Numbers of the target's time cells, shape (chosen,)."""
    ranges: Cover
    """Of these, over the source cells that are given."""
    needed: NDArray[np.intp] | None
    """Numbers of the source's time cells that are given, shape (given,); None: all are."""


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
    times: tuple[TimeAxis, TimeCells] | None,
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
    row, given = operator.row, operator.given
    possible = np.full((1, 1), full_space, dtype=np.int64)
    ranges = None
    if times:
        ranges, possible = _ranges(times, part), possible * _possible(times, part)
    if isinstance(row, ListedRow):
        value, count = _listed(source, row, ranges, space)
        return Cells(covered(value, count, possible, operator.min_coverage), count, possible)
    if row.rank is not None:
        return _choose(source, operator, times, keys, part)
    # A function that looks back is given all source cells, whichever of its own are wanted.
    values = prepared_cells(source.value, times[0], operator) if times else source.value
    if row.finish is None:
        value, count = whole_cells(row, values, ranges, space, given=given)
        return Cells(covered(value, count, possible, operator.min_coverage), count, possible)
    standing = of_cells(times[0], operator, times[1].origin) if times else None
    if standing is not None and part is not None and part.needed is not None:
        standing = standing.of(part.needed)
    if ranges is None:
        states, count = fold_single(row, values, given=given, standing=standing)
    else:
        if ranges.members is not None:
            values, standing = values[ranges.members], standing and standing.of(ranges.members)
        states, count = fold_values(row, values, ranges.first, ranges.stop, given=given, standing=standing)
    if space is not None:
        count = np.broadcast_to(count, states[0].shape)
        listed = tuple(state.T[space.members] for state in states)
        merged, count = fold_again(row, listed, count.T[space.members], space.first, space.stop)
        states, count = tuple(state.T for state in merged), count.T
    # Where nothing is missing the counts are one column, and so is what follows from counts alone.
    value = np.broadcast_to(row.finish(states, count, given), states[0].shape)
    return Cells(covered(value, count, possible, operator.min_coverage), count, possible)


def _listed(
    source: Cells, row: ListedRow, ranges: Cover | None, space: SpaceCover | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return what a function makes of the values of each cell; over time and space at once, of all of them."""
    values, each = source.value, np.arange(len(source.value))
    along = each, each + 1
    if ranges is not None:
        values = values if ranges.members is None else values[ranges.members]
        along = ranges.first, ranges.stop
    places = None if space is None else (space.members, (space.first, space.stop))
    return of_products(row, values, along, places)


def whole_cells(
    row: AggregateRow,
    values: NDArray[np.float64],
    ranges: Cover | None,
    space: SpaceCover | None,
    *,
    given: Mapping[str, Any],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return what a row that takes all values of a cell makes of a block, and the counts.

    Over time and space together these are the values of all source cells in the target, so that a quantile is not one
    of quantiles.

    Parameters
    ----------
    row, given
        The function and its parameters.
    values
        Of the source cells, shape (time, space).
    ranges, space
        What covers what; None where the cells stay.

    Returns
    -------
    Shape (target times, target cells), both.
    """
    if row.whole is None:
        message = f"{row.name} neither folds, nor chooses, nor takes all values of a cell"
        raise TypeError(message)
    times, places = (np.arange(length, dtype=np.int64) for length in values.shape)
    begin, late = (times, times + 1) if ranges is None else (ranges.first, ranges.stop)
    left, right = (places, places + 1) if space is None else (space.first, space.stop)
    shape = (len(begin), len(left))
    sizes = ((late - begin)[:, None] * (right - left)).ravel()
    result, count = np.full(len(sizes), np.nan), np.zeros(len(sizes), dtype=np.int64)
    for part in pieces(sizes):
        cell = np.repeat(np.arange(len(sizes))[part], sizes[part])
        late_by, beside = np.divmod(Listing(sizes[part]).within(), (right - left)[cell % shape[1]])
        time, place = begin[cell // shape[1]] + late_by, left[cell % shape[1]] + beside
        time = time if ranges is None or ranges.members is None else ranges.members[time]
        found = values[time, place if space is None else space.members[place]]
        members = members_present(sizes[part], found, np.isfinite(found))
        result[part], count[part] = row.whole(members, given), members.sizes
    return result.reshape(shape), count.reshape(shape)


def _choose(
    source: Cells,
    operator: Aggregate,
    times: tuple[TimeAxis, TimeCells] | None,
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


def _ranges(times: tuple[TimeAxis, TimeCells], part: TimePart | None) -> Cover:
    return cover(*times) if part is None else part.ranges


def _possible(times: tuple[TimeAxis, TimeCells], part: TimePart | None) -> NDArray[np.int64]:
    possible = possible_slices(*times)
    return possible if part is None or len(possible) == 1 else possible[part.times]


def possible_slices(source: TimeAxis, target: TimeCells) -> NDArray[np.int64]:
    """Return how many source cells a whole target cell covers, shape (time or 1, 1)."""
    if isinstance(source, Regular):
        starts, ends = blocks_of(target)
        first = -((source.origin - starts) // source.step)
        last = (ends - source.length - source.origin) // source.step
        counts = per_cell(target, np.maximum(last - first + 1, 0))
        same = bool(np.all(counts == counts[0]))
        return np.asarray(counts[: 1 if same else None, None], dtype=np.int64)
    if isinstance(source, Bins) and source.calendar is not None:
        # Units of the calendar that lie outside the source are possible too: it has only those that hold something.
        start, stop = min(source.origin, target.origin), max(source.stop, target.stop)
        source = bins_over(source.calendar, start, stop)
    return cover(source, target).sizes[:, None]


def space_keys(space: Space, cells: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return a key of each cell of a space from its corner alone, shape (cells,)."""
    if not isinstance(space, Grid):
        return series_keys(space)[cells]
    rows, columns = np.divmod(cells, space.x.count)
    corners = cell_hashes(space.y.corners, space.x.corners.view(np.uint64))
    return corners[rows, columns]
