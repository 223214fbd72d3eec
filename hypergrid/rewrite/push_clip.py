"""Push the clip down: compute only the cells that it selects, and read only what they need.

Exact always: a cell's value depends on the source cells that cover it, and those are kept; a climatology that it is
compared with is of all its readings still.
"""

from hypergrid.perspective.build import selected
from hypergrid.perspective.perspective import Perspective
from hypergrid.perspective.restrict import restrict
from hypergrid.perspective.surface import Surface
from hypergrid.tokens import token


def push_clip(surface: Surface) -> tuple[Surface, str]:
    """Return the surface of the selected cells, without a clip.

    ::

        base 28 days > aggregate 5min > clip 3 days   becomes   base 3 days > aggregate 5min
    """
    if surface.clip.is_open:
        return surface, ""
    whole = surface.perspective
    part = restrict(whole, *selected(whole.topology, surface.clip))
    here, all_ = part.topology.count, whole.topology.count
    below = _read(part), _read(whole)
    why = f"{here:,} of {all_:,} cells are wanted, which need {below[0]:,} of {below[1]:,} cells of the base"
    return Surface(part), why


def _read(here: Perspective) -> int:
    """Return how many cells of the base are read; what two branches read of one source counts once, the wider one."""
    cells: dict[str, int] = {}
    for item in here.bases():
        source = token(item.operator.source.token, item.operator.accept_flags)  # type: ignore[union-attr]
        cells[source] = max(cells.get(source, 0), item.topology.count)
    return sum(cells.values())
