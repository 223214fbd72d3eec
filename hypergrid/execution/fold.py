"""Aggregation over ranges: one call of a ufunc for all cells, whatever the row of the function says."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.functions import AggregateRow, Part

Number = TypeVar("Number", np.float64, np.int64)

_MIX = np.uint64(0x9E3779B97F4A7C15)


def fold_values(
    row: AggregateRow, values: NDArray[np.float64], first: NDArray[np.int64], stop: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Fold the values of each range along the first axis; `row.finish` makes the aggregate of it.

    Parameters
    ----------
    row
        A function that folds.
    values
        Shape (n,) or (n, space), NaN where missing.
    first, stop
        Half-open ranges along the first axis, shape (m,).

    Returns
    -------
    Folded numbers, shape (m,) or (m, space), and counts of what is not missing, which broadcast to it.
    """
    part = _part(row)
    present = np.isfinite(values)
    if present.all():
        # Interpolated slices have no holes: the counts follow from the ranges, and nothing is copied.
        count = (stop - first).reshape(-1, *[1] * (values.ndim - 1))
        return _reduce(part.fold, values, first, stop, part.empty), count
    lifted = np.where(present, values, part.empty)
    count = _reduce(np.add, present.astype(np.int64), first, stop, 0)
    return _reduce(part.fold, lifted, first, stop, part.empty), count


def fold_again(
    row: AggregateRow,
    folded: NDArray[np.float64],
    count: NDArray[np.int64],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Fold numbers that are folded already, and their counts, over ranges along the first axis."""
    part = _part(row)
    whole = np.broadcast_to(count, folded.shape)
    return _reduce(part.fold, folded, first, stop, part.empty), _reduce(np.add, whole, first, stop, 0)


def _part(row: AggregateRow) -> Part:
    if row.part is None:
        message = f"{row.name} chooses a value, it does not fold"
        raise TypeError(message)
    return row.part


def _reduce(
    fold: np.ufunc, values: NDArray[Number], first: NDArray[np.int64], stop: NDArray[np.int64], empty: float
) -> NDArray[Number]:
    width = int((stop - first).max(initial=0))
    if values.ndim > 1 and width < len(first):
        return _by_offset(fold, values, first, stop, empty, width)
    if values.ndim > 1 or len(first) == 1:
        ranges = zip(first.tolist(), stop.tolist(), strict=True)
        return np.stack([fold.reduce(values[a:b], axis=0, initial=empty) for a, b in ranges])
    # reduceat takes index pairs; every other result is the range asked for. An `empty` behind the last value lets a
    # range end there, and an empty range gives its first element, so it is overwritten.
    padded = np.append(values, np.asarray(empty, dtype=values.dtype))
    reduced: NDArray[Number] = fold.reduceat(padded, np.stack([first, stop], axis=1).ravel())[::2]
    reduced[first >= stop] = empty
    return reduced


def _by_offset(
    fold: np.ufunc,
    values: NDArray[Number],
    first: NDArray[np.int64],
    stop: NDArray[np.int64],
    empty: float,
    width: int,
) -> NDArray[Number]:
    """Fold the k-th member of every range at once, k = 0, 1, …: as many passes as the widest range has members.

    `reduceat` along the first axis of 864 x 4000 values took 50 times as long (0.7 s), a pass over each of 862
    ranges as long as this does for three members.
    """
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
    """Return the chosen value and the count of each range, for a function that chooses.

    Parameters
    ----------
    row, values, first, stop
        As for `fold_values`; values of shape (n,), ranges of any shape, one a cell.
    hashes
        Hash of each cell, shape as `first`.
    """
    if row.rank is None:
        message = f"{row.name} folds values, it does not choose one"
        raise TypeError(message)
    present = np.isfinite(values)
    before = np.concatenate([[0], np.cumsum(present)])
    begin, count = before[first], before[stop] - before[first]
    some = count > 0
    rank = np.zeros_like(count)
    rank[some] = row.rank(hashes[some], count[some])
    kept = values[present]
    result = np.full(count.shape, np.nan)
    result[some] = kept[(begin + rank)[some]]
    return result, count


def cell_hashes(time_corners: NDArray[np.int64], space_keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a hash of each cell from its corners alone, shape (time, space): the same in every block and run."""
    with np.errstate(over="ignore"):
        return _splitmix(_splitmix(time_corners.view(np.uint64))[:, None] + _MIX * space_keys[None, :])


def _splitmix(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix 64 bits (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014)."""
    with np.errstate(over="ignore"):
        keys = keys + _MIX
        keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return keys ^ (keys >> np.uint64(31))
