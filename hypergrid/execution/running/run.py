"""Runs: compute the blocks of a plan in sequence into the arrays of the result, or only its diagnostics."""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.diagnostics import Tally
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.orders.walk import complete
from hypergrid.execution.planning.costs import Meter
from hypergrid.execution.planning.dependencies import Buffers, Times, first_and_last_boxes
from hypergrid.execution.planning.plan import Plan, free_bytes
from hypergrid.execution.planning.strategy import Strategy, count_at_stations, list_materialised, pulled
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.execution.running.mean_errors import find_correlation
from hypergrid.execution.running.result_cache import allocate
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.uncertainty.simulate import simulate_given
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache
from hypergrid.perspective import Interpolate, Perspective
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.spec.correlation_time import Memory
from hypergrid.topology import Bands, Grid, Points, SeriesAxis, ZoneCells

Places = NDArray[np.intp] | slice
"""Some places of a surface: flat cells of a grid or of points, or series."""

Part = Literal["value", "variance"]
"""The array of a surface that a frame shows."""


@dataclass(eq=False)
class Outcome:
    """The arrays of a surface, filled block by block."""

    value: NDArray[np.float64]
    """Shape (time, places), NaN where missing or not yet computed."""
    count: NDArray[np.int64] | None = None
    possible: NDArray[np.int64] | None = None
    variance: NDArray[np.float64] | None = None
    variance_low: NDArray[np.float64] | None = None
    computed: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Mask of the computed places, shape (places,)."""
    computed_times: NDArray[np.bool_] | None = None
    """Mask of the time cells that are computed at all places, shape (time,); None if places are computed whole."""
    extrapolated: NDArray[np.bool_] | None = None
    """Mask of the places wholly or partly outside the stations' elevations, if these are used; shape (places,)."""
    left_out: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    correlation: str = ""
    """Correlation between slices that the variance of a mean over time assumes, in words; empty for other variances."""
    work: dict[str, int] = field(default_factory=dict)
    """Computed cells of each perspective, by token; at most once per cell if materialised or buffered."""
    buffered: int = 0
    """Maximum number of cells held in buffers between two boxes."""

    def put_times(self, places: Places, times: NDArray[np.intp], block: Cells) -> None:
        """Store consecutive time cells of a block; does not mark its places as computed."""
        where, shape = (slice(int(times[0]), int(times[-1]) + 1), places), self.value.shape
        self.value[where] = block.value
        self.count = np.zeros(shape, dtype=np.int64) if self.count is None else self.count
        self.possible = np.zeros(shape, dtype=np.int64) if self.possible is None else self.possible
        self.count[where], self.possible[where] = block.count, block.possible
        self.variance = _put_variance(self.variance, where, block.variance, shape)
        self.variance_low = _put_variance(self.variance_low, where, block.variance_low, shape)

    @property
    def is_empty(self) -> bool:
        """Whether everything is computed and every value is missing."""
        # Most surfaces have a value in their first time cell, so this stops early.
        return bool(self.computed.all()) and not any(np.isfinite(row).any() for row in self.value)

    def tally(self, min_coverage: float) -> Tally:
        """Count the missing values by reason; empty until everything is computed."""
        result = Tally()
        if self.computed.all():
            for row, value in enumerate(self.value):
                result.add(value, _get_row(self.count, row), _get_row(self.possible, row), min_coverage)
        return result

    def get_view(self, places: Places) -> NDArray[np.float64] | None:
        """Return a view for computing places in place; None if not contiguous."""
        return self.value[:, places] if isinstance(places, slice) else None

    def put(self, places: Places, block: Cells) -> None:
        """Store a block and mark its places as computed."""
        # Values computed in place are already there.
        if not np.may_share_memory(block.value, self.value):
            self.value[:, places] = block.value
        where, shape = (slice(None), places), self.value.shape
        self.count = _put_counts(self.count, places, block.count, shape)
        self.possible = _put_counts(self.possible, places, block.possible, shape)
        self.variance = _put_variance(self.variance, where, block.variance, shape)
        self.variance_low = _put_variance(self.variance_low, where, block.variance_low, shape)
        self.computed[places] = True


