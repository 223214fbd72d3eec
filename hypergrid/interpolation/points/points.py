"""Stations, where values are read, and targets, where they are estimated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.weight_cache import key_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stations:
    """Data points of a method."""

    positions_m: Floats
    """x, y on a plane [m], shape (stations, 2); or places on the sphere from its centre [m], shape (stations, 3)."""
    names: tuple[str, ...]
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """Covariates by name (such as "elevation" [m]), shape (stations,), NaN where unknown."""

    @property
    def count(self) -> int:
        return len(self.positions_m)

    def take_stations(self, kept: NDArray[np.intp]) -> "Stations":
        return Stations(
            self.positions_m[kept],
            tuple(self.names[i] for i in kept),
            {name: values[kept] for name, values in self.covariates.items()},
        )


def _make_unit_weights() -> Floats:
    return np.ones(1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Estimation points of a method: points, or cells averaged over a few parts."""

    positions_m: Floats
    """As in `Stations`, shape (targets * parts, 2 or 3); the parts of a target are consecutive."""
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """Covariates by name, shape (targets * parts,); no NaN."""
    weights: Floats = field(default_factory=_make_unit_weights)
    """Share of each part in its target, shape (parts,), of sum 1; a single part for the value at a point."""

    @property
    def parts(self) -> int:
        """Quadrature points per target."""
        return len(self.weights)

    @property
    def count(self) -> int:
        return len(self.positions_m) // self.parts

    @cached_property
    def key(self) -> bytes:
        """Cache key of all positions, weights and covariates."""
        # Computed once per object: hashing 40,000 points reads 640 kB.
        return key_of(
            self.positions_m, self.weights, *sorted(self.covariates), *map(self.covariates.get, sorted(self.covariates))
        )

    def mean(self, values: Floats) -> Floats:
        """Average over the parts of each target: shape (targets * parts, …) to (targets, …)."""
        if self.parts == 1:
            return values
        return np.asarray(
            np.einsum("tp...,p->t...", values.reshape(self.count, self.parts, *values.shape[1:]), self.weights)
        )

    def take_targets(self, targets: slice) -> "Targets":
        """Select a range of targets; the full range returns the same object, with its key."""
        if targets.indices(self.count) == (0, self.count, 1):
            return self
        inside = slice((targets.start or 0) * self.parts, None if targets.stop is None else targets.stop * self.parts)
        covariates = {name: values[inside] for name, values in self.covariates.items()}
        return Targets(self.positions_m[inside], covariates, self.weights)
