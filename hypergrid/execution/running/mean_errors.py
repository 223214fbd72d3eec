"""Error variances of means (or sums) of interpolated estimates, computed block by block."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import scipy  # loads its parts lazily: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.execution.diagnostics import SpaceCover
from hypergrid.execution.operators.grids import count_possible_slices, cover_space
from hypergrid.interpolation import Targets
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.uncertainty.block_variance import (
    Regions,
    combinations_of,
    mean_variance,
    regions_of,
    slice_variance,
)
from hypergrid.interpolation.uncertainty.mean_variance import (
    ALIKE,
    INDEPENDENT,
    Combination,
    Correlation,
    make_ladder,
)
from hypergrid.interpolation.uncertainty.residual_correlation import (
    estimate_correlation,
    standardise_residuals,
)
from hypergrid.interpolation.weight_cache import WEIGHTS, key_of
from hypergrid.perspective import Aggregate, Perspective
from hypergrid.perspective.functions.aggregates import AggregateRow
from hypergrid.perspective.spec.correlation_time import Memory
from hypergrid.topology import Instants, changes_cells, cover
from hypergrid.topology.zone_cells import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightShares:
    """Weights of source cells in the target cells of aggregates."""

    weights: "scipy.sparse.csr_array"
    """Shape (target cells, source cells); missing cells have no entries."""
    min_shares: tuple[float, ...]
    """For each aggregate, in order: the least share of possible values among the cells that it kept."""


def find_time_shares(aggregates: Sequence[Perspective], present: NDArray[np.bool_]) -> WeightShares:
    """Compute the weight of each slice in each time cell of the last aggregate.

    Parameters
    ----------
    aggregates
        Chained linear aggregates, lowest first.
    present
        Mask of the slices that the interpolation has values for, shape (slices,).
    """
    weights, known = _make_identity(present), present
    min_shares = []
    for item in aggregates:
        operator, source, target = item.aggregate, item.source.topology.time, item.topology.time
        if "time" not in operator.dimensions or isinstance(target, Instants):
            min_shares.append(1.0)
            continue
        ranges = cover(source, target)
        members = ranges.list_members()
        sums = scipy.sparse.csr_array(
            (np.ones(len(members)), members, np.append(0, np.cumsum(ranges.sizes))), (target.count, len(known))
        )
        possible = count_possible_slices(source, target)[:, 0]
        weights, known, share = _lift_weights(sums, weights, known, operator, possible)
        min_shares.append(share)
    return WeightShares(weights, tuple(min_shares))


def find_cells_below(
    aggregates: Sequence[Perspective], cells: NDArray[np.intp]
) -> tuple[NDArray[np.intp], list[SpaceCover | None]]:
    """Return the interpolation cells below some cells of the last aggregate, and the covers between."""
    covers: list[SpaceCover | None] = []
    for item in reversed(aggregates):
        source, target = item.source.topology.space, item.topology.space
        space_cover = None
        if changes_cells(source, target):
            space_cover = cover_space(source, target, cells, item.aggregate.row)
            cells = space_cover.needed
        covers.append(space_cover)
    return cells, covers[::-1]


def find_space_shares(
    aggregates: Sequence[Perspective], covers: Sequence[SpaceCover | None], known: NDArray[np.bool_]
) -> WeightShares:
    """Compute the weight of each known interpolation cell in each cell of the last aggregate.

    Parameters
    ----------
    aggregates
        As for `find_time_shares`.
    covers
        As `find_cells_below` returns them.
    known
        Mask of the cells below that are not missing, shape (cells,); the weights have one column per known cell.
    """
    weights = scipy.sparse.csr_array(_make_identity(known)[:, np.flatnonzero(known)])
    min_shares = []
    for item, between in zip(aggregates, covers, strict=True):
        if between is None:
            min_shares.append(1.0)
            continue
        if between.weights is None:
            sums = between.matrix(None)
            weights, known, share = _lift_weights(sums, weights, known, item.aggregate, between.full)
        else:
            weights, known, share = _lift_area_weights(between, weights, known, item.aggregate)
        min_shares.append(share)
    return WeightShares(weights, tuple(min_shares))


def refuse_mixed(aggregates: Sequence[Perspective], in_time: WeightShares, in_space: WeightShares) -> None:
    """Reject aggregates whose missing cells do not separate into time and space.

    Raises
    ------
    InvalidQuery
        An aggregate over both kept a cell for its share in time and another for its share in space, but not both
        together, so the weights are no longer a product.
    """
    for item, time, space in zip(aggregates, in_time.min_shares, in_space.min_shares, strict=True):
        if time * space < item.aggregate.min_coverage * (1 - 1e-12):
            raise InvalidQuery(
                f"the variance needs {item.aggregate.function} over time and over space in steps of their "
                f"own where "
                "both have gaps: aggregate over time first, then over space, or set min_coverage lower"
            )


def _lift_weights(
    sums: "scipy.sparse.csr_array",
    weights: "scipy.sparse.csr_array",
    known: NDArray[np.bool_],
    operator: Aggregate,
    possible: NDArray[np.int64],
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Lift weights by one aggregate; return them, its known cells, and their least share."""
    count = np.rint(sums @ known.astype(np.float64)).astype(np.int64)
    # Leave room for one rounding error, as `mask_uncovered` does.
    kept = (count > 0) & (count >= operator.min_coverage * possible * (1 - 1e-12))
    scale = np.where(kept, _value_weight(operator.row, count), 0.0)
    share = (count / np.maximum(possible, 1))[kept]
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share.min(initial=1.0))


