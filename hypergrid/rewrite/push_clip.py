"""Push the clip down: compute only its cells, and read only their inputs.

Exact if nothing is learned from all slices: a cell's value depends on the source cells that cover it, and those are
kept; a climatology that it is compared with still uses all its readings. A fitted variogram (`variogram="fit"`) and an
estimated correlation in time are learned from the computed slices, which are those of the clip: with them, a clip in
time asks for a different surface, whose notes say what was fitted to how many slices.
"""

from dataclasses import replace

import numpy as np

from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.perspective.build.build import select_ranges
from hypergrid.perspective.build.restrict import restrict
from hypergrid.perspective.sources.array_source import has_intervals
from hypergrid.perspective.tree import Aggregate, Base, Convert, Perspective, Surface
from hypergrid.topology import Instants, blocks_of


def push_clip(surface: Surface) -> tuple[Surface, str]:
    """Restrict the surface to the cells that its clip selects, and drop the clip.

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
    """Count the base cells to read; each distinct base counts once."""
    return sum(item.topology.count for item in node.list_bases())


def _find_widest(node: Perspective) -> dict[str, Perspective]:
    """Map each source to its base with the longest window."""
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
    """Let branches share the widest base of their source, which is then read only once."""
    # An aggregate takes all values that its cells cover. Only a cell that lies within its own base keeps its value:
    # a cell that the clip cuts would also take the values beyond the cut.
    if _holds_cells(node, widest) and _is_base(node.source):
        sources: tuple[Perspective, ...] = (_widen_base(node.source, widest),)
    else:
        sources = tuple(_share_bases(source, widest) for source in node.sources)
    same = all(new is old for new, old in zip(sources, node.sources, strict=True))
    return node if same else node.with_source(*sources)


def _holds_cells(node: Perspective, widest: dict[str, Perspective]) -> bool:
    """Return whether a step aggregates time in cells that gain nothing from the widest base."""
    operator, time = node.operator, node.topology.time
    if not isinstance(operator, Aggregate) or "time" not in operator.dimensions:
        return False
    if operator.row.reach_ns or isinstance(time, Instants):
        return False
    (starts, ends), base = blocks_of(time), node.list_bases()[0]
    if has_intervals(base.topology.time, base.topology.space):
        # Such cells select values by the start of their interval, which the instants do not contain.
        return False
    own, wide = base.topology.time, widest[_make_source_key(base)].topology.time
    if isinstance(own, Instants) and isinstance(wide, Instants):
        here_ns, there_ns = (np.searchsorted(axis.times_ns, np.stack([starts, ends])) for axis in (own, wide))
        # Equal numbers of instants per cell: the cells gain nothing from the widest base.
        return bool(np.array_equal(np.diff(here_ns, axis=0), np.diff(there_ns, axis=0)))
    window = _base_window(base)
    return bool(starts.min() >= window.start_ns and ends.max() <= window.stop_ns)


def _widen_base(node: Perspective, widest: dict[str, Perspective]) -> Perspective:
    """Replace a base, below converts or not, by the widest one covering it."""
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
