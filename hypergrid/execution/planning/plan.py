"""Query plans: the blocks that a run will compute, with projected memory and time."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Final

import numpy as np

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.execution.operators.cells import FUSED_VALUES
from hypergrid.execution.operators.pieces import all_in_pieces, estimate_readings, is_read_in_pieces
from hypergrid.execution.operators.pieces import projected_bytes as reading_bytes
from hypergrid.execution.orders.orders import (
    BY_TIME,
    ORDERS,
    WALKS,
    FixedOrder,
    Watching,
    check_order,
    make_lattice,
)
from hypergrid.execution.planning.costs import MEASUREMENTS, estimate_solving_s, reading_ns, system_bytes
from hypergrid.execution.planning.dependencies import Times, find_all_needed
from hypergrid.execution.planning.response import (
    ProjectedTimes,
    list_candidates,
    must_compare,
    project_times,
    sort_candidates,
)
from hypergrid.execution.planning.strategy import (
    Strategy,
    StrategyOption,
    commutes,
    count_at_stations,
    list_materialised,
    parse_strategy,
    path,
    pulled,
)
from hypergrid.execution.planning.watching import ChosenOrder, choose_order
from hypergrid.interpolation.kernels.covariance import WORTH_COMPILED
from hypergrid.interpolation.local.field import CHUNK_BYTES, FACTOR_BYTES, FEW_SLICES, held_bytes
from hypergrid.interpolation.methods.in_time import CELLS_AT_ONCE
from hypergrid.interpolation.solvers.field import PIECE_PAIRS
from hypergrid.perspective import Aggregate, Interpolate, InterpolateInTime, Perspective, Recur, Surface
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.functions.aggregate_formulas import LISTED_AT_ONCE
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES
from hypergrid.perspective.functions.user_interpolation import SELECTION_BYTES
from hypergrid.rewrite import RULES, RULES_FOR_MEMORY, RewriteResult, Rule, rewrite
from hypergrid.topology import Bands, Grid, Periodic, Points, Regular, ZoneCells

# A few times one core's share of the cache, and far below the memory of any machine.
BLOCK_BYTES: Final = 32 * 2**20
"""Memory limit of the arrays of one block [bytes]."""
MAX_LISTED: Final = 2**22
"""Axis length [time cells] up to which a plan lists the cells that a box needs."""
REFINING_BLOCKS: Final = 24
"""Minimum number of blocks of a refined answer, if it has enough cells."""
FEW_PLACES: Final = 256
"""Places per block below which time is cut first if memory is short."""

UNIT_COST_NS: Final = {
    "base": 30.0, "convert": 3.0, "aggregate": 8.0, "interpolate": 2.0, "interpolateintime": 40.0, "merge": 4.0,
    "recur": 4.0,
}  # fmt: skip
"""Tabulated cost [ns], in order: per reading, cell, source cell, station of a cell, instant; per cell for the rest."""


@dataclass(frozen=True)
class PlanStep:
    """One perspective of a plan."""

    what: str
    """The operator in words."""
    cells: int
    shape: tuple[int, ...]
    unit: str
    projected_bytes: int
    """Peak memory [bytes]."""
    projected_s: float
    """Cost [s], tabulated or measured in a trial."""
    tried: bool = False
    """Whether the cost comes from a trial on this machine."""


@dataclass(frozen=True, eq=False)
class Plan:
    """The steps and blocks of a run, with projected costs; `explain()` prints it."""

    original: Surface
    rewritten: RewriteResult
    steps: tuple[PlanStep, ...]
    cells: int
    """Cells of the surface."""
    block_cells: int
    """Cells of the space in one block."""
    projected_bytes: int
    """Peak memory that the run adds [bytes]."""
    projected_s: float
    """Tabulated cost [s]."""
    block_times: int | None
    """Time cells of the surface in one block; None for all."""
    strategy: Strategy
    """How many perspectives are materialised."""
    order: ChosenOrder | None = None
    """The order in which the answer is watched; None if it is not."""

    @property
    def surface(self) -> Perspective:
        return self.rewritten.surface.perspective

    def check(self, allowed_bytes: int | None) -> None:
        """Reject a plan that exceeds the memory budget.

        Raises
        ------
        TooLarge
            The plan projects more than `allowed_bytes` (default: half of the free memory).
        """
        _check_allowed(allowed_bytes)
        allowed = allowed_bytes if allowed_bytes is not None else free_bytes() // 2
        if self.projected_bytes > allowed:
            remedy = f"{self.advice()}, or allow more"
            raise TooLarge("the query", "bytes of memory", self.projected_bytes, allowed, remedy)

    def fits(self, allowed_bytes: int | None) -> bool:
        """Return whether the projected memory is within a budget; None is no limit."""
        return allowed_bytes is None or self.projected_bytes <= allowed_bytes

    def advice(self) -> str:
        """Name the step that needs most memory, how much, and how to lower it."""
        sizes = [step.projected_bytes for step in self.steps]
        beside = self.projected_bytes - sum(sizes)
        number = int(np.argmax(sizes))
        if beside > sizes[number]:
            return _advise_on_result(self.surface, beside)
        remedy = _advise_on_operator(self.surface, self.surface.list_chain()[number])
        return f"step {number}, {self.steps[number].what}, takes {sizes[number]:,} of them: {remedy}"


def _check_allowed(allowed_bytes: object) -> None:
    # `bool` is a subclass of `int`.
    if allowed_bytes is not None and (isinstance(allowed_bytes, bool) or not isinstance(allowed_bytes, Integral)):
        raise InvalidQuery(f"allowed_bytes needs a whole number of bytes, such as 2 * 10**9; got {allowed_bytes!r}")


def free_bytes() -> int:
    """Return the available memory [bytes]; 4 GiB if the system does not report it."""
    try:
        with open("/proc/meminfo") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return 4 * 2**30


def make_plan(
    surface: Surface,
    *,
    watched: Watching | None = None,
    streamed_cells: int | None = None,
    rules: tuple[Rule, ...] = RULES,
    strategy: StrategyOption = "auto",
    allowed_bytes: int | None = None,
) -> Plan:
    """Plan a surface: rewrite it, cut it into blocks, project its costs.

    Parameters
    ----------
    surface
        The surface to compute.
    watched
        How the answer is watched while it is computed, in more and smaller blocks; None if it is not. An order that
        cannot pay is replaced by coarse to fine, and `Plan.order` says why.
    streamed_cells
        Cells of the space in one block, if each block leaves memory once it is computed; None if the whole surface is
        held.
    rules
        Rewrite rules; pass fewer to measure the effect of each. By default those for memory are applied as well if the
        plan would not fit in one piece otherwise.
    strategy
        How many perspectives are materialised. "auto" materialises those at the stations where costs cannot matter
        (`response.must_compare`); elsewhere it chooses the least mean response for a watched answer (thesis 5.7.2.2)
        and the least total time for others, among those that fit. Streamed answers come in blocks of all time cells.
    allowed_bytes
        Memory budget [bytes], for which blocks get fewer places first and then fewer time cells; None for no limit. If
        the smallest blocks do not fit either, `check` rejects the plan.

    Raises
    ------
    InvalidQuery
        Unknown strategy.
    NotFound
        Unknown order.
    """
    _check_allowed(allowed_bytes)
    if watched is not None:
        check_order(watched.order)
    rewritten = rewrite(surface, rules)
    final = rewritten.surface.perspective
    asked = parse_strategy(strategy, final)
    path_length = len(path(final))
    if streamed_cells:
        # Each block is computed once, so cached weights would not be used again.
        chosen = Strategy(count_at_stations(final), path_length, "auto", weights_bytes=0)
        return _build_plan(surface, rewritten, chosen, streamed_cells, None, streamed=True)
    costs_s: dict[str, float] = {}
    if watched is not None and watched.order in WALKS:
        # They do not depend on strategy and blocks.
        costs_s = _find_costs(final, _build_plan(surface, rewritten, Strategy(0, path_length, "auto"), 1, None).steps)
    order = None if watched is None else choose_order(final, watched, costs_s)
    name = strategy if isinstance(strategy, str) else "as asked"

    def plan_within(allowed: int | None, rewritten: RewriteResult) -> Plan:
        final = rewritten.surface.perspective

        def fit(k: int) -> Plan:
            plan = _fit_plan(surface, rewritten, Strategy(k, path_length, name), order=order, allowed_bytes=allowed)
            return replace(plan, order=order)

        if asked is not None:
            return fit(asked)
        usual = fit(count_at_stations(final))
        blocks, boxes = _count_blocks(usual)
        if not must_compare(final, blocks=blocks, boxes=boxes) and usual.fits(allowed):
            return usual
        plans = {k: usual if k == usual.strategy.k else fit(k) for k in list_candidates(final)}
        return _choose_plan(final, plans, allowed)

    plan = plan_within(None, rewritten)
    if plan.fits(allowed_bytes):
        return plan
    return plan_within(allowed_bytes, rewrite(surface, RULES_FOR_MEMORY) if rules == RULES else rewritten)


def _choose_plan(final: Perspective, plans: dict[int, Plan], allowed_bytes: int | None) -> Plan:
    """Choose the fastest of the plans that fit, else the smallest."""
    fitting = {k: plan for k, plan in plans.items() if plan.fits(allowed_bytes)}
    if not fitting:
        # The smallest plan shows how much memory is needed.
        return min(plans.values(), key=lambda plan: plan.projected_bytes)
    times = {k: find_projected_times(plan) for k, plan in fitting.items()}
    is_watched = next(iter(fitting.values())).order is not None
    return fitting[sort_candidates(final, {k: t.response_s if is_watched else t.total_s for k, t in times.items()})[0]]


def find_projected_times(plan: Plan) -> ProjectedTimes:
    """Project the mean response and the total time of a plan, from measured costs where available."""
    final = plan.surface
    return project_times(
        final, _find_costs(final, plan.steps), plan.strategy.k, blocks=list(_list_blocks(plan)), boxes=_list_boxes(plan)
    )


def _find_costs(final: Perspective, steps: tuple[PlanStep, ...]) -> dict[str, float]:
    """Return the cost of all cells of each perspective [s], by token; measured, else tabulated."""
    costs_s: dict[str, float] = {}
    for item, step in zip(final.list_chain(), steps, strict=True):
        measurement = MEASUREMENTS.peek(item.token)
        costs_s[item.token] = (
            step.projected_s if measurement is None else measurement.seconds / measurement.cells * step.cells
        )
    return costs_s


def _list_blocks(plan: Plan) -> Iterator[np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Yield the cells of the space in each block, in the order of the run."""
    lattice, order, shape = make_lattice(plan.surface), "raster", (1, plan.surface.topology.space.count)
    if plan.order is not None and plan.order.name != BY_TIME and lattice.along == "space":
        # Of a walk only how many cells a block has is known beforehand.
        order = plan.order.name if plan.order.name in ORDERS else "coarse_to_fine"
        shape = (lattice.rows, lattice.columns)
    serving = FixedOrder(ORDERS[order](shape))
    while len(cells := serving.next_cells(plan.block_cells)):
        yield cells


