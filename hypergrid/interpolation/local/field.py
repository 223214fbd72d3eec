"""Kriging from the k nearest reporting stations, optionally within a radius or by octants.

Each distinct set of stations is solved once for all its targets and slices; from one mask to the next only targets
whose own set changed are solved again. The work therefore grows with the number of cells, slices and changes, not with
the number of stations. A field of few slices caches its weights for the next one (`Weights`).
"""

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from math import floor, log2
from typing import cast

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import ranges
from hypergrid.interpolation.kernels.local_task import (
    COUNTS,
    ESTIMATES,
    SOLVED,
    TOO_FEW_CANDIDATES,
    UNSOLVED,
    VARIANCES,
    WEIGHTS_OF_ONE,
    ChunkOutput,
    LocalTask,
    task_of,
    weight_rows,
)
from hypergrid.interpolation.kernels.tiled_cholesky import run_pieces
from hypergrid.interpolation.local import numpy_backend
from hypergrid.interpolation.local.neighbourhood import (
    MORE_CANDIDATES,
    Neighbourhood,
    NeighbourSelection,
    TargetChunk,
    find_morton_order,
    select_targets,
)
from hypergrid.interpolation.points import Field, Floats, Targets, group_masks
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import ALLOWED_BYTES, WEIGHTS, WeightCache, key_of

# Sparse kriging weights of some targets under one mask, cached between queries.
#
# They depend on places, variogram, drift and the mask, never on values. A field of few slices, such as a block of a
# surface or the newest slice of a standing query, is therefore a product with weights cached by the previous block or
# query, as long as the same stations report.

# More slices have too many masks; the loops then solve only what changes between them.
FEW_SLICES = 8
"""Maximum slices for which weights are cached."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Kriging weights of some targets under one mask."""

    matrix: "scipy.sparse.csr_array"
    """Shape (targets, stations); equally many entries per target, zero beyond its stations."""
    variance: Floats
    """Kriging variances, NaN where too few stations qualify, shape (targets,)."""
    counts: NDArray[np.int32]
    """Stations used, 0 where they do not determine an estimate, shape (targets,)."""

    @classmethod
    def of(cls, rows: Floats, stations: int) -> "Weights":
        """Build from rows of `WEIGHTS_OF_ONE`, shape (`weight_rows(most)`, targets); overwrites their NaN with 0."""
        max_stations, targets = (len(rows) - 2) // 2, rows.shape[1]
        # Targets without an estimate have NaN in all rows.
        np.nan_to_num(rows, copy=False, nan=0.0)
        counts = rows[-1].astype(np.int32)
        parts = (
            rows[:max_stations].T.ravel(),
            rows[max_stations : 2 * max_stations].T.astype(np.int32).ravel(),
            np.arange(0, max_stations * targets + 1, max_stations, dtype=np.int32),
        )
        matrix = scipy.sparse.csr_array(parts, shape=(targets, stations))
        return cls(matrix, np.where(counts > 0, rows[-2], np.nan), counts)

    @property
    def nbytes(self) -> int:
        matrix = self.matrix
        arrays = (matrix.data, matrix.indices, matrix.indptr, self.variance, self.counts)
        return sum(array.nbytes for array in arrays)

    def put(self, what: int, values: Floats, slices: NDArray[np.intp], out: Floats) -> None:
        """Write estimates, variances or counts of some slices into their rows of `out`.

        Parameters
        ----------
        what
            `ESTIMATES`, `VARIANCES` or `COUNTS`.
        values
            Values of every slice minus the known mean, 0 where missing, shape (slices, stations).
        """
        if what != ESTIMATES:
            out[slices] = self.counts if what == COUNTS else self.variance
            return
        lacking = self.counts == 0
        has_gaps = bool(lacking.any())
        # Slice by slice: three slices of 40,000 targets take 0.8 ms, and 1.4 ms as one product.
        for number in slices.tolist():
            out[number] = self.matrix @ values[number]
            if has_gaps:
                out[number, lacking] = np.nan


def projected_bytes(targets: int, maximum: int) -> int:
    return targets * (12 * maximum + 16)


def held_bytes(places: int, block: int, maximum: int, stations: int, masks: int, *, allowed: int | None = None) -> int:
    """Project the memory for weights: cached ones, with neighbours, and those under construction [bytes].

    Parameters
    ----------
    places, block
        Targets in all, and those estimated together.
    maximum, stations
        Maximum stations used per target, and stations in all.
    masks
        Maximum number of masks.
    allowed
        Memory budget of a run's own cache; None for the cache that runs share.
    """
    if allowed is not None:
        return 2 * 8 * block * weight_rows(maximum) + min(allowed, masks * projected_bytes(block, maximum))
    if not WEIGHTS.takes(projected_bytes(places, maximum)):
        return 0
    # Transposing an array holds each number twice.
    making = 2 * 8 * block * weight_rows(maximum)
    chunks = 13 * places * min(stations, 12 * maximum)
    return making + min(ALLOWED_BYTES, masks * projected_bytes(places, maximum) + chunks)


