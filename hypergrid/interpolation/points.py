"""Stations with their samples, targets, the fields that estimate them, and the distances between places."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import FAR_CHORD, RADIUS_M, arc_m, chord_m
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache, key_of

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


class Field(ABC):
    """Values of many slices over one network, evaluated at targets."""

    notes: tuple[str, ...] = ()
    """Notes for the reader of the result, such as the fitted variogram."""
    is_assumed: bool = False
    """Whether the variogram replaces one that could not be fitted; variances are then NaN."""
    inner_fields: Sequence["Field"] = ()
    """Fields that it consists of, such as those of single slices or of residuals."""

    @property
    @abstractmethod
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""

    @property
    def counts_are_even(self) -> bool:
        """Whether every target of a slice uses exactly `counts` stations, as far as that is known beforehand."""
        return False

    @abstractmethod
    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets)."""

    @abstractmethod
    def variance(self, targets: Targets) -> Floats:
        """Compute the error variance of the estimates, shape (slices, targets)."""

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Count the stations of each estimate, shape (slices, targets), or (slices, 1) if a slice has one count."""
        return self.counts[:, None]

    def expect(self, places: int, slices: int, *, cache: WeightCache | None = WEIGHTS) -> None:  # noqa: B027 - few use it
        """Announce the size of the whole job, and the cache of weights for later slices, if there is one."""

    def take_slices(self, slices: NDArray[np.intp]) -> "Field":
        """Copy the field with some of its slices, shape (chosen,), in their order.

        Whatever depends on all slices (a pooled variogram, the network in use) is unchanged, so that the estimates of a
        slice do not depend on which others are requested; nothing is refitted, refactorised or retriangulated.
        """
        return FieldSubset(self, slices)

    def replace_values(self, values: Floats) -> "Field | None":
        """Copy the field with other values over the same network, shape (slices, stations); None if unsupported."""
        return None


class FieldSubset(Field):
    """Subset of slices of a field that cannot be split; estimates all slices and selects."""

    def __init__(self, field: Field, slices: NDArray[np.intp]) -> None:
        self._field, self._slices = field, slices
        self.inner_fields = (field,)

    @property
    def counts(self) -> NDArray[np.int32]:
        return self._field.counts[self._slices]

    def estimate(self, targets: Targets) -> Floats:
        return self._field.estimate(targets)[self._slices]

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        return self._field.counts_at(targets)[self._slices]

    def variance(self, targets: Targets) -> Floats:
        return self._field.variance(targets)[self._slices]


# 64-bit degrees projected to metres, or placed on the sphere, are off by some 1e-9 m; PyKrige uses 1e-10 m, in metres.
COINCIDENT_M = 1e-6
"""Places within this distance [m] are coincident."""
# Loading scipy.spatial takes 70 ms, as long as all else of a first small query; numpy, which takes up
# to five times as long, gives the same bits.
_FEW_DISTANCES = 200_000
"""Number of distances up to which numpy computes them."""


def are_on_sphere(places_m: Floats) -> bool:
    """Check whether places are on the sphere, shape (..., 3), rather than on a plane, shape (..., 2)."""
    return bool(places_m.shape[-1] == 3)


def separations(first_m: Floats, second_m: Floats) -> Floats:
    """Compute all distances [m] between two sets of places.

    Parameters
    ----------
    first_m, second_m
        x, y on a plane [m], shape (..., n, 2) and (..., m, 2), or places on the sphere from its centre [m], shape (...,
        n, 3) and (..., m, 3); leading dimensions are independent of each other and broadcast.

    Returns
    -------
    Shape (..., n, m): Euclidean on a plane, great-circle on the sphere.
    """
    straight = _straight_distances(first_m, second_m)
    if not are_on_sphere(first_m):
        return straight
    arc = arc_m(straight)
    if straight.size and straight.max() > FAR_CHORD * RADIUS_M:
        arc = np.where(
            straight > FAR_CHORD * RADIUS_M, np.pi * RADIUS_M - arc_m(_straight_distances(first_m, -second_m)), arc
        )
    return arc


def _straight_distances(first_m: Floats, second_m: Floats) -> Floats:
    is_many = len(first_m) * len(second_m) > _FEW_DISTANCES or "scipy.spatial" in sys.modules
    if first_m.ndim == second_m.ndim == 2 and is_many:
        return np.asarray(scipy.spatial.distance.cdist(first_m, second_m))
    # One coordinate at a time: all differences at once would take two or three times the memory.
    square = first_m[..., :, None, 0] - second_m[..., None, :, 0]
    square *= square
    for axis in range(1, first_m.shape[-1]):
        difference = first_m[..., :, None, axis] - second_m[..., None, :, axis]
        difference *= difference
        square += difference
    return np.asarray(np.sqrt(square, out=square))


def straight_radius(radius_m: float, places_m: Floats) -> float:
    """Convert a radius [m] along the surface to the Euclidean distance [m] for a search tree.

    Euclidean and great-circle order agree, so nearest neighbours need no conversion.
    """
    return chord_m(radius_m) if are_on_sphere(places_m) else radius_m


def number_places(places_m: Floats, within_m: float = 0.0) -> NDArray[np.intp]:
    """Label places in order of first occurrence, equally if coincident or linked by less than `within_m` [m].

    The distance is Euclidean; shape (places,).
    """
    count, pairs = len(places_m), _find_pairs(places_m, max(within_m, COINCIDENT_M))
    if not len(pairs):
        return np.arange(count)
    near = scipy.sparse.coo_array((np.ones(len(pairs), dtype=bool), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    return np.asarray(scipy.sparse.csgraph.connected_components(near, directed=False)[1], dtype=np.intp)


def name_coincident(stations: Stations) -> str:
    """Name the first five pairs of coincident stations for a message; empty if there are none."""
    places_m, names = stations.positions_m, stations.names
    pairs = sorted(_find_pairs(places_m, COINCIDENT_M).tolist())
    return ", ".join(f"{names[i]} and {names[j]}" for i, j in pairs[:5])


def _find_pairs(places_m: Floats, reach_m: float) -> NDArray[np.intp]:
    """Find the pairs of places within a Euclidean distance [m], lower index first, shape (pairs, 2)."""
    if len(places_m) ** 2 > _FEW_DISTANCES:
        return np.asarray(scipy.spatial.cKDTree(places_m).query_pairs(reach_m, output_type="ndarray"), dtype=np.intp)
    return np.argwhere(np.triu(_straight_distances(places_m, places_m) <= reach_m, 1))


def refuse_sphere(label: str, places_m: Floats) -> None:
    """Reject places on the sphere for methods that need a plane.

    Raises
    ------
    InvalidQuery
        Suggests a planar distance.
    """
    if are_on_sphere(places_m):
        raise InvalidQuery(
            f"{label} needs places on a plane; this network is so wide that its places are on the sphere; use "
            "ordinary_kriging, inverse_distance or nearest, or ask for distance='plane' and accept its distortion"
        )


@dataclass(frozen=True, eq=False)
class Samples:
    """Values at stations for validating methods.

    Raises
    ------
    InvalidQuery
        Inconsistent shapes.
    """

    values: Floats
    """Shape (slices, stations), NaN where missing."""
    positions_m: Floats
    """Shape (stations, 2), or (stations, 3) on the sphere [m]; stations without a finite position are ignored."""
    elevation_m: Floats
    """Shape (stations,) [m], NaN where unknown."""
    names: tuple[str, ...]
    unit: str = ""
    """Unit of the values."""
    covariates: Mapping[str, Floats] = field(default_factory=dict)
    """Covariates of the stations by name, in addition to elevation; shape (stations,) each."""

    @classmethod
    def of(
        cls,
        values: Floats,
        positions_m: Floats,
        elevation_m: Floats | None = None,
        *,
        names: tuple[str, ...] | None = None,
        unit: str = "",
    ) -> "Samples":
        """Build samples; by default stations are numbered and their elevations unknown."""
        count = np.shape(positions_m)[0] if np.ndim(positions_m) else 0
        elevation = np.full(count, np.nan) if elevation_m is None else np.asarray(elevation_m, dtype=np.float64)
        called = tuple(map(str, range(count))) if names is None else names
        places = np.asarray(positions_m, dtype=np.float64)
        return cls(np.asarray(values, dtype=np.float64), places, elevation, called, unit)

    def __post_init__(self) -> None:
        count = len(self.names)
        placed = self.positions_m.shape in ((count, 2), (count, 3))
        if self.values.shape[1:] != (count,) or not placed or len(self.elevation_m) != count:
            raise InvalidQuery(
                "samples need values (slices, stations), positions (stations, 2), elevations and names (stations); got "
                f"{self.values.shape}, {self.positions_m.shape}, {self.elevation_m.shape} and {count} names"
            )

    @property
    def stations(self) -> Stations:
        return Stations(self.positions_m, self.names, {"elevation": self.elevation_m, **self.covariates})

    @property
    def usable_mask(self) -> NDArray[np.bool_]:
        """Which stations have a position and at least one value, shape (stations,)."""
        placed = np.isfinite(self.positions_m).all(axis=1)
        return np.asarray(placed & np.isfinite(self.values).any(axis=0))

    def take_stations(self, stations: NDArray[np.bool_]) -> "Samples":
        """Select stations by a mask, shape (stations,)."""
        names = tuple(name for name, kept in zip(self.names, stations, strict=True) if kept)
        places, elevation = self.positions_m[stations], self.elevation_m[stations]
        covariates = {name: values[stations] for name, values in self.covariates.items()}
        return Samples(self.values[:, stations], places, elevation, names, self.unit, covariates)


def group_masks(present: NDArray[np.bool_]) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.intp]]]:
    """Yield each distinct mask, shape (stations,), with the indices of its slices.

    Parameters
    ----------
    present
        Which station reports in which slice, shape (slices, stations).
    """
    if not present.size:
        return
    if (present == present[0]).all():
        # Most blocks of a surface have only such slices.
        yield present[0], np.arange(len(present))
        return
    packed = np.packbits(present, axis=1)
    keys = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    edges = np.flatnonzero(np.diff(inverse[order])) + 1
    for first, slices in zip(firsts, np.split(order, edges), strict=True):
        yield present[first], slices
