"""Push the clip down: compute only the cells that it selects, and read only what they need.

Exact where nothing is learnt from all slices: a cell's value depends on the source cells that cover it, and those are
kept; a climatology that it is compared with is of all its readings still. A variogram that is fitted
(`variogram="fit"`), or a correlation in time that is not given, is of the slices that are computed, which are those of
the clip: with it a clip in time asks for another surface, whose notes say what was fitted to how many slices.
"""

from dataclasses import replace

import numpy as np

from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.perspective.build.build import select_ranges
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.sources.interval_spans import has_intervals
from hypergrid.perspective.tree.operators import Aggregate, Base, Convert
from hypergrid.perspective.tree.perspective import Perspective, Surface
from hypergrid.topology import Instants, blocks_of


def push_clip(surface: Surface) -> tuple[Surface, str]:
    """Return the surface of the selected cells, without a clip.

    ::

        base 28 days > aggregate 5min > clip 3 days   becomes   base 3 days > aggregate 5min
    """
    if surface.clip.is_open:
        return surface, ""
    whole = surface.perspective
    narrow = restrict(whole, *select_ranges(whole.topology, surface.clip))
    part = _share_bases(narrow, _find_widest(narrow))
    part_cells, all_ = part.topology.count, whole.topology.count
    below = _count_cells_read(part), _count_cells_read(whole)
    why = f"{part_cells:,} of {all_:,} cells are wanted, which need {below[0]:,} of {below[1]:,} cells of the base"
    return Surface(part), why


def _count_cells_read(node: Perspective) -> int:
    """Return how many cells of its bases are read; a base of two branches is read once, one of two windows twice."""
    return sum(item.topology.count for item in node.list_bases())


def _find_widest(node: Perspective) -> dict[str, Perspective]:
    """Return by source the base whose window is the longest."""
    widest: dict[str, Perspective] = {}
    for item in node.list_bases():
        known = widest.setdefault(_make_source_key(item), item)
        if (
            _base_window(item).stop_ns - _base_window(item).start_ns
            > _base_window(known).stop_ns - _base_window(known).start_ns
        ):
            widest[_make_source_key(item)] = item
    return widest


def _share_bases(node: Perspective, widest: dict[str, Perspective]) -> Perspective:
    """Return the perspective in which a branch takes the base that another one reads anyway, so that it is read once.

    An aggregate takes the values in its cells, whichever others there are. So only where its cells lie within its own
    base: a cell that a clip cuts would take what lies beyond.
    """
    if _holds_cells(node, widest) and _is_base(node.source):
        sources: tuple[Perspective, ...] = (_widen_base(node.source, widest),)
    else:
        sources = tuple(_share_bases(source, widest) for source in node.sources)
    same = all(new is old for new, old in zip(sources, node.sources, strict=True))
    return node if same else node.with_source(*sources)


def _holds_cells(node: Perspective, widest: dict[str, Perspective]) -> bool:
    """Return whether a step is an aggregate over time whose cells hold no more of the widest base than of its own."""
    operator, time = node.operator, node.topology.time
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions:
        return False
    if operator.row.reach_ns or isinstance(time, Instants):
        return False
    (starts, ends), base = blocks_of(time), node.list_bases()[0]
    if has_intervals(base.topology.time, base.topology.space):
        # Their cells take values by the starts of their intervals, which instants do not tell.
        return False
    own, wide = base.topology.time, widest[_make_source_key(base)].topology.time
    if isinstance(own, Instants) and isinstance(wide, Instants):
        here_ns, there_ns = (np.searchsorted(axis.times_ns, np.stack([starts, ends])) for axis in (own, wide))
        return bool(np.array_equal(np.diff(here_ns, axis=0), np.diff(there_ns, axis=0)))
    window = _base_window(base)
    return bool(starts.min() >= window.start_ns and ends.max() <= window.stop_ns)


def _widen_base(node: Perspective, widest: dict[str, Perspective]) -> Perspective:
    """Return a base, or converts of one, with all that the widest base has where that holds what it has."""
    if isinstance(node.operator, Base):
        wider = widest[_make_source_key(node)]
        return wider if _base_window(wider).intersect(_base_window(node)) == _base_window(node) else node
    source = _widen_base(node.source, widest)
    return node if source is node.source else replace(node, sources=(source,), topology=source.topology)


def _is_base(node: Perspective) -> bool:
    return isinstance(node.operator, Base) or (isinstance(node.operator, Convert) and _is_base(node.source))


def _make_source_key(node: Perspective) -> str:
    return token(node.operator.source.token, node.operator.accept_flags)  # type: ignore[union-attr]


def _base_window(node: Perspective) -> Window:
    return node.operator.window  # type: ignore[union-attr]
