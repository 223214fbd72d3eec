"""Data functions as rows: name, parameters, and what executors may assume.

Executors know no function by name; they use the fields of a row. Rows of aggregates are in `aggregates.py`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow

__all__ = ["AGGREGATES", "CONVERTS", "AggregateRow", "CellPlaces", "ConvertRow"]

Floats = NDArray[np.float64]


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
