"""A plan in words: stable text, so that golden files can hold it."""

from hypergrid.execution.plan import Plan
from hypergrid.execution.time_coordinates import readable_ns
from hypergrid.perspective import Perspective, Surface
from hypergrid.perspective.fitting import coverage_unknown
from hypergrid.perspective.standing import are_instants
from hypergrid.times import format_duration, format_instant
from hypergrid.topology import Bands, Bins, Grid, Instants, Periodic, ZoneCells


def explain(plan: Plan) -> str:
    """Return the original chain, the rules that fired, and the final plan with cells, bytes and tabled costs."""
    lines = ["Query, from the base to the surface:", *chain_lines(plan.original)]
    fired = [f"  {fired.rule}: {fired.why}" for fired in plan.rewritten.fired]
    lines += ["Rewritten by:", *fired] if fired else ["Rewritten by: no rule"]
    lines += [f"Plan ({plan.strategy.describe()}):", *_table(plan)]
    times = plan.surface.topology.time.count
    blocks = -(-plan.surface.topology.space.count // plan.block_cells) * -(-times // (plan.block_times or times))
    in_blocks = f"{blocks} block{'s' if blocks > 1 else ''} of up to {plan.block_cells:,} places"
    in_blocks += f" and {plan.block_times:,} time cells" if plan.block_times else ""
    lines += [
        f"Surface: {plan.cells:,} cells in {in_blocks}",
        f"Projected: {_size(plan.projected_bytes)}, {plan.projected_s:.2g} s by tabled unit costs",
    ]
    return "\n".join(lines)


def chain_lines(surface: Surface) -> list[str]:
    """Return a line for each perspective from the base to the surface, and one for its clip."""
    lines = [f"  {number}. {_line(item)}" for number, item in enumerate(surface.perspective.chain())]
    return lines + _clip_line(surface)


def _line(item: Perspective) -> str:
    unknown = coverage_unknown(item)
    return f"{item.operator.describe()} -> {_cells(item)}" + (f"; {unknown}" if unknown else "")


def _cells(item: Perspective) -> str:
    time, space = item.topology.time, item.topology.space
    kind = {ZoneCells: "zone", Bands: "band"}.get(type(space), "series")
    where = f"{space.count} {kind}{'' if kind == 'series' or space.count == 1 else 's'}"
    if isinstance(space, Grid):
        where = f"{' x '.join(map(str, space.shape))} cells"
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
    length = format_duration(readable_ns(time.length))
    step = "" if time.step == time.length or time.count == 1 else f" every {format_duration(time.step)}"
    return f"{time.count:,} x {length}{step} from {format_instant(time.origin)}, {where}"


def _clip_line(surface: Surface) -> list[str]:
    clip = surface.clip
    if clip.is_open:
        return []
    parts = []
    if clip.time:
        parts.append(f"time {format_instant(clip.time.start_ns)} to {format_instant(clip.time.stop_ns)}")
    # Slowest first, as the cells are counted.
    clipped = dict(clip.space)
    said = {"z": "levels", "lat": "rows", "y": "rows", "lon": "columns", "x": "columns"}
    parts += [name for axis, name in said.items() if axis in clipped]
    return [f"  clip {', '.join(parts)}"]


def _table(plan: Plan) -> list[str]:
    rows = [("cells", "bytes", "s", "step")]
    for number, (step, item) in enumerate(zip(plan.steps, plan.surface.chain(), strict=True)):
        size = _size(step.projected_bytes)
        rows.append((f"{step.cells:,}", size, f"{step.projected_s:.2g}", f"{number}. {_line(item)}"))
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return ["  ".join(("", *map(str.rjust, row, widths), row[3])) for row in rows]


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
