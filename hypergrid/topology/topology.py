"""A topology: the product of a time axis and a space; which cells a perspective has."""

from dataclasses import dataclass
from functools import cached_property

from hypergrid.tokens import token
from hypergrid.topology.axes import Instants
from hypergrid.topology.space import Grid, SeriesAxis
from hypergrid.topology.time_axes import TimeAxis
from hypergrid.topology.zone_cells import ZoneCells

Space = SeriesAxis | Grid | ZoneCells


@dataclass(frozen=True, eq=False)
class Topology:
    """Cells of a perspective: every time cell with every cell of the space."""

    time: TimeAxis
    space: Space

    @property
    def shape(self) -> tuple[int, ...]:
        """Time cells, then the shape of one slice."""
        return (self.time.count, *self.space.shape)

    @property
    def count(self) -> int:
        """How many cells."""
        return self.time.count * self.space.count

    def token(self) -> str:
        """Content token: equal cells, equal token."""
        return self._token

    @cached_property
    def _token(self) -> str:
        time = self.time.times_ns if isinstance(self.time, Instants) else self.time
        return token(time, self.space.token())
