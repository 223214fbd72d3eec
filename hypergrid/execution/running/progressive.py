"""Progressive runs: compute cells in an adaptive order, with pictures of the partial result."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.pacing import give_way, time_waited_s
from hypergrid.core.readings import Readings
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.orders.orders import BY_TIME, WALKS, CellOrder, Lattice, Watching, make_lattice, make_order
from hypergrid.execution.orders.walk import MANY_CELLS
from hypergrid.execution.planning.costs import MEASUREMENTS, Measurement, Meter
from hypergrid.execution.planning.dependencies import Times
from hypergrid.execution.planning.plan import REFINING_BLOCKS, Plan
from hypergrid.execution.planning.watching import count_steps, step_key
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.run import Frame, Outcome, Places, RunProgress, make_evaluator, materialise, run
from hypergrid.perspective import Aggregate, Base, Perspective
from hypergrid.topology import Regular

Result = TypeVar("Result")

FRAMES_JUDGED: Final = 8
"""Maximum number of time cells, evenly spaced, over which the error of a map's estimates is averaged."""


@dataclass(frozen=True, eq=False)
class ProgressivePicture:
    """The state of a run after a block, in rows and columns."""

    progress: RunProgress
    lattice: Lattice
    done: NDArray[np.bool_]
    """Mask of the computed cells of the lattice, shape (cells,); updated by later blocks."""
    count: int
    """Number of cells computed after this block; unlike `done`, it stays fixed."""

    @property
    def fraction(self) -> float:
        """Share of the cells that are computed, 0 to 1."""
        return self.count / self.lattice.cells

    @property
    def slices(self) -> int:
        """Number of surface cells per cell of the lattice."""
        return self.progress.total * self.progress.frames // self.lattice.cells

    def frame(self, number: int = 0) -> Frame:
        """Return a time cell of a map, or a series by day, with estimates.

        Cells that are not computed yet are estimated from others.
        """
        values = self.progress.outcome.value
        if self.lattice.along == "maps":
            places, is_done = make_lattice(self.progress.plan.surface), bool(self.done[number])
            shown = np.asarray(places.arrange_values(values[number], np.nan), dtype=np.float64)
            return Frame.of(shown, np.full(shown.shape, is_done))
        # Fill with True: nothing is estimated beyond the end.
        computed = np.asarray(self.lattice.arrange_values(self.done, fill=True), dtype=np.bool_)
        row = values[:, 0] if self.lattice.along == "time" else values[number]
        return Frame.of(np.asarray(self.lattice.arrange_values(row, np.nan), dtype=np.float64), computed)

    def error(self) -> float:
        """Return the root mean square error of the estimates from `complete`; NaN if unknown."""
        if self.lattice.along == "maps":
            # Maps that are not computed yet are not estimated.
            return 0.0 if self.done.all() else np.nan
        chosen = np.unique(np.linspace(0, self.slices - 1, min(self.slices, FRAMES_JUDGED)).astype(int))
        squares = np.square([self.frame(number).error for number in chosen])
        known = np.isfinite(squares)
        return float(np.sqrt(squares[known].mean())) if known.any() else np.nan


def refine(plan: Plan, *, clock: Callable[[], float] = time.monotonic) -> Iterator[ProgressivePicture]:
    """Compute a plan in the order in which it is watched.

    Parameters
    ----------
    plan
        The plan to compute, made to be watched.
    clock
        Monotonic time [s].

    Returns
    -------
    An iterator over the state after each block; all share their arrays. Closing it stops the run within one block. No
    cell of the surface is computed twice.
    """
    watched = Watching() if plan.order is None else plan.order.watched
    lattice = make_lattice(plan.surface)
    if watched.order == BY_TIME and lattice.along == "space":
        return _serve_maps(plan, clock)
    return _serve_blocks(plan, lattice, make_order(watched.order, lattice, watched.walking), clock)


def _serve_maps(plan: Plan, clock: Callable[[], float]) -> Iterator[ProgressivePicture]:
    """Compute all places of some time cells after the other."""
    times, places = plan.surface.topology.time.count, plan.surface.topology.space.count
    lattice, done = Lattice("maps", times, 1), np.zeros(times, dtype=bool)
    for state in run(plan, clock=clock):
        give_way()
        count = state.cells // places
        done[:count] = True
        yield ProgressivePicture(state, lattice, done, count)


