"""Aggregates that take the values of a cell as a list: no numbers can be folded in their place."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.parameters import Parameter
from hypergrid.perspective.functions import AggregateRow

Floats = NDArray[np.float64]


def _unset(values: Floats, given: Mapping[str, Any]) -> Floats:
    message = f"a listed row needs a function of values; got none for {values.shape} and {dict(given)}"
    raise TypeError(message)


@dataclass(frozen=True)
class ListedRow(AggregateRow):
    """One value for the values of a cell, given as a whole."""

    listed: Callable[[Floats, Mapping[str, Any]], Floats] = _unset
    """Values, shape (members, cells), in order of time, NaN where there is none, and parameters, to shape (cells,).

    Every cell that it is given holds a value."""
    parameters: tuple[Parameter, ...] = ()
    bound: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of one call."""

    def given(self, parameters: Mapping[str, Any]) -> "ListedRow":
        """Return the row for one call."""
        return replace(self, bound=parameters)
