"""Aggregate ranges of values: one call of a ufunc or formula serves all cells."""

from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.functions.aggregate_formulas import Listing, RaggedCells, States, ValueInstants, split_pieces
from hypergrid.perspective.functions.aggregates import AggregateRow, FoldedNumber
from hypergrid.perspective.functions.user_function_calls import Fault

Number = TypeVar("Number", np.float64, np.int64)
Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)


def fold_values(
    row: AggregateRow,
    values: Floats,
    first: Counts,
    stop: Counts,
    *,
    given: Mapping[str, Any],
    standing: ValueInstants | None = None,
) -> tuple[States, Counts]:
    """Fold the values of each range along the first axis into accumulators for `row.finish`.

    Parameters
    ----------
    row
        A decomposable function.
    values
        Shape (n,) or (n, space), NaN where missing.
    first, stop
        Half-open ranges along the first axis, shape (m,).
    given
        The function's parameters.
    standing
        Times and durations of the values, for a timed or lasting row.

    Returns
    -------
    Accumulators of each range, arrays of shape (m,) or (m, space), and counts of the present values, which broadcast to
    that shape.
    """
    if row.step is not None:
        return _step_columns(row, values, first, stop, given, standing)
    present = np.isfinite(values)
    if present.all():
        # Interpolated slices have no holes: the counts follow from the ranges, and nothing is copied.
        count = (stop - first).reshape(-1, *[1] * (values.ndim - 1))
        return tuple(
            _reduce(part.fold, _lift_values(part, values, None, given, standing), first, stop, part.empty)
            for part in row.parts
        ), count
    count = _reduce(np.add, present.astype(np.int64), first, stop, 0)
    return tuple(
        _reduce(part.fold, _lift_values(part, values, present, given, standing), first, stop, part.empty)
        for part in row.parts
    ), count


def fold_single(
    row: AggregateRow, values: Floats, *, given: Mapping[str, Any], standing: ValueInstants | None
) -> tuple[States, Counts]:
    """Return initial accumulators of single-value cells, and counts (0 or 1), shaped like `values`."""
    present = np.isfinite(values)
    count = present.astype(np.int64)
    if row.step is None:
        return tuple(_lift_values(part, values, present, given, standing) for part in row.parts), count
    times = standing and standing.of(np.nonzero(present)[0])
    members = RaggedCells(count.ravel(), values[present], times)
    return tuple(state.reshape(values.shape) for state in row.step(members, given)), count


def fold_again(row: AggregateRow, states: States, count: Counts, first: Counts, stop: Counts) -> tuple[States, Counts]:
    """Merge accumulators and counts over ranges along the first axis, shapes (n,) or (n, cells)."""
    whole = np.broadcast_to(count, states[0].shape)
    added = _reduce(np.add, whole, first, stop, 0)
    if row.merge is None:
        folded = zip(row.parts, states, strict=True)
        return tuple(_reduce(part.fold, state, first, stop, part.empty) for part, state in folded), added
    # Column after column, so that the ranges of all columns are one listing.
    members = _list_positions(first, stop - first)
    columns = int(np.prod(whole.shape[1:], dtype=np.int64))
    listed = tuple(np.ascontiguousarray(state[members].T).ravel() for state in states)
    counts = np.ascontiguousarray(whole[members].T).ravel()
    merged = row.merge(listed, counts, Listing(np.tile(stop - first, columns)))
    return tuple(state.reshape(*added.shape[1:], len(first)).T for state in merged), added


def evaluate_ranges(
    row: AggregateRow, values: Floats, first: Counts, stop: Counts, *, given: Mapping[str, Any]
) -> tuple[Floats, Counts]:
    """Evaluate a function of all values of a range; return values and counts.

    Parameters
    ----------
    row, values, first, stop, given
        As for `fold_values`; values of shape (n,).
    """
    result, count = np.full(len(first), np.nan), np.zeros(len(first), dtype=np.int64)
    for part, members, _ in _list_members(values, first, stop):
        result[part], count[part] = evaluate_members(row, members, given, part.start), members.sizes
    return result, count


def evaluate_members(row: AggregateRow, members: RaggedCells, given: Mapping[str, Any], before: int) -> Floats:
    """Evaluate a function on all values of each cell, shape (cells,).

    Parameters
    ----------
    row, members, given
        The function, the values of some cells, the function's parameters.
    before
        Number of cells before these, so that a fault names the right cell.
    """
    if row.whole is None:
        raise TypeError(f"{row.name} neither folds, nor chooses, nor takes all values of a cell")
    try:
        return row.whole(members, given)
    except Fault as fault:
        fault.at = None if fault.at is None else fault.at + before
        raise


def _step_columns(
    row: AggregateRow,
    values: Floats,
    first: Counts,
    stop: Counts,
    given: Mapping[str, Any],
    standing: ValueInstants | None,
) -> tuple[States, Counts]:
    """Accumulate each range of each column with `row.step`, all columns in one listing."""
    if row.step is None:
        raise TypeError(f"{row.name} has no step")
    columns = int(np.prod(values.shape[1:], dtype=np.int64))
    offsets = np.arange(columns, dtype=np.int64)[:, None] * len(values)
    begins, ends = (first + offsets).ravel(), (stop + offsets).ravel()
    kept: list[States] = []
    count = np.zeros(len(begins), dtype=np.int64)
    for part, members, positions in _list_members(values.T.ravel(), begins, ends):
        if standing is not None:
            members = RaggedCells(members.sizes, members.value, standing.of(positions % len(values)))
        kept.append(row.step(members, given))
        count[part] = members.sizes
    shape = (*values.shape[1:], len(first))
    return tuple(np.concatenate(each).reshape(shape).T for each in zip(*kept, strict=True)), count.reshape(shape).T


