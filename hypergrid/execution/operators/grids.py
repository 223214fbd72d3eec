"""Aggregation over cells of a perspective: along time, and along the axes of a grid."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.tokens import token
from hypergrid.execution.diagnostics import SpaceCover
from hypergrid.execution.operators.cells import Cells, mask_uncovered
from hypergrid.execution.operators.counters import instants_of_cells, prepare_cells
from hypergrid.execution.operators.fold import (
    cell_hashes,
    choose_ranges,
    drop_missing,
    evaluate_members,
    fold_again,
    fold_single,
    fold_values,
    point_hashes,
)
from hypergrid.execution.operators.stations import hash_series
from hypergrid.perspective.functions.aggregate_formulas import Listing, States, split_pieces
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.tree import Aggregate
from hypergrid.topology import (
    PER_UNIT,
    Bands,
    Bins,
    Cover,
    Grid,
    Instants,
    Points,
    Regular,
    SeriesAxis,
    Space,
    TimeAxis,
    TimeCells,
    ZoneCells,
    blocks_of,
    cells_inside,
    count_fitting_intervals,
    cover,
    make_bins,
    sum_per_cell,
)
from hypergrid.topology.areas import cell_areas
from hypergrid.topology.zone_cells import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TimePart:
    """Some time cells of an aggregate, and which available source cells each of them covers."""

    times: NDArray[np.intp]
    """Indices of the target's time cells, shape (chosen,)."""
    ranges: Cover
    """Cover of these time cells over the available source cells."""
    needed: NDArray[np.intp] | None
    """Indices of the source's time cells that are available, shape (given,); None for all."""


def cover_space(source: Space, target: Space, cells: NDArray[np.intp], row: AggregateRow) -> SpaceCover:
    """Return source cells under cells of a coarser grid, zones or bands, with weights.

    A mean and an exceedance weigh source cells by their true area inside the target cell and, on levels, by their
    height; a sum over zones takes the share of each cell that is inside, so that zones that tile the grid add up to its
    sum. All other functions weigh cells equally: below a coarser cell all of them, in a zone those that belong to it
    (`ZoneCells.membership`). Stations in a band have equal weights in every function.
    """
    if isinstance(target, ZoneCells):
        return _cover_zones(target, cells, row)
    if isinstance(target, Bands):
        return _cover_bands(target, cells, row)
    if not isinstance(source, Grid) or not isinstance(target, Grid):
        raise TypeError("an aggregate over space goes from a grid to cells above it")
    places = np.unravel_index(cells, target.shape)
    covers = [cover(below, above) for below, above in zip(source.axes, target.axes, strict=True)]
    lengths = [axis_cover.sizes[at] for axis_cover, at in zip(covers, places, strict=True)]
    sizes = np.prod(lengths, axis=0)
    stop = np.cumsum(sizes)
    left = np.arange(int(sizes.sum())) - np.repeat(stop - sizes, sizes)
    numbers = []
    # The last axis varies fastest within a target cell.
    for axis_cover, at, length in zip(covers[::-1], places[::-1], lengths[::-1], strict=True):
        left, beside = np.divmod(left, np.repeat(np.maximum(length, 1), sizes))
        numbers.append(np.repeat(axis_cover.first[at], sizes) + beside)
    numbers = numbers[::-1]
    needed, members = np.unique(np.ravel_multi_index(tuple(numbers), source.shape), return_inverse=True)
    full = np.ones(1, dtype=np.int64)
    for below, above, at in zip(source.axes, target.axes, places, strict=True):
        whole = count_possible_slices(below, above)[:, 0]
        full = full * (whole[at] if len(whole) > 1 else whole)
    weights = _find_weights(source, target, numbers) if row.weigh == "area" else None
    return SpaceCover(needed, members, stop - sizes, stop, full, weights)


