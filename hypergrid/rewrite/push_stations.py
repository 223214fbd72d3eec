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

from hypergrid.perspective.build.station_projection import in_reach
from hypergrid.perspective.sources.station_matching import columns_of
from hypergrid.perspective.tree.operators import Base, Interpolate, Merge
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.tree.surface import Surface
from hypergrid.topology import Grid, Points, SeriesAxis

Mask = NDArray[np.bool_]


def push_stations(surface: Surface) -> tuple[Surface, str]:
    """Return the surface whose bases read only the series that are used.

    ::

        base > aggregate > interpolate radius 200 m   becomes   base, 18 series not read > aggregate > interpolate …
    """
    said: list[str] = []
    changed: dict[str, Perspective] = {}
    wanted = _wanted(surface.perspective)
    for here in surface.perspective.chain():
        if isinstance(here.operator, Base):
            changed[here.token] = _read(here, here.operator, wanted[here.token], said)
            continue
        sources = tuple(changed[source.token] for source in here.sources)
        same = all(new is old for new, old in zip(sources, here.sources, strict=True))
        changed[here.token] = here if same else here.with_source(*sources)
    return replace(surface, perspective=changed[surface.perspective.token]), "; ".join(dict.fromkeys(said))


def _read(here: Perspective, operator: Base, wanted: Mask, said: list[str]) -> Perspective:
    # Where none is used, all are: that there is nothing is then said in the words of the step that finds it.
    if wanted.all() or not wanted.any():
        return here
    name = operator.source.variable.name
    said.append(f"{np.count_nonzero(wanted):,} of {len(wanted):,} series of {name} are used")
    unread = tuple(np.flatnonzero(~wanted).tolist())
    return replace(here, operator=replace(operator, unread=unread))


def _wanted(surface: Perspective) -> dict[str, Mask]:
    """Return by token which series of each perspective at stations are used by any step above it."""
    found: dict[str, Mask] = {}
    # What is derived comes before its sources: all that asks for a perspective is known when its turn comes.
    for here in reversed(surface.chain()):
        space = here.topology.space
        own = found.setdefault(here.token, np.ones(space.count, dtype=bool)) if _at_stations(here) else None
        for source in here.sources:
            if isinstance(source.topology.space, SeriesAxis):
                used = _of_source(here, own, source.topology.space)
                found[source.token] = found.get(source.token, np.zeros_like(used)) | used
    return found


def _at_stations(here: Perspective) -> bool:
    return isinstance(here.topology.space, SeriesAxis)


def _of_source(here: Perspective, own: Mask | None, axis: SeriesAxis) -> Mask:
    """Return which series of a source a step uses, given which of its own are."""
    operator, space = here.operator, here.topology.space
    if isinstance(operator, Interpolate) and isinstance(space, Grid | Points):
        return in_reach(axis, space, operator)
    if own is None or not isinstance(space, SeriesAxis):
        return np.ones(axis.count, dtype=bool)
    if not isinstance(operator, Merge) or not operator.row.matched:
        return own
    used = np.zeros(axis.count, dtype=bool)
    used[columns_of(space, axis)] = own
    return used