def _get_row(counts: NDArray[np.int64] | None, row: int) -> NDArray[np.int64] | None:
    return None if counts is None else counts[row if len(counts) > 1 else 0]


def _put_variance(
    whole: NDArray[np.float64] | None,
    where: tuple[slice, Places],
    block: NDArray[np.float64] | None,
    shape: tuple[int, ...],
) -> NDArray[np.float64] | None:
    if block is None:
        return whole
    whole = np.full(shape, np.nan) if whole is None else whole
    whole[where] = block
    return whole


def _put_counts(
    whole: NDArray[np.int64] | None, places: Places, block: NDArray[np.int64], shape: tuple[int, ...]
) -> NDArray[np.int64]:
    # Counts of interpolated slices are equal everywhere: one column serves all places, without copies, as long as every
    # block has the same column.
    if block.shape[1] == 1:
        if whole is None:
            return block
        if whole.shape[1] == 1 and np.array_equal(whole, block):
            return whole
    if whole is None or whole.shape[1] == 1:
        whole = np.broadcast_to(0 if whole is None else whole, shape).astype(np.int64)
    whole[:, places] = block
    return whole


@dataclass(frozen=True, eq=False)
class Frame:
    """One time cell of a surface in its current state."""

    values: NDArray[np.float64]
    """Shape (rows, columns), NaN where missing or not yet computed."""
    computed: NDArray[np.bool_]
    """Mask of the computed cells, shape (rows, columns)."""
    estimate: NDArray[np.float64]
    """Values, with estimates from the surrounding cells where a cell is not computed yet."""
    error: float
    """Root mean square error of the estimates, from `estimate.complete`."""

    @classmethod
    def of(cls, values: NDArray[np.float64], computed: NDArray[np.bool_]) -> "Frame":
        """Build a frame with estimates of the cells not computed yet.

        Where another thread computes on, `computed` has to be read before the values: what it wrote since is not shown.
        """
        values = np.where(computed, values, np.nan)
        return cls(values, computed, *complete(values, computed))


@dataclass(frozen=True, eq=False)
class RunProgress:
    """The state of a run after a block."""

    plan: Plan
    outcome: Outcome
    places: int
    """Number of computed places (cells of one slice)."""
    seconds: float
    """Time since the start of the run [s]."""
    cells: int
    """Number of computed cells."""
    response_s: float
    """Mean time from the start of the run until each of these cells was computed (thesis 5.6) [s]."""

    @property
    def total(self) -> int:
        """Number of places of the surface."""
        return len(self.outcome.computed)

    @property
    def fraction(self) -> float:
        """Share of the cells that are computed, 0 to 1."""
        return self.cells / (self.total * self.frames)

    @property
    def complete(self) -> bool:
        return self.places == self.total

    @property
    def frames(self) -> int:
        """Number of time cells of the surface."""
        return len(self.outcome.value)

    def frame(self, number: int, level: int = 0, part: Part = "value") -> Frame:
        """Return the values, or the variance, of one time cell in its current state.

        Of a grid with levels, the frame shows the one numbered `level`.

        Raises
        ------
        InvalidQuery
            The surface is not a map, or its variance was not requested.
        NotFound
            The time cell or the level does not exist.
        """
        space = self.plan.surface.topology.space
        if not isinstance(space, Grid):
            kind = {ZoneCells: "zones", Bands: "bands of elevation", Points: "points"}.get(type(space), "series")
            message = f"this query gives {kind}, not a map; "
            if isinstance(space, SeriesAxis):
                message += "interpolate to get a map, or take its result"
            elif isinstance(space, Points):
                message += "interpolate onto a grid to get a map, or take its result"
            else:
                message += f"take its result, .dataset(), or what the {kind} are made of for a map"
            raise InvalidQuery(message)
        if not 0 <= number < self.frames:
            raise NotFound(f"time cell {number} does not exist; there are {self.frames}, counted from 0")
        held = getattr(self.outcome, part)
        if held is None:
            raise InvalidQuery('this query was not asked for its variance; add "variance": true, or ask for its values')
        grid_shape = (-1, space.y.count, space.x.count)
        done, times = self.outcome.computed, self.outcome.computed_times
        if times is not None:
            done = np.full_like(done, times[number])
        computed, values = done.reshape(grid_shape), held[number].reshape(grid_shape)
        if not 0 <= level < len(values):
            raise NotFound(f"level {level} does not exist; there are {len(values)}, counted from 0")
        shown = computed[level].copy()
        return Frame.of(values[level], shown)


