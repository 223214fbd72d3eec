"""Drop converts that change nothing.

Exact always: a factor of one without an offset returns each value as it is, missing ones included.
"""

from dataclasses import replace

from hypergrid.perspective.tree.operators import Call, Convert
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.tree.surface import Surface


def drop_idle(surface: Surface) -> tuple[Surface, str]:
    """Return the surface without steps that give back what they are given.

    ::

        base > convert scale(factor=1, offset=0) > aggregate   becomes   base > aggregate
    """
    said: list[str] = []
    return replace(surface, perspective=_dropped(surface.perspective, said)), "; ".join(dict.fromkeys(said))


def _dropped(here: Perspective, said: list[str]) -> Perspective:
    sources = tuple(_dropped(source, said) for source in here.sources)
    operator = here.operator
    if isinstance(operator, Convert) and here.unit == sources[0].unit:
        kept = tuple(call for call in operator.calls if not _is_idle(call))
        if len(kept) < len(operator.calls):
            said.append("scale by 1 changes nothing")
        if not kept:
            return sources[0]
        if kept != operator.calls:
            return replace(here, sources=sources, operator=replace(operator, calls=kept))
    same = all(new is old for new, old in zip(sources, here.sources, strict=True))
    return here if same else here.with_source(*sources)


def _is_idle(call: Call) -> bool:
    given = call.given
    return call.name == "scale" and given["factor"] == 1.0 and given["offset"] == 0.0 and given["unit"] is None
