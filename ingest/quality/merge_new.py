"""Merge of new readings with the stored ones."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings, concatenate, equal_values


@dataclass(frozen=True, eq=False)
class MergeMasks:
    """Origin of the rows of a merged context."""

    is_new: NDArray[np.bool_]
    """Whether the row's stamp or value is not in the archive, shape (context,)."""
    replaces: NDArray[np.bool_]
    """Whether it replaces a stored reading with another value, shape (context,)."""
    row: NDArray[np.intp]
    """Row of the context of each new reading, shape (new,)."""
    repeats: NDArray[np.intp]
    """Index of the stored reading with the same series, stamp and value, else -1, shape (new,)."""


def merge_stored_and_new(old: Readings, new: Readings) -> tuple[Readings, MergeMasks]:
    """Merge stored and new readings by series, then time; the last of equal stamps wins.

    Both must be ordered, `old` without equal stamps. Rows that `old` has with the same value keep its flags.
    """
    known = {series: number for number, series in enumerate(old.series)}
    series = (
        *old.series,
        *(sensor_series for sensor_series in dict.fromkeys(new.series) if sensor_series not in known),
    )
    number = {sensor_series: index for index, sensor_series in enumerate(series)}
    table = np.array([number[sensor_series] for sensor_series in new.series] or [0], np.int32)
    moved = replace(new, series=series, index=table[new.index])
    if not len(old) and np.array_equal(table, np.arange(len(new.series))):
        both, order = moved, None
    else:
        joined = concatenate([replace(old, series=series), moved])
        # A stable sort: of equal stamps, the stored reading comes first, and the latest new one last.
        order = np.lexsort((joined.time_ns, joined.index))
        both = joined.take_rows(order)
    same = both.mark_repeats()
    # Without stored readings and repeats there is nothing to merge.
    if order is None and not same.any():
        rows = np.arange(len(new))
        return both, MergeMasks(np.ones(len(new), np.bool_), np.zeros(len(new), np.bool_), rows, np.full(len(new), -1))
    order = np.arange(len(both)) if order is None else order
    starts = np.r_[True, ~same] if len(both) else np.empty(0, np.bool_)
    group = np.cumsum(starts) - 1
    last = np.r_[np.flatnonzero(starts)[1:] - 1, len(both) - 1] if len(both) else np.empty(0, np.intp)
    context = both.take_rows(last)
    # If a group has a stored reading, it is the first one.
    head = order[np.flatnonzero(starts)]
    stored = np.where(head < len(old), head, -1)
    is_stored = stored >= 0
    keeps = np.zeros(len(context), np.bool_)
    keeps[is_stored] = equal_values(old.value[stored[is_stored]], context.value[is_stored])
    if keeps.any():
        flag, bits = context.flag.copy(), context.tests_or_none_set().copy()
        flag[keeps] = old.flag[stored[keeps]]
        bits[keeps] = old.tests_or_none_set()[stored[keeps]]
        context = replace(context, flag=flag, tests=bits)
    row = np.empty(len(both), np.intp)
    row[order] = group
    new_rows = row[len(old) :]
    repeats = stored[new_rows]
    repeats[repeats >= 0] = np.where(
        equal_values(old.value[repeats[repeats >= 0]], new.value[repeats >= 0]), repeats[repeats >= 0], -1
    )
    return context, MergeMasks(~keeps, is_stored & ~keeps, new_rows, repeats)