def _find_weights(source: Grid, target: Grid, numbers: list[NDArray[np.int64]]) -> Floats | None:
    """Return area and height weights of grid cells by axis indices; None if uniform."""
    # In metres, or within rows of equal latitude, all cells have the same area.
    weights = None
    if source.system == "lonlat" and source.y != target.y:
        weights = cell_areas(source.y, source.x)[numbers[-2]]
    if isinstance(source.z, Bins) and source.z != target.z:
        heights = (source.z.lengths / PER_UNIT["mm"])[numbers[0]]
        weights = heights if weights is None else weights * heights
    return weights


def _cover_bands(target: Bands, cells: NDArray[np.intp], row: AggregateRow) -> SpaceCover:
    first, sizes = target.edges[cells], np.diff(target.edges)[cells]
    stop = np.cumsum(sizes)
    listed = target.order[np.arange(int(sizes.sum())) + np.repeat(first - (stop - sizes), sizes)]
    needed, members = np.unique(listed, return_inverse=True)
    source, weights = target.source, None
    if isinstance(source, Grid) and source.system == "lonlat" and row.weigh == "area":
        weights = cell_areas(source.y, source.x)[listed // source.x.count]
    return SpaceCover(needed, members, stop - sizes, stop, sizes, weights)


def _cover_zones(target: ZoneCells, cells: NDArray[np.intp], row: AggregateRow) -> SpaceCover:
    pairs = target.overlap
    begin, end = (np.searchsorted(pairs.zone, cells, side="left"), np.searchsorted(pairs.zone, cells, side="right"))
    before = np.cumsum(end - begin) - (end - begin)
    chosen = np.arange(int((end - begin).sum())) + np.repeat(begin - before, end - begin)
    of = np.repeat(np.arange(len(cells)), end - begin)
    if row.weigh is None:
        belongs = target.membership[chosen]
        chosen, of = chosen[belongs], of[belongs]
    area_m2 = pairs.area_m2[chosen] if row.weigh else np.ones(len(chosen))
    weights = {"area": area_m2, "share": pairs.share[chosen], None: None}[row.weigh]
    whole = np.bincount(of, area_m2, len(cells))
    parts = area_m2 * (target.share_in_grid[cells] / np.where(whole > 0, whole, 1.0))[of]
    sizes = np.bincount(of, minlength=len(cells))
    stop = np.cumsum(sizes)
    needed, members = np.unique(pairs.cell[chosen], return_inverse=True)
    return SpaceCover(needed, members, stop - sizes, stop, sizes, weights, row.weigh == "share", parts)


def aggregate_cells(
    source: Cells,
    operator: Aggregate,
    *,
    times: tuple[TimeAxis, TimeCells] | None,
    space: SpaceCover | None,
    keys: NDArray[np.uint64],
    part: TimePart | None = None,
) -> Cells:
    """Aggregate a block of cells.

    Parameters
    ----------
    source
        The source cells that the block needs.
    operator
        Function and minimum coverage.
    times
        Source and target axis, if time cells change.
    space
        Cover of the target cells, if the cells of the grid change.
    keys
        Keys of the target's cells in space, for functions that choose a value.
    part
        The wanted time cells, if not all; the source then has only those that they need.
    """
    row, given = operator.row, operator.arguments
    possible = np.ones((1, 1), np.int64) if space is None else space.full.reshape(1, -1)
    ranges = None
    slices = np.ones((1, 1), np.int64)
    if times:
        ranges, slices = _get_ranges(times, part), _count_possible(times, part)
        possible = possible * slices
    if row.rank is not None:
        return _choose(source, operator, times, keys, part)
    # A function that looks back needs all source cells, even if only some target cells are wanted.
    values = prepare_cells(source.value, times[0], operator) if times else source.value
    if row.finish is None:
        value, count = evaluate_whole_cells(row, values, ranges, space, given=given)
        share = _find_listed_share(values, slices, ranges, space)
        return _apply_coverage(Cells(value, count, possible), operator, share)
    standing = instants_of_cells(times[0], operator, times[1].origin) if times else None
    if standing is not None and part is not None and part.needed is not None:
        standing = standing.of(part.needed)
    if ranges is None:
        states, count = fold_single(row, values, given=given, standing=standing)
    else:
        if ranges.members is not None:
            values, standing = values[ranges.members], standing and standing.of(ranges.members)
        states, count = fold_values(row, values, ranges.first, ranges.stop, given=given, standing=standing)
    share = None
    if space is not None:
        share = _find_share(count, slices, space)
        states, count = _fold_space(row, states, count, space)
    # Without missing values the counts are one column, and so is a value that depends on counts alone.
    value = np.broadcast_to(row.finish(states, count, given), states[0].shape)
    return _apply_coverage(Cells(value, count, possible), operator, share)


def _fold_space(
    row: AggregateRow, states: States, count: NDArray[np.int64], space: SpaceCover
) -> tuple[States, NDArray[np.int64]]:
    """Fold accumulators over space, from (time, needed) to (time, targets); return them and their counts."""
    if space.weights is not None:
        return tuple(space.sum_weighted(state.T, count.T).T for state in states), space.sum_counts(count.T).T
    count = np.broadcast_to(count, states[0].shape)
    listed = tuple(state.T[space.members] for state in states)
    merged, count = fold_again(row, listed, count.T[space.members], space.first, space.stop)
    return tuple(state.T for state in merged), count.T


def _find_share(count: NDArray[np.int64], slices: NDArray[np.int64], space: SpaceCover) -> Floats | None:
    """Return the covered share of each target, (time, targets); None if coverage counts cells."""
    if space.parts is None:
        return None
    return space.coverage(count.T, slices.T).T


def _find_listed_share(
    values: Floats, slices: NDArray[np.int64], ranges: Cover | None, space: SpaceCover | None
) -> Floats | None:
    """Compute `_find_share` for functions that take the values themselves."""
    if space is None or space.parts is None:
        return None
    count = np.isfinite(values).astype(np.int64)
    if ranges is not None:
        listed = count if ranges.members is None else count[ranges.members]
        before = np.concatenate([np.zeros((1, count.shape[1]), np.int64), np.cumsum(listed, axis=0)])
        count = before[ranges.stop] - before[ranges.first]
    return _find_share(count, slices, space)


def _apply_coverage(cells: Cells, operator: Aggregate, share: Floats | None) -> Cells:
    """Mask the cells with too little coverage, by `share` if given, else by their counts."""
    if share is None:
        value = mask_uncovered(cells.value, cells.count, cells.possible, operator.min_coverage)
    else:
        value = np.where(share < operator.min_coverage * (1 - WHOLE), np.nan, cells.value)
    return Cells(value, cells.count, cells.possible)


def evaluate_whole_cells(
    row: AggregateRow,
    values: NDArray[np.float64],
    ranges: Cover | None,
    space: SpaceCover | None,
    *,
    given: Mapping[str, Any],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Evaluate a function of all values of a cell; return values and counts.

    Over time and space together, the function gets the values of all source cells in the target, so a quantile is not a
    quantile of quantiles.

    Parameters
    ----------
    row, given
        The function and its parameters.
    values
        Values of the source cells, shape (time, space).
    ranges, space
        Covers in time and in space; None if the cells do not change.

    Returns
    -------
    Both of shape (target times, target cells).
    """
    times, places = (np.arange(length, dtype=np.int64) for length in values.shape)
    begin, late = (times, times + 1) if ranges is None else (ranges.first, ranges.stop)
    left, right = (places, places + 1) if space is None else (space.first, space.stop)
    shape = (len(begin), len(left))
    sizes = ((late - begin)[:, None] * (right - left)).ravel()
    result, count = np.full(len(sizes), np.nan), np.zeros(len(sizes), dtype=np.int64)
    for part in split_pieces(sizes):
        cell = np.repeat(np.arange(len(sizes))[part], sizes[part])
        late_by, beside = np.divmod(Listing(sizes[part]).number_members(), (right - left)[cell % shape[1]])
        time, column_index = begin[cell // shape[1]] + late_by, left[cell % shape[1]] + beside
        time = time if ranges is None or ranges.members is None else ranges.members[time]
        listed_values = values[time, column_index if space is None else space.members[column_index]]
        members = drop_missing(sizes[part], listed_values, np.isfinite(listed_values))
        result[part], count[part] = evaluate_members(row, members, given, part.start), members.sizes
    return result.reshape(shape), count.reshape(shape)


def _choose(
    source: Cells,
    operator: Aggregate,
    times: tuple[TimeAxis, TimeCells] | None,
    keys: NDArray[np.uint64],
    part: TimePart | None,
) -> Cells:
    if times is None:
        raise TypeError(f"{operator.function} chooses a value in time")
    ranges = _get_ranges(times, part)
    values = source.value if ranges.members is None else source.value[ranges.members]
    offsets = np.arange(values.shape[1], dtype=np.int64) * values.shape[0]
    first, stop = ranges.first[:, None] + offsets, ranges.stop[:, None] + offsets
    corners = times[1].corners if part is None else times[1].corners[part.times]
    hashes = cell_hashes(corners, keys)
    value, count = choose_ranges(operator.row, values.T.ravel(), first, stop, hashes)
    possible = _count_possible(times, part)
    return Cells(mask_uncovered(value, count, possible, operator.min_coverage), count, possible)


def _get_ranges(times: tuple[TimeAxis, TimeCells], part: TimePart | None) -> Cover:
    return cover(*times) if part is None else part.ranges


def _count_possible(times: tuple[TimeAxis, TimeCells], part: TimePart | None) -> NDArray[np.int64]:
    possible = count_possible_slices(*times)
    return possible if part is None or len(possible) == 1 else possible[part.times]


# All boxes of a run ask for the same counts.
@lru_cache(maxsize=64)
def count_possible_slices(source: TimeAxis, target: TimeCells) -> NDArray[np.int64]:
    """Count the source cells that a whole target cell covers, shape (time or 1, 1)."""
    if isinstance(source, Regular):
        starts, ends = blocks_of(target)
        first = -((source.origin - starts) // source.step)
        last = (ends - source.length - source.origin) // source.step
        counts = sum_per_cell(target, np.maximum(last - first + 1, 0))
        same = bool(np.all(counts == counts[0]))
        return np.asarray(counts[: 1 if same else None, None], dtype=np.int64)
    if isinstance(source, Instants) and source.interval_ns:
        # On a day of 23 hours the floor may omit an instant that exists.
        counts = np.maximum(count_fitting_intervals(target, source.interval_ns), cells_inside(source, target).sizes)
        return np.asarray(counts[:, None], dtype=np.int64)
    if isinstance(source, Bins) and source.calendar is not None:
        # Calendar units outside the source are possible too: the source has only units with data.
        start, stop = min(source.origin, target.origin), max(source.stop, target.stop)
        source = make_bins(source.calendar, start, stop)
    return cells_inside(source, target).sizes[:, None]


def space_keys(space: Space, cells: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Hash each cell by its corner alone, a zone by its name; shape (cells,)."""
    if isinstance(space, SeriesAxis):
        return hash_series(space.series)[cells]
    if isinstance(space, ZoneCells):
        return np.array([int(token(space.zones.names[cell])[:16], 16) for cell in cells], dtype=np.uint64)
    if isinstance(space, Points):
        x, y = (space.at - space.grid.x.length // 2).T.copy()
        keys, slower = point_hashes(y, x.view(np.uint64)), space.axes
    else:
        keys, slower = space.axes[-1].corners.view(np.uint64), space.axes[-2::-1]
    for axis in slower:
        keys = cell_hashes(axis.corners, keys).ravel()
    return keys[cells]