def _lift_area_weights(
    between: SpaceCover, weights: "scipy.sparse.csr_array", known: NDArray[np.bool_], operator: Aggregate
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Lift weights like `_lift_weights`, for cells weighted by area or share."""
    column = known.astype(np.int64)[:, None]
    count = between.sum_counts(column)[:, 0]
    if between.parts is None:
        share = count / between.full
        kept = (count > 0) & (share >= operator.min_coverage * (1 - 1e-12))
    else:
        share = between.coverage(column, np.ones((1, 1), np.int64))[:, 0]
        kept = (count > 0) & (share >= operator.min_coverage * (1 - WHOLE))
    sums = between.matrix(between.weights)
    mass = sums @ known.astype(np.float64)
    # Same scale as in `SpaceCover.sum_weighted`.
    each = np.ones(len(count)) if between.of_sum else count / np.where(mass > 0, mass, 1.0)
    scale = np.where(kept, _value_weight(operator.row, count) * each, 0.0)
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share[kept].min(initial=1.0))


def _value_weight(row: AggregateRow, count: NDArray[np.int64]) -> Floats:
    """Return the weight of a value among `count`: the function of a sum of 1."""
    if row.finish is None:
        raise TypeError(f"{row.name} chooses a value, it has no weights")
    return row.finish((np.ones(count.shape),), np.maximum(count, 1), {})


def _make_identity(known: NDArray[np.bool_]) -> "scipy.sparse.csr_array":
    identity = scipy.sparse.csr_array(scipy.sparse.diags_array(known.astype(np.float64)))
    identity.eliminate_zeros()
    return identity


TargetsOf = Callable[[NDArray[np.intp]], tuple[Targets, NDArray[np.bool_]]]
"""Maps flat cells of the interpolation's grid to targets, and the mask of the cells that have one."""

KEPT_BYTES: Final = 128 * 2**20
"""Memory limit of the mean errors kept between blocks [bytes]; above it they are recomputed per block."""

_RECORD_BYTES: Final = 256
UNKNOWN: Final = (
    "not known: slices taken as fully correlated, the pessimistic end; variance_low takes them as independent"
)
LADDER: Final = (
    "not known: the greatest variance, the pessimistic end, of those with {count} e-folding times from 0 s "
    "(independent slices) over {first} to {last} and infinite (fully correlated), because stations change between "
    "slices; variance_low is the least"
)


class Combinations(tuple[Combination | None, ...]):
    """Combinations of all means, to be cached."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """Memory used [bytes]."""
        return sum(_RECORD_BYTES + (0 if each is None else each.nbytes) for each in self)


class MeanErrors:
    """Error variances of the cells of aggregates on a kriged field of all stations."""

    def __init__(
        self, aggregates: Sequence[Perspective], field: KrigingField, targets_of: TargetsOf, *, memory: Memory
    ) -> None:
        """Compute what all blocks share.

        Parameters
        ----------
        aggregates
            Chained linear aggregates, lowest first, at least one.
        field
            The kriged field that they aggregate.
        targets_of
            Maps cells of the interpolation to targets.
        memory
            Correlation between slices: e-folding time [s], "estimate", or None if not known.
        """
        self._aggregates, self._field, self._targets_of = aggregates, field, targets_of
        self._over_time = any("time" in item.aggregate.dimensions for item in aggregates)
        corners = aggregates[0].source.topology.time.corners
        self._times_s = (corners - corners[0]) / SECOND_NS
        self._in_time = find_time_shares(aggregates, field.counts > 0)
        known = find_correlation(field, self._times_s, memory=memory) if self._over_time else KnownCorrelation((), "")
        self.notes: list[str] = list(known.notes)
        """Notes for readers of the result."""
        self.correlation = known.text
        """Correlation between slices that was used, in words; empty if no mean is over time."""
        self._between = known.between
        if len(known.between) > 1 and (rungs := list_rungs(field, self._in_time.weights, self._times_s)):
            self._between = rungs
            first, last = (format_duration(round(rungs[at].e_folding_s) * SECOND_NS) for at in (1, -2))
            self.correlation = LADDER.format(count=len(rungs), first=first, last=last)
        self._kept: dict[Correlation, Combinations] = {}

    def get_variances(self, cells: NDArray[np.intp]) -> tuple[Floats, Floats | None]:
        """Return the variances of some cells, shape (time, cells), and their lower bounds if bracketed.

        The bounds are the least and the greatest variance over all evaluated correlations, cell by cell.
        """
        regions, missing = self.make_regions(cells)
        if not self._between:
            variance = slice_variance(self._field, regions)
            variance[:, missing] = np.nan
            return variance, None
        low = high = mean_variance(self._combine(self._between[0]), regions)
        for between in self._between[1:]:
            variances = mean_variance(self._combine(between), regions)
            low, high = np.minimum(low, variances), np.maximum(high, variances)
        low[:, missing] = high[:, missing] = np.nan
        return high, low if len(self._between) > 1 else None

    def make_regions(self, cells: NDArray[np.intp]) -> tuple[Regions, NDArray[np.bool_]]:
        """Return the regions of some cells, and the mask of empty regions, shape (cells,)."""
        needed, covers = find_cells_below(self._aggregates, cells)
        targets, known = self._targets_of(needed)
        in_space = find_space_shares(self._aggregates, covers, known)
        refuse_mixed(self._aggregates, self._in_time, in_space)
        regions = regions_of(self._field, targets, in_space.weights)
        if regions.sampled:
            note = f"own variance of regions from an even sample of their {regions.sampled:,} places"
            if note not in self.notes:
                self.notes.append(note)
        return regions, np.diff(in_space.weights.indptr) == 0

    def _combine(self, between: Correlation) -> Sequence[Combination | None]:
        if between in self._kept:
            return self._kept[between]
        weights, field = self._in_time.weights, self._field

        def make() -> Combinations:
            return Combinations(combinations_of(field, weights, times_s=self._times_s, correlation=between))

        # Those of all correlations are used together.
        job_bytes = len(self._between) * weights.shape[0] * field.system.stations.count**2 * 16
        made = WEIGHTS.get(key_of(self._combination_key, between), make, job_bytes=job_bytes)
        if job_bytes <= KEPT_BYTES:
            self._kept[between] = made
        return made

    @cached_property
    def _combination_key(self) -> bytes:
        """Everything but the correlation that combinations depend on: they are the same for every target."""
        weights = self._in_time.weights
        shares = weights.data, weights.indices, weights.indptr
        return key_of("combinations", self._field.system.key, self._field.present, *shares, self._times_s)


def list_rungs(field: KrigingField, weights: "scipy.sparse.csr_array", times_s: Floats) -> tuple[Correlation, ...]:
    """List the correlations to evaluate for means over slices; empty if two ends bound them.

    They do if, for each mean, the same stations report in all of its slices.

    Parameters
    ----------
    field
        The kriged field.
    weights
        Weights of the slices in each mean, shape (means, slices).
    times_s
        Times of the slices, increasing [s].
    """
    used = scipy.sparse.csr_array((np.ones(len(weights.data)), weights.indices, weights.indptr), weights.shape)
    slices = used.sum(axis=1)
    reporting = used @ field.present.astype(np.float64)
    changing = ((reporting > 0) & (reporting < slices[:, None])).any(axis=1)
    if not changing.any():
        return ()
    inside = [times_s[used.indices[used.indptr[mean] : used.indptr[mean + 1]]] for mean in np.flatnonzero(changing)]
    step_s = min(float(np.diff(np.sort(times)).min()) for times in inside)
    return make_ladder(step_s, max(float(np.ptp(times)) for times in inside))


@dataclass(frozen=True)
class KnownCorrelation:
    """Correlation between slices, known or bracketed."""

    between: tuple[Correlation, ...]
    """The correlation, or the two ends of its bracket, independent slices first."""
    text: str
    """Description in words."""
    notes: tuple[str, ...] = ()
    """Why it could not be estimated, if that was requested."""


def find_correlation(field: KrigingField, times_s: Floats, *, memory: Memory) -> KnownCorrelation:
    """Return the given or estimated correlation between slices, else the two ends of its bracket."""
    if isinstance(memory, float):
        span = format_duration(round(memory * SECOND_NS)) if memory else "0 s (independent slices)"
        return KnownCorrelation((Correlation(memory),), f"exponential, e-folding time {span}, as given")
    notes: tuple[str, ...] = ()
    if memory == "estimate":
        stations = field.system.stations.count
        core = field.inverse[:stations, :stations]
        residuals = standardise_residuals(core, field.present, field.complete - field.mean)
        try:
            fit = estimate_correlation(residuals, times_s)
        except InvalidQuery as error:
            notes = (f"the correlation in time could not be estimated: {error}",)
        else:
            if fit.poor is None:
                return KnownCorrelation((fit.correlation,), f"exponential, {fit.describe()}")
            # A fit to too few or too short records is not used: it might be the optimistic end, or beyond.
            notes = (f"the correlation in time is not used: {fit.describe()}",)
    return KnownCorrelation((INDEPENDENT, ALIKE), UNKNOWN, notes)
