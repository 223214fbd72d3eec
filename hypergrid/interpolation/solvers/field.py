"""Kriging on all stations: one kriging system serves every slice, whichever stations report.

Kriging is self-consistent: once the stations missing from a slice are kriged from those present, the estimate from ALL
stations equals that from those present (design section 5). With P the inverse of the full bordered matrix, M the
missing and A the present stations: `z_M = -inv(P_MM) P_MA z_A`; and the variance grows from that of all stations by
`w_M' inv(P_MM) w_M`, w the weights from all stations (Schur complement). This holds for every drift, provided that the
stations present determine its coefficients.

Estimates use the dual form: P times the values once, then one product with the right-hand sides of the targets. This
avoids the weights of each target, which cost a product of stations by stations per target.
"""

from copy import copy
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.blas import threads_for
from hypergrid.core.errors import SingularSystem
from hypergrid.core.pacing import ranges, split_work
from hypergrid.interpolation.kernels.covariance import FEW_COLUMNS, WORTH_COMPILED
from hypergrid.interpolation.kernels.tiled_cholesky import TILE, decompose, multiply, solve
from hypergrid.interpolation.points import Field, Floats, Targets, group_masks
from hypergrid.interpolation.solvers.factored import FactoredSystem
from hypergrid.interpolation.solvers.system import KrigingSystem
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache, key_of

BATCH_FLOATS = 2**21
"""Numbers in one batch of small systems (16 MiB)."""
PIECE_PAIRS = 2_000_000
"""Pairs of a target and a station whose right-hand sides are computed and used together (16 MB)."""
TARGETS_AT_ONCE = 256
"""Targets whose variance growth is computed together."""
LOSS_FLOATS = 2**18
"""Weights of these targets at the missing stations of a batch of masks: 2 MiB, which the cache holds.

A single mask may have more.
"""

# At this size an inverse is some tens of milliseconds of work.
WORTH_TILES = 3 * TILE
"""Rows of a system from which its inverse is computed by tiles."""


def is_factored(size: int) -> bool:
    """Decide whether a system of `size` rows is factorised, and inverted only on demand."""
    # An inverse is three times the work of a factor, which only pays if it can be cached for the next query.
    return not WEIGHTS.takes(8 * size * size)


def inverse_of(system: KrigingSystem) -> Floats:
    """Invert a system, a large one by its Cholesky factor.

    Raises
    ------
    SingularSystem
        The system has no unique solution.
    """
    # Inverting by the factor takes a quarter of the work, and yields to other work between tiles.
    if system.size >= WORTH_TILES:
        try:
            return FactoredSystem(system).inverse
        except SingularSystem:
            # A model that is not a valid variogram at these places has no Cholesky factor, but may have an inverse.
            pass
    return system.invert()


def solved_by_tiles(block: Floats, side: Floats) -> Floats:
    """Solve a symmetric system for one right-hand side, by Cholesky factorisation if possible."""
    try:
        factor = block.copy()
        decompose(factor)
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.solve(block, side))
    sides: Floats = side[None].copy()
    solve(factor, sides)
    return np.asarray(sides[0])


