"""Explain a plan in words; the text is stable for golden files."""

from collections.abc import Sequence
from dataclasses import dataclass

from hypergrid.core.times import SECOND_NS, format_duration, format_instant
from hypergrid.execution.planning.costs import MEASUREMENTS, Measurement
from hypergrid.execution.planning.plan import Plan, PlanStep
from hypergrid.perspective import Perspective, Surface
from hypergrid.perspective.build.aggregate_checks import explain_unknown_coverage
from hypergrid.perspective.build.restrict import are_instants
from hypergrid.topology import PER_UNIT, Bands, Bins, Grid, Instants, Periodic, Points, ZoneCells


def explain(plan: Plan, *, measured: bool = False) -> str:
    """Describe the original chain, the fired rules, and the plan's cells, density, bytes and costs.

    Parameters
    ----------
    plan
        The plan to describe.
    measured
        Whether to use measurements of steps that this process has computed before: the share of their cells that have a
        value, and the cost of a cell. Without them every cell is assumed to have a value, and costs are tabulated.
    """
    lines = ["Query, from the base to the surface:", *chain_lines(plan.original)]
    fired = [f"  {fired.rule}: {fired.why}" for fired in plan.rewritten.fired]
    lines += ["Rewritten by:", *fired] if fired else ["Rewritten by: no rule"]
    chain = plan.surface.list_chain()
    known = [MEASUREMENTS.peek(item.token) if measured else None for item in chain]
    rows, seconds = _format_table(plan, chain, known)
    lines += [f"Plan ({plan.strategy.describe()}):", *rows]
    times = plan.surface.topology.time.count
    blocks = -(-plan.surface.topology.space.count // plan.block_cells) * -(-times // (plan.block_times or times))
    in_blocks = f"{blocks} block{'s' if blocks > 1 else ''} of up to {plan.block_cells:,} places"
    in_blocks += f" and {plan.block_times:,} time cells" if plan.block_times else ""
    lines += [f"Order: {plan.order.note}"] if plan.order is not None and plan.order.note else []
    lines += [
        f"Surface: {plan.cells:,} cells in {in_blocks}",
        f"Projected: {_format_bytes(plan.projected_bytes)}, {seconds:.2g} s by "
        f"{_describe_costs(known)}{_describe_trials(plan, known)}",
    ]
    return "\n".join(lines)


def projected_s(plan: Plan) -> float:
    """Project the time of a plan [s], measured by this process or else tabulated."""
    chain = plan.surface.list_chain()
    return sum(
        _step_costs(step, MEASUREMENTS.peek(item.token))[1] * step.cells * 1e-9
        for step, item in zip(plan.steps, chain, strict=True)
    )


def chain_lines(surface: Surface) -> list[str]:
    """Return a line per perspective, from base to surface, and one for the clip."""
    lines = [f"  {number}. {_format_step(item)}" for number, item in enumerate(surface.perspective.list_chain())]
    return lines + _clip_line(surface)


def _format_step(item: Perspective) -> str:
    unknown = explain_unknown_coverage(item)
    return f"{item.operator.describe()} -> {_format_cells(item)}" + (f"; {unknown}" if unknown else "")


def _format_cells(item: Perspective) -> str:
    time, space = item.topology.time, item.topology.space
    kind = {ZoneCells: "zone", Bands: "band"}.get(type(space), "series")
    where = f"{space.count} {kind}{'' if kind == 'series' or space.count == 1 else 's'}"
    if isinstance(space, Grid):
        where = f"{' x '.join(map(str, space.shape))} cells"
    if isinstance(space, Points):
        where = f"{' x '.join(map(str, space.shape))} point{'' if space.count == 1 else 's'}"
    if item.holds_readings:
        return f"readings of {where} from {format_instant(time.origin)} to {format_instant(time.stop)}"
    if isinstance(time, Instants):
        return f"{time.count:,} instants x {where}"
    if isinstance(time, Periodic):
        span = f"{format_instant(time.origin)} to {format_instant(time.stop)}"
        return f"{time.count:,} x {time.describe()} over {span}, {where}"
    if isinstance(time, Bins):
        return f"{time.count:,} x {time.describe()} from {format_instant(time.origin)}, {where}"
    if are_instants(time):
        return f"{time.count:,} instants every {format_duration(time.step)} from {format_instant(time.origin)}, {where}"
    length = format_duration(round_length_ns(time.length))
    step = "" if time.step == time.length or time.count == 1 else f" every {format_duration(time.step)}"
    return f"{time.count:,} x {length}{step} from {format_instant(time.origin)}, {where}"


def round_length_ns(length_ns: int) -> int:
    # Cells over all instants of an array end one nanosecond after the last instant.
    if length_ns % 1_000 == 1 and length_ns > 1_000:
        return length_ns - 1
    is_odd = length_ns % 1_000 and length_ns > 60 * SECOND_NS
    return round(length_ns / SECOND_NS) * SECOND_NS if is_odd else length_ns


def _clip_line(surface: Surface) -> list[str]:
    clip = surface.clip
    if clip.is_open:
        return []
    parts = []
    if clip.time:
        parts.append(f"time {format_instant(clip.time.start_ns)} to {format_instant(clip.time.stop_ns)}")
    clipped = dict(clip.space)
    # Slowest axis first, as the cells are counted.
    for name in ("z", "lat", "y", "lon", "x"):
        if name in clipped:
            quantum, unit = ("uas", "degree") if name in ("lat", "lon") else ("mm", "m")
            low, high = (f"{edge / PER_UNIT[quantum]:.10g}" for edge in clipped[name])
            parts.append(f"{name} {low} to {high} {unit}")
    return [f"  clip {', '.join(parts)}"]


def _format_table(
    plan: Plan, chain: Sequence[Perspective], known: Sequence[Measurement | None]
) -> tuple[list[str], float]:
    rows, total = [("cells", "density", "ns/cell", "bytes", "s", "step")], 0.0
    for number, (step, item, measurement) in enumerate(zip(plan.steps, chain, known, strict=True)):
        density, unit_ns = _step_costs(step, measurement)
        seconds = unit_ns * step.cells * 1e-9
        total += seconds
        cell_texts = (
            f"{step.cells:,}",
            f"{density:.2g}",
            f"{unit_ns:,.0f}" if unit_ns >= 100 else f"{unit_ns:.2g}",
            _format_bytes(step.projected_bytes),
            f"{seconds:.2g}",
        )
        rows.append((*cell_texts, f"{number}. {_format_step(item)}"))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(("", *map(str.rjust, row, widths), row[5])) for row in rows], total


