"""A plan: what a run will compute, in how many blocks, and what that costs, known before it starts."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Final

import numpy as np

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.execution.operators.pieces import all_in_pieces, estimate_readings, is_read_in_pieces
from hypergrid.execution.operators.pieces import projected_bytes as reading_bytes
from hypergrid.execution.planning.cost_trials import reading_ns
from hypergrid.execution.planning.dependencies import find_all_needed
from hypergrid.execution.planning.measured import MEASUREMENTS
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
from hypergrid.execution.planning.system_cost import estimate_solving_s, system_bytes
from hypergrid.interpolation.kernels.covariance import WORTH_COMPILED
from hypergrid.interpolation.local.field import CHUNK_BYTES, FACTOR_BYTES
from hypergrid.interpolation.local.weights import FEW_SLICES, held_bytes
from hypergrid.interpolation.methods.in_time import CELLS_AT_ONCE
from hypergrid.interpolation.solvers.field import PIECE_PAIRS
from hypergrid.perspective import Aggregate, Interpolate, InterpolateInTime, Perspective, Recur, Surface
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.functions.aggregate_formulas import LISTED_AT_ONCE
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.rewrite import RULES, RewriteResult, Rule, rewrite
from hypergrid.topology import Bands, Grid, Periodic, Points, SeriesAxis, ZoneCells

BLOCK_BYTES: Final = 32 * 2**20
"""What the arrays of one block may take [bytes]: some times a core's share of the cache, far below any memory."""
MAX_LISTED: Final = 2**22
"""Time cells of an axis up to which a plan lists those that a box needs."""
REFINING_BLOCKS: Final = 24
"""Blocks that a refined answer comes in at least, where it has the cells."""
FEW_PLACES: Final = 256
"""Places of a block below which time is cut first where memory is short."""

UNIT_COST_NS: Final = {
    "base": 30.0, "convert": 3.0, "aggregate": 8.0, "interpolate": 2.0, "interpolateintime": 40.0, "merge": 4.0,
    "recur": 4.0,
}  # fmt: skip
"""Tabled cost [ns] of a reading, of a cell, of a source cell, of a station of a cell, of an instant, of cells."""


@dataclass(frozen=True)
class PlanStep:
    """One perspective of a plan."""

    what: str
    """The operator in words."""
    cells: int
    shape: tuple[int, ...]
    unit: str
    projected_bytes: int
    """What it holds at its peak [bytes]."""
    projected_s: float
    """StepCost [s], tabled or tried out."""
    tried: bool = False
    """Whether its cost is of a trial on this machine."""


@dataclass(frozen=True, eq=False)
class Plan:
    """What will be computed; `explain()` prints it."""

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
    """Tabled cost [s]."""
    block_times: int | None = None
    """Time cells of the surface in one block; all where absent."""
    strategy_choice: Strategy | None = None
    """How many perspectives are materialised; absent, those at the stations."""

    @property
    def strategy(self) -> Strategy:
        """How it is computed."""
        if self.strategy_choice is not None:
            return self.strategy_choice
        return Strategy(count_at_stations(self.surface), len(path(self.surface)), "auto")

    @property
    def surface(self) -> Perspective:
        """The perspective that is computed."""
        return self.rewritten.surface.perspective

    def check(self, allowed_bytes: int | None) -> None:
        """Refuse the plan where it is too large.

        Raises
        ------
        TooLarge
            It projects more than is allowed (default: half of the memory that is free).
        """
        _check_allowed(allowed_bytes)
        allowed = allowed_bytes if allowed_bytes is not None else free_bytes() // 2
        if self.projected_bytes > allowed:
            subject, what = "the query", "bytes of memory"
            raise TooLarge(subject, what, self.projected_bytes, allowed, f"{self.advice()}, or allow more")

    def advice(self) -> str:
        """Return which step needs most of the memory, how much, and what would lower it."""
        sizes = [step.projected_bytes for step in self.steps]
        beside = self.projected_bytes - sum(sizes)
        number = int(np.argmax(sizes))
        if beside > sizes[number]:
            return advise_on_result(self.surface, beside)
        return advise_on_step(self.surface, number, self.steps[number].what, sizes[number])


def _check_allowed(allowed_bytes: object) -> None:
    if allowed_bytes is not None and (isinstance(allowed_bytes, bool) or not isinstance(allowed_bytes, Integral)):
        message = f"allowed_bytes needs a whole number of bytes, such as 2 * 10**9; got {allowed_bytes!r}"
        raise InvalidQuery(message)


