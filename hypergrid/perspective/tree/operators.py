"""The operators of a chain: base readings, convert, aggregate, interpolate, merge (thesis 5.5.1 to 5.5.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, Window, format_duration
from hypergrid.core.units import Variable
from hypergrid.interpolation import METHODS, Method, TimeMethod, Variogram, method_in_time
from hypergrid.layers.layer import Layer
from hypergrid.perspective.functions.merges import MERGES, MergeRow
from hypergrid.perspective.functions.rows import AGGREGATES, CONVERTS, AggregateRow, ConvertRow
from hypergrid.perspective.functions.user_function_identity import add_identities
from hypergrid.topology import SeriesAxis, TimeAxis


class Source(Protocol):
    """Where readings come from: an archive at one snapshot, or an array in memory."""

    @property
    def variable(self) -> Variable:
        """What is read."""

    @property
    def snapshot(self) -> str | None:
        """Snapshot that is read; None for an array."""

    @property
    def token(self) -> str:
        """Content token: of the snapshot and the selection, or of the array."""

    @property
    def carries_intervals(self) -> bool:
        """Whether it is known of some series how often they report, so that coverage can be asked of them."""

    @property
    def statistics(self) -> tuple[str, ...]:
        """Statistics of all series that could be selected, each once."""

    @property
    def extent(self) -> Window | None:
        """From the first to after the last reading's cell; None where there is none."""

    def time_axis(self, window: Window) -> TimeAxis | None:
        """Return the time cells of the base in a window; None where there is none."""

    def series_axis(self, window: Window) -> SeriesAxis:
        """Return the series, positioned as they stood at the end of the window."""

    def read(self, window: Window, unread: tuple[int, ...] = ()) -> Readings | NDArray[np.float64]:
        """Return what starts in the window: readings ordered by series and time, any flag; or a dense array.

        A source with a common clock returns an array, shape (time cells, series), NaN where missing. Series whose
        numbers are `unread` are there and hold nothing.
        """

    def layer(self, name: str) -> Layer:
        """Return a layer in the coordinates of the series; raises `NotFound` with what there is and how to add one."""


@dataclass(frozen=True, eq=False)
class Base:
    """The readings themselves."""

    source: Source
    window: Window
    """Which readings may be used."""
    accept_flags: tuple[int, ...]
    unread: tuple[int, ...] = ()
    """Numbers of the series that nothing uses, in order: they stay in the topology, and hold nothing."""

    def content(self) -> object:
        """Plain content, for the token."""
        known = ("base", self.source.token, self.window, self.accept_flags)
        return (*known, "unread", self.unread) if self.unread else known

    def describe(self) -> str:
        """One line for people."""
        flags = ", ".join(map(str, self.accept_flags))
        unread = f", {len(self.unread)} series not read" if self.unread else ""
        return f"base {self.source.variable.name} [{self.source.variable.unit}], flags {flags}{unread}"


