"""Push the clip down: compute only the cells that it selects, and read only what they need.

Exact always: a cell's value depends on the source cells that cover it, and those are kept.
"""

from hypergrid.perspective.build import selected
from hypergrid.perspective.restrict import restrict
from hypergrid.perspective.surface import Surface


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
    below = sum(item.topology.count for item in part.bases()), sum(item.topology.count for item in whole.bases())
    why = f"{here:,} of {all_:,} cells are wanted, which need {below[0]:,} of {below[1]:,} cells of the base"
    return Surface(part), why