POINTS_AT_ONCE = 8192
"""Maximum targets held together."""
# All covariances between these stations and their neighbours are computed.
TOGETHER = 512
"""Approximate stations among the targets of one chunk."""
CHUNK_BYTES = 32 * 2**20
"""Memory budget of the arrays of one chunk [bytes]."""
FACTOR_BYTES = 32 * 2**20
"""Memory budget of the factors of a chunk's sets [bytes]: 8,192 sets of 20 stations."""
# numpy needs about as long for this work as loading the compiled code takes.
WORTH_COMPILED = 6e7
"""Targets times masks times stations squared above which compiled code is used."""
# About a minimum: the sample network has 17.
SLICES_A_MASK = 8
"""Assumed slices per mask, if not all slices are known."""
# Candidates among all stations also serve the next mask.
MANY_REPORT = 0.25
"""Share of reporting stations from which candidates are chosen among all stations."""

Masks = list[tuple[NDArray[np.bool_], NDArray[np.intp]]]
"""Which stations report, shape (stations,), and the slices in which they do."""


class LocalField(Field):
    """Field of many slices over one network, each target kriged from its own neighbourhood."""

    def __init__(
        self, system: KrigingSystem, values: Floats, selection: NeighbourSelection, *, noise_free: bool = False
    ) -> None:
        self.system = system
        self._noise_free = noise_free
        self._job, self._cache = (0, 0), cast("WeightCache | None", WEIGHTS)
        self.selection = replace(selection, neighbours=min(selection.neighbours, system.stations.count))
        """Rule that selects the stations of each target."""
        self.min_stations = system.drift.drift.min_stations()
        """Minimum stations for an estimate."""
        if self.selection.max_stations < self.min_stations:
            raise InvalidQuery(
                f"{system.label} needs at least {self.min_stations} stations for each estimate; got "
                f"neighbours={selection.neighbours} and octants={selection.octants}; raise them"
            )
        self._mean = system.drift.drift.mean or 0.0
        self._set_values(values)
        self._key = key_of("local", system.key, self.selection)

    @property
    def values(self) -> Floats:
        """Values of the stations in each slice, NaN where missing, shape (slices, stations)."""
        return np.where(self._present, self._values + self._mean, np.nan)

    @property
    def counts(self) -> NDArray[np.int32]:
        """Maximum stations used in each slice, shape (slices,)."""
        present = self._present.sum(axis=1)
        used = np.where(present < self.min_stations, 0, np.minimum(present, self.selection.max_stations))
        return np.asarray(used, dtype=np.int32)

    @property
    def counts_are_even(self) -> bool:
        """Whether every target of a slice uses exactly `counts` stations."""
        return self.selection.radius_m is None and self.selection.octants is None and self.min_stations == 1

    def expect(self, places: int, slices: int, *, cache: WeightCache | None = WEIGHTS) -> None:
        """Announce the places and slices of the whole job, which select the method, and where weights are cached."""
        self._job, self._cache = (places, slices), cache

    def replace_values(self, values: Floats) -> "LocalField":
        other = copy(self)
        other._set_values(values)
        return other

    def take_slices(self, slices: NDArray[np.intp]) -> "LocalField":
        part = copy(self)
        part._present, part._values = self._present[slices], self._values[slices]
        return part

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Count the stations used, shape (slices, targets); 0 if they do not determine an estimate."""
        return self._run_task(COUNTS, targets, 0.0).astype(np.int32)

    def estimate(self, targets: Targets, *, out: Floats | None = None) -> Floats:
        """Estimate the targets, shape (slices, targets), in `out` if usable; NaN where too few stations qualify.

        Raises
        ------
        SingularSystem
            A set of stations whose system has no unique solution.
        """
        result = self._run_task(ESTIMATES, targets, np.nan, out)
        if self._mean:
            result += self._mean
        return result

    def variance(self, targets: Targets) -> Floats:
        """Compute the kriging variance of each slice's estimates, shape (slices, targets), as `KrigingField` does.

        Raises
        ------
        SingularSystem
            A set of stations whose system has no unique solution.
        """
        if self.is_assumed:
            return np.full((len(self._values), targets.count), np.nan)
        result = self._run_task(VARIANCES, targets, np.nan)
        if self._noise_free and targets.parts == 1:
            result -= self.system.model.noise
            np.maximum(result, 0.0, out=result, where=~np.isnan(result))
        return result

    def _set_values(self, values: Floats) -> None:
        self._present = np.isfinite(values)
        self._values = np.where(self._present, np.asarray(values, dtype=np.float64) - self._mean, 0.0)

    def _run_task(self, what: int, targets: Targets, missing: float, into: Floats | None = None) -> Floats:
        # The loops are compiled for C-contiguous arrays.
        usable = into is not None and into.flags.c_contiguous
        out = into if into is not None and usable else np.empty((len(self._values), targets.count))
        out.fill(missing)
        usable_masks = [
            (mask, slices) for mask, slices in group_masks(self._present) if mask.sum() >= self.min_stations
        ]
        if not targets.count:
            return out
        if self._keeps_weights(targets):
            for mask, slices in usable_masks:
                self._get_weights(mask, targets).put(what, self._values, slices, out)
            return out
        for numbers, task in self._make_tasks(what, usable_masks):
            around = Neighbourhood(self.system, numbers, self.selection)
            _LocalRun(around, task, targets, out, compiled=self._is_large(targets, len(task.reporting))).run()
        return out

    def _keeps_weights(self, targets: Targets) -> bool:
        """Decide whether to cache weights: only for few slices and, in the whole job, few places."""
        if self._cache is None or len(self._values) > FEW_SLICES:
            return False
        # A cache of its own serves a run block by block of its places.
        places = max(targets.count, self._job[0]) if self._cache is WEIGHTS else targets.count
        return self._cache.takes(projected_bytes(places, self.selection.max_stations))

    def _is_large(self, targets: Targets, masks: int) -> bool:
        """Decide by the size of the whole job whether compiled code is worth loading."""
        # By the whole job: rounding must not depend on how it is split into parts.
        places, slices = self._job
        if slices > len(self._values):
            masks = max(masks, slices // SLICES_A_MASK)
        return float(max(targets.count, places)) * masks * self.selection.max_stations**2 > WORTH_COMPILED

    def _get_weights(self, mask: NDArray[np.bool_], targets: Targets) -> Weights:
        """Return the weights under one mask, computing them on a cache miss."""
        compiled = self._is_large(targets, 1)
        key = key_of(self._key, targets.key, np.packbits(mask), compiled)

        def make() -> Weights:
            stations, count = self.system.stations.count, int(mask.sum())
            numbers = np.arange(stations) if count >= MANY_REPORT * stations else np.flatnonzero(mask)
            max_stations = min(self.selection.max_stations, count)
            rows = np.zeros((weight_rows(max_stations), targets.count))
            masks = [(mask, np.arange(len(rows)))]
            no_values = np.zeros((len(rows), stations))
            shift, octants = self.system.shift, self.selection.octants or 0
            task = task_of(WEIGHTS_OF_ONE, masks, no_values, shift, max_stations, octants)
            around = Neighbourhood(self.system, numbers, self.selection)
            kept = self._key if len(numbers) == stations and self._cache is WEIGHTS else b""
            _LocalRun(around, task, targets, rows, compiled=compiled, key=kept).run()
            return Weights.of(rows, stations)

        return (self._cache or WEIGHTS).get(key, make)

    def _make_tasks(self, what: int, usable_masks: Masks) -> Iterator[tuple[NDArray[np.intp], LocalTask]]:
        """Yield station indices, and a task whose slices have about equally many stations."""
        # In order of time: outages last, so consecutive masks differ little.
        usable_masks.sort(key=lambda pair: int(pair[1][0]))
        max_stations = max((int(mask.sum()) for mask, _ in usable_masks), default=1)
        # Grouped by level, a slice in which few stations report does not lengthen the candidate lists of the others.
        levels = [int(np.log2(max_stations / mask.sum())) for mask, _ in usable_masks]
        for level in sorted(set(levels)):
            masks = [pair for pair, own in zip(usable_masks, levels, strict=True) if own == level]
            numbers = np.flatnonzero(np.any([mask for mask, _ in masks], axis=0))
            max_stations = min(self.selection.max_stations, len(numbers))
            octants = self.selection.octants or 0
            yield numbers, task_of(what, masks, self._values, self.system.shift, max_stations, octants)


class _LocalRun:
    """Runs one task for all targets, chunk by chunk."""

    def __init__(
        self,
        around: Neighbourhood,
        task: LocalTask,
        targets: Targets,
        out: Floats,
        *,
        compiled: bool,
        key: bytes = b"",
    ) -> None:
        """Prepare a task.

        Parameters
        ----------
        compiled
            Whether to use compiled loops.
        key
            Cache key of the network and its neighbour selection, if chunks are cached for other masks.
        """
        self._neighbourhood = around
        self._task = task
        self._targets = targets
        self._out = out
        share = task.reporting.sum() / max(1, len(task.reporting) * around.stations)
        # A cached chunk serves masks with similar numbers of stations: they need equally many candidates.
        often = 2.0 ** (floor(log2(1.0 / share)) + 1) if key else 1.0 / share
        self._width = min(around.stations, int(task.max_stations * often) + MORE_CANDIDATES)
        if task.octants:
            # The nearest stations are not evenly spread over the sectors.
            self._width = min(around.stations, 3 * self._width)
        self._compiled, self._key = compiled, key

    def run(self) -> None:
        order = np.arange(self._targets.count)
        if self._compiled or self._neighbourhood.stations > 2 * TOGETHER:
            # In Morton order fewer stations are near the targets of a chunk.
            order = find_morton_order(self._targets.mean(self._targets.positions_m))
        run_pieces(self._run_piece, self._split_targets(order, self._width), on_threads=self._compiled)

    def _split_targets(self, targets: NDArray[np.intp], width: int) -> list[NDArray[np.intp]]:
        each = 8 * width * (4 + 4 * self._targets.parts)
        max_points = min(POINTS_AT_ONCE, max(16, CHUNK_BYTES // each))
        if self._neighbourhood.stations > 2 * TOGETHER:
            few = max(self._targets.count * TOGETHER // self._neighbourhood.stations, TOGETHER // width)
            max_points = min(max_points, max(16, few))
        number = -(-len(targets) // max_points)
        # An even number of chunks keeps two processors busy to the end.
        return list(np.array_split(targets, number + number % 2 if number > 1 else 1))

    def _run_piece(self, pending: NDArray[np.intp]) -> None:
        """Run some targets, repeating those with too few candidates with more of them."""
        width = self._width
        pending = self._attempt(pending, width)
        while len(pending):
            width = min(4 * width, self._neighbourhood.stations)
            pending = np.concatenate([self._attempt(piece, width) for piece in self._split_targets(pending, width)])

    def _attempt(self, numbers: NDArray[np.intp], width: int) -> NDArray[np.intp]:
        """Run targets with `width` candidates each, and return those that need more."""
        if not self._compiled:
            return self._attempt_batches(numbers, width)
        from hypergrid.interpolation.local import numba_backend  # noqa: PLC0415

        chunk = self._get_chunk(numbers, width)
        if not len(chunk.numbers):
            # Some may have candidates farther away; the others stay missing.
            return np.compress(~chunk.complete, numbers)
        task = self._task.select_stations(chunk.numbers)
        output = self._make_output(numbers)
        floats = (task.max_stations + chunk.functions.shape[1]) * (2 * task.max_stations + 16)
        fits = max(64, min(FACTOR_BYTES // (8 * floats), 2 * len(numbers) * len(task.reporting)))
        # The largest power of two that fits.
        workspace = numba_backend.Workspace.empty(chunk, task, 1 << (fits.bit_length() - 1))
        for first, stop in ranges(len(numbers)):
            numba_backend.run(chunk, task, workspace, output, first, stop)
        odd = numbers[output.status == UNSOLVED]
        if len(odd):
            odd = self._attempt_batches(odd, width)
        return np.concatenate([numbers[output.status == TOO_FEW_CANDIDATES], odd])

    def _attempt_batches(self, numbers: NDArray[np.intp], width: int) -> NDArray[np.intp]:
        chunk = self._get_chunk(numbers, width)
        if not len(chunk.numbers):
            # Some may have candidates farther away; the others stay missing.
            return np.compress(~chunk.complete, numbers)
        output = self._make_output(numbers)
        task, label = self._task.select_stations(chunk.numbers), self._neighbourhood.system.label
        numpy_backend.run(chunk, task, output, label=label)
        return np.compress(output.status != SOLVED, numbers)

    def _make_output(self, numbers: NDArray[np.intp]) -> ChunkOutput:
        return ChunkOutput(self._out, numbers, np.full(len(numbers), SOLVED, dtype=np.int8))

    def _get_chunk(self, numbers: NDArray[np.intp], width: int) -> TargetChunk:
        def make() -> TargetChunk:
            return self._neighbourhood.make_chunk(select_targets(self._targets, numbers), width)

        # Which targets need more candidates depends on the mask, so those chunks cannot be reused.
        if not self._key or width != self._width:
            return make()
        job_bytes = self._targets.count * width * (12 + bool(self._task.octants))
        return WEIGHTS.get(key_of("chunk", self._key, self._targets.key, numbers, width), make, job_bytes=job_bytes)
