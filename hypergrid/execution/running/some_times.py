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


class SomeTimes(Evaluator):
    """Evaluates time cells of surfaces for which `in_parts_of_time` holds.

    Cells of the surface, and those of every step below that lie within them, see all their readings; the others see
    none, or some, and are not returned. New cells are unions of old ones, so no other reading can matter.
    """

    def __init__(self) -> None:
        super().__init__()
        # Each time another few windows of readings that are there already.
        self.reads_in_pieces = False
        self._windows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def times(self, here: Perspective, cells: NDArray[np.intp]) -> Cells:
        """Return the values of some time cells, increasing, as a block of shape (cells, 1)."""
        axis = here.topology.time
        if not isinstance(axis, Regular):
            message = "some times need regular time cells"
            raise TypeError(message)
        # An increment needs readings around the cell.
        reach_ns = sum(item.operator.reach_ns for item in here.chain() if isinstance(item.operator, Aggregate))
        self._windows = _disjoint(axis.corners[cells] - reach_ns, axis.length + 2 * reach_ns)
        # What the stations hold in other windows is no answer for these.
        self._whole.clear()
        self._known_readings.clear()
        self._increments.clear()
        block = self.block(here, np.zeros(1, dtype=np.intp))
        shape = (axis.count, 1)
        count, possible = (np.broadcast_to(array, shape)[cells] for array in (block.count, block.possible))
        return Cells(block.value[cells], count, possible)

    def _all_cells(self, here: Perspective) -> Cells:
        windows, self._windows = self._windows, None
        of_windows, self._whole = self._whole, {}
        cells = super()._all_cells(here)
        self._windows, self._whole = windows, of_windows
        return cells

    def _all_readings(self, here: Perspective) -> Readings:
        windows, self._windows = self._windows, None
        readings = super()._read(here)
        self._windows = windows
        return readings

    def _read(self, here: Perspective) -> Readings:
        readings = self._all_readings(here)
        return readings if self._windows is None else readings.take(_within(readings.starts_ns(), self._windows))

    def _compute_stations(self, here: Perspective, times: Times | None) -> Cells:
        cells = super()._compute_stations(here, times)
        if self._windows is None or here.holds_readings or not isinstance(here.operator, Base):
            return cells
        corners = here.topology.time.corners if times is None else here.topology.time.corners[times]
        inside = _within(corners, self._windows)[:, None]
        return replace(cells, value=np.where(inside, cells.value, np.nan), count=cells.count * inside)


def _disjoint(starts: NDArray[np.int64], length: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the starts and stops of the windows that cells of one length cover together; `starts` increase."""
    apart = np.append(True, starts[1:] > starts[:-1] + length)
    last = np.append(np.flatnonzero(apart)[1:] - 1, len(starts) - 1)
    return starts[apart], starts[last] + length


def _within(times: NDArray[np.int64], windows: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.bool_]:
    """Return which times lie in one of the windows."""
    starts, stops = windows
    window = np.searchsorted(starts, times, side="right") - 1
    return np.asarray((window >= 0) & (times < stops[window]))
