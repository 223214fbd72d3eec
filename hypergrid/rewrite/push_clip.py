"""Push the clip down: compute only the cells that it selects, and read only what they need.

Exact always: a cell's value depends on the source cells that cover it, and those are kept.
"""

from hypergrid.perspective.build import selected
from hypergrid.perspective.restrict import restrict
from hypergrid.perspective.surface import Surface


def push_clip(surface: Surface) -> Surface:
    """Return the surface of the selected cells, without a clip.

    ::

        base 28 days > aggregate 5min > clip 3 days   becomes   base 3 days > aggregate 5min
    """
    if surface.clip.is_open:
        return surface
    return Surface(restrict(surface.perspective, *selected(surface.perspective.topology, surface.clip)))
