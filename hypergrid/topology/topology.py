"""Topologies: products of a time axis and a space."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hypergrid.core.tokens import token
from hypergrid.topology.axes import Instants
from hypergrid.topology.bands import Bands
from hypergrid.topology.levels import Levels
from hypergrid.topology.points import Points
from hypergrid.topology.space import Grid, SeriesAxis
from hypergrid.topology.time_axes import TimeAxis
from hypergrid.topology.zone_cells import ZoneCells

Space = SeriesAxis | Grid | Points | ZoneCells | Bands


def axes_of(space: Space) -> tuple[Levels, ...]:
    """Return the axes of a space, slowest first; for points the levels, else none."""
    return space.axes if isinstance(space, Grid | Points | Bands) else ()


def replace_axes(space: Space, axes: Sequence[Levels]) -> Space:
    """Return a space with other cells along its axes."""
    return space.replace_axes(axes) if isinstance(space, Grid | Points | Bands) else space


def changes_cells(source: Space, target: Space) -> bool:
    """Return whether an aggregate between two spaces combines cells, not only times."""
    if isinstance(target, Bands):
        return not isinstance(source, Bands)
    return isinstance(source, Grid) and source != target


@dataclass(frozen=True, eq=False)
class Topology:
    """Cells of a perspective: all pairs of time cells and space cells."""

    time: TimeAxis
    space: Space

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of time cells, then the shape of one slice."""
        return (self.time.count, *self.space.shape)

    @property
    def count(self) -> int:
        return self.time.count * self.space.count

    def token(self) -> str:
        """Content token; equal for equal cells."""
        return self._token

    @cached_property
    def _token(self) -> str:
        time = self.time.times_ns if isinstance(self.time, Instants) else self.time
        return token(time, self.space.token())