def free_bytes() -> int:
    """Return the memory that is free now [bytes]; 4 GiB where the system does not say."""
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
    refining: bool = False,
    streamed_cells: int | None = None,
    rules: tuple[Rule, ...] = RULES,
    strategy: StrategyOption = "auto",
    allowed_bytes: int | None = None,
) -> Plan:
    """Return the plan of a surface: rewritten, cut into blocks, costed.

    Parameters
    ----------
    surface
        What is asked for.
    refining
        Whether the answer is watched while it is computed, so that it comes in more and smaller blocks.
    streamed_cells
        Where each block leaves memory once it is computed: cells of the space in one block. Absent, the whole surface
        is held.
    rules
        Rewrite rules; fewer show what each of them is worth.
    strategy
        How many perspectives are materialised; "auto" takes the least mean response (thesis 5.9) of those that fit.
        What is watched or streamed comes in blocks of all time cells, with what is at the stations materialised.
    allowed_bytes
        What blocks are made smaller for, fewer places first and then fewer time cells; nothing where absent. Where the
        smallest do not fit either, `check` refuses the plan.

    Raises
    ------
    InvalidQuery
        No such strategy.
    """
    _check_allowed(allowed_bytes)
    rewritten = rewrite(surface, rules)
    final = rewritten.surface.perspective
    asked = parse_strategy(strategy, final)
    path_length = len(path(final))
    if streamed_cells:
        # No block comes again.
        chosen = Strategy(count_at_stations(final), path_length, "auto", keeps_weights=False)
        return _build_plan(surface, rewritten, chosen, streamed_cells, None, streamed=True)
    if refining and asked is None:
        asked = count_at_stations(final)
    plans = {}
    for k in list_candidates(final) if asked is None else (asked,):
        chosen = Strategy(k, path_length, strategy if isinstance(strategy, str) else "as asked")
        plans[k] = _fit_plan(surface, rewritten, chosen, refining=refining, allowed_bytes=allowed_bytes)
    return plans[asked] if asked is not None else _choose_plan(final, plans, allowed_bytes)


def _choose_plan(final: Perspective, plans: dict[int, Plan], allowed_bytes: int | None) -> Plan:
    """Return the plan with the least mean response of those that fit; the smallest where none does."""
    # Blocks that were made smaller answer sooner only by calling more often: they are compared among themselves.
    best = {
        k: plan
        for k, plan in plans.items()
        if _find_block_cells(final, plan.strategy, refining=False) == plan.block_cells
    }
    for plan_subset in ({k: plan for k, plan in best.items() if plan.block_times is None}, plans):
        order = sort_candidates(final, {k: estimate_response_s(plan) for k, plan in plan_subset.items()})
        fitting = [k for k in order if allowed_bytes is None or plans[k].projected_bytes <= allowed_bytes]
        if fitting:
            return plans[fitting[0]]
    # Where none fits, the least says how much is needed.
    return min(plans.values(), key=lambda plan: plan.projected_bytes)