def _list_members(values: Floats, first: Counts, stop: Counts) -> Iterator[tuple[slice, RaggedCells, Counts]]:
    """Yield parts of the ranges, with their present values and the positions of these."""
    sizes = stop - first
    for part in split_pieces(sizes):
        positions = _list_positions(first[part], sizes[part])
        part_values = values[positions]
        present = np.isfinite(part_values)
        yield part, drop_missing(sizes[part], part_values, present), positions[present]


def drop_missing(sizes: Counts, values: Floats, present: NDArray[np.bool_]) -> RaggedCells:
    if present.all():
        return RaggedCells(sizes, values)
    before = np.append(0, np.cumsum(present))
    ends = np.cumsum(sizes)
    return RaggedCells(before[ends] - before[ends - sizes], values[present])


def _list_positions(first: Counts, sizes: Counts) -> Counts:
    """List the indices in each range, range by range."""
    return np.arange(int(sizes.sum())) + np.repeat(first - np.cumsum(sizes) + sizes, sizes)


def _lift_values(
    part: FoldedNumber,
    values: Floats,
    present: NDArray[np.bool_] | None,
    given: Mapping[str, Any],
    standing: ValueInstants | None,
) -> Floats:
    """Lift each value to the number that a part folds; `present` None means all."""
    numbers = values
    if part.lift is not None:
        for_days = None if standing is None else standing.for_days.reshape(-1, *[1] * (values.ndim - 1))
        # Missing values are replaced by `empty` below.
        with np.errstate(invalid="ignore"):
            numbers = part.lift(values, for_days, given)
    return numbers if present is None else np.where(present, numbers, part.empty)


def _reduce(
    fold: np.ufunc, values: NDArray[Number], first: NDArray[np.int64], stop: NDArray[np.int64], empty: float
) -> NDArray[Number]:
    width = int((stop - first).max(initial=0))
    if values.ndim > 1 and width < len(first):
        return _fold_by_offset(fold, values, first, stop, empty, width)
    if values.ndim > 1 or len(first) == 1:
        ranges = zip(first.tolist(), stop.tolist(), strict=True)
        return np.stack([fold.reduce(values[a:b], axis=0, initial=empty) for a, b in ranges])
    # reduceat takes index pairs; every other result is a requested range. An `empty` after the last value lets a range
    # end there. An empty range yields its first element, so it is overwritten.
    padded = np.append(values, np.asarray(empty, dtype=values.dtype))
    reduced: NDArray[Number] = fold.reduceat(padded, np.stack([first, stop], axis=1).ravel())[::2]
    reduced[first >= stop] = empty
    return reduced


def _fold_by_offset(
    fold: np.ufunc,
    values: NDArray[Number],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
    empty: float,
    width: int,
) -> NDArray[Number]:
    """Fold the k-th member of every range at once, up to the widest range."""
    # `reduceat` along the first axis of 864 x 4000 values took 50 times as long (0.7 s); one pass over each of 862
    # ranges took as long as this does for three members.
    result = np.full((len(first), *values.shape[1:]), empty, dtype=values.dtype)
    for offset in range(width):
        inside = first + offset < stop
        if inside.all():
            fold(result, values[first + offset], out=result)
        else:
            result[inside] = fold(result[inside], values[first[inside] + offset])
    return result


def choose_ranges(
    row: AggregateRow,
    values: NDArray[np.float64],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
    hashes: NDArray[np.uint64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Choose one value of each range; return values and counts.

    Parameters
    ----------
    row, values, first, stop
        As for `fold_values`; values of shape (n,), ranges of any shape, one per cell.
    hashes
        Hash of each cell, shape as `first`.
    """
    if row.rank is None:
        raise TypeError(f"{row.name} folds values, it does not choose one")
    present = np.isfinite(values)
    before = np.concatenate([[0], np.cumsum(present)])
    begin, count = before[first], before[stop] - before[first]
    has_values = count > 0
    rank = np.zeros_like(count)
    rank[has_values] = row.rank(hashes[has_values], count[has_values])
    kept = values[present]
    result = np.full(count.shape, np.nan)
    result[has_values] = kept[(begin + rank)[has_values]]
    return result, count


def cell_hashes(time_corners: NDArray[np.int64], space_keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each cell by its corners alone, shape (time, space): equal in every run."""
    with np.errstate(over="ignore"):
        # Unsigned integers wrap around.
        return _splitmix(_splitmix(time_corners.view(np.uint64))[:, None] + _MIX * space_keys[None, :])


def point_hashes(corners: NDArray[np.int64], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each corner with its own key as `cell_hashes` does, shape (points,)."""
    with np.errstate(over="ignore"):
        return _splitmix(_splitmix(corners.view(np.uint64)) + _MIX * keys)


def _splitmix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014)."""
    with np.errstate(over="ignore"):
        keys = keys + _MIX
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return keys ^ (keys >> np.uint64(31))