def run(
    plan: Plan,
    *,
    watched: bool = True,
    outcome: Outcome | None = None,
    clock: Callable[[], float] = time.monotonic,
    is_part: bool = False,
) -> Iterator[RunProgress]:
    """Compute a plan block by block of places, row by row.

    Parameters
    ----------
    plan
        The plan to compute.
    watched
        Whether values are read before all are computed; cells not computed yet are then NaN.
    outcome
        Receives the blocks and must have nothing computed yet; by default arrays in memory.
    clock
        Monotonic time [s].
    is_part
        Whether the slices are some of more: methods then accept a network by all its stations, as they do where all
        slices are computed, and not only by those that report in these.

    Returns
    -------
    An iterator over the state after each block; all share the same arrays. Closing it stops the run within one block.
    """
    started_s, surface = clock(), plan.surface
    total = surface.topology.space.count
    outcome = outcome or _make_outcome(plan, watched=watched)
    times_count = surface.topology.time.count
    boxes: list[Times] = np.array_split(np.arange(times_count), -(-times_count // (plan.block_times or times_count)))
    buffers = make_buffers(surface, plan.strategy, boxes, blocks=-(-total // plan.block_cells))
    meter = Meter(clock)
    evaluator = make_evaluator(plan, buffers, meter, is_part=is_part)
    outcome.left_out, outcome.notes, outcome.work = evaluator.left_out, evaluator.diagnostics.notes, evaluator.work
    space_token = surface.topology.space.token()
    if len(boxes) > 1 and plan.block_cells >= total:
        outcome.computed_times = np.zeros(times_count, dtype=bool)
    materialise(evaluator, surface, plan.strategy.k, block_cells=plan.block_cells)
    done, waited_s = 0, 0.0
    for start in range(0, total, plan.block_cells):
        stop = min(start + plan.block_cells, total)
        # As a range they are copied as whole rows instead of index by index.
        places, range_ = np.arange(start, stop, dtype=np.intp), slice(start, stop)
        for number, times in enumerate(boxes):
            last = number == len(boxes) - 1
            if len(boxes) == 1:
                outcome.put(range_, evaluator.surface(surface, places, out=outcome.get_view(range_)))
            else:
                outcome.put_times(range_, times, evaluator.surface(surface, places, times))
                outcome.computed[range_] = last
            if outcome.computed_times is not None:
                outcome.computed_times[times] = True
            if buffers is not None:
                buffers.evict_box(number, last_places=stop == total)
                outcome.buffered = buffers.peak
            outcome.correlation = evaluator.correlation
            outcome.extrapolated = evaluator.diagnostics.extrapolated.get(space_token)
            seconds, cells = clock() - started_s, len(places) * len(times)
            done, waited_s = done + cells, waited_s + seconds * cells
            yield RunProgress(plan, outcome, stop if last else start, seconds, done, waited_s / done)
    meter.save_sums()


def _make_outcome(plan: Plan, *, watched: bool) -> Outcome:
    topology = plan.surface.topology
    # Touching 320 MB of new memory took longer than computing 1,000 slices of 200 x 200 cells: touch it only once.
    value = allocate((topology.time.count, topology.space.count))
    if watched:
        value.fill(np.nan)
    return Outcome(value, computed=np.zeros(topology.space.count, dtype=bool))


def make_evaluator(plan: Plan, buffers: Buffers | None, meter: Meter, *, is_part: bool = False) -> Evaluator:
    from_boxes = frozenset(item.token for item in pulled(plan.surface, plan.strategy.k))
    readers = [
        item
        for item in plan.surface.list_chain()
        if not item.holds_readings and any(s.holds_readings for s in item.sources)
    ]
    allowed_bytes = plan.strategy.weights_bytes
    weights = WEIGHTS if allowed_bytes is None else WeightCache(allowed_bytes) if allowed_bytes else None
    return Evaluator(
        pulled=from_boxes, buffers=buffers, meter=meter, weights=weights,
        reads_once=len(readers) <= 1, is_part=is_part,
    )  # fmt: skip


# Boxes of a surface: some time cells of some places, in the order in which they are computed.
#
# Places are the outer loop and ascending time the inner one. The candidate windows therefore shrink along time, and a
# buffer of overlapping time cells never holds more than one window of the current places.


def make_buffers(surface: Perspective, strategy: Strategy, boxes: list[Times], *, blocks: int) -> Buffers | None:
    """Create buffers for perspectives whose cells are needed more than once; None if unbuffered.

    Parameters
    ----------
    surface, strategy
        The perspective to compute, and its strategy.
    boxes
        Time cells of the surface in each box.
    blocks
        Number of blocks of places; each of them goes through all boxes.
    """
    if not strategy.buffered:
        return None
    first, last = first_and_last_boxes(surface, boxes)
    asked = Counter(source.token for item in surface.list_chain() for source in item.sources)
    worth = set()
    for item in pulled(surface, strategy.k):
        if item.is_fused:
            # Its source's cells are held instead.
            continue
        for_all_places = item.is_at_stations and blocks > 1
        again = bool((first[item.token] < last[item.token]).any())
        if again or for_all_places or asked[item.token] > 1:
            worth.add(item.token)
    return Buffers(surface, last, frozenset(worth))


def collect_diagnostics(plan: Plan) -> Outcome:
    """Collect the diagnostics of a plan without arrays: notes, marks, unused readings, correlation.

    Perspectives at the stations are computed as a whole, since readings are left out and stations report there; on a
    grid only notes on its cells are collected: those extrapolated, with too few stations near, or without covariates.
    """
    evaluator, surface = Evaluator(), plan.surface
    materialise(evaluator, surface, count_at_stations(surface), block_cells=plan.block_cells)
    if surface.is_at_stations:
        evaluator.block(surface, np.arange(surface.topology.space.count))
    for node in surface.list_chain():
        if not node.is_at_stations:
            for cells in _split_blocks(node.topology.space.count, plan.block_cells):
                evaluator.collect_notes(node, cells)
    below, aggregates = split_aggregates(surface)
    if isinstance(below.operator, Interpolate) and below.operator.variance and aggregates:
        errors = evaluator.get_mean_errors(below, below.operator, aggregates)
        if errors is not None:
            for cells in _split_blocks(surface.topology.space.count, plan.block_cells):
                errors.make_regions(cells)
            evaluator.note_errors(errors)
    return Outcome(
        np.empty((0, 0)), left_out=evaluator.left_out, notes=evaluator.diagnostics.notes,
        correlation=evaluator.correlation,
        extrapolated=evaluator.diagnostics.extrapolated.get(surface.topology.space.token()),
    )  # fmt: skip


def _split_blocks(count: int, size: int) -> list[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    return [np.arange(start, min(start + size, count), dtype=np.intp) for start in range(0, count, size)]


def materialise(evaluator: Evaluator, surface: Perspective, k: int, *, block_cells: int) -> None:
    """Compute and cache what hybrid-k materialises below the surface; evict what is not needed later.

    The surface itself is the result of a run and is not cached.
    """
    steps = [item for item in list_materialised(surface, k) if item.token != surface.token]
    later = [item for item in surface.list_chain() if item.token not in {step.token for step in steps}]
    blocks = -(-surface.topology.space.count // block_cells)
    for number, node in enumerate(steps):
        if node.is_at_stations:
            evaluator.materialise_stations(node)
        else:
            # As many blocks as the surface has: a few zones may have thousands of cells below them.
            for _ in hold_blocks(evaluator, node, -(-node.topology.space.count // blocks)):
                pass
        wanted = {source.token for item in (*steps[number + 1 :], *later) for source in item.sources}
        for item in steps[: number + 1]:
            if item.token not in wanted:
                evaluator.drop(item)


def hold_blocks(evaluator: Evaluator, node: Perspective, block_cells: int) -> Iterator[None]:
    """Compute and cache a perspective on a grid; yield after each block of places."""
    shape = (node.topology.time.count, node.topology.space.count)
    whole = Outcome(np.empty(shape), computed=np.zeros(shape[1], dtype=bool))
    for start in range(0, shape[1], block_cells):
        places = slice(start, min(start + block_cells, shape[1]))
        whole.put(places, evaluator.block(node, np.arange(places.start, places.stop)))
        yield
    if whole.count is None or whole.possible is None:
        raise TypeError("a perspective has at least one place")
    evaluator.hold(node, Cells(whole.value, whole.count, whole.possible))


Floats = NDArray[np.float64]


def simulate(plan: Plan, *, count: int, generator: np.random.Generator, memory: Memory) -> Floats:
    """Simulate realisations of a surface, shape (count, time, rows, columns), NaN where missing.

    Parameters
    ----------
    plan
        Plan of a query that ends with an interpolation.
    count
        Number of realisations.
    generator
        Random number generator.
    memory
        Correlation between slices; not needed for a single slice.

    Raises
    ------
    InvalidQuery
        The query does not end with kriging from all stations, or has several slices of unknown correlation.
    TooLarge
        Too many places, or realisations that do not fit in half of the free memory.
    """
    surface = plan.surface
    operator, topology = surface.operator, surface.topology
    if not isinstance(operator, Interpolate):
        raise InvalidQuery(
            "simulate needs a query whose last step is interpolate; aggregate its realisations afterwards"
        )
    # Values exist twice: as simulated, and in the result.
    needed, allowed = 2 * 8 * max(count, 1) * topology.count, free_bytes() // 2
    if needed > allowed:
        remedy = "ask for fewer realisations, slices or cells"
        raise TooLarge("simulate", "bytes of memory", needed, allowed, remedy)
    field, targets, known = Evaluator().get_interpolation(surface, operator, np.arange(topology.space.count))
    if not isinstance(field, KrigingField):
        raise InvalidQuery(
            f"simulate needs kriging from all stations, of which some report; {operator.method} with these parameters "
            "is not that: leave neighbours, radius_m, octants and trend out"
        )
    if field.is_assumed:
        raise InvalidQuery(
            "simulate needs a variogram; none can be fitted to these values (too few stations, or all values of each "
            "slice are equal): give one, variogram={…}, or a longer time"
        )
    corners = topology.time.corners
    times_s = (corners - corners[0]) / SECOND_NS
    correlation = find_correlation(field, times_s, memory=memory)
    if len(times_s) > 1 and len(correlation.between) > 1:
        why = "; ".join(correlation.notes) or "none was given"
        raise InvalidQuery(
            f"simulate needs correlation_time for a surface of {len(times_s)} time cells ({why}): a duration such as "
            "'6h', or '0s' where only single time cells will be looked at"
        )
    made = simulate_given(field, targets, times_s, count=count, generator=generator, correlation=correlation.between[0])
    result = np.full((count, topology.time.count, len(known)), np.nan)
    result[:, :, known] = made
    return result.reshape(count, *topology.shape)