@dataclass(frozen=True)
class Call:
    """A function with its parameters, already checked."""

    token_name: ClassVar[str] = "Call"

    name: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any]) -> "Call":
        """Build a call; parameters are kept in the order of their names."""
        return cls(name, tuple(sorted(parameters.items())))

    @property
    def arguments(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    def describe(self) -> str:
        """Return `name(parameter=value, …)`."""
        return f"{self.name}({', '.join(f'{k}={_format_value(v)}' for k, v in self.parameters if v is not None)})"


def _format_value(value: object) -> str:
    if isinstance(value, Variogram):
        return f"{value.model} psill {value.psill:g} range {value.range_m:g} m nugget {value.nugget:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Convert:
    """Element-wise functions, one after the other, in one pass; topology as the source's."""

    calls: tuple[Call, ...]
    layers: tuple[tuple[str, str], ...] = ()
    """Names and tokens of the layers that functions of place use."""

    def list_rows(self) -> tuple[ConvertRow, ...]:
        """Return the functions' rows."""
        return tuple(CONVERTS[call.name] for call in self.calls)

    def content(self) -> object:
        """Plain content, for the token."""
        content = ("convert", self.calls, self.layers) if self.layers else ("convert", self.calls)
        return add_identities(content, "convert", (call.name for call in self.calls))

    def describe(self) -> str:
        """One line for people."""
        return f"convert {', then '.join(call.describe() for call in self.calls)}"


@dataclass(frozen=True)
class Aggregate:
    """One value for the source cells that a target cell covers; new topology, location consistent."""

    function: str
    dimensions: tuple[str, ...]
    """Dimensions whose cells change."""
    min_coverage: float
    parameters: tuple[tuple[str, Any], ...] = ()
    """The function's, checked, in the order of their names."""
    since_ns: int | None = None
    """Readings before it [ns since 1970 UTC] are in no cell, and only known to those that look back; None: all are."""
    until_ns: int | None = None
    """Readings from it on [ns since 1970 UTC] are in no cell, and known to those that look ahead; None: all are."""
    at_stations: bool = False
    """Whether it is taken of the stations before the interpolation below it: the two are linear, and commute."""

    @property
    def row(self) -> AggregateRow:
        """The function's row."""
        return AGGREGATES[self.function]

    @property
    def arguments(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    @property
    def reach_ns(self) -> int:
        """How far before and after a cell values have a say in it [ns]."""
        return self.row.reach_ns(self.arguments) if self.row.reach_ns else 0

    def content(self) -> object:
        """Plain content, for the token."""
        known = ("aggregate", self.function, self.dimensions, self.min_coverage)
        own = (*known, self.parameters) if self.parameters else known
        own = own if self.since_ns is None else (*own, ("since", self.since_ns))
        own = own if self.until_ns is None else (*own, ("until", self.until_ns))
        own = (*own, "at stations") if self.at_stations else own
        return add_identities(own, "aggregate", [self.function])

    def describe_call(self) -> str:
        """Return the function with its parameters, in words."""
        return Call(self.function, self.parameters).describe() if self.parameters else self.function

    def describe(self) -> str:
        """One line for people."""
        where = ", taken at the stations" if self.at_stations else ""
        over = ", ".join(self.dimensions)
        return f"aggregate {self.describe_call()} over {over}, coverage at least {self.min_coverage:g}{where}"


@dataclass(frozen=True)
class Interpolate:
    """Values at the cells of a grid from the stations that report; new space, location across."""

    method: str
    parameters: tuple[tuple[str, Any], ...]
    variance: bool = False
    """Whether the variance of each estimate is wanted."""
    layers: tuple[tuple[str, str], ...] = ()
    """Names and tokens of the layers that it uses."""
    error_correlation: float | Literal["estimate"] | None = None
    """E-folding time of errors between slices [s], "estimate", or None where it is not known; for means over time."""
    excluded_stations: tuple[tuple[str, float], ...] = ()
    """Stations that are too far outside the step's whole grid to be used, with their distances [m]."""

    @property
    def row(self) -> Method:
        """The method's row."""
        return METHODS[self.method]

    @property
    def arguments(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    @property
    def covariates(self) -> tuple[str, ...]:
        """Names of what it must know of each station and cell, from a layer or their heights."""
        return self.row.covariates(self.arguments)

    def uses_all(self, stations: int) -> bool:
        """Return whether every slice is one linear map of all its stations, completed: kriging that selects none."""
        return self.arguments.get("trend") is None and self.is_linear(stations)

    def is_linear(self, stations: int) -> bool:
        """Return whether every slice is one linear map of all its stations, completed, perhaps around a trend."""
        given = self.arguments
        selects = any(given.get(name) is not None for name in ("radius_m", "octants"))
        nearest = (given.get("neighbours") or stations) < stations
        once = getattr(given.get("variogram"), "by", "all") == "all"
        return self.row.has_variance and not selects and not nearest and once

    def content(self) -> object:
        """Plain content, for the token."""
        plain = ("interpolate", self.method, self.parameters, self.variance)
        # What is not used is left out, so that it does not change the token.
        content = (*plain, self.layers) if self.layers else plain
        content = (*content, "far", self.excluded_stations) if self.excluded_stations else content
        return content if self.error_correlation is None else (*content, "memory", self.error_correlation)

    def describe(self) -> str:
        """One line for people."""
        return f"interpolate {Call(self.method, self.parameters).describe()}"


@dataclass(frozen=True)
class InterpolateInTime:
    """Values at instants from the readings of each series around them; new time, location across."""

    method: str
    """Name of the method's row."""
    max_gap_ns: int | None
    """Longest time between two readings that is filled [ns]; None: as each series' interval says."""

    @property
    def row(self) -> TimeMethod:
        """The method's row."""
        return method_in_time(self.method)

    def gaps_ns(self, axis: SeriesAxis) -> NDArray[np.int64]:
        """Return the maximum gap of each series [ns], shape (series,)."""
        if self.max_gap_ns is not None:
            return np.full(axis.count, self.max_gap_ns, dtype=np.int64)
        gaps = [self.row.gap_of(round(series.interval_s * SECOND_NS)) for series in axis.series]
        return np.array(gaps, dtype=np.int64)

    def reach_ns(self, axis: SeriesAxis) -> int:
        """Return how far from an instant a reading of any series may matter [ns]."""
        return int(self.row.reach * int(self.gaps_ns(axis).max(initial=0))) + 1

    def content(self) -> object:
        """Plain content, for the token."""
        return ("interpolate in time", self.method, self.max_gap_ns)

    def describe(self) -> str:
        """One line for people."""
        gap = "by interval" if self.max_gap_ns is None else format_duration(self.max_gap_ns)
        return f"interpolate {self.method}(max_gap={gap})"


@dataclass(frozen=True)
class Merge:
    """One value from several sources of the same topology, cell by cell."""

    function: str
    parameters: tuple[tuple[str, Any], ...] = ()
    """The function's, checked, in the order of their names."""

    @property
    def row(self) -> MergeRow:
        """The function's row."""
        return MERGES[self.function]

    @property
    def arguments(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    def content(self) -> object:
        """Plain content, for the token."""
        known = ("merge", self.function, self.parameters) if self.parameters else ("merge", self.function)
        return add_identities(known, "merge", [self.function])

    def describe(self) -> str:
        """One line for people."""
        called = Call(self.function, self.parameters).describe() if self.parameters else self.function
        return f"merge {called}"


@dataclass(frozen=True)
class Recur:
    """For each cell the value of the climatology's cell that it lies in: of hour 14 of the day at 14:10 of any day."""

    def content(self) -> object:
        """Plain content, for the token."""
        return ("recur",)

    def describe(self) -> str:
        """One line for people."""
        return "what is normal at each time"


Operator = Base | Convert | Aggregate | Interpolate | InterpolateInTime | Merge | Recur
