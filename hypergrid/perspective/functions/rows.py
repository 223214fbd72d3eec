"""Converts and merges as rows: name, parameters, and what executors may assume.

Executors know no function by name; they use the fields of a row. Rows of aggregates are in `aggregates.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.core.units import convert, difference_of, is_offset

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MergeRow:
    """Combination of several sources in the same cell into one value."""

    name: str
    summary: str
    apply: Callable[..., Floats]
    """Maps one array per source, and parameters by name, to values; NaN results are missing."""
    unit: Callable[..., str]
    """Unit of the result from the units of the sources; raises InvalidUnit if incompatible."""
    alike: bool
    """Whether the other sources are converted to the unit of the first."""
    parameters: tuple[Parameter, ...] = ()
    spreads: tuple[int, ...] = ()
    """Indices of sources that are differences if units are shared: 1 K, not 1 degC."""
    takes: tuple[str, ...] | None = None
    """Units the sources are converted to, for a formula of different variables."""
    matched: bool = False
    """Whether sources with different stations are merged on their common stations."""
    counts_first: bool = False
    """Whether the count of a result is that of the first source, not the minimum of all."""
    roles: tuple[str, ...] = ("first", "second")
    """Display names of the sources, in order."""
    long_name: str = ""
    """Display name of the result; `{0}` and `{1}` are the names of the sources."""
    standard_name: str | None = None
    """CF standard name of the result; `{0}` is that of the first source."""

    def list_needed_units(self, units: tuple[str, ...]) -> tuple[str, ...]:
        """Return the units in which the function needs values of the given units."""
        if self.takes or not self.alike:
            return self.takes or units
        return tuple(difference_of(units[0]) if at in self.spreads else units[0] for at in range(len(units)))


MERGES: Registry[MergeRow] = Registry("merge function")


def make_formula_unit(name: str, roles: tuple[str, ...], takes: tuple[str, ...], result: str) -> Callable[..., str]:
    """Return a unit function for a formula, which also checks the sources' units.

    Raises
    ------
    InvalidUnit
        By the returned function: a unit that does not convert, or a dimensionless number instead of a percentage; the
        message lists the expected units in order.
    """

    def unit(*units: str) -> str:
        for given, needed in zip(units, takes, strict=True):
            if given == "1" and needed == "%":
                # A dimensionless share taken for a percentage would be wrong by a factor of 100.
                raise InvalidUnit(f"{name} needs values in '%'; got '1'; say which with scale(factor=100, unit='%')")
            try:
                convert(0.0, given, needed)
            except InvalidUnit as error:
                order = ", then ".join(f"{role} [{unit}]" for role, unit in zip(roles, takes, strict=True))
                raise InvalidUnit(f"{error}; {name} takes {order}") from error
        return result

    return unit


def _same_unit(first: str, second: str) -> str:
    convert(0.0, second, first)
    return first


def _difference_unit(first: str, second: str) -> str:
    # A difference of temperatures is not a temperature: 20 degC less 19 degC is 1 K, not 1 degC.
    return difference_of(_same_unit(first, second))


def _ratio_unit(first: str, second: str) -> str:
    for unit in (first, second):
        if is_offset(unit):
            raise InvalidUnit(
                f"a ratio needs values whose 0 is nothing; got {unit!r}, of which 20 is not twice 10; take both in K, "
                "from degC by scale(factor=1, offset=273.15, unit='K'), or their difference"
            )
    return "1" if first == second else f"{first} ({second})-1"


def _ratio(first: Floats, second: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        quotient = first / second
    return np.where(np.isfinite(quotient), quotient, np.nan)


def _standardised(first: Floats, normal: Floats, spread: Floats) -> Floats:
    return _ratio(first - normal, spread)


def _standardised_unit(first: str, normal: str, spread: str) -> str:
    convert(0.0, spread, difference_of(_same_unit(first, normal)))
    return "1"


ANOMALIES: Final = ("air_temperature", "surface_temperature", "air_pressure", "geopotential_height")
"""CF standard names that have an anomaly counterpart."""

MERGES.add(
    "difference",
    MergeRow(
        "difference",
        "The first source less the second.",
        np.subtract,
        _difference_unit,
        alike=True,
        long_name="{0} less {1}",
    ),
)
MERGES.add(
    "ratio",
    MergeRow(
        "ratio",
        "The first source over the second; missing where the second is 0. Not of temperatures in degC, whose 0 is not "
        "nothing: in K.",
        _ratio,
        _ratio_unit,
        alike=False,
        long_name="{0} over {1}",
    ),
)
MERGES.add(
    "anomaly",
    MergeRow(
        "anomaly",
        "The first source less what is normal in the same cell, or in the hour or month that it lies in, as a "
        "difference (K for temperatures).",
        np.subtract,
        _difference_unit,
        alike=True,
        # The count of an anomaly is that of the current values, not of the years behind the normal.
        counts_first=True,
        roles=("values", "normal"),
        long_name="anomaly of {0}",
        standard_name="{0}_anomaly",
    ),
)
MERGES.add(
    "standardised_anomaly",
    MergeRow(
        "standardised_anomaly",
        "The first source less what is normal, over its standard deviation; missing where that is 0.",
        _standardised,
        _standardised_unit,
        alike=True,
        spreads=(2,),
        counts_first=True,
        roles=("values", "normal", "standard deviation"),
        long_name="standardised anomaly of {0}",
    ),
)


@dataclass(frozen=True, eq=False)
class CellPlaces:
    """Times and places of the values of a block: time cells by places."""

    start_ns: NDArray[np.int64]
    """Starts of the time cells [ns since 1970 UTC], shape (time cells,)."""
    length_ns: int | NDArray[np.int64]
    """Length of the time cells [ns], common or shape (time cells,); 0 for instants."""
    lon: Floats
    """Longitude [degree], shape (places,)."""
    lat: Floats
    """Latitude [degree], shape (places,)."""
    elevation_m: Floats
    """Elevation [m], shape (places,); no NaN."""

    def select_times(self, times: NDArray[np.intp]) -> "CellPlaces":
        length = self.length_ns if isinstance(self.length_ns, int) else self.length_ns[times]
        return replace(self, start_ns=self.start_ns[times], length_ns=length)


@dataclass(frozen=True)
class ConvertRow:
    """Element-wise function of values; NaN results are missing."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    apply: Callable[..., Floats]
    """Maps values and parameters by name to values; gets `CellPlaces` as third argument if `placed`."""
    unit: Callable[[str, Mapping[str, Any]], str]
    """Unit of the result from the source unit and the parameters; raises InvalidUnit if they do not fit."""
    placed: bool = False
    """Whether it depends on place and time."""
    long_name: str = ""
    """Display name of the result; empty: the source's."""
    standard_name: str | None = None
    """CF standard name of the result; without either name, that of the source is kept if the unit is unchanged."""
    keeps_quantity: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Whether the source's standard name still applies: not for half a temperature."""


CONVERTS: Registry[ConvertRow] = Registry("convert function")

CONVERTS.add(
    "valid_range",
    ConvertRow(
        "valid_range",
        "Values outside low to high become missing.",
        (
            Parameter("low", "number", "lowest valid value", unit="variable"),
            Parameter("high", "number", "highest valid value", unit="variable"),
        ),
        lambda values, given: np.where((values >= given["low"]) & (values <= given["high"]), values, np.nan),
        lambda unit, _: unit,
    ),
)
CONVERTS.add(
    "scale",
    ConvertRow(
        "scale",
        "The value times a factor, plus an offset. Without a unit of the result it keeps the source's, and with a "
        "factor other than 1 loses the CF standard name.",
        (
            Parameter("factor", "number", "multiplies the value"),
            Parameter("offset", "number", "is added afterwards", required=False, default=0.0),
            Parameter("unit", "unit", "unit of the result; the source's where absent", required=False),
        ),
        lambda values, given: values * given["factor"] + given["offset"],
        lambda unit, given: given["unit"] or unit,
        keeps_quantity=lambda given: given["factor"] == 1 or given.get("unit") is not None,
    ),
)
