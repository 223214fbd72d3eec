"""Perspectives `(source, topology, data function, input selection)` and their operators (thesis 5.5.1 to 5.5.3)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, Window, format_duration
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable, is_known_counter
from hypergrid.interpolation import METHODS, Method, TimeMethod, Variogram, method_in_time
from hypergrid.layers.layer import Layer
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.functions.rows import CONVERTS, MERGES, ConvertRow, MergeRow
from hypergrid.perspective.functions.user_function_calls import add_identities
from hypergrid.topology import Regular, SeriesAxis, TimeAxis, Topology


class Source(Protocol):
    """Source of readings: an archive at one snapshot, or an array in memory."""

    @property
    def variable(self) -> Variable:
        """Variable of the readings."""

    @property
    def snapshot(self) -> str | None:
        """Snapshot to read; None for an array."""

    @property
    def token(self) -> str:
        """Content token of snapshot and selection, or of the array."""

    @property
    def carries_intervals(self) -> bool:
        """Whether the reporting interval of some series is known, as coverage checks need."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Unique statistics of all selectable series."""

    @property
    def extent(self) -> Window | None:
        """Window from the cell of the first reading to the end of the cell of the last one; None if empty."""

    def time_axis(self, window: Window) -> TimeAxis | None:
        """Return the time cells of the base in a window; None if there are none."""

    def series_axis(self, window: Window) -> SeriesAxis:
        """Return the series at their positions at the end of the window."""

    def read(self, window: Window, unread: tuple[int, ...] = ()) -> Readings | NDArray[np.float64]:
        """Return what starts in the window: readings of any flag, or a dense array.

        Readings are ordered by series and time. A source with a common clock returns an array, shape (time cells,
        series), NaN where missing. Series numbered in `unread` are present but empty.
        """

    def layer(self, name: str) -> Layer:
        """Return a layer in the coordinates of the series.

        Raises
        ------
        NotFound
            The layer does not exist; the message lists the existing ones and how to add one.
        """


@dataclass(frozen=True, eq=False)
class Base:
    """Operator of the readings themselves."""

    source: Source
    window: Window
    """Window of usable readings."""
    accept_flags: tuple[int, ...]
    unread: tuple[int, ...] = ()
    """Unused series numbers, in order: they stay in the topology but are empty."""

    def content(self) -> object:
        known = ("base", self.source.token, self.window, self.accept_flags)
        # Unused fields stay out of the content so that they do not change the token.
        return (*known, "unread", self.unread) if self.unread else known

    def describe(self) -> str:
        flags = ", ".join(map(str, self.accept_flags))
        unread = f", {len(self.unread)} series not read" if self.unread else ""
        return f"base {self.source.variable.name} [{self.source.variable.unit}], flags {flags}{unread}"


class _Parameterised:
    """Anything with validated parameters, sorted by name."""

    parameters: tuple[tuple[str, Any], ...]

    @property
    def arguments(self) -> dict[str, Any]:
        return dict(self.parameters)


@dataclass(frozen=True)
class Call(_Parameterised):
    """A function with its validated parameters."""

    token_name: ClassVar[str] = "Call"

    name: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any]) -> "Call":
        return cls(name, tuple(sorted(parameters.items())))

    def describe(self) -> str:
        return f"{self.name}({', '.join(f'{k}={_format_value(v)}' for k, v in self.parameters if v is not None)})"


def _format_value(value: object) -> str:
    if isinstance(value, Variogram):
        return f"{value.model} psill {value.psill:g} range {value.range_m:g} m nugget {value.nugget:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Convert:
    """Element-wise functions applied in sequence in one pass, on the topology of the source."""

    calls: tuple[Call, ...]
    layers: tuple[tuple[str, str], ...] = ()
    """Names and tokens of the layers used by functions of place."""
    # Valid only if nothing else reads its values (`rewrite/rules.py`).
    fused: bool = False
    """Whether the aggregate above applies it in its own pass, so that converted values are never held."""

    def list_rows(self) -> tuple[ConvertRow, ...]:
        return tuple(CONVERTS[call.name] for call in self.calls)

    def content(self) -> object:
        content = ("convert", self.calls, self.layers) if self.layers else ("convert", self.calls)
        # Unused fields stay out of the content so that they do not change the token.
        content = (*content, "fused") if self.fused else content
        return add_identities(content, "convert", (call.name for call in self.calls))

    def describe(self) -> str:
        where = ", in the pass of the aggregate above" if self.fused else ""
        return f"convert {', then '.join(call.describe() for call in self.calls)}{where}"


