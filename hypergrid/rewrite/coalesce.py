"""Coalesce adjacent converts into one pass over the cells (thesis 5.7.1).

Exact always: the functions run on the same values in the same order.
"""

from dataclasses import replace

from hypergrid.perspective.tree.operators import Convert
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.tree.surface import Surface


def coalesce(surface: Surface) -> tuple[Surface, str]:
    """Return the surface with every run of converts as one convert.

    ::

        base > convert valid_range > convert scale   becomes   base > convert valid_range, then scale
    """
    said: list[str] = []
    return replace(surface, perspective=_coalesced(surface.perspective, said)), "; ".join(dict.fromkeys(said))


def _coalesced(here: Perspective, said: list[str]) -> Perspective:
    sources = tuple(_coalesced(source, said) for source in here.sources)
    if isinstance(here.operator, Convert) and isinstance(sources[0].operator, Convert):
        below = sources[0]
        calls = (*below.operator.calls, *here.operator.calls)  # type: ignore[union-attr]
        layers = tuple(dict.fromkeys((*below.operator.layers, *here.operator.layers)))  # type: ignore[union-attr]
        said.append(f"{' and '.join(call.name for call in calls)} go cell by cell: one pass")
        steps = (*below.steps, *here.steps)
        return replace(here, sources=below.sources, operator=Convert(calls, layers), steps=steps)
    return here if sources == here.sources else here.with_source(*sources)