def _step_costs(step: PlanStep, measurement: Measurement | None) -> tuple[float, float]:
    """Return the share of cells with a value, and the cost per cell [ns]."""
    if measurement is None:
        return 1.0, step.projected_s / max(step.cells, 1) * 1e9
    return measurement.density, measurement.seconds / measurement.cells * 1e9


def _describe_costs(known: Sequence[Measurement | None]) -> str:
    measured = len(known) - known.count(None)
    if not measured:
        return "tabled unit costs"
    return f"measured unit costs of {measured} of {len(known)} steps" + (
        ", tabled ones of the others" if measured < len(known) else ""
    )


def _describe_trials(plan: Plan, known: Sequence[Measurement | None]) -> str:
    """Describe how many steps were measured in a trial; empty if none was."""
    tried = sum(step.tried and measurement is None for step, measurement in zip(plan.steps, known, strict=True))
    return f", {tried} of {len(known)} steps tried out on this machine" if tried else ""


def _format_bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


@dataclass(frozen=True)
class PlanNode:
    """One perspective of a plan, as a node of its graph."""

    token: str
    """Equal perspectives of two plans have equal tokens; standing queries compute them once."""
    sources: tuple[str, ...]
    """Tokens of its sources; empty for a base."""
    kind: str
    """base, convert, aggregate, interpolate, interpolateintime, merge or recur."""
    what: str
    """The operator in words."""
    cells: int
    unit: str
    """Unit of its values."""
    projected_bytes: int
    """Peak memory [bytes]."""
    projected_s: float
    """Tabulated cost [s]."""
    measured_s: float | None
    """Time of its own function, without its sources, when this process last computed it [s]; None if never."""
    measured_cells: int | None
    """Number of cells computed then."""
    density: float | None
    """Share of these cells that had a value, 0 to 1."""


def make_plan_graph(plan: Plan) -> list[PlanNode]:
    """Return the perspectives of a plan as computed, sources first; the last is the surface."""
    nodes = []
    for step, item in zip(plan.steps, plan.surface.list_chain(), strict=True):
        measurement = MEASUREMENTS.peek(item.token)
        nodes.append(
            PlanNode(
                token=item.token,
                sources=tuple(source.token for source in item.sources),
                kind=type(item.operator).__name__.lower(),
                what=step.what,
                cells=step.cells,
                unit=step.unit,
                projected_bytes=step.projected_bytes,
                projected_s=step.projected_s,
                measured_s=None if measurement is None else measurement.seconds,
                measured_cells=None if measurement is None else measurement.cells,
                density=None if measurement is None else measurement.density,
            )
        )
    return nodes
