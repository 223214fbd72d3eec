"""Neighbourhoods: chunks of targets with the candidate stations of each, nearest first."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.interpolation.points import COINCIDENT_M, Floats, Targets, are_on_sphere, separations, straight_radius
from hypergrid.interpolation.solvers.system import KrigingSystem

SECTORS = 8
"""Sectors of 45 degrees around a target, the first from east to north-east."""
# Outages occur in clusters.
MORE_CANDIDATES = 12
"""Candidates beyond the number needed on average."""
MORTON_BITS = 12
"""Bits per coordinate of a Morton code."""
ANY_SEED = 20071001
"""Seed of the random station hashes; any constant will do."""


class TargetChunk(NamedTuple):
    """Input of the solvers for some targets; a station's index is its row in `covariances`."""

    candidates: NDArray[np.int32]
    """Stations of each target, nearest first, shape (targets, candidates); padded with the number of stations."""
    complete: NDArray[np.bool_]
    """Whether no further station qualifies for the target, shape (targets,)."""
    sectors: NDArray[np.int8]
    """Sector of each candidate, shape (targets, candidates); (targets, 0) without octants."""
    sides: Floats
    """Covariances of targets and candidates, means over the parts of a target, shape (targets, candidates)."""
    functions: Floats
    """Drift functions at the targets, shape (targets, functions)."""
    within_variance: Floats
    """Own variance of each target, shape (targets,)."""
    covariances: Floats
    """Covariances within the stations, shape (stations, stations)."""
    station_functions: Floats
    """Drift functions at the stations, shape (functions, stations)."""
    hashes: NDArray[np.uint64]
    """Random number of each station, shape (stations,); the exclusive or over a set identifies it."""
    numbers: NDArray[np.intp]
    """Indices of the stations in the whole network, ascending, shape (stations,)."""

    @property
    def nbytes(self) -> int:
        """Memory used by the arrays [bytes]."""
        return sum(array.nbytes for array in self)


@dataclass(frozen=True)
class NeighbourSelection:
    """Rule that selects reporting stations for a target."""

    neighbours: int
    """Maximum number of stations, nearest first."""
    radius_m: float | None = None
    """Maximum distance [m]; None for no limit."""
    octants: int | None = None
    """Maximum stations in each sector; None for no limit."""

    @property
    def max_stations(self) -> int:
        return self.neighbours if self.octants is None else min(self.neighbours, SECTORS * self.octants)