def _serve_blocks(
    plan: Plan, lattice: Lattice, order: CellOrder, clock: Callable[[], float]
) -> Iterator[ProgressivePicture]:
    started_s, topology = clock(), plan.surface.topology
    value = np.full((topology.time.count, topology.space.count), np.nan)
    outcome = Outcome(value, computed=np.zeros(topology.space.count, dtype=bool))
    # Time spent waiting for other work is not a cost of this plan.
    meter = Meter(lambda: clock() - time_waited_s())
    evaluator = TimeCellEvaluator() if lattice.along == "time" else make_evaluator(plan, None, meter)
    outcome.left_out, outcome.notes, outcome.work = evaluator.left_out, evaluator.diagnostics.notes, evaluator.work
    block_cells = plan.block_cells if lattice.along == "space" else -(-lattice.cells // REFINING_BLOCKS)
    done, count, waited_s = np.zeros(lattice.cells, dtype=bool), 0, 0.0
    slices = 1 if lattice.along == "time" else topology.time.count
    if lattice.along == "space":
        materialise(evaluator, plan.surface, plan.strategy.k, block_cells=plan.block_cells)
    steps, is_walk = _StepMeter(plan, clock), plan.order is not None and plan.order.name in WALKS
    while len(cells := steps.measure(partial(order.next_cells, block_cells))):
        give_way()
        if lattice.along == "time" or is_walk:
            # `evaluate_times` needs increasing cells; kriged places that lie together share neighbours.
            cells = np.sort(cells)
        if isinstance(evaluator, TimeCellEvaluator):
            block = evaluator.evaluate_times(plan.surface, cells)
            _put_times(outcome, cells, block)
            values = block.value.T
        else:
            values = _put_places(outcome, cells, evaluator, plan.surface)
        steps.measure(partial(order.add_values, cells, values))
        done[cells] = True
        count += len(cells)
        # Saved before the run may be closed.
        steps.save(count)
        outcome.computed[:] = count == lattice.cells if lattice.along == "time" else done
        places = int(np.count_nonzero(outcome.computed))
        seconds = clock() - started_s
        waited_s += seconds * len(cells)
        yield ProgressivePicture(
            RunProgress(plan, outcome, places, seconds, count * slices, waited_s / count), lattice, done, count
        )  # fmt: skip
    meter.save_sums()


class _StepMeter:
    """Measures what the steps of a walk cost, without its cells."""

    def __init__(self, plan: Plan, clock: Callable[[], float]) -> None:
        watched = None if plan.order is None or plan.order.name not in WALKS else plan.order.watched
        self._watched = watched
        self._budget = 0 if watched is None else round(watched.walking.fraction * make_lattice(plan.surface).cells)
        self._clock, self._passed_s = clock, 0.0

    def measure(self, work: Callable[[], Result]) -> Result:
        started_s = self._clock()
        result = work()
        self._passed_s += self._clock() - started_s
        return result

    def save(self, count: int) -> None:
        """Keep the cost of a walk whose share is computed, once."""
        if self._watched is None or count < self._budget:
            return
        # A step of all walkers takes a time of its own, which hides what few cells cost.
        looks = self._budget * count_steps(self._watched, self._budget) if self._budget >= MANY_CELLS else 0
        if looks:
            MEASUREMENTS.put(step_key(self._watched.order), Measurement(looks, self._passed_s, 1.0), 1)
        self._watched = None


def _put_places(
    outcome: Outcome, cells: NDArray[np.intp], evaluator: Evaluator, surface: Perspective
) -> NDArray[np.float64]:
    """Compute some places in every slice; return their values, shape (time cells, cells)."""
    # Neighbouring places are written as one range: rows are copied as a whole instead of index by index.
    places: Places = slice(int(cells[0]), int(cells[-1]) + 1) if bool((np.diff(cells) == 1).all()) else cells
    block = evaluator.surface(surface, cells, out=outcome.value[:, places] if isinstance(places, slice) else None)
    outcome.put(places, block)
    outcome.correlation = evaluator.correlation
    outcome.extrapolated = evaluator.diagnostics.extrapolated.get(surface.topology.space.token())
    return block.value


def _put_times(outcome: Outcome, cells: NDArray[np.intp], block: Cells) -> None:
    """Store the values of time cells at the only place, shape (cells, 1)."""
    outcome.value[cells] = block.value
    if outcome.count is None or outcome.possible is None:
        outcome.count, outcome.possible = np.zeros((2, len(outcome.value), 1), dtype=np.int64)
    outcome.count[cells], outcome.possible[cells] = block.count, block.possible


class TimeCellEvaluator(Evaluator):
    """Evaluates time cells of surfaces for which `is_local_in_time` holds.

    Cells of the surface, and those of every step below that lie within them, see all their readings; the others
    see none, or some, and are not returned. Cells of a step are unions of its source's cells, so no other reading can
    matter.
    """

    def __init__(self) -> None:
        super().__init__()
        # Each call selects a few other windows of readings that are already in memory.
        self.reads_in_pieces = False
        self._windows: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None

    def evaluate_times(self, node: Perspective, cells: NDArray[np.intp]) -> Cells:
        """Compute some time cells, increasing, as a block of shape (cells, 1)."""
        axis = node.topology.time
        if not isinstance(axis, Regular):
            raise TypeError("some times need regular time cells")
        # Increments need the readings around a cell.
        reach_ns = sum(item.operator.reach_ns for item in node.list_chain() if isinstance(item.operator, Aggregate))
        self._windows = _merge_windows(axis.corners[cells] - reach_ns, axis.length + 2 * reach_ns)
        # Cached station values belong to other windows.
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
        # All cells need a cache of their own: that of the windows has gaps elsewhere.
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
    """Merge the windows of cells of one length into disjoint starts and stops; `starts` increase."""
    is_window_start = np.append(True, starts[1:] > starts[:-1] + length)
    last = np.append(np.flatnonzero(is_window_start)[1:] - 1, len(starts) - 1)
    return starts[is_window_start], starts[last] + length


def _mask_within(times: NDArray[np.int64], windows: tuple[NDArray[np.int64], NDArray[np.int64]]) -> NDArray[np.bool_]:
    starts, stops = windows
    window = np.searchsorted(starts, times, side="right") - 1
    return np.asarray((window >= 0) & (times < stops[window]))
