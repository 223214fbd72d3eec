"""Steps that may follow a clip, because the clip means the same before and after them.

A clip belongs to the surface: it selects cells, and never what a step reads. So it may be written before a step if the
step's cells do not reach over its bounds.
"""

from collections.abc import Iterator
from typing import Any

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import parse_instant
from hypergrid.perspective.spec.cell_specs import Sliding, is_periodic, parse_cells
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.topology import Calendar, make_bins


def check_after_clip(question: QuerySpec, step: Step) -> None:
    """Refuse a step after a clip if its result would differ from that with the clip last.

    Raises
    ------
    InvalidQuery
        The message gives the reason.
    """
    if not question.clip:
        return
    problem = _find_problem(question, step)
    if problem:
        number = len(question.steps) + 1
        raise InvalidQuery(
            f"step {number} ({step.op} {step.name!r}) comes after a clip of {', '.join(dict(question.clip))}; "
            f"{problem}: put the clip last"
        )


def _find_problem(question: QuerySpec, step: Step) -> str:
    clipped, cells = dict(question.clip), dict(step.cells)
    in_space = sorted(set(clipped) - {"time"})
    if step.op == "interpolate":
        if step.is_in_time:
            return "near its bounds an interpolation in time uses values beyond them"
        return f"a clip of {in_space[0]} would leave out stations" if in_space else ""
    if step.op == "merge" and "time" in clipped:
        whole = [spec for spec in _list_time_cells(question) if _is_whole(spec)]
        return "the other queries would take it over as well" if whole else ""
    if step.op != "aggregate":
        return ""
    across = [name for name in in_space if name in cells or "zones" in cells]
    if across:
        return f"it bounds the cells along {across[0]} that the aggregate makes, not those that it reads"
    if "time" not in clipped or "time" not in cells:
        return ""
    if _is_whole(cells["time"]) and any(earlier.op == "merge" for earlier in question.steps):
        return "after a merge it is also that of the other queries"
    for spec in (*_list_time_cells(question), cells["time"]):
        if not _is_whole(spec) and not _has_edges(spec, clipped["time"]):
            return f"its bounds {clipped['time'][0]} and {clipped['time'][1]} are not edges of the cells {spec!r}"
    return ""


def _list_time_cells(question: QuerySpec) -> Iterator[Any]:
    for step in question.steps:
        if step.op == "aggregate" and "time" in dict(step.cells):
            yield dict(step.cells)["time"]


def _is_whole(spec: object) -> bool:
    """Return whether time cells cover all that is within the clip."""
    return bool(spec == "all") or is_periodic(spec)


def _has_edges(spec: object, bounds: tuple[object, object]) -> bool:
    """Return whether both bounds are edges of cells that do not overlap."""
    rule = parse_cells(spec)
    for instant_ns in map(parse_instant, bounds):
        if isinstance(rule, Sliding):
            if rule.length > rule.step or (instant_ns - rule.offset) % rule.step:
                return False
        elif not isinstance(rule, Calendar) or int(make_bins(rule, instant_ns, instant_ns + 1).starts[0]) != instant_ns:
            return False
    return True