def estimate_response_s(plan: Plan) -> float:
    """Return the mean response time that is expected of a plan [s], by measured costs where there are any."""
    final, costs = plan.surface, {}
    for item, step in zip(final.list_chain(), plan.steps, strict=True):
        measurement = MEASUREMENTS.get(item.token)
        seconds = step.projected_s if measurement is None else measurement.seconds / measurement.cells * step.cells
        # Holes are skipped in what is kept sparse, at the stations; on a grid every cell is worked on.
        costs[item.token] = StepCost(
            seconds, 1.0 if measurement is None or not _is_at_stations(item) else measurement.density
        )
    times = final.topology.time.count
    boxes = -(-times // (plan.block_times or times))
    blocks = -(-final.topology.space.count // plan.block_cells)
    return mean_response_s(final, costs, plan.strategy.k, blocks=blocks, boxes=boxes)


def _fit_plan(
    surface: Surface, rewritten: RewriteResult, chosen: Strategy, *, refining: bool, allowed_bytes: int | None
) -> Plan:
    """Return a plan in the blocks that are best, or where these do not fit, in the largest that do."""
    final = rewritten.surface.perspective
    block, times = _find_block_cells(final, chosen, refining=refining), final.topology.time.count
    plan = _build_plan(surface, rewritten, chosen, block, None)
    if allowed_bytes is not None and plan.projected_bytes > allowed_bytes:
        chosen = replace(chosen, keeps_weights=False)
        plan = _build_plan(surface, rewritten, chosen, block, None)
    while allowed_bytes is not None and plan.projected_bytes > allowed_bytes and (block > 1 or times > 1):
        # Few places at a time cost more in calls than few time cells do: so both in turn once there are few.
        if not _is_at_stations(final) and block > 1 and (block > FEW_PLACES or times == 1 or refining):
            block = -(-block // 2)
        elif times > 1 and not refining:
            times = -(-times // 2)
        else:
            break
        smaller = times if times < final.topology.time.count else None
        plan = _build_plan(surface, rewritten, chosen, block, smaller)
    return plan


def _find_block_cells(final: Perspective, chosen: Strategy, *, refining: bool) -> int:
    """Return the places of a block as they are best where memory is no matter."""
    space = final.topology.space.count
    carried = _find_carried_by(final, chosen)
    block = space
    if not _is_at_stations(final):
        drawn = [item for item in pulled(final, chosen.k) if not _is_at_stations(item)] or [final]
        largest = max(_place_bytes(item, final, carried=item in carried) for item in drawn)
        # What cuts itself, or is carried from the stations, is put where the surface is without being held as a whole.
        block = space if carried or _cuts_itself(final) else max(1, min(space, BLOCK_BYTES // largest))
        grids = [item for item in final.list_chain() if _is_grid(item) and _count_parts(item) > 1]
        block = min([block, *(_cells_of_parts(item, final) for item in grids)])
        # Equal blocks: a small last one would not be worth the compiled loops that the others run.
        block = -(-space // -(-space // block))
    if refining and not _is_at_stations(final):
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
    # What is put where the surface is takes no block of its own.
    in_place = {*carried, *((final,) if _cuts_itself(final) and times is None else ())}
    steps = tuple(
        _make_step(item, final, block * _count_places(item, final), carried=item in in_place, rows=rows[item.token])
        for item in chain
    )
    in_boxes = chain if chosen.keeps_weights else []
    kept = sum(_kept_bytes(item, block * _count_places(item, final), rows[item.token], times) for item in in_boxes)
    places = block if streamed else final.topology.space.count
    total = final.topology.time.count * places * _cell_bytes(final, carried, streamed=streamed, whole=times is None)
    if times is not None:
        # What is carried is made as a box; what overlaps with the next box is kept, and joined with what is new.
        total += 8 * 2 * times * block * len(carried)
        drawn = [item for item in pulled(final, chosen.k) if item not in carried]
        total += sum(3 * 24 * rows[item.token].node_count * _count_width(item, block, final) for item in drawn)
    # What is materialised on a grid is held whole, with its counts.
    total += sum(
        24 * item.topology.count for item in chain if item.token in held - {final.token} and not _is_at_stations(item)
    )
    total += sum(step.projected_bytes for step in steps) + kept
    seconds = sum(step.projected_s for step in steps)
    return Plan(surface, rewritten, steps, final.topology.count, block, int(total), seconds, times, chosen)


@dataclass(frozen=True)
class _TimeCounts:
    """Time cells that a box takes of a perspective, and of its source."""

    node_count: int
    source_count: int


def _count_times(final: Perspective, times: int | None, held: set[str]) -> dict[str, _TimeCounts]:
    """Return by token how many time cells a box needs; all where no number is given."""
    chain = final.list_chain()
    rows = {item.token: item.topology.time.count for item in chain}
    asked = dict(rows)
    if times is not None:
        whole = final.topology.time.count
        if max(rows.values()) > MAX_LISTED:
            # Too many to be listed before anybody knows whether they fit: their share, and one for each edge.
            share = {token: min(-(-count * times // whole) + 2, count) for token, count in rows.items()}
            # What is normal at a few times may be of all.
            recurring = {
                below.token for item in chain if isinstance(item.operator, Recur) for below in item.source.list_chain()
            }
            asked = {token: count if token in recurring else share[token] for token, count in rows.items()}
        else:
            # A box in the middle of the time needs as many source cells as any.
            middle = (whole - times) // 2
            needed = find_all_needed(final, np.arange(middle, middle + times))
            asked |= {token: len(time_cells) for token, time_cells in needed.items()}
        rows |= {token: count for token, count in asked.items() if token not in held}
    # What is materialised is made from all time cells of its source, at its own turn.
    below = {
        item.token: item.source.topology.time.count if item.token in held else asked[item.source.token]
        for item in chain
        if item.sources
    }
    return {item.token: _TimeCounts(rows[item.token], below.get(item.token, 0)) for item in chain}


def _count_width(node: Perspective, block: int, final: Perspective) -> int:
    return node.topology.space.count if _is_at_stations(node) else block * _count_places(node, final)


def _find_carried_by(final: Perspective, chosen: Strategy) -> tuple[Perspective, ...]:
    """Return `_carried`; nothing where interpolated slices are materialised."""
    carried = _find_carried(final)
    held = {item.token for item in list_materialised(final, chosen.k)} - {final.token}
    return () if any(item.token in held for item in carried) else carried


def _cell_bytes(final: Perspective, carried: tuple[Perspective, ...], *, streamed: bool, whole: bool) -> int:
    """Return what a cell of the surface, or of a block that is streamed, takes in the result [bytes]."""
    # Values, and counts with their copies; counts that are the same everywhere are a column, unless boxes are put
    # together in time.
    arrays = 1 if whole and _counts_are_even(carried[0] if carried else final) else 4
    # The mean of slices, where it is few of them, is made as a block, and copied to where the surface is.
    arrays += len(carried) == 2 and not streamed
    # The variance of a mean may be bracketed by two.
    variances = 2 if split_aggregates(final)[1] else 1
    return 8 * (arrays + (variances if _wants_variance(final) else 0))


def _counts_are_even(below: Perspective) -> bool:
    """Return whether an interpolation uses as many stations for every cell of a slice, for certain."""
    operator = below.operator
    if not isinstance(operator, Interpolate) or not operator.row.has_variance or operator.covariates:
        return False
    given = operator.arguments
    by = getattr(given.get("variogram"), "by", "all")
    return by == "all" and all(given.get(name) is None for name in ("radius_m", "octants", "trend", "drift"))


def _is_grid(node: Perspective) -> bool:
    return isinstance(node.topology.space, Grid)


def _count_places(node: Perspective, final: Perspective) -> int:
    """Return how many places of a step one place of the surface needs: more than one below larger cells."""
    above = final.topology.space
    if isinstance(above, ZoneCells | Bands) and _is_grid(node):
        # The cells of the largest zone or band, in cells of this step.
        source = above.grid if isinstance(above, ZoneCells) else above.source
        return max(-(-above.max_cells * node.topology.space.count // source.count), 1)
    return max(-(-node.topology.space.count // final.topology.space.count), 1) if _is_grid(node) else 1


def _place_bytes(node: Perspective, final: Perspective, *, carried: bool) -> int:
    """Return what the arrays of a step take for one place of the surface [bytes]: values, and weights of stations.

    Where slices are `carried` from the stations they take nothing: they are put where the surface is, or never made.
    """
    stations = node.source.topology.space.count if isinstance(node.operator, Interpolate) else 0
    parts = _count_parts(node)
    if carried:
        return 8 * (2 * stations * parts + 1)
    pairs = stations * parts + _count_pairs(node)
    return 8 * _count_places(node, final) * (3 * node.topology.time.count + 6 * pairs)


def _count_parts(node: Perspective) -> int:
    """Return how many points stand for a cell of a step: more than one where the mean of a block is wanted."""
    operator = node.operator
    is_block = isinstance(operator, Interpolate) and operator.arguments.get("support") == "block"
    return int(operator.arguments.get("quadrature", 4)) ** 2 if is_block else 1  # type: ignore[union-attr]


def _count_pairs(node: Perspective) -> int:
    """Return the pairs of points inside a block that its own variance takes; none for a point."""
    parts = _count_parts(node)
    return parts**2 if parts > 1 and node.operator.variance else 0  # type: ignore[union-attr]


def _cells_of_parts(node: Perspective, final: Perspective) -> int:
    """Return how many cells of the surface have right-hand sides for the points of their blocks that are held at once.

    Enough that compiled loops make them also where the surface is cut into equal blocks.
    """
    return max(
        1, 2 * WORTH_COMPILED // (max(_count_neighbours(node), 1) * _count_parts(node) * _count_places(node, final))
    )


def _count_neighbours(node: Perspective) -> int:
    """Return how many stations of an interpolation have a weight in an estimate, at most."""
    stations = _count_stations(node)
    given = node.operator.arguments.get("neighbours") if isinstance(node.operator, Interpolate) else None
    return min(given or stations, stations)


def _find_carried(final: Perspective) -> tuple[Perspective, ...]:
    """Return the steps at the end of a chain that are one product with what the stations hold."""
    below = final.source if isinstance(final.operator, Aggregate) and final.operator.at_stations else final
    operator = below.operator
    if not isinstance(operator, Interpolate) or operator.variance or not operator.uses_all(_count_stations(below)):
        return ()
    return (below,) if below is final else (below, final)


def _cuts_itself(final: Perspective) -> bool:
    """Return whether the last step puts a chunk at a time where the surface is: kriging from some stations."""
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


def _is_at_stations(node: Perspective) -> bool:
    return isinstance(node.topology.space, SeriesAxis)


def _wants_variance(node: Perspective) -> bool:
    below, _ = split_aggregates(node)
    return isinstance(below.operator, Interpolate) and below.operator.variance


def _make_step(node: Perspective, final: Perspective, block: int, *, carried: bool, rows: _TimeCounts) -> PlanStep:
    topology, operator = node.topology, node.operator
    # Where slices are carried from the stations, nothing but the surface itself holds any.
    values = 0 if carried else _count_values(node, block, rows.node_count)
    held, work, kind = values * 8 * 3, float(topology.count), type(operator).__name__.lower()
    if node.holds_readings and isinstance(topology.space, SeriesAxis):
        held, work = reading_bytes(final, node), float(estimate_readings(node))
    elif isinstance(operator, Aggregate):
        work = float(estimate_readings(node.source) if node.source.holds_readings else node.source.topology.count)
        if node.source.holds_readings and is_read_in_pieces(node.source, operator):
            # What reads them has aggregated them.
            work = float(topology.count)
        if isinstance(topology.time, Periodic) and "time" in operator.dimensions:
            # What a cell covers is put side by side: readings and their order, or the values of a block.
            held += (
                int(work) * 80
                if node.source.holds_readings
                else _count_values(node.source, block, rows.source_count) * 8
            )
        if not node.source.holds_readings and not carried:
            # Lifted values, what is present, and their counts; or, to choose, values by place and running counts.
            held += _count_values(node.source, block * _count_places(node.source, node), rows.source_count) * 8 * 3
        if operator.row.prepare is not None or not (operator.row.parts or operator.row.rank):
            held += _listed_bytes(node, operator.row, block, rows)
    elif isinstance(operator, Interpolate):
        stations = node.source.topology.space.count
        near = _count_neighbours(node)
        held += system_bytes(node)
        points = block * _count_parts(node)
        if operator.uses_all(stations) or not operator.row.has_variance:
            pairs = stations * points
            # Points of blocks are not cut where the cells themselves are few.
            whole = not carried or points > block
            held += 8 * 6 * (pairs if whole else min(pairs, max(WORTH_COMPILED, 2 * PIECE_PAIRS)))
            held += 8 * 6 * block * _count_pairs(node)
            # Positions of the block's cells, and what is made on the way to them.
            held += points * 8 * 8
        else:
            # Two threads at most have factors of neighbour sets, and lists of candidates.
            factors = min(FACTOR_BYTES, 16 * near * (2 * near + 16) * block * topology.time.count)
            # The points of blocks have arrays of distances and of covariances beside those that a chunk is cut by.
            chunk = min(CHUNK_BYTES, 64 * (2 * near + 24) * points) * (3 if points > block else 1)
            held += 2 * (factors + chunk) + points * 8 * 8
        if operator.variance:
            held += values * 8 * 2
        work *= near
    elif isinstance(operator, InterpolateInTime):
        source = node.source
        known = estimate_readings(source) if source.holds_readings else source.topology.count
        # The readings once more, and a dozen arrays of the series that are worked on together.
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


def _kept_bytes(node: Perspective, block: int, rows: _TimeCounts, times: int | None) -> int:
    """Return what kriging keeps for other boxes and queries [bytes]; of slices that are buffered few are new."""
    operator, stations = node.operator, _count_stations(node) if node.sources else 0
    if not isinstance(operator, Interpolate) or not operator.row.has_variance:
        return 0
    if operator.uses_all(stations):
        # Right-hand sides of a small job; those of one block are counted with what is made of them.
        pairs, others = stations * node.topology.space.count, max(node.topology.space.count - block, 0)
        return 8 * stations * others * _count_parts(node) if pairs <= WORTH_COMPILED else 0
    if times is None and rows.node_count > FEW_SLICES:
        return 0
    return held_bytes(node.topology.space.count, block, _count_neighbours(node), stations, node.topology.time.count)


def _listed_bytes(node: Perspective, row: AggregateRow, block: int, rows: _TimeCounts) -> int:
    """Return what listing the values of cells takes [bytes]: ten arrays of a part of them, or of the largest cell."""
    source, below = node.source, block * _count_places(node.source, node)
    values = estimate_readings(source) if source.holds_readings else _count_values(source, below, rows.source_count)
    largest = values // max(_count_values(node, block, rows.node_count), 1)
    listed = min(values, max(LISTED_AT_ONCE, largest))
    if row.merge is not None and node.topology.space != source.topology.space:
        # What is kept of each source cell once time is folded, merged over space at once.
        listed += rows.node_count * below
    # What is aggregated in place of a counter's values is made of them all.
    return 8 * (10 * listed + (values if row.prepare is not None else 0))


def _count_values(node: Perspective, block: int, rows: int) -> int:
    return rows * (node.topology.space.count if _is_at_stations(node) else block)


def advise_on_result(final: Perspective, held: int) -> str:
    """Return what to do about a result, and what is put together for it, that take so many bytes."""
    coarser = {Grid: "a coarser or smaller grid", Points: "fewer points"}.get(
        type(final.topology.space), "longer time cells"
    )
    return (
        f"the result itself takes {held:,} of them: write it block by block (.to_zarr, -o out.zarr), or ask for "
        f"{coarser} or a shorter time"
    )


def advise_on_step(final: Perspective, number: int, what: str, held: int) -> str:
    """Return what to do about a step of a chain that takes so many bytes.

    Parameters
    ----------
    number, what
        The step as `explain()` counts it, and in its words.
    """
    return f"step {number}, {what}, takes {held:,} of them: {_advise_on_operator(final, final.list_chain()[number])}"


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


# Mean response times of hybrid-k, as far as they are known before a run (thesis 5.7.2.2, equations 5.8 and 5.9).
#
# What is materialised is waited for by every cell: its cost, times its density where holes are skipped. What is pulled
# comes with the boxes: a cell waits for half of it, with boxes of one cell (n + 1) / 2n of it. Two things that the
# thesis leaves out are counted: boxes of many cells (one box is waited for as a whole), and perspectives below an
# interpolation, of which the first places need every station: all is done after the first pass over time.


@dataclass(frozen=True)
class StepCost:
    """Of one perspective."""

    seconds: float
    """Of all its cells [s]."""
    density: float = 1.0
    """Share of its cells that hold a value."""


def mean_response_s(surface: Perspective, costs: Mapping[str, StepCost], k: int, *, blocks: int, boxes: int) -> float:
    """Return the mean time until a cell of the surface is there [s].

    Parameters
    ----------
    surface
        What is computed.
    costs
        By token.
    k
        Perspectives of the path that are materialised.
    blocks, boxes
        Blocks of places, and boxes in time of each.
    """
    whole = sum(costs[item.token].density * costs[item.token].seconds for item in list_materialised(surface, k))
    drawn = pulled(surface, k)
    few = {item.source.token: item for item in drawn if commutes(item)}
    total = blocks * boxes
    spread = 0.0
    for item in drawn:
        seconds = costs[item.token].seconds
        if item.token in few:
            # Interpolated once an aggregated cell, and not once a slice.
            seconds *= few[item.token].topology.time.count / item.topology.time.count
        if isinstance(item.topology.space, SeriesAxis):
            share = ((boxes + 1) / 2 + (blocks - 1) * boxes) / total
        else:
            share = (total + 1) / (2 * total)
        spread += seconds * share
    return whole + spread


def sort_candidates(surface: Perspective, response_s: Mapping[int, float]) -> list[int]:
    """Return the candidates, the least response first; alike ones as near as may be to all that lies at stations.

    What is at stations is small and every block of places needs it; a map held as a whole only takes memory.
    """
    usual = count_at_stations(surface)
    return sorted(response_s, key=lambda k: (float(f"{response_s[k]:.9g}"), abs(k - usual), k))


def list_candidates(surface: Perspective) -> list[int]:
    """Return every k that is worth a comparison.

    Where an aggregate is taken at the stations, the slices below it are never made; to materialise them would be to
    make them all, ten times the work, which an earlier first block does not outweigh.
    """
    never_made = {item.source.token for item in surface.list_chain() if commutes(item)}
    every = range(len(path(surface)) + 1)
    return [k for k in every if not never_made & {item.token for item in list_materialised(surface, k)}]