@dataclass(frozen=True)
class Aggregate(_Parameterised):
    """One value per target cell from the source cells it covers; new topology, location consistent."""

    function: str
    dimensions: tuple[str, ...]
    """Aggregated dimensions."""
    min_coverage: float
    parameters: tuple[tuple[str, Any], ...] = ()
    """Validated function parameters, sorted by name."""
    since_ns: int | None = None
    """Earlier readings [ns since 1970 UTC] are in no cell but visible to functions that look back; None: no bound."""
    until_ns: int | None = None
    """Later readings [ns since 1970 UTC] are in no cell but visible to functions that look ahead; None: no bound."""
    # Valid only because the aggregate and the interpolation are both linear and commute (`rewrite/rules.py`).
    at_stations: bool = False
    """Whether it is computed at the stations, before the interpolation below it."""

    @property
    def row(self) -> AggregateRow:
        return AGGREGATES[self.function]

    @property
    def reach_ns(self) -> int:
        """How far before and after a cell values can affect it [ns]."""
        return self.row.reach_ns(self.arguments) if self.row.reach_ns else 0

    def content(self) -> object:
        known = ("aggregate", self.function, self.dimensions, self.min_coverage)
        # Unused fields stay out of the content so that they do not change the token.
        own = (*known, self.parameters) if self.parameters else known
        own = own if self.since_ns is None else (*own, ("since", self.since_ns))
        own = own if self.until_ns is None else (*own, ("until", self.until_ns))
        own = (*own, "at stations") if self.at_stations else own
        return add_identities(own, "aggregate", [self.function])

    def describe_call(self) -> str:
        return Call(self.function, self.parameters).describe() if self.parameters else self.function

    def describe(self) -> str:
        where = ", taken at the stations" if self.at_stations else ""
        over = ", ".join(self.dimensions)
        return f"aggregate {self.describe_call()} over {over}, coverage at least {self.min_coverage:g}{where}"


@dataclass(frozen=True)
class Interpolate(_Parameterised):
    """Values at grid cells from the stations that report; new space, location across."""

    method: str
    parameters: tuple[tuple[str, Any], ...]
    variance: bool = False
    """Whether to compute the variance of each estimate."""
    layers: tuple[tuple[str, str], ...] = ()
    """Names and tokens of the layers used."""
    error_correlation: float | Literal["estimate"] | None = None
    """E-folding time of errors between slices [s], "estimate", or None if unknown; for means over time."""
    excluded_stations: tuple[tuple[str, float], ...] = ()
    """Stations too far outside the step's whole grid, with their distances [m]."""

    @property
    def row(self) -> Method:
        return METHODS[self.method]

    @property
    def covariates(self) -> tuple[str, ...]:
        return self.row.covariates(self.arguments)

    def uses_all(self, stations: int) -> bool:
        """Return whether it is linear in the sense of `is_linear`, without a trend."""
        return self.arguments.get("trend") is None and self.is_linear(stations)

    def is_linear(self, stations: int) -> bool:
        """Return whether every slice is one linear map of all stations.

        Missing stations are imputed first; there may be a trend. This is kriging without station selection.
        """
        given = self.arguments
        selects = any(given.get(name) is not None for name in ("radius_m", "octants"))
        nearest = (given.get("neighbours") or stations) < stations
        # With a variogram fitted per slice, each slice has its own map.
        once = getattr(given.get("variogram"), "by", "all") == "all"
        return self.row.has_variance and not selects and not nearest and once

    def content(self) -> object:
        plain = ("interpolate", self.method, self.parameters, self.variance)
        # Unused fields stay out of the content so that they do not change the token.
        content = (*plain, self.layers) if self.layers else plain
        content = (*content, "far", self.excluded_stations) if self.excluded_stations else content
        content = content if self.error_correlation is None else (*content, "memory", self.error_correlation)
        return add_identities(content, "interpolate", [self.method])

    def describe(self) -> str:
        return f"interpolate {Call(self.method, self.parameters).describe()}"


@dataclass(frozen=True)
class InterpolateInTime:
    """Values at instants from the readings of each series around them; new time, location across."""

    method: str
    max_gap_ns: int | None
    """Longest bridged time between two readings [ns]; None: derived from each series' interval."""

    @property
    def row(self) -> TimeMethod:
        return method_in_time(self.method)

    def gaps_ns(self, axis: SeriesAxis) -> NDArray[np.int64]:
        """Return the maximum gap of each series [ns], shape (series,)."""
        if self.max_gap_ns is not None:
            return np.full(axis.count, self.max_gap_ns, dtype=np.int64)
        gaps = [self.row.gap_of(round(series.interval_s * SECOND_NS)) for series in axis.series]
        return np.array(gaps, dtype=np.int64)

    def reach_ns(self, axis: SeriesAxis) -> int:
        """Return the largest distance from an instant at which a reading can matter [ns]."""
        return int(self.row.reach * int(self.gaps_ns(axis).max(initial=0))) + 1

    def content(self) -> object:
        return ("interpolate in time", self.method, self.max_gap_ns)

    def describe(self) -> str:
        gap = "by interval" if self.max_gap_ns is None else format_duration(self.max_gap_ns)
        return f"interpolate {self.method}(max_gap={gap})"


