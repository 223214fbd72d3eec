"""Data functions as rows: name, parameters, and what the engine may assume of each.

An executor knows no function by name; it loops over what a row gives. Rows of aggregates are in `aggregates.py`.
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
    """Where and when the values of a block are: time cells by places."""

    start_ns: NDArray[np.int64]
    """Starts of the time cells (UTC) [ns since 1970], shape (time cells,)."""
    length_ns: int | NDArray[np.int64]
    """Length of the time cells, one of all or shape (time cells,); 0 for instants."""
    lon: Floats
    """Longitude of the places [degree], shape (places,)."""
    lat: Floats
    """Latitude of the places [degree], shape (places,)."""
    elevation_m: Floats
    """Elevation of the places [m], shape (places,); no NaN."""

    def select_times(self, times: NDArray[np.intp]) -> "CellPlaces":
        """Return the same places in some of the time cells."""
        length = self.length_ns if isinstance(self.length_ns, int) else self.length_ns[times]
        return replace(self, start_ns=self.start_ns[times], length_ns=length)


@dataclass(frozen=True)
class ConvertRow:
    """An element-wise function of values; NaN out means missing."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    apply: Callable[..., Floats]
    """Values and parameters by name to values; a third argument, a `Where`, for a row that is `placed`."""
    unit: Callable[[str, Mapping[str, Any]], str]
    """Unit of the result from the source's unit and the parameters; raises InvalidUnit where they do not fit."""
    placed: bool = False
    """Whether it depends on where and when the values are."""
    long_name: str = ""
    """What the result is, for people; the source's where empty."""
    standard_name: str | None = None
    """CF standard name of the result; the source's where there is neither name and the unit stays."""
    keeps_quantity: Callable[[Mapping[str, Any]], bool] = lambda _: True
    """Whether, by its parameters, the result is still what the source's standard name says: half a temperature is not.
    """


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
