"""A plan as a graph: what each perspective is, which it reads, what it is told to cost and what it took."""

from dataclasses import dataclass

from hypergrid.execution.planning.measured import MEASUREMENTS
from hypergrid.execution.planning.plan import Plan


@dataclass(frozen=True)
class PlanNode:
    """One perspective of a plan."""

    token: str
    """Equal perspectives of two plans have equal tokens, and are computed once by standing queries."""
    sources: tuple[str, ...]
    """Tokens of the perspectives that it reads; none of the base."""
    kind: str
    """base, convert, aggregate, interpolate, interpolateintime, merge or recur."""
    what: str
    """The operator in words."""
    cells: int
    unit: str
    """Unit of its values."""
    projected_bytes: int
    """What it holds at its peak [bytes]."""
    projected_s: float
    """Tabled cost [s]."""
    measured_s: float | None
    """What its own function took when this process computed it last, without its sources [s]; None: it did not."""
    measured_cells: int | None
    """Cells that were computed then."""
    density: float | None
    """Share of these that held a value, 0 to 1."""


def make_plan_graph(plan: Plan) -> list[PlanNode]:
    """Return the perspectives of a plan as it is computed, sources first; the last is the surface."""
    nodes = []
    for step, item in zip(plan.steps, plan.surface.list_chain(), strict=True):
        measurement = MEASUREMENTS.get(item.token)
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
