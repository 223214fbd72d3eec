"""Some time cells of a surface at one station: readings are read once, and only those of the cells are worked on."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.dependencies import Times
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.perspective import Aggregate, Base, Perspective
from hypergrid.topology import Regular


class TimeCellEvaluator(Evaluator):
    """Evaluates time cells of surfaces for which `is_local_in_time` holds.

    Cells of the surface, and those of every step below that lie within them, see all their readings; the others see
    none, or some, and are not returned. New cells are unions of old ones, so no other reading can matter.
    """

    def __init__(self) -> None:
        super().__init__()
        # Each time another few windows of readings that are there already.
        self.reads_in_pieces = False
        self._windows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def evaluate_times(self, node: Perspective, cells: NDArray[np.intp]) -> Cells:
        """Return the values of some time cells, increasing, as a block of shape (cells, 1)."""
        axis = node.topology.time
        if not isinstance(axis, Regular):
            message = "some times need regular time cells"
            raise TypeError(message)
        # An increment needs readings around the cell.
        reach_ns = sum(item.operator.reach_ns for item in node.list_chain() if isinstance(item.operator, Aggregate))
        self._windows = _merge_windows(axis.corners[cells] - reach_ns, axis.length + 2 * reach_ns)
        # What the stations hold in other windows is no answer for these.
        self._station_cache.clear()
        self._known_readings.clear()
        self._increments.clear()
        block = self.block(node, np.zeros(1, dtype=np.intp))
        shape = (axis.count, 1)
        count, possible = (np.broadcast_to(array, shape)[cells] for array in (block.count, block.possible))
        return Cells(block.value[cells], count, possible)

    def _all_cells(self, node: Perspective) -> Cells:
        windows, self._windows = self._windows, None
        of_windows, self._station_cache = self._station_cache, {}
        cells = super()._all_cells(node)
        self._windows, self._station_cache = windows, of_windows
        return cells

    def _all_readings(self, node: Perspective) -> Readings:
        windows, self._windows = self._windows, None
        readings = super()._read(node)
        self._windows = windows
        return readings

    def _read(self, node: Perspective) -> Readings:
        readings = self._all_readings(node)
        return (
            readings if self._windows is None else readings.take_rows(_mask_within(readings.starts_ns(), self._windows))
        )

    def _compute_stations(self, node: Perspective, times: Times | None) -> Cells:
        cells = super()._compute_stations(node, times)
        if self._windows is None or node.holds_readings or not isinstance(node.operator, Base):
            return cells
        corners = node.topology.time.corners if times is None else node.topology.time.corners[times]
        inside = _mask_within(corners, self._windows)[:, None]
        return replace(cells, value=np.where(inside, cells.value, np.nan), count=cells.count * inside)


def _merge_windows(starts: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and stops of the windows that cells of one length cover together; `starts` increase."""
    is_window_start = np.append(True, starts[1:] > starts[:-1] + length)
    last = np.append(np.flatnonzero(is_window_start)[1:] - 1, len(starts) - 1)
    return starts[is_window_start], starts[last] + length


def _mask_within(times: NDArray[np.int64], windows: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return which times lie in one of the windows."""
    starts, stops = windows
    window = np.searchsorted(starts, times, side="right") - 1
    return np.asarray((window >= 0) & (times < stops[window]))
