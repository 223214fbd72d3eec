"""Push the station selection down: do not read series that no step above uses.

Always exact: below an interpolation every step computes the values of a series from that series alone, so the other
series keep theirs. A merge on common stations uses the stations that all its sources have. An interpolation uses the
stations in reach of one of its cells (`perspective/build/station_projection.py`): those near enough to the step's grid
and, if only those within a radius are used and nothing is learned from the others, within that radius of the cells
that the clip leaves. A limit to the nearest neighbours excludes no station before the values are known: if one does
not report, the next nearest takes its place.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.build.station_projection import mask_in_reach
from hypergrid.perspective.sources.series_selection import find_columns
from hypergrid.perspective.tree import Base, Interpolate, Merge, Perspective, Surface
from hypergrid.topology import Grid, Points, SeriesAxis

Mask = NDArray[np.bool_]


def push_stations(surface: Surface) -> tuple[Surface, str]:
    """Restrict the bases of a surface to the series that are used.

    ::

        base > aggregate > interpolate radius 200 m   becomes   base, 18 series not read > aggregate > interpolate …
    """
    notes: list[str] = []
    changed: dict[str, Perspective] = {}
    wanted = _find_wanted(surface.perspective)
    for node in surface.perspective.list_chain():
        if isinstance(node.operator, Base):
            changed[node.token] = _restrict_base(node, node.operator, wanted[node.token], notes)
            continue
        sources = tuple(changed[source.token] for source in node.sources)
        same = all(new is old for new, old in zip(sources, node.sources, strict=True))
        changed[node.token] = node if same else node.with_source(*sources)
    return replace(surface, perspective=changed[surface.perspective.token]), "; ".join(dict.fromkeys(notes))


def _restrict_base(node: Perspective, operator: Base, wanted: Mask, notes: list[str]) -> Perspective:
    # If no series is used, keep all: the step that finds no stations then reports it in its own words.
    if wanted.all() or not wanted.any():
        return node
    name = operator.source.variable.name
    notes.append(f"{np.count_nonzero(wanted):,} of {len(wanted):,} series of {name} are used")
    unread = tuple(np.flatnonzero(~wanted).tolist())
    return replace(node, operator=replace(operator, unread=unread))


def _find_wanted(surface: Perspective) -> dict[str, Mask]:
    """Map the token of each perspective at stations to its used series."""
    masks: dict[str, Mask] = {}
    # Consumers precede their sources in this order, so the mask of a perspective is complete when it is visited.
    for node in reversed(surface.list_chain()):
        space = node.topology.space
        own = masks.setdefault(node.token, np.ones(space.count, dtype=bool)) if _is_at_stations(node) else None
        for source in node.sources:
            if isinstance(source.topology.space, SeriesAxis):
                used = _mask_source(node, own, source.topology.space)
                masks[source.token] = masks.get(source.token, np.zeros_like(used)) | used
    return masks


def _is_at_stations(node: Perspective) -> bool:
    return isinstance(node.topology.space, SeriesAxis)


def _mask_source(node: Perspective, own: Mask | None, axis: SeriesAxis) -> Mask:
    """Mask the series of a source that a step uses for its own used series."""
    operator, space = node.operator, node.topology.space
    if isinstance(operator, Interpolate) and isinstance(space, Grid | Points):
        return mask_in_reach(axis, space, operator)
    if own is None or not isinstance(space, SeriesAxis):
        return np.ones(axis.count, dtype=bool)
    if not isinstance(operator, Merge) or not operator.row.matched:
        return own
    used = np.zeros(axis.count, dtype=bool)
    used[find_columns(space, axis)] = own
    return used