def _list_boxes(plan: Plan) -> list[Times]:
    times = plan.surface.topology.time.count
    return np.array_split(np.arange(times), -(-times // (plan.block_times or times)))


def _count_blocks(plan: Plan) -> tuple[int, int]:
    """Count the blocks of places, and the boxes in time of each."""
    times = plan.surface.topology.time.count
    return -(-plan.surface.topology.space.count // plan.block_cells), -(-times // (plan.block_times or times))


def _fit_plan(
    surface: Surface,
    rewritten: RewriteResult,
    chosen: Strategy,
    *,
    order: ChosenOrder | None,
    allowed_bytes: int | None,
) -> Plan:
    """Plan with the best block size, or with the largest that fits."""
    final = rewritten.surface.perspective
    by_time = order is not None and order.name == BY_TIME
    refining = order is not None and not by_time
    times = final.topology.time.count
    # Maps in the order of time are whole maps; the first of them need not wait for the last.
    block = final.topology.space.count if by_time else _find_block_cells(final, chosen, refining=refining)
    times = -(-times // REFINING_BLOCKS) if by_time else times

    def build() -> Plan:
        smaller = times if times < final.topology.time.count else None
        return _build_plan(surface, rewritten, chosen, block, smaller)

    plan = build()
    if allowed_bytes is not None and plan.projected_bytes > allowed_bytes:
        chosen = replace(chosen, weights_bytes=0)
        plan = build()
    while allowed_bytes is not None and plan.projected_bytes > allowed_bytes and (block > 1 or times > 1):
        # Few places per call cost more than few time cells: below FEW_PLACES, cut time first.
        if not (final.is_at_stations or by_time) and block > 1 and (block > FEW_PLACES or times == 1 or refining):
            block = -(-block // 2)
        elif times > 1 and not refining:
            times = -(-times // 2)
        else:
            break
        plan = build()
    # Maps in the order of time come in boxes even where memory is not short. Boxes of more slices solve only what
    # changes between them.
    is_short = chosen.weights_bytes is not None
    is_in_few = plan.block_times is not None and plan.block_times <= FEW_SLICES
    return _spend_on_weights(plan, allowed_bytes) if allowed_bytes is not None and is_short and is_in_few else plan


def _spend_on_weights(plan: Plan, allowed_bytes: int) -> Plan:
    """Let the boxes in time of a plan share kriging weights in the memory that it leaves."""

    def spend(weights_bytes: int) -> Plan:
        chosen = replace(plan.strategy, weights_bytes=weights_bytes)
        return _build_plan(plan.original, plan.rewritten, chosen, plan.block_cells, plan.block_times)

    # Solving the systems of every box again took three times as long as all else (figure 5.5).
    spare = allowed_bytes - spend(1).projected_bytes
    spent = spend(spare) if spare > 0 else plan
    # Without weights to share, nothing is spent; several maps may count the same room, each for itself.
    return spent if plan.projected_bytes < spent.projected_bytes <= allowed_bytes else plan


def _find_block_cells(final: Perspective, chosen: Strategy, *, refining: bool) -> int:
    """Return the best number of places per block if memory is not limited."""
    space = final.topology.space.count
    carried = _find_carried_by(final, chosen)
    block = space
    if not final.is_at_stations:
        drawn = [item for item in pulled(final, chosen.k) if not item.is_at_stations] or [final]
        largest = max(_place_bytes(item, final, carried=item in carried) for item in drawn)
        # Steps that write into the surface in chunks, or are carried from the stations, are never held as a whole.
        block = space if carried or _cuts_itself(final) else max(1, min(space, BLOCK_BYTES // largest))
        grids = [item for item in final.list_chain() if _is_grid(item) and _count_parts(item) > 1]
        block = min([block, *(_cells_of_parts(item, final) for item in grids)])
        # Use equal blocks: a small last one would not be worth the compiled loops that the others run.
        block = -(-space // -(-space // block))
    if refining and not final.is_at_stations:
        block = max(1, min(block, -(-space // REFINING_BLOCKS)))
    return block


def _build_plan(
    surface: Surface,
    rewritten: RewriteResult,
    chosen: Strategy,
    block: int,
    times: int | None,
    *,
    streamed: bool = False,
) -> Plan:
    final = rewritten.surface.perspective
    chain, carried = final.list_chain(), _find_carried_by(final, chosen)
    held = {item.token for item in list_materialised(final, chosen.k)}
    rows = _count_times(final, times, held)
    # Steps that write straight into the surface take no block of their own.
    in_place = {*carried, *((final,) if _cuts_itself(final) and times is None else ())}
    steps = tuple(
        _make_step(item, final, block * _count_places(item, final), carried=item in in_place, rows=rows[item.token])
        for item in chain
    )
    kept = sum(_kept_bytes(item, block * _count_places(item, final), rows[item.token], times, chosen) for item in chain)
    places = block if streamed else final.topology.space.count
    total = final.topology.time.count * places * _cell_bytes(final, carried, streamed=streamed, whole=times is None)
    if times is not None:
        # A carried step makes one box. A pulled one keeps the overlap with the next box and joins it with new cells.
        total += 8 * 2 * times * block * len(carried)
        drawn = [item for item in pulled(final, chosen.k) if item not in carried and not item.is_fused]
        total += sum(
            3 * 24 * _count_values(item, block * _count_places(item, final), rows[item.token].node_count)
            for item in drawn
        )
    # A perspective materialised on a grid is held whole, with its counts.
    total += sum(
        24 * item.topology.count for item in chain if item.token in held - {final.token} and not item.is_at_stations
    )
    total += sum(step.projected_bytes for step in steps) + kept
    seconds = sum(step.projected_s for step in steps)
    return Plan(surface, rewritten, steps, final.topology.count, block, int(total), seconds, times, chosen)


@dataclass(frozen=True)
class _TimeCounts:
    """Number of time cells that a box takes of a perspective and of its source."""

    node_count: int
    source_count: int


def _count_times(final: Perspective, times: int | None, held: set[str]) -> dict[str, _TimeCounts]:
    """Count the time cells that a box needs, by token; all if `times` is None."""
    chain = final.list_chain()
    rows = {item.token: item.topology.time.count for item in chain}
    asked = dict(rows)
    if times is not None:
        whole = final.topology.time.count
        if max(rows.values()) > MAX_LISTED:
            # Too many to list before it is known whether they fit: take their share, and one for each edge.
            share = {token: min(-(-count * times // whole) + 2, count) for token, count in rows.items()}
            # The normals of a few times may be computed from all times.
            recurring = {
                below.token for item in chain if isinstance(item.operator, Recur) for below in item.source.list_chain()
            }
            asked = {token: count if token in recurring else share[token] for token, count in rows.items()}
        else:
            # No box needs more source cells than one in the middle of the time.
            middle = (whole - times) // 2
            needed = find_all_needed(final, np.arange(middle, middle + times))
            asked |= {token: len(time_cells) for token, time_cells in needed.items()}
        rows |= {token: count for token, count in asked.items() if token not in held}
    # A materialised step reads all time cells of its source.
    below = {
        item.token: item.source.topology.time.count if item.token in held else asked[item.source.token]
        for item in chain
        if item.sources
    }
    return {item.token: _TimeCounts(rows[item.token], below.get(item.token, 0)) for item in chain}


def _find_carried_by(final: Perspective, chosen: Strategy) -> tuple[Perspective, ...]:
    """Return `_find_carried`, or nothing if interpolated slices are materialised."""
    carried = _find_carried(final)
    held = {item.token for item in list_materialised(final, chosen.k)} - {final.token}
    return () if any(item.token in held for item in carried) else carried


def _cell_bytes(final: Perspective, carried: tuple[Perspective, ...], *, streamed: bool, whole: bool) -> int:
    """Return the memory of a surface cell in the result or a streamed block [bytes]."""
    # Values, and counts with their copies. Counts that are equal everywhere are one column, unless boxes are joined
    # in time.
    arrays = 1 if whole and _counts_are_even(carried[0] if carried else final) else 4
    # The mean of slices, if there are few, is made as a block and copied into the surface.
    arrays += len(carried) == 2 and not streamed
    below, aggregates = split_aggregates(final)
    if isinstance(below.operator, Interpolate) and below.operator.variance:
        # The variance of a mean may be a bracket of two.
        arrays += 2 if aggregates else 1
    return 8 * arrays


def _counts_are_even(below: Perspective) -> bool:
    """Return whether an interpolation certainly uses equally many stations for every cell of a slice."""
    operator = below.operator
    if not isinstance(operator, Interpolate) or not operator.row.has_variance or operator.covariates:
        return False
    given = operator.arguments
    by = getattr(given.get("variogram"), "by", "all")
    return by == "all" and all(given.get(name) is None for name in ("radius_m", "octants", "trend", "drift"))


def _is_grid(node: Perspective) -> bool:
    return isinstance(node.topology.space, Grid)


def _count_places(node: Perspective, final: Perspective) -> int:
    """Count a step's places per place of the surface; above 1 below larger cells."""
    above = final.topology.space
    if isinstance(above, ZoneCells | Bands) and _is_grid(node):
        # Cells of the largest zone or band, in cells of this step.
        source = above.grid if isinstance(above, ZoneCells) else above.source
        return max(-(-above.max_cells * node.topology.space.count // source.count), 1)
    return max(-(-node.topology.space.count // final.topology.space.count), 1) if _is_grid(node) else 1


def _place_bytes(node: Perspective, final: Perspective, *, carried: bool) -> int:
    """Return a step's memory per place of the surface [bytes]: values and station weights.

    Slices `carried` from the stations take none: they are written straight into the surface, or never computed.
    """
    stations = node.source.topology.space.count if isinstance(node.operator, Interpolate) else 0
    parts = _count_parts(node)
    if carried:
        return 8 * (2 * stations * parts + 1)
    pairs = stations * parts + _count_pairs(node)
    return 8 * _count_places(node, final) * (3 * node.topology.time.count + 6 * pairs)


def _count_parts(node: Perspective) -> int:
    """Count the quadrature points per cell of a step: more than one for block means."""
    operator = node.operator
    is_block = isinstance(operator, Interpolate) and operator.arguments.get("support") == "block"
    return int(operator.arguments.get("quadrature", 4)) ** 2 if is_block else 1  # type: ignore[union-attr]


def _count_pairs(node: Perspective) -> int:
    """Count the point pairs that the variance of a block needs; 0 for point support."""
    parts = _count_parts(node)
    return parts**2 if parts > 1 and node.operator.variance else 0  # type: ignore[union-attr]


def _cells_of_parts(node: Perspective, final: Perspective) -> int:
    """Return how many cells have their quadrature points' right-hand sides in memory at once."""
    # Twice the threshold, so that compiled loops still make them once the surface is cut into equal blocks.
    return max(
        1, 2 * WORTH_COMPILED // (max(_count_neighbours(node), 1) * _count_parts(node) * _count_places(node, final))
    )


def _count_neighbours(node: Perspective) -> int:
    """Return the maximum number of stations that have a weight in an estimate."""
    stations = _count_stations(node)
    given = node.operator.arguments.get("neighbours") if isinstance(node.operator, Interpolate) else None
    return min(given or stations, stations)


def _find_carried(final: Perspective) -> tuple[Perspective, ...]:
    """Return the last steps of a chain that are one product with station values."""
    below = final.source if commutes(final) else final
    operator = below.operator
    if not isinstance(operator, Interpolate) or operator.variance or not operator.uses_all(_count_stations(below)):
        return ()
    return (below,) if below is final else (below, final)


def _cuts_itself(final: Perspective) -> bool:
    """Return whether the last step writes chunks straight into the surface: kriging from some stations."""
    operator = final.operator
    if not isinstance(operator, Interpolate) or operator.variance or not operator.row.has_variance:
        return False
    return (
        not operator.uses_all(_count_stations(final))
        and operator.arguments.get("trend") is None
        and not operator.covariates
    )


def _count_stations(node: Perspective) -> int:
    return node.source.topology.space.count


def _make_step(node: Perspective, final: Perspective, block: int, *, carried: bool, rows: _TimeCounts) -> PlanStep:
    topology, operator = node.topology, node.operator
    # Slices carried from the stations are held only in the surface itself.
    values = 0 if carried else _count_values(node, block, rows.node_count)
    if node.is_fused:
        # At least two places are converted at once.
        values = min(values, max(FUSED_VALUES, 2 * rows.node_count))
    held, work, kind = values * 8 * 3, float(topology.count), type(operator).__name__.lower()
    if node.holds_readings:
        held, work = reading_bytes(final, node), float(estimate_readings(node))
    elif isinstance(operator, Aggregate):
        work = float(estimate_readings(node.source) if node.source.holds_readings else node.source.topology.count)
        if node.source.holds_readings and is_read_in_pieces(node.source, operator):
            # The step that reads them has aggregated them already.
            work = float(topology.count)
        if isinstance(topology.time, Periodic) and "time" in operator.dimensions:
            # Periodic cells gather what they cover: readings and their order, or the values of a block.
            held += (
                int(work) * 80
                if node.source.holds_readings
                else _count_values(node.source, block, rows.source_count) * 8
            )
        if not node.source.holds_readings and not carried:
            # Lifted values, presence and counts; or, to choose a value, values by place and running counts.
            held += _count_values(node.source, block * _count_places(node.source, node), rows.source_count) * 8 * 3
        if operator.row.prepare is not None or not (operator.row.parts or operator.row.rank):
            held += _listed_bytes(node, operator.row, block, rows)
            if isinstance(topology.time, Regular) and "time" in operator.dimensions:
                # A value is listed once for each window that holds it.
                work *= max(topology.time.length / topology.time.step, 1.0)
    elif isinstance(operator, Interpolate):
        stations = node.source.topology.space.count
        near = _count_neighbours(node)
        held += system_bytes(node)
        points = block * _count_parts(node)
        if operator.uses_all(stations) or not operator.row.has_variance:
            pairs = stations * points
            # Quadrature points are not cut into pieces if the cells themselves are few.
            whole = not carried or points > block
            held += 8 * 6 * (pairs if whole else min(pairs, max(WORTH_COMPILED, 2 * PIECE_PAIRS)))
            held += 8 * 6 * block * _count_pairs(node)
            # Positions of the block's cells, and intermediate arrays.
            held += points * 8 * 8
            if ("interpolate", operator.method) in FUNCTION_IDENTITIES:
                held += _selection_bytes(topology.time.count, stations, points)
        else:
            # At most two threads hold factors of neighbour sets, and lists of candidates.
            factors = min(FACTOR_BYTES, 16 * near * (2 * near + 16) * block * rows.node_count)
            # Quadrature points have arrays of distances and covariances beside those that the chunk size accounts for.
            chunk = min(CHUNK_BYTES, 64 * (2 * near + 24) * points) * (3 if points > block else 1)
            held += 2 * (factors + chunk) + points * 8 * 8
        if operator.variance:
            held += values * 8 * 2
        work *= near
    elif isinstance(operator, InterpolateInTime):
        source = node.source
        known = estimate_readings(source) if source.holds_readings else source.topology.count
        # The readings once more, and a dozen arrays of the series that are processed together.
        held += known * 64 + max(min(CELLS_AT_ONCE, values), topology.time.count) * 8 * 16
    seconds, tried = work * UNIT_COST_NS[kind] * 1e-9, False
    if isinstance(operator, Interpolate):
        solving, tried = estimate_solving_s(node)
        seconds += solving
    elif node.holds_readings:
        by_trial = reading_ns(final, node)
        if by_trial is not None:
            seconds, tried = work * by_trial * 1e-9, True
    return PlanStep(operator.describe(), topology.count, topology.shape, node.unit, int(held), seconds, tried)


def _selection_bytes(slices: int, stations: int, points: int) -> int:
    """Return the memory for what a user's function selects: lists being made, and those kept by mask [bytes]."""
    each = points * 8 * (stations + 1)
    return each + 256 * points + min(SELECTION_BYTES, slices * each)


def _kept_bytes(node: Perspective, block: int, rows: _TimeCounts, times: int | None, chosen: Strategy) -> int:
    """Return the memory that kriging caches for other boxes and queries [bytes]."""
    operator, stations = node.operator, _count_stations(node) if node.sources else 0
    if not isinstance(operator, Interpolate) or not operator.row.has_variance or chosen.weights_bytes == 0:
        return 0
    if chosen.weights_bytes is not None and operator.uses_all(stations):
        return 0
    if operator.uses_all(stations):
        # Right-hand sides of a small job; those of one block are counted with its step.
        pairs, others = stations * node.topology.space.count, max(node.topology.space.count - block, 0)
        return 8 * stations * others * _count_parts(node) if pairs <= WORTH_COMPILED else 0
    # With boxes in time most slices are buffered, so few are new and their weights are cached.
    if times is None and rows.node_count > FEW_SLICES:
        return 0
    return held_bytes(
        node.topology.space.count, block, _count_neighbours(node), stations, node.topology.time.count,
        allowed=chosen.weights_bytes,
    )  # fmt: skip


def _listed_bytes(node: Perspective, row: AggregateRow, block: int, rows: _TimeCounts) -> int:
    """Return the memory for listing cell values [bytes].

    Ten arrays, of a part of the values or of the largest cell; and one of all values for increments.
    """
    source, below = node.source, block * _count_places(node.source, node)
    values = estimate_readings(source) if source.holds_readings else _count_values(source, below, rows.source_count)
    largest = values // max(_count_values(node, block, rows.node_count), 1)
    listed = min(values, max(LISTED_AT_ONCE, largest))
    if row.merge is not None and node.topology.space != source.topology.space:
        # Accumulators of each source cell after folding time, merged over space at once.
        listed += rows.node_count * below
    # Increments, which replace the values of a counter, are computed for all of them.
    return 8 * (10 * listed + (values if row.prepare is not None else 0))


def _count_values(node: Perspective, block: int, rows: int) -> int:
    return rows * (node.topology.space.count if node.is_at_stations else block)


def _advise_on_result(final: Perspective, held: int) -> str:
    """Advise how to shrink a result of `held` bytes, including its assembly."""
    coarser = {Grid: "a coarser or smaller grid", Points: "fewer points"}.get(
        type(final.topology.space), "longer time cells"
    )
    return (
        f"the result itself takes {held:,} of them: write it block by block (.to_zarr, -o out.zarr), or ask for "
        f"{coarser} or a shorter time"
    )


def _advise_on_operator(final: Perspective, node: Perspective) -> str:
    operator = node.operator
    if node.holds_readings:
        if all_in_pieces(final, node):
            return (
                "it holds the readings of cells that are not complete; ask for shorter time cells, a shorter time "
                "(.clip), or fewer series (.select)"
            )
        return (
            "it holds all readings at once; ask for a shorter time (.clip) or fewer series (.select), or let "
            "`hypergrid reprocess ARCHIVE --queries FILE -o OUT` answer it in parts of the time"
        )
    if isinstance(operator, Interpolate):
        stations = node.source.topology.space.count
        if 2 * system_bytes(node) > 8 * node.topology.count:
            by_slice = getattr(operator.arguments.get("variogram"), "by", "all") == "slice"
            if not by_slice and not operator.is_linear(stations):
                return "ask for fewer neighbours, a smaller radius, fewer stations (.select) or fewer cells"
            once = "fit the variogram once for all slices (variogram='fit'), " if by_slice else ""
            return (
                f"the system of its {stations:,} stations does not depend on the grid; {once}krige from the nearest "
                "stations (neighbours=20), or use fewer of them (.select, ignore_beyond_m)"
            )
        return "ask for fewer cells (a coarser step, a smaller grid, a shorter time), or write it to a store (.to_zarr)"
    if isinstance(operator, Aggregate) and not operator.row.decomposable:
        return "it holds all values of a cell at once; ask for a shorter time, shorter time cells or a smaller grid"
    return "ask for fewer cells (a coarser step, a smaller grid, a shorter time)"
