"""Methods of interpolation, one row each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.kriging.local import LocalField
from hypergrid.kriging.ordinary import OrdinaryField
from hypergrid.kriging.variogram import Variogram, parse_variogram
from hypergrid.parameters import Parameter
from hypergrid.registry import Registry


class Field(Protocol):
    """Many slices over one network, to be asked for at points."""

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""

    def at(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates at points (x, y) [m], shape (slices, points)."""

    def variance(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the variance of the estimates' errors, shape (slices, points)."""


Prepare = Callable[[NDArray[np.float64], NDArray[np.float64], tuple[str, ...], Mapping[str, Any]], Field]


@dataclass(frozen=True)
class Method:
    """A way to interpolate."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    linear: bool
    """Whether an estimate is a linear map of the values present, so that a mean commutes with it."""
    has_variance: bool
    parse: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Bound parameters to what `prepare` takes; raises InvalidQuery where they do not fit."""
    prepare: Prepare
    """Stations [m] (stations, 2), values (slices, stations), names, parameters to a field."""


METHODS: Registry[Method] = Registry("interpolation method")
"""Interpolation methods by name."""


def _parse(given: Mapping[str, Any]) -> dict[str, Any]:
    return {**given, "variogram": parse_variogram(given["variogram"])}


def _prepare(
    stations_m: NDArray[np.float64], values: NDArray[np.float64], names: tuple[str, ...], given: Mapping[str, Any]
) -> Field:
    model: Variogram = given["variogram"]
    neighbours = given["neighbours"]
    if len(stations_m) and (neighbours is None or neighbours >= len(stations_m)):
        return OrdinaryField(stations_m, values, model=model, names=names)
    # Also where no station is left: there is no system to solve, and every estimate is missing.
    return LocalField(stations_m, values, neighbours=neighbours or 1, model=model, names=names)


METHODS.add(
    "ordinary_kriging",
    Method(
        "ordinary_kriging",
        "Best linear unbiased estimate under a given variogram and a constant, unknown mean.",
        (
            Parameter("variogram", "variogram", "model, psill, range_m and nugget"),
            Parameter("neighbours", "count", "nearest stations to use; all where absent", required=False),
        ),
        linear=True,
        has_variance=True,
        parse=_parse,
        prepare=_prepare,
    ),
)
