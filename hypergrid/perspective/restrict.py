"""The same perspective with fewer cells, and only what they need below: clips and windows moved towards the base."""

from dataclasses import replace

import numpy as np

from hypergrid.errors import InvalidQuery
from hypergrid.perspective.operators import Aggregate, Base, Interpolate
from hypergrid.perspective.perspective import Perspective
from hypergrid.times import Window, format_instant
from hypergrid.topology import Grid, Regular, TimeAxis, Topology

ALL = slice(None)


def restrict(here: Perspective, time: slice, rows: slice = ALL, columns: slice = ALL) -> Perspective:
    """Return the perspective of these cells alone; every cell keeps its value.

    Parameters
    ----------
    here
        What is narrowed.
    time, rows, columns
        Which time cells, and of a grid which rows and columns; each range holds at least one cell.

    Raises
    ------
    InvalidQuery
        No source cell is left for the cells that are kept.
    """
    topology = _part(here.topology, time, rows, columns)
    if topology.shape == here.topology.shape:
        return here
    operator = here.operator
    if isinstance(operator, Base):
        axis = topology.time
        inside = operator.window.intersect(Window(axis.origin, axis.stop))
        return replace(here, topology=topology, operator=replace(operator, window=inside or operator.window))
    if isinstance(operator, Aggregate):
        sources: tuple[Perspective, ...] = (_below_aggregate(here, operator, topology, (time, rows, columns)),)
    elif isinstance(operator, Interpolate):
        sources = (restrict(here.source, time),)
    else:
        sources = tuple(restrict(source, time, rows, columns) for source in here.sources)
    return replace(here, topology=topology, sources=sources)


def _part(topology: Topology, time: slice, rows: slice, columns: slice) -> Topology:
    space = topology.space
    if isinstance(space, Grid):
        y, x = (axis.part(*_ends(s, axis.count)) for axis, s in ((space.y, rows), (space.x, columns)))
        space = Grid(y, x)
    return Topology(topology.time.part(*_ends(time, topology.time.count)), space)


def _ends(part: slice, count: int) -> tuple[int, int]:
    first, stop, _ = part.indices(count)
    return first, stop


def _below_aggregate(
    here: Perspective, operator: Aggregate, topology: Topology, parts: tuple[slice, slice, slice]
) -> Perspective:
    source, time = here.source, parts[0]
    if "time" in operator.dimensions:
        if source.holds_readings:
            return restrict_readings(source, Window(topology.time.origin, topology.time.stop))
        time = _covered(source.topology.time, topology.time)
    space, below = topology.space, source.topology.space
    if not isinstance(space, Grid) or not isinstance(below, Grid):
        return restrict(source, time)
    rows = _covered(below.y, space.y) if space.y.name in operator.dimensions else parts[1]
    columns = _covered(below.x, space.x) if space.x.name in operator.dimensions else parts[2]
    return restrict(source, time, rows, columns)


def _covered(source: TimeAxis, target: TimeAxis) -> slice:
    """Return the source cells from the first to the last target cell; arithmetic, however many cells there are."""
    if isinstance(source, Regular):
        first = max(-(-(target.origin - source.origin) // source.step), 0)
        stop = min((target.stop - source.length - source.origin) // source.step + 1, source.count)
    else:
        first, stop = (int(edge) for edge in np.searchsorted(source.times_ns, (target.origin, target.stop)))
    if stop <= first:
        message = "no source cell lies in the cells that the clip selects"
        raise InvalidQuery(message)
    return slice(first, stop)


def restrict_readings(here: Perspective, window: Window) -> Perspective:
    """Return readings (a base, or converts of it) whose intervals start in a window.

    Raises
    ------
    InvalidQuery
        There is none.
    """
    operator = here.operator
    if not isinstance(operator, Base):
        source = restrict_readings(here.source, window)
        return replace(here, sources=(source,), topology=source.topology)
    inside = operator.window.intersect(window)
    axis = operator.source.time_axis(inside) if inside else None
    if inside is None or not isinstance(axis, Regular):
        start, stop = format_instant(window.start_ns), format_instant(window.stop_ns)
        message = f"no reading of {operator.source.variable.name!r} lies in {start} to {stop}"
        raise InvalidQuery(message)
    return replace(here, topology=Topology(axis, here.topology.space), operator=replace(operator, window=inside))