class Neighbourhood:
    """Candidate stations: those that report in any slice of a group."""

    def __init__(self, system: KrigingSystem, numbers: NDArray[np.intp], selection: NeighbourSelection) -> None:
        self.system = system
        self._numbers = numbers
        self._selection = selection
        self._isotropic_m = system.isotropic_m[numbers]
        self._positions_m = system.stations.positions_m[numbers]
        self._tree = scipy.spatial.cKDTree(self._isotropic_m)
        generator = np.random.default_rng(ANY_SEED)
        self._hashes = generator.integers(1, 2**64 - 1, system.stations.count, dtype=np.uint64, endpoint=True)

    @property
    def stations(self) -> int:
        return len(self._numbers)

    def make_chunk(self, targets: Targets, width: int) -> TargetChunk:
        """Build the chunk of some targets with at most `width` candidates each."""
        width = min(width, self.stations)
        middles_m = targets.mean(targets.positions_m)
        near, beyond = self._find_near(self.system.model.isotropic(middles_m), width)
        complete = np.ones(targets.count, dtype=bool) if width == self.stations else beyond[:, -1].copy()
        sectors = (
            self._find_sectors(middles_m, near) if self._selection.octants else np.empty((len(near), 0), dtype=np.int8)
        )
        # Restricted to candidates of these targets: the covariances have the size of their number squared.
        used = np.zeros(self.stations + 1, dtype=bool)
        used[near] = True
        used[-1] = False
        own = np.flatnonzero(used)
        renumbered = np.full(self.stations + 1, len(own), dtype=np.int32)
        renumbered[own] = np.arange(len(own), dtype=np.int32)
        numbers = self._numbers[own]
        covariances = self.system.covariance(self._isotropic_m[own], self._isotropic_m[own])
        np.fill_diagonal(covariances, self.system.origin)
        stations = self.system.stations
        within = np.asarray(self.system.within_variance(targets), dtype=np.float64)
        return TargetChunk(
            candidates=renumbered[near],
            complete=complete,
            sectors=sectors,
            sides=self._find_sides(targets, near),
            functions=np.ascontiguousarray(self.system.drift.columns(targets)),
            within_variance=np.broadcast_to(within, (targets.count,)).copy(),
            covariances=covariances,
            station_functions=np.ascontiguousarray(self.system.drift.columns(stations)[numbers].T),
            hashes=self._hashes[numbers],
            numbers=numbers,
        )

    def _find_near(self, middles_m: Floats, width: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Find candidates, shape (targets, width), and which are padding because no further one is within reach."""
        radius_m, anisotropy = self._selection.radius_m, self.system.model.anisotropy
        reach = np.inf
        if radius_m is not None:
            # The tree holds isotropic places, whose distances anisotropy stretches by its ratio at most.
            straight = straight_radius(radius_m, self._positions_m)
            reach = np.nextafter(straight * (anisotropy.ratio if anisotropy else 1.0), np.inf) * (1 + 1e-12)
        distance, near = self._tree.query(middles_m, k=np.arange(1, width + 1), distance_upper_bound=reach)
        tied = distance[:, 1:] == distance[:, :-1]
        if tied.any():
            # Ties go to the station with the lower index, whatever order the tree returns.
            rows = np.flatnonzero(tied.any(axis=1))
            order = np.lexsort((near[rows], distance[rows]), axis=1)
            near[rows] = np.take_along_axis(near[rows], order, axis=1)
        beyond = near == self.stations
        if radius_m is not None and anisotropy:
            plain = np.linalg.norm(
                self._pad_places(self._positions_m)[near] - self._to_plane(middles_m)[:, None, :], axis=-1
            )
            near[plain > radius_m] = self.stations
        return near, beyond

    def _to_plane(self, middles_m: Floats) -> Floats:
        """Transform isotropic places back to the plane."""
        anisotropy = self.system.model.anisotropy
        return middles_m @ np.linalg.inv(anisotropy.isotropic(np.eye(2))) if anisotropy else middles_m

    def _pad_places(self, places_m: Floats) -> Floats:
        """Append one place for padding entries."""
        return np.concatenate([places_m, np.zeros((1, places_m.shape[1]))])

    def _find_sectors(self, middles_m: Floats, near: NDArray[np.intp]) -> NDArray[np.int8]:
        ways = self._pad_places(self._positions_m)[near] - middles_m[:, None, :]
        if are_on_sphere(middles_m):
            x, y, z = np.moveaxis(middles_m, -1, 0)
            around = np.maximum(np.hypot(x, y), 1e-9)
            east = np.stack([-y / around, x / around, np.zeros_like(x)], axis=-1)
            north = np.stack([-z * x / around, -z * y / around, around], axis=-1) / np.linalg.norm(
                middles_m, axis=-1, keepdims=True
            )
            to_east, to_north = (np.einsum("tkd,td->tk", ways, axis) for axis in (east, north))
        else:
            to_east, to_north = ways[..., 0], ways[..., 1]
        turned = np.floor(np.arctan2(to_north, to_east) / (2.0 * np.pi / SECTORS))
        return np.asarray(turned.astype(np.int8) % SECTORS, dtype=np.int8)

    def _find_sides(self, targets: Targets, near: NDArray[np.intp]) -> Floats:
        model, origin = self.system.model, self.system.origin
        parts_m = model.isotropic(targets.positions_m).reshape(targets.count, targets.parts, -1)
        distance = separations(parts_m, self._pad_places(self._isotropic_m)[near])
        values = origin - model.semivariance(distance)
        if targets.parts == 1:
            if model.nugget_is == "micro-scale":
                values[distance <= COINCIDENT_M] = origin
            return np.ascontiguousarray(values[:, 0])
        return np.ascontiguousarray(np.einsum("tpk,p->tk", values, targets.weights))


def select_targets(targets: Targets, numbers: NDArray[np.intp]) -> Targets:
    """Select targets by index."""
    parts = (numbers[:, None] * targets.parts + np.arange(targets.parts)).ravel()
    covariates = {name: values[parts] for name, values in targets.covariates.items()}
    return Targets(targets.positions_m[parts], covariates, targets.weights)


def find_morton_order(places_m: Floats) -> NDArray[np.intp]:
    """Find an order in which consecutive places are close to each other (Morton 1966)."""
    low = places_m.min(axis=0)
    extent = float((places_m.max(axis=0) - low).max()) or 1.0
    steps = ((places_m - low) * (2**MORTON_BITS - 1) / extent).astype(np.uint64)
    dimensions = places_m.shape[1]
    code = np.zeros(len(places_m), dtype=np.uint64)
    for bit in range(MORTON_BITS):
        for dimension in range(dimensions):
            bits = (steps[:, dimension] >> np.uint64(bit)) & np.uint64(1)
            code |= bits << np.uint64(bit * dimensions + dimension)
    return np.argsort(code, kind="stable")
