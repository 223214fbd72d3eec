"""Aggregation by functions that take the values of a cell as a list: the members of each cell side by side."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.calls import Fault
from hypergrid.perspective.listed import ListedRow

Floats = NDArray[np.float64]
Ranges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Half-open ranges: first and stop."""

LARGEST: Final = 2**22
"""Values that are put side by side at once, padding included (32 MiB)."""


@dataclass(frozen=True, eq=False)
class Members:
    """Positions of the members of each cell along one dimension, padded to the longest."""

    at: NDArray[np.intp]
    """Shape (width, cells)."""
    real: NDArray[np.bool_]
    """Whether it is a member and no padding, shape (width, cells)."""

    @classmethod
    def of(cls, first: NDArray[np.int64], stop: NDArray[np.int64]) -> "Members":
        """Build from half-open ranges, shape (cells,)."""
        width = max(int((stop - first).max(initial=0)), 1)
        at = first + np.arange(width)[:, None]
        real = at < stop
        return cls(np.where(real, at, 0), real)

    def part(self, cells: slice) -> "Members":
        """Return the members of some cells."""
        return Members(self.at[:, cells], self.real[:, cells])


def of_ranges(row: ListedRow, values: Floats, ranges: Ranges) -> tuple[Floats, NDArray[np.int64]]:
    """Return the aggregate and the count of each range of values in one line, shape (n,) to (cells,)."""
    found, count = of_products(row, values[:, None], ranges, None)
    return found[:, 0], count[:, 0]


def of_products(
    row: ListedRow, values: Floats, times: Ranges, places: tuple[NDArray[np.intp], Ranges] | None
) -> tuple[Floats, NDArray[np.int64]]:
    """Return the aggregate and the count of every time range with every place.

    Parameters
    ----------
    row
        The function, with its parameters.
    values
        Shape (time, space), NaN where missing.
    times
        Ranges along time, shape (time cells,).
    places
        Members along space and their ranges, shape (places,); None where the space stays as it is.

    Returns
    -------
    Aggregates, NaN where a cell holds no value, and counts, shape (time cells, places). Members are in order of time.

    Raises
    ------
    Fault
        The function failed; `at` counts the cells of the result.
    """
    space = values.shape[1]
    members = np.arange(space) if places is None else places[0]
    over = Members.of(np.arange(space), np.arange(1, space + 1)) if places is None else Members.of(*places[1])
    cells = len(times[0]), over.at.shape[1]
    found, count = np.full(cells, np.nan), np.zeros(cells, dtype=np.int64)
    widest = max(int((times[1] - times[0]).max(initial=0)), 1)
    numbers = np.arange(cells[0] * cells[1]).reshape(cells)
    for part in _parts(cells, members=widest * len(over.at)) if values.size and len(members) else ():
        along, here = Members.of(times[0][part[0]], times[1][part[0]]), over.part(part[1])
        real = along.real[:, None, :, None] & here.real[None, :, None, :]
        at = along.at[:, None, :, None], members[here.at][None, :, None, :]
        taken = np.where(real, values[at], np.nan).reshape(-1, real.shape[2] * real.shape[3])
        held = np.isfinite(taken).sum(axis=0)
        some = np.flatnonzero(held)
        count[part] = held.reshape(numbers[part].shape)
        if len(some):
            filled = numbers[part].ravel()[some]
            found.flat[filled] = _called(row, taken[:, some], filled)
    return found, count


def _parts(cells: tuple[int, int], *, members: int) -> Iterator[tuple[slice, slice]]:
    """Yield parts of time cells by places whose members may be held at once."""
    beside = max(1, min(cells[1], LARGEST // members))
    together = max(1, LARGEST // (members * beside))
    for start in range(0, cells[0], together):
        for left in range(0, cells[1], beside):
            yield slice(start, start + together), slice(left, left + beside)


def _called(row: ListedRow, values: Floats, cells: NDArray[np.intp]) -> Floats:
    try:
        return row.listed(values, row.bound)
    except Fault as fault:
        raise Fault(str(fault), None if fault.at is None else int(cells[fault.at])) from fault.__cause__
