"""Coalesce adjacent converts into one pass over the cells (thesis 5.7.1).

Always exact: the same functions run on the same values in the same order.
"""

from dataclasses import replace

from hypergrid.perspective.tree import Convert, Perspective, Surface


def coalesce(surface: Surface) -> tuple[Surface, str]:
    """Merge each run of adjacent converts into one convert.

    ::

        base > convert valid_range > convert scale   becomes   base > convert valid_range, then scale
    """
    notes: list[str] = []
    return replace(surface, perspective=_coalesce_node(surface.perspective, notes)), "; ".join(dict.fromkeys(notes))


def _coalesce_node(node: Perspective, notes: list[str]) -> Perspective:
    sources = tuple(_coalesce_node(source, notes) for source in node.sources)
    if isinstance(node.operator, Convert) and isinstance(sources[0].operator, Convert):
        below = sources[0]
        calls = (*below.operator.calls, *node.operator.calls)  # type: ignore[union-attr]
        layers = tuple(dict.fromkeys((*below.operator.layers, *node.operator.layers)))  # type: ignore[union-attr]
        notes.append(f"{' and '.join(call.name for call in calls)} go cell by cell: one pass")
        steps = (*below.steps, *node.steps)
        return replace(node, sources=below.sources, operator=Convert(calls, layers), steps=steps)
    return node if sources == node.sources else node.with_source(*sources)
