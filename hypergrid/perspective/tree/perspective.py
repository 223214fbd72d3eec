"""Perspectives `(source, topology, data function, input selection)` (thesis 5.5.1): frozen, and valid once built."""

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
    """One step of a chain, with its cells.

    The input selection is part of the operator: an interpolation selects neighbours, an aggregate covers cells.
    """

    sources: tuple["Perspective", ...]
    """Source perspectives: none for the base, several for a merge, else one."""
    topology: Topology
    operator: Operator
    unit: str
    """Unit of the values."""
    steps: tuple[str, ...] = ()
    """Query steps that it implements, for error messages; not part of its content."""

    @cached_property
    def token(self) -> str:
        """Content token; equal for equal parts of two queries."""
        sources = [source.token for source in self.sources]
        return token(sources, self.topology.token(), self.operator.content())

    @property
    def source(self) -> "Perspective":
        """First source.

        Raises
        ------
        IndexError
            The base has none.
        """
        return self.sources[0]

    def with_source(self, *sources: "Perspective") -> "Perspective":
        return replace(self, sources=sources)

    def list_chain(self) -> list["Perspective"]:
        """Return every perspective of the tree once, sources first."""
        # By token: equal parts of several sources count once.
        seen: dict[str, Perspective] = {}
        for source in self.sources:
            seen.update({item.token: item for item in source.list_chain()})
        seen[self.token] = self
        return list(seen.values())

    def list_bases(self) -> list["Perspective"]:
        return [item for item in self.list_chain() if isinstance(item.operator, Base)]

    @property
    def holds_readings(self) -> bool:
        """Whether its values are readings with exact times: an archive's base or its converts."""
        if isinstance(self.operator, Base):
            return isinstance(self.topology.time, Regular)
        return isinstance(self.operator, Convert) and self.source.holds_readings

    @property
    def extremes(self) -> frozenset[str]:
        """Which of "max" and "min" its values are, as reported; may be empty."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base):
            held = space.series if isinstance(space, SeriesAxis) else ()
            return frozenset(series.statistic for series in held) & {"max", "min"}
        # Only an aggregate that takes single readings yields extremes again.
        if isinstance(operator, Aggregate) and operator.row.rank is None:
            return frozenset()
        return frozenset().union(*(source.extremes for source in self.sources))

    @property
    def counters(self) -> frozenset[str]:
        """Counter variables whose readings the values are; may be empty."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base):
            held = space.series if isinstance(space, SeriesAxis) else ()
            single = any(series.statistic == "sample" for series in held)
            variable = operator.source.variable
            # Readings other than samples are already reduced over an interval.
            known = single and (variable.is_counter or variable.name in COUNTERS)
            return frozenset({variable.name}) if known else frozenset()
        if isinstance(operator, Merge) or (isinstance(operator, Aggregate) and operator.row.rank is None):
            return frozenset()
        return frozenset().union(*(source.counters for source in self.sources))

    @property
    def is_accumulated(self) -> bool:
        """Whether its values are counter increments or reported totals, or derived from these."""
        operator, space = self.operator, self.topology.space
        if isinstance(operator, Base) and isinstance(space, SeriesAxis):
            return any(series.statistic == "total" for series in space.series)
        own = isinstance(operator, Aggregate) and operator.row.prepare is not None
        return own or any(source.is_accumulated for source in self.sources)

    @cached_property
    def is_interpolated(self) -> bool:
        """Whether this step or one below it interpolates in space."""
        return any(isinstance(item.operator, Interpolate) for item in self.list_chain())


@dataclass(frozen=True)
class Clip:
    """Bounds of the wanted cells of a surface: corner within [start, stop)."""

    token_name: ClassVar[str] = "Clip"

    time: Window | None = None
    space: tuple[tuple[str, tuple[int, int]], ...] = ()
    """Bounds along grid axes by name [quantum]."""

    @property
    def is_open(self) -> bool:
        """Whether it has no bounds."""
        return self.time is None and not self.space


@dataclass(frozen=True, eq=False)
class Surface:
    """Last perspective of a query with its clip, ready to execute."""

    perspective: Perspective
    clip: Clip = Clip()

    @property
    def token(self) -> str:
        return token(self.perspective.token, self.clip)
