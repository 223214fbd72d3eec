"""Registry of interpolation methods, one row each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from hypergrid.core.parameters import Parameter
from hypergrid.core.registry import Registry
from hypergrid.interpolation.points import Field, Floats, Stations

Over = Literal["space", "time"]
"""Dimension of an interpolation."""

Prepare = Callable[[Stations, Floats, Mapping[str, Any]], Field]


def list_no_covariates(_given: Mapping[str, Any]) -> tuple[str, ...]:
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
