"""Where values were read, and where they are wanted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypergrid.interpolation.weight_cache import key_of

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stations:
    """Where values were read."""

    positions_m: Floats
    """x, y on a plane [m], shape (stations, 2); or places on the sphere from its centre [m], shape (stations, 3)."""
    names: tuple[str, ...]
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """What else is known of each place, by name (such as "elevation" [m]), shape (stations,), NaN where unknown."""

    @property
    def count(self) -> int:
        """How many stations."""
        return len(self.positions_m)

    def take_stations(self, kept: NDArray[np.intp]) -> "Stations":
        """Return some of the stations."""
        return Stations(
            self.positions_m[kept],
            tuple(self.names[i] for i in kept),
            {name: values[kept] for name, values in self.covariates.items()},
        )


def _make_unit_weights() -> Floats:
    return np.ones(1)


@dataclass(frozen=True, eq=False)
class Targets:
    """Where values are wanted: at points, or as means of cells, each by a few points that stand for it."""

    positions_m: Floats
    """As for stations, shape (targets * parts, 2 or 3); the parts of a target follow one another."""
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """What else is known of each place, by name, shape (targets * parts,); no NaN."""
    weights: Floats = field(default_factory=_make_unit_weights)
    """Share of each part in its target, shape (parts,), of sum 1; one part where the value at a point is wanted."""

    @property
    def parts(self) -> int:
        """Places that stand for a target."""
        return len(self.weights)

    @property
    def count(self) -> int:
        """How many targets."""
        return len(self.positions_m) // self.parts

    @cached_property
    def key(self) -> bytes:
        """A key of all that they are; whoever keeps them between boxes is spared reading 640 kB for 40,000 points."""
        return key_of(
            self.positions_m, self.weights, *sorted(self.covariates), *map(self.covariates.get, sorted(self.covariates))
        )

    def mean(self, values: Floats) -> Floats:
        """Return means over the parts of each target, shape (targets, …), of values of shape (targets * parts, …)."""
        if self.parts == 1:
            return values
        return np.asarray(
            np.einsum("tp...,p->t...", values.reshape(self.count, self.parts, *values.shape[1:]), self.weights)
        )

    def take_targets(self, targets: slice) -> "Targets":
        """Return a range of the targets; themselves, with their key, where it is all of them."""
        if targets.indices(self.count) == (0, self.count, 1):
            return self
        inside = slice((targets.start or 0) * self.parts, None if targets.stop is None else targets.stop * self.parts)
        covariates = {name: values[inside] for name, values in self.covariates.items()}
        return Targets(self.positions_m[inside], covariates, self.weights)
