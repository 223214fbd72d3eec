"""Registry of interpolation methods, one row each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.interpolation.points import Floats, Stations, Targets


class Field(Protocol):
    """Values of many slices over one network, evaluated at targets."""

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets)."""

    def variance(self, targets: Targets) -> Floats:
        """Compute the error variance of the estimates, shape (slices, targets)."""


def count_at(field: Field, targets: Targets) -> NDArray[np.int32]:
    """Count the stations behind each estimate, shape (slices, targets), or (slices, 1) if a slice has one count."""
    by_target = getattr(field, "counts_at", None)
    return np.asarray(field.counts[:, None] if by_target is None else by_target(targets), dtype=np.int32)


Over = Literal["space", "time"]
"""Dimension of an interpolation."""

Prepare = Callable[[Stations, Floats, Mapping[str, Any]], Field]


def list_no_covariates(_given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return no names, for methods that use only places and values."""
    return ()


@dataclass(frozen=True)
class Method:
    """Row of an interpolation method."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    linear: bool
    """Whether estimates are linear in the present values, so that means commute with them."""
    has_variance: bool
    parse: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Converts bound parameters to those of `prepare`; raises InvalidQuery if they are inconsistent."""
    prepare: Prepare
    """Builds a field from stations, values (slices, stations), NaN where missing, and parameters."""
    covariates: Callable[[Mapping[str, Any]], tuple[str, ...]] = list_no_covariates
    """Maps parameters to the names of the covariates that stations and targets need."""
    over: Over = "space"
    """Whether it interpolates between stations, or between the readings of each series."""


METHODS: Registry[Method] = Registry("interpolation method")
"""Interpolation methods by name."""
