"""Drop converts that change nothing.

Always exact: a factor of one without an offset returns each value unchanged, missing values included.
"""

from dataclasses import replace

from hypergrid.perspective.tree import Call, Convert, Perspective, Surface


def drop_idle(surface: Surface) -> tuple[Surface, str]:
    """Remove the steps that return their input unchanged.

    ::

        base > convert scale(factor=1, offset=0) > aggregate   becomes   base > aggregate
    """
    notes: list[str] = []
    return replace(surface, perspective=_drop_node(surface.perspective, notes)), "; ".join(dict.fromkeys(notes))


def _drop_node(node: Perspective, notes: list[str]) -> Perspective:
    sources = tuple(_drop_node(source, notes) for source in node.sources)
    operator = node.operator
    if isinstance(operator, Convert) and node.unit == sources[0].unit:
        kept = tuple(call for call in operator.calls if not _is_idle(call))
        if len(kept) < len(operator.calls):
            notes.append("scale by 1 changes nothing")
        if not kept:
            return sources[0]
        if kept != operator.calls:
            return replace(node, sources=sources, operator=replace(operator, calls=kept))
    same = all(new is old for new, old in zip(sources, node.sources, strict=True))
    return node if same else node.with_source(*sources)


def _is_idle(call: Call) -> bool:
    given = call.arguments
    return call.name == "scale" and given["factor"] == 1.0 and given["offset"] == 0.0 and given["unit"] is None
