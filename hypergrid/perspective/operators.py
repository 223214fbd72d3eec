"""The operators of a chain: base readings, convert, aggregate, interpolate, merge (thesis 5.5.1 to 5.5.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.kriging import METHODS, Method, Variogram
from hypergrid.perspective.functions import AGGREGATES, CONVERTS, MERGES, AggregateRow, ConvertRow, MergeRow
from hypergrid.streams.elements import Readings
from hypergrid.times import Window
from hypergrid.topology import SeriesAxis, TimeAxis
from hypergrid.units import Variable


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
        """Whether series say how often they report, so that coverage can be asked of them."""

    @property
    def extent(self) -> Window | None:
        """From the first to after the last reading's cell; None where there is none."""

    def time_axis(self, window: Window) -> TimeAxis | None:
        """Return the time cells of the base in a window; None where there is none."""

    def series_axis(self, window: Window) -> SeriesAxis:
        """Return the series, positioned as they stood at the end of the window."""

    def read(self, window: Window) -> Readings | NDArray[np.float64]:
        """Return what starts in the window: readings ordered by series and time, any flag; or a dense array.

        A source with a common clock returns an array, shape (time cells, series), NaN where missing.
        """


@dataclass(frozen=True, eq=False)
class Base:
    """The readings themselves."""

    source: Source
    window: Window
    """Which readings may be used."""
    accept_flags: tuple[int, ...]

    def content(self) -> object:
        """Plain content, for the token."""
        return ("base", self.source.token, self.window, self.accept_flags)

    def describe(self) -> str:
        """One line for people."""
        flags = ", ".join(map(str, self.accept_flags))
        return f"base {self.source.variable.name} [{self.source.variable.unit}], flags {flags}"


@dataclass(frozen=True)
class Call:
    """A function with its parameters, already checked."""

    name: str
    parameters: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any]) -> "Call":
        """Build a call; parameters are kept in the order of their names."""
        return cls(name, tuple(sorted(parameters.items())))

    @property
    def given(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    def describe(self) -> str:
        """Return `name(parameter=value, …)`."""
        return f"{self.name}({', '.join(f'{k}={_short(v)}' for k, v in self.parameters if v is not None)})"


def _short(value: object) -> str:
    if isinstance(value, Variogram):
        return f"{value.model} psill {value.psill:g} range {value.range_m:g} m nugget {value.nugget:g}"
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class Convert:
    """Element-wise functions, one after the other, in one pass; topology as the source's."""

    calls: tuple[Call, ...]

    def rows(self) -> tuple[ConvertRow, ...]:
        """Return the functions' rows."""
        return tuple(CONVERTS[call.name] for call in self.calls)

    def content(self) -> object:
        """Plain content, for the token."""
        return ("convert", self.calls)

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

    @property
    def row(self) -> AggregateRow:
        """The function's row."""
        return AGGREGATES[self.function]

    def content(self) -> object:
        """Plain content, for the token."""
        return ("aggregate", self.function, self.dimensions, self.min_coverage)

    def describe(self) -> str:
        """One line for people."""
        return f"aggregate {self.function} over {', '.join(self.dimensions)}, coverage at least {self.min_coverage:g}"


@dataclass(frozen=True)
class Interpolate:
    """Values at the cells of a grid from the stations that report; new space, location across."""

    method: str
    parameters: tuple[tuple[str, Any], ...]
    variance: bool = False
    """Whether the variance of each estimate is wanted."""

    @property
    def row(self) -> Method:
        """The method's row."""
        return METHODS[self.method]

    @property
    def given(self) -> dict[str, Any]:
        """Parameters by name."""
        return dict(self.parameters)

    def content(self) -> object:
        """Plain content, for the token."""
        return ("interpolate", self.method, self.parameters, self.variance)

    def describe(self) -> str:
        """One line for people."""
        return f"interpolate {Call(self.method, self.parameters).describe()}"


@dataclass(frozen=True)
class Merge:
    """One value from two sources of the same topology, cell by cell."""

    function: str

    @property
    def row(self) -> MergeRow:
        """The function's row."""
        return MERGES[self.function]

    def content(self) -> object:
        """Plain content, for the token."""
        return ("merge", self.function)

    def describe(self) -> str:
        """One line for people."""
        return f"merge {self.function}"


Operator = Base | Convert | Aggregate | Interpolate | Merge