@dataclass(frozen=True)
class Merge(_Parameterised):
    """One value per cell from several sources of the same topology."""

    function: str
    parameters: tuple[tuple[str, Any], ...] = ()
    """Validated function parameters, sorted by name."""

    @property
    def row(self) -> MergeRow:
        return MERGES[self.function]

    def content(self) -> object:
        known = ("merge", self.function, self.parameters) if self.parameters else ("merge", self.function)
        return add_identities(known, "merge", [self.function])

    def describe(self) -> str:
        called = Call(self.function, self.parameters).describe() if self.parameters else self.function
        return f"merge {called}"


@dataclass(frozen=True)
class Recur:
    """The climatology value of the climatology cell that contains each cell.

    For example, 14:10 of any day takes the value of hour 14 of the day.
    """

    def content(self) -> object:
        return ("recur",)

    def describe(self) -> str:
        return "what is normal at each time"


Operator = Base | Convert | Aggregate | Interpolate | InterpolateInTime | Merge | Recur


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
        return list(self._chain)

    @cached_property
    def _chain(self) -> tuple["Perspective", ...]:
        # By token: equal parts of several sources count once.
        seen = {item.token: item for source in self.sources for item in source._chain}
        seen[self.token] = self
        return tuple(seen.values())

    def list_bases(self) -> list["Perspective"]:
        return [item for item in self.list_chain() if isinstance(item.operator, Base)]

    @property
    def bases(self) -> list[Base]:
        """Operators of `list_bases`."""
        return [item.operator for item in self.list_chain() if isinstance(item.operator, Base)]

    @property
    def stations(self) -> SeriesAxis:
        """Stations of the values.

        Raises
        ------
        TypeError
            The values lie elsewhere.
        """
        if not isinstance(self.topology.space, SeriesAxis):
            raise TypeError(f"the values of {self.operator.describe()} lie at no stations")
        return self.topology.space

    @property
    def is_at_stations(self) -> bool:
        return isinstance(self.topology.space, SeriesAxis)

    @property
    def series(self) -> tuple[Series, ...]:
        """Series of the values; empty unless they lie at stations."""
        space = self.topology.space
        return space.series if isinstance(space, SeriesAxis) else ()

    @property
    def aggregate(self) -> Aggregate:
        """Operator of an aggregate.

        Raises
        ------
        TypeError
            It is another operator.
        """
        if not isinstance(self.operator, Aggregate):
            raise TypeError(f"{self.operator.describe()} is no aggregate")
        return self.operator

    @property
    def holds_readings(self) -> bool:
        """Whether its values are readings with exact times: an archive's base or its converts."""
        if isinstance(self.operator, Base):
            return isinstance(self.topology.time, Regular)
        return isinstance(self.operator, Convert) and self.source.holds_readings

    @property
    def is_fused(self) -> bool:
        """Whether it is a convert that the aggregate above applies in its own pass."""
        return isinstance(self.operator, Convert) and self.operator.fused

    @property
    def extremes(self) -> frozenset[str]:
        """Which of "max" and "min" its values are, as reported; may be empty."""
        operator = self.operator
        if isinstance(operator, Base):
            return frozenset(series.statistic for series in self.series) & {"max", "min"}
        # Only an aggregate that takes single readings yields extremes again.
        if isinstance(operator, Aggregate) and operator.row.rank is None:
            return frozenset()
        return frozenset().union(*(source.extremes for source in self.sources))

    @property
    def counters(self) -> frozenset[str]:
        """Counter variables whose readings the values are; may be empty."""
        operator = self.operator
        if isinstance(operator, Base):
            single, variable = any(series.statistic == "sample" for series in self.series), operator.source.variable
            # Readings other than samples are already reduced over an interval.
            known = single and is_known_counter(variable)
            return frozenset({variable.name}) if known else frozenset()
        if isinstance(operator, Merge) or (isinstance(operator, Aggregate) and operator.row.rank is None):
            return frozenset()
        return frozenset().union(*(source.counters for source in self.sources))

    @property
    def is_accumulated(self) -> bool:
        """Whether its values are counter increments or reported totals, or derived from these."""
        operator = self.operator
        own = isinstance(operator, Aggregate) and operator.row.prepare is not None
        total = isinstance(operator, Base) and any(series.statistic == "total" for series in self.series)
        return own or total or any(source.is_accumulated for source in self.sources)

    @cached_property
    def is_interpolated(self) -> bool:
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
        return self.time is None and not self.space


@dataclass(frozen=True, eq=False)
class Surface:
    """Last perspective of a query with its clip, ready to execute."""

    perspective: Perspective
    clip: Clip = Clip()

    @property
    def token(self) -> str:
        return token(self.perspective.token, self.clip)
