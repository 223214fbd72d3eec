"""Methods of interpolation, one row each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.interpolation.points.points import Stations, Targets


class Field(Protocol):
    """Many slices over one network, to be asked for at targets."""

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""

    def estimate(self, targets: Targets) -> NDArray[np.float64]:
        """Return estimates at targets, shape (slices, targets)."""

    def variance(self, targets: Targets) -> NDArray[np.float64]:
        """Return the variance of the estimates' errors, shape (slices, targets)."""


Over = Literal["space", "time"]
"""What a method interpolates over."""

Prepare = Callable[[Stations, NDArray[np.float64], Mapping[str, Any]], Field]


def list_no_covariates(_given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no names: the method knows places and values alone."""
    return ()


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
    """Stations, values (slices, stations), NaN where missing, and parameters to a field."""
    covariates: Callable[[Mapping[str, Any]], tuple[str, ...]] = list_no_covariates
    """Parameters to the names of the covariates that stations and targets must have."""
    over: Over = "space"
    """Whether it estimates between stations, or between the readings of each series."""


METHODS: Registry[Method] = Registry("interpolation method")
"""Interpolation methods by name."""
