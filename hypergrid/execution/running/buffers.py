"""Buffers of pulled perspectives: computed time cells that a later box needs again (thesis 5.7.2.1).

A buffer holds time cells of one perspective over the current places. After every box it evicts the cells outside the
candidate window, which no later box needs, so its size does not grow with the length of the surface. Below an
interpolation every box of places needs all stations again (the input selection of kriging from all stations; for local
kriging their union over a box), so there the window reopens until the last places: this is the look-ahead of the
thesis with every source cell among the most referenced.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.operators.cells import Cells, select_times
from hypergrid.execution.planning.dependencies import Times
from hypergrid.perspective import Perspective
from hypergrid.topology import SeriesAxis

Compute = Callable[[Times], Cells]


class Buffer:
    """Some time cells of a perspective over some places."""

    def __init__(self) -> None:
        self._places = np.empty(0, dtype=np.intp)
        self._times = np.empty(0, dtype=np.intp)
        self._held: Cells | None = None

    def get_cells(self, places: NDArray[np.intp], times: Times, compute: Compute) -> Cells:
        """Return time cells, increasing; compute only those that are not held."""
        if not np.array_equal(places, self._places):
            self._places, self._times, self._held = places, np.empty(0, dtype=np.intp), None
        missing = times
        if len(self._times):
            # Both arrays are increasing.
            nearest = np.searchsorted(self._times[:-1], times)
            missing = times[self._times[nearest] != times]
        if len(missing):
            made = compute(missing)
            if self._held is None:
                self._held, self._times = made, missing
            else:
                order = np.argsort(np.concatenate([self._times, missing]), kind="stable")
                self._held = _join_blocks(self._held, len(self._times), made, len(missing), order)
                self._times = np.concatenate([self._times, missing])[order]
        if self._held is None:
            raise TypeError("a box asks for at least one time cell")
        return (
            self._held
            if len(times) == len(self._times)
            else select_times(self._held, np.searchsorted(self._times, times))
        )

    def evict_old(self, last: NDArray[np.intp], box: int) -> None:
        """Evict time cells whose `last` box, shape (time cells,), is not after `box`."""
        if self._held is None:
            return
        kept = last[self._times] > box
        if kept.all():
            return
        self._held = select_times(self._held, np.flatnonzero(kept)) if kept.any() else None
        self._times = self._times[kept]

    @property
    def cell_count(self) -> int:
        return 0 if self._held is None else self._held.value.size


class Buffers:
    """The buffers of a run, one per perspective that needs one."""

    def __init__(self, surface: Perspective, last: Mapping[str, NDArray[np.intp]], worth: frozenset[str]) -> None:
        """Set up the buffers from the candidate windows.

        Parameters
        ----------
        surface
            The perspective to compute.
        last
            The last box that needs each time cell, from `dependencies.first_and_last_boxes`.
        worth
            Tokens of the perspectives with cells that are needed more than once.
        """
        self._last = {token: last_boxes for token, last_boxes in last.items() if token in worth}
        self._buffers = {token: Buffer() for token in self._last}
        self._at_stations = {item.token for item in surface.list_chain() if isinstance(item.topology.space, SeriesAxis)}
        self.peak = 0
        """Maximum number of cells held after any box."""

    def has_buffer(self, node: Perspective) -> bool:
        return node.token in self._buffers

    def get_cells(self, node: Perspective, places: NDArray[np.intp], times: Times, compute: Compute) -> Cells:
        """Return time cells over some places; compute only those that are not held."""
        buffer = self._buffers.get(node.token)
        return compute(times) if buffer is None else buffer.get_cells(places, times, compute)

    def evict_box(self, box: int, *, last_places: bool) -> None:
        """Evict what no later box in time needs; each block of places restarts at 0."""
        for token, buffer in self._buffers.items():
            if last_places or token not in self._at_stations:
                buffer.evict_old(self._last[token], box)
        self.peak = max(self.peak, sum(buffer.cell_count for buffer in self._buffers.values()))


def _join_blocks(first: Cells, rows: int, second: Cells, more: int, order: NDArray[np.intp]) -> Cells:
    """Join two blocks over the same places, with time cells in the given order."""

    def join(left_counts: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.int64]:
        width = max(left_counts.shape[1], other.shape[1])
        if left_counts.shape[0] == other.shape[0] == 1 and rows + more > 2 and np.array_equal(left_counts, other):
            return left_counts
        whole = np.concatenate([np.broadcast_to(left_counts, (rows, width)), np.broadcast_to(other, (more, width))])
        return whole[order]

    value = np.concatenate([first.value, second.value])[order]
    return Cells(value, join(first.count, second.count), join(first.possible, second.possible))