class KrigingField(Field):
    """Kriged field of many slices over one network, evaluated at targets."""

    def __init__(self, system: KrigingSystem, values: Floats, *, noise_free: bool = False) -> None:
        self.system = system
        self.noise_free = noise_free
        self._job_pairs, self._keep = 0, True
        self.mean = system.drift.drift.mean or 0.0
        """Known mean of simple kriging, otherwise 0."""
        self.factored = FactoredSystem(system) if is_factored(system.size) else None
        """Factored system if its inverse is too large to cache, otherwise None."""
        if self.factored is None:
            self._inverse = WEIGHTS.get(system.key, lambda: inverse_of(system))
        self._set_values(values)

    def _set_values(self, values: Floats) -> None:
        self.present = np.isfinite(values)
        """Which station is used in which slice, shape (slices, stations); all False in slices with too few stations."""
        self._drop_undetermined()
        self._values = np.asarray(values, dtype=np.float64)

    def replace_values(self, values: Floats) -> "KrigingField":
        other = self._copy()
        other._set_values(values)
        return other

    def take_slices(self, slices: NDArray[np.intp]) -> "KrigingField":
        part = self._copy()
        part.present, part._values = self.present[slices], self._values[slices]
        if "complete" in self.__dict__:
            # Reuse gaps that are already filled.
            part.__dict__["complete"] = self.complete[slices]
        return part

    def _copy(self) -> "KrigingField":
        """Copy the field without what it cached of all slices."""
        other = copy(self)
        for name in ("complete", "_dual", "_losses"):
            other.__dict__.pop(name, None)
        return other

    @property
    def values(self) -> Floats:
        """Values of the stations that are used in each slice, NaN elsewhere, shape (slices, stations)."""
        return np.where(self.present, self._values, np.nan)

    @property
    def inverse(self) -> Floats:
        """Inverse P of the bordered matrix, shape (stations + functions, stations + functions); read-only."""
        return self._inverse if self.factored is None else self.factored.inverse

    @cached_property
    def complete(self) -> Floats:
        """Values of every station in every slice, missing ones kriged; NaN if too few stations report."""
        return self._krige_missing(self._values - self.mean) + self.mean

    @property
    def counts(self) -> NDArray[np.int32]:
        return np.asarray(self.present.sum(axis=1), dtype=np.int32)

    def estimate(self, targets: Targets, *, out: Floats | None = None) -> Floats:
        """Estimate the targets, shape (slices, targets), into `out` if given; NaN if too few stations report."""
        return self.carry(self._dual, targets, out=out)

    @cached_property
    def _dual(self) -> Floats:
        return self.dual(self.complete)

    def dual(self, values: Floats) -> Floats:
        """Compute the dual form of values of all stations, shape (stations + functions, slices).

        Parameters
        ----------
        values
            `complete`, or weighted means of it over slices: shape (slices, stations); each row is NaN throughout or
            nowhere.
        """
        if self.factored is not None:
            return self.factored.dual(values - self.mean)
        return multiply(self.inverse[:, : self.system.stations.count], (values - self.mean).T)

    def carry(self, dual: Floats, targets: Targets, *, out: Floats | None = None) -> Floats:
        """Evaluate a dual form at targets, shape (slices, targets)."""
        if dual.shape[1] <= FEW_COLUMNS and targets.parts == 1 and not self._is_kept(targets):
            result = self.system.multiply_sides(dual, targets, job_pairs=self._job_pairs)
        else:
            result = np.empty((dual.shape[1], targets.count)) if out is None else out
            self._multiply(np.ascontiguousarray(dual.T), targets, result)
        if self.mean:
            result += self.mean
        return result

    def _multiply(self, columns: Floats, targets: Targets, result: Floats) -> None:
        """Write the products of a dual form with the targets' right-hand sides into `result`."""

        def piece(span: slice) -> None:
            np.matmul(columns, self.sides(targets.take_targets(span)).T, out=result[:, span])

        stations = self.system.stations.count
        step = max(1, PIECE_PAIRS // (stations * targets.parts))
        pieces = [slice(start, min(start + step, targets.count)) for start in range(0, targets.count, step)]
        if len(pieces) > 1 and self._job_pairs * targets.parts > WORTH_COMPILED:
            # Each thread computes right-hand sides and uses them while they are in its cache. A job this large loads
            # the compiled loops anyway.
            from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

            share(piece, pieces)
        else:
            with threads_for(stations * result.size):
                piece(slice(0, targets.count))

    def sides(self, targets: Targets) -> Floats:
        """Return the right-hand sides of targets, shape (targets, stations + functions), read-only.

        They are cached for small jobs.
        """
        # The next slice of a growing map took 11 ms when they were recomputed, 1 ms from the cache. Large jobs are not
        # cached: the compiled loops take about a nanosecond per pair, as long as reading it.
        if not self._is_kept(targets):
            return self.system.sides(targets, job_pairs=self._job_pairs)
        key = key_of(self.system.key, targets.key)
        return WEIGHTS.get(key, lambda: self.system.sides(targets, job_pairs=self._job_pairs))

    def _is_kept(self, targets: Targets) -> bool:
        pairs = max(len(targets.positions_m) * self.system.stations.count, self._job_pairs)
        return self._keep and pairs <= WORTH_COMPILED

    def expect(self, places: int, slices: int, *, cache: WeightCache | None = WEIGHTS) -> None:
        """Announce the places of the whole job, which select the method for all its parts.

        Right-hand sides are what may be cached for later slices.
        """
        # Right-hand sides would fill the cache of a single run.
        self._job_pairs, self._keep = places * self.system.stations.count, cache is WEIGHTS

    def variance(self, targets: Targets) -> Floats:
        """Compute the kriging variance of each slice's estimates, shape (slices, targets).

        It is the variance of the observable value or, if the field is `noise_free`, of the value without the
        measurement error in the nugget. NaN if the variogram is assumed.
        """
        if self.is_assumed:
            return np.full((len(self.present), targets.count), np.nan)
        sides = self.sides(targets)
        grows = self.present.any(axis=1) & ~self.present.all(axis=1)
        if self.factored is not None and not grows.any():
            # The factor suffices without weights: half of the work, and no inverse.
            reduced, result = self.factored.reduction(sides), np.zeros((len(self.present), len(sides)))
            result[~self.present.any(axis=1)] = np.nan
        else:
            solved = multiply(sides, self.inverse)
            reduced, result = np.einsum("ps,ps->p", solved, sides), self.growth(solved)
        full = self.system.within_variance(targets) - reduced
        if self.noise_free and targets.parts == 1:
            full = full - self.system.model.noise
        result += full
        # At a station rounding may give a value below zero; NaN is preserved.
        np.maximum(result, 0.0, out=result)
        return result

    def growth(self, solved: Floats) -> Floats:
        """Compute how much missing stations increase variances, shape (slices, targets); NaN if none reports.

        Parameters
        ----------
        solved
            Weights of all stations, shape (targets, stations or more): `sides @ inverse`.
        """
        result = np.zeros((len(self.present), len(solved)))
        result[~self.present.any(axis=1)] = np.nan
        losses = self._losses
        if not losses:
            return result
        room = min(TARGETS_AT_ONCE, len(solved)) * max(missing.size for missing, *_ in losses)

        def piece(span: slice) -> None:
            weights = np.ascontiguousarray(solved[span].T)
            # Two arrays serve all products of a tile: where the allocator returns freed pages, clearing new ones took
            # longer than the products.
            of_missing, halves = np.empty((2, room))
            for missing, roots, slices, mask_numbers in losses:
                shape = (*missing.shape, weights.shape[1])
                size = missing.size * weights.shape[1]
                part, half = of_missing[:size].reshape(shape), halves[:size].reshape(shape)
                # No station is out of range: the mode "raise" would write to a copy first.
                np.take(weights, missing, axis=0, out=part, mode="clip")
                np.matmul(roots, part, out=half)
                result[slices, span] = np.einsum("mct,mct->mt", half, half)[mask_numbers]

        if self._job_pairs > WORTH_COMPILED:
            from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

            share(piece, [slice(first, first + TARGETS_AT_ONCE) for first in range(0, len(solved), TARGETS_AT_ONCE)])
        else:
            for span in split_work(len(solved), TARGETS_AT_ONCE):
                piece(span)
        return result

    @cached_property
    def _losses(self) -> list[tuple[NDArray[np.intp], Floats, NDArray[np.intp], NDArray[np.intp]]]:
        """Factors of the variance growth, in batches of masks with equally many missing stations.

        Missing stations of each mask, shape (masks, lacking); inverted Cholesky factors of their block of P, shape
        (masks, lacking, lacking), whose products with the weights of a target have squares that sum to the growth;
        slices; and the mask index of each slice.
        """
        by_count: dict[int, list[tuple[NDArray[np.intp], NDArray[np.intp]]]] = {}
        for mask, slices in group_masks(self.present):
            if mask.any() and not mask.all():
                missing = np.flatnonzero(~mask)
                by_count.setdefault(len(missing), []).append((missing, slices))
        batches = []
        for count, sets in by_count.items():
            for span in split_work(len(sets), LOSS_FLOATS // (count * max(count, TARGETS_AT_ONCE))):
                part = sets[span]
                missing = np.stack([missing for missing, _ in part])
                blocks = self.inverse[missing[:, :, None], missing[:, None, :]]
                mask_numbers = np.repeat(np.arange(len(part)), [len(slices) for _, slices in part])
                slices = np.concatenate([slices for _, slices in part])
                batches.append((missing, np.linalg.inv(np.linalg.cholesky(blocks)), slices, mask_numbers))
        return batches

    def _drop_undetermined(self) -> None:
        """Treat slices whose stations do not determine the estimate as slices without stations."""
        needed = self.system.drift.drift.min_stations()
        self.present[self.present.sum(axis=1) < needed] = False
        if needed > 1 and self.present.size:
            columns = self.system.drift.columns(self.system.stations)
            for mask, slices in group_masks(self.present):
                if mask.any() and not self.system.drift.is_determined((columns * mask[:, None])[None])[0]:
                    self.present[slices] = False

    def _krige_missing(self, values: Floats) -> Floats:
        filled = np.ascontiguousarray(np.where(self.present, values, 0.0))
        has_values = self.present.any(axis=1)
        filled[~has_values] = np.nan
        left = np.flatnonzero(has_values & ~self.present.all(axis=1))
        # The compiled loops copy the inverse, for which a large network has no room.
        if self._job_pairs > WORTH_COMPILED and len(left) and self.factored is None:
            left = left[~self._fill_compiled(filled)[left]]
        self._fill_batches(filled, left)
        return filled

    def _fill_compiled(self, filled: Floats) -> NDArray[np.bool_]:
        """Fill the missing values slice by slice in compiled loops; return which slices are done."""
        from hypergrid.interpolation.kernels import imputation  # noqa: PLC0415
        from hypergrid.interpolation.kernels.threads import share  # noqa: PLC0415

        stations = filled.shape[1]
        core = np.ascontiguousarray(self.inverse[:stations, :stations])
        present = np.ascontiguousarray(self.present)
        solved = np.zeros(len(filled), dtype=bool)
        edges = np.linspace(0, len(filled), 5).astype(int).tolist()

        def piece(rows: slice) -> None:
            for first, stop in ranges(rows.stop - rows.start):
                imputation.impute(core, present, filled, solved, rows.start + first, rows.start + stop)

        # One slice after another takes a third of the time of batches.
        share(piece, [slice(first, stop) for first, stop in zip(edges[:-1], edges[1:], strict=True)])
        return solved

    def _fill_batches(self, filled: Floats, slices: NDArray[np.intp]) -> None:
        """Fill the missing values in batches of slices with equally many missing stations."""
        if not len(slices):
            return
        stations = filled.shape[1]
        core = self.inverse[:stations, :stations]
        carried = multiply(filled, core)
        # A loop over masks took 70 ms at 200 stations, 1,000 slices and 700 masks, most of it outside LAPACK.
        lacking = stations - self.present[slices].sum(axis=1)
        for count in np.flatnonzero(np.bincount(lacking)).tolist():
            alike = slices[lacking == count]
            for span in split_work(len(alike), BATCH_FLOATS // count**2):
                self._fill_batch(filled, carried, core, alike[span], count)

    def _fill_batch(self, filled: Floats, carried: Floats, core: Floats, slices: NDArray[np.intp], count: int) -> None:
        missing = np.nonzero(~self.present[slices])[1].reshape(len(slices), count)
        right = carried[slices[:, None], missing]
        if count >= WORTH_TILES:
            for number, lacking in enumerate(missing):
                filled[slices[number], lacking] = -solved_by_tiles(core[np.ix_(lacking, lacking)], right[number])
            return
        blocks = core[missing[:, :, None], missing[:, None, :]]
        filled[slices[:, None], missing] = -np.linalg.solve(blocks, right[:, :, None])[:, :, 0]
