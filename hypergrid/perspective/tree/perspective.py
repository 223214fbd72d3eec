"""A perspective: `(source, topology, data function, input selection)` (thesis 5.5.1), frozen and valid once built."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from hypergrid.core.times import Window
from hypergrid.core.tokens import token
from hypergrid.core.units import COUNTERS
from hypergrid.perspective.tree.operators import Aggregate, Base, Convert, Interpolate, Merge, Operator
from hypergrid.topology import Regular, SeriesAxis, Topology


@dataclass(frozen=True, eq=False)
class Perspective:
    """One step of a chain, with the cells that it has.

    The input selection is part of the operator: an interpolation names its neighbours, an aggregate covers.
    """

    sources: tuple["Perspective", ...]
    """What it is derived from: none for the base, several for a merge, else one."""
    topology: Topology
    operator: Operator
    unit: str
    """Unit of its values."""
    steps: tuple[str, ...] = ()
    """The steps of the query that it does, in words for errors; no part of its content."""

    @cached_property
    def token(self) -> str:
        """Content token: equal parts of two queries have equal tokens."""
        sources = [source.token for source in self.sources]
        return token(sources, self.topology.token(), self.operator.content())

    @property
    def source(self) -> "Perspective":
        """The (first) source.

        Raises
        ------
        IndexError
            The base has none.
        """
        return self.sources[0]

    def with_source(self, *sources: "Perspective") -> "Perspective":
        """Return the same step on other sources."""
        return replace(self, sources=sources)

    def list_chain(self) -> list["Perspective"]:
        """Return every perspective once, sources before what is derived from them."""
        seen: dict[str, Perspective] = {}
        for source in self.sources:
            seen.update({item.token: item for item in source.list_chain()})
        seen[self.token] = self
        return list(seen.values())

    def list_bases(self) -> list["Perspective"]:
        """Return the base perspectives below."""
        return [item for item in self.list_chain() if isinstance(item.operator, Base)]

    @property
    def holds_readings(self) -> bool:
        """Whether its values are readings with exact times: an archive's base, and converts of it."""
        if isinstance(self.operator, Base):
            return isinstance(self.topology.time, Regular)
        return isinstance(self.operator, Convert) and self.source.holds_readings

    @property
    def extremes(self) -> frozenset[str]:
        """Which of "max" and "min" its values are as the stations report them; empty where they are none."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base):
            held = space.series if isinstance(space, SeriesAxis) else ()
            return frozenset(series.statistic for series in held) & {"max", "min"}
        if isinstance(operator, Aggregate) and operator.row.rank is None:
            return frozenset()
        return frozenset().union(*(source.extremes for source in self.sources))

    @property
    def counters(self) -> frozenset[str]:
        """Which variables its values are readings of an ever-growing counter of; empty where they are none."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base):
            held = space.series if isinstance(space, SeriesAxis) else ()
            single = any(series.statistic == "sample" for series in held)
            variable = operator.source.variable
            known = single and (variable.is_counter or variable.name in COUNTERS)
            return frozenset({variable.name}) if known else frozenset()
        if isinstance(operator, Merge) or (isinstance(operator, Aggregate) and operator.row.rank is None):
            return frozenset()
        return frozenset().union(*(source.counters for source in self.sources))

    @property
    def is_accumulated(self) -> bool:
        """Whether its values are what a counter grew by, or totals as the stations report them, or made of these."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base) and isinstance(space, SeriesAxis):
            return any(series.statistic == "total" for series in space.series)
        own = isinstance(operator, Aggregate) and operator.row.prepare is not None
        return own or any(source.is_accumulated for source in self.sources)

    @cached_property
    def is_interpolated(self) -> bool:
        """Whether an interpolation lies at or below this step."""
        return any(isinstance(item.operator, Interpolate) for item in self.list_chain())


@dataclass(frozen=True)
class Clip:
    """Which cells of a surface are wanted: those whose corner lies within the bounds, start included, stop not."""

    token_name: ClassVar[str] = "Clip"

    time: Window | None = None
    space: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Bounds along axes of a grid, by their names [quantum]."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is bounded."""
        return self.time is None and not self.space


@dataclass(frozen=True, eq=False)
class Surface:
    """What an executor computes."""

    perspective: Perspective
    clip: Clip = Clip()

    @property
    def token(self) -> str:
        """Content token."""
        return token(self.perspective.token, self.clip)
