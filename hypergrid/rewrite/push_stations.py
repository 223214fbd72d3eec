"""Push the wanted stations down: what nothing above uses is not read.

Exact always: below an interpolation every step makes the values of a series of that series alone, so that the others
keep theirs. Used is of a merge on common stations what all its sources have, and of an interpolation what is in reach
of one of its cells (`perspective/placing.py`): stations near enough to the step's grid and, where only those within a
radius are taken and nothing is learned from others, within the radius of the cells that the clip leaves. The nearest
neighbours alone tell nothing before the values are known: where one does not report, the next takes its place.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.perspective.build.station_projection import mask_in_reach
from hypergrid.perspective.sources.series_selection import find_columns
from hypergrid.perspective.tree.operators import Base, Interpolate, Merge
from hypergrid.perspective.tree.perspective import Perspective, Surface
from hypergrid.topology import Grid, Points, SeriesAxis

Mask = NDArray[np.bool_]


def push_stations(surface: Surface) -> tuple[Surface, str]:
    """Return the surface whose bases read only the series that are used.

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
    # Where none is used, all are: that there is nothing is then said in the words of the step that finds it.
    if wanted.all() or not wanted.any():
        return node
    name = operator.source.variable.name
    notes.append(f"{np.count_nonzero(wanted):,} of {len(wanted):,} series of {name} are used")
    unread = tuple(np.flatnonzero(~wanted).tolist())
    return replace(node, operator=replace(operator, unread=unread))


def _find_wanted(surface: Perspective) -> dict[str, Mask]:
    """Return by token which series of each perspective at stations are used by any step above it."""
    masks: dict[str, Mask] = {}
    # What is derived comes before its sources: all that asks for a perspective is known when its turn comes.
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
    """Return which series of a source a step uses, given which of its own are."""
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
