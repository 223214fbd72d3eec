"""Advice on how to lower the memory of a plan, for the step that needs most of it."""

from hypergrid.execution.operators.pieces import all_in_pieces
from hypergrid.execution.planning.system_cost import system_bytes
from hypergrid.perspective import Aggregate, Interpolate, Perspective
from hypergrid.topology import Grid, Points


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
