"""Error variances of a surface of means (or sums) of interpolated estimates, a block of cells at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.execution.diagnostics.missing_values import SpaceCover
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
from hypergrid.perspective import Aggregate, Perspective
from hypergrid.perspective.build.uncertainty_spec import Memory
from hypergrid.perspective.functions.rows import AggregateRow
from hypergrid.topology import Instants, changes_cells, cover
from hypergrid.topology.zone_cells import WHOLE

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WeightShares:
    """Weights of what is aggregated in what it becomes."""

    weights: "scipy.sparse.csr_array"
    """Shape (target cells, source cells); nothing for what is missing."""
    min_shares: tuple[float, ...]
    """The least share of what is possible that a cell kept by each aggregate has, in their order."""


def find_time_shares(aggregates: Sequence[Perspective], present: NDArray[np.bool_]) -> WeightShares:
    """Return the share of each slice in each time cell of the last aggregate.

    Parameters
    ----------
    aggregates
        Linear aggregates, one on the other, lowest first.
    present
        Which slices of the interpolation are not missing, shape (slices,).
    """
    weights, known = _make_identity(present), present
    min_shares = []
    for item in aggregates:
        operator, source, target = _require_aggregate(item), item.source.topology.time, item.topology.time
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
    """Return the cells of the interpolation that some cells of the last aggregate need, and the covers between."""
    covers: list[SpaceCover | None] = []
    for item in reversed(aggregates):
        source, target = item.source.topology.space, item.topology.space
        space_cover = None
        if changes_cells(source, target):
            space_cover = cover_space(source, target, cells, _require_aggregate(item).row)
            cells = space_cover.needed
        covers.append(space_cover)
    return cells, covers[::-1]


def find_space_shares(
    aggregates: Sequence[Perspective], covers: Sequence[SpaceCover | None], known: NDArray[np.bool_]
) -> WeightShares:
    """Return the share of each known cell of the interpolation in each cell of the last aggregate.

    Parameters
    ----------
    aggregates
        As for `find_time_shares`.
    covers
        As `find_cells_below` returns them.
    known
        Which of the cells below are not missing, shape (cells,); the weights have a column for each that is known.
    """
    weights = scipy.sparse.csr_array(_make_identity(known)[:, np.flatnonzero(known)])
    min_shares = []
    for item, between in zip(aggregates, covers, strict=True):
        if between is None:
            min_shares.append(1.0)
            continue
        if between.weights is None:
            sums = between.matrix(None)
            weights, known, share = _lift_weights(sums, weights, known, _require_aggregate(item), between.full)
        else:
            weights, known, share = _lift_area_weights(between, weights, known, _require_aggregate(item))
        min_shares.append(share)
    return WeightShares(weights, tuple(min_shares))


def refuse_mixed(aggregates: Sequence[Perspective], in_time: WeightShares, in_space: WeightShares) -> None:
    """Refuse aggregates whose missing cells are not those of time and of space apart.

    Raises
    ------
    InvalidQuery
        An aggregate over both kept a cell for what it has in time, and one for what it has in space, but not both
        together, so that weights are no product any more.
    """
    for item, time, space in zip(aggregates, in_time.min_shares, in_space.min_shares, strict=True):
        if time * space < _require_aggregate(item).min_coverage * (1 - 1e-12):
            message = (
                f"the variance needs {_require_aggregate(item).function} over time and over space in steps of their "
                f"own where "
                "both have gaps: aggregate over time first, then over space, or set min_coverage lower"
            )
            raise InvalidQuery(message)


def _lift_weights(
    sums: "scipy.sparse.csr_array",
    weights: "scipy.sparse.csr_array",
    known: NDArray[np.bool_],
    operator: Aggregate,
    possible: NDArray[np.int64],
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Return the weights one aggregate further up, which of its cells are known, and the least share of those."""
    count = np.rint(sums @ known.astype(np.float64)).astype(np.int64)
    kept = (count > 0) & (count >= operator.min_coverage * possible * (1 - 1e-12))
    scale = np.where(kept, _value_weight(operator.row, count), 0.0)
    share = (count / np.maximum(possible, 1))[kept]
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share.min(initial=1.0))


def _lift_area_weights(
    between: SpaceCover, weights: "scipy.sparse.csr_array", known: NDArray[np.bool_], operator: Aggregate
) -> "tuple[scipy.sparse.csr_array, NDArray[np.bool_], float]":
    """Return what `_lift_weights` does, for cells that weigh by area or share."""
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
    # As `SpaceCover.weighted` scales them.
    each = np.ones(len(count)) if between.of_sum else count / np.where(mass > 0, mass, 1.0)
    scale = np.where(kept, _value_weight(operator.row, count) * each, 0.0)
    above = scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ sums @ weights)
    above.eliminate_zeros()
    return above, kept, float(share[kept].min(initial=1.0))


def _value_weight(row: AggregateRow, count: NDArray[np.int64]) -> Floats:
    """Return the weight of a value in a cell of so many: what the function makes of a sum of 1."""
    if row.finish is None:
        message = f"{row.name} chooses a value, it has no weights"
        raise TypeError(message)
    return row.finish((np.ones(count.shape),), np.maximum(count, 1), {})


def _make_identity(known: NDArray[np.bool_]) -> "scipy.sparse.csr_array":
    identity = scipy.sparse.csr_array(scipy.sparse.diags_array(known.astype(np.float64)))
    identity.eliminate_zeros()
    return identity


def _require_aggregate(item: Perspective) -> Aggregate:
    if not isinstance(item.operator, Aggregate):
        message = f"{type(item.operator).__name__} is no aggregate"
        raise TypeError(message)
    return item.operator


TargetsOf = Callable[[NDArray[np.intp]], tuple[Targets, NDArray[np.bool_]]]
"""Flat cells of the interpolation's grid to targets, and which of the cells they are."""

KEPT_BYTES: Final = 128 * 2**20
"""What errors of means over slices may take between blocks [bytes]; where they might take more they are made anew."""

UNKNOWN: Final = (
    "not known: slices taken as fully correlated, the pessimistic end; variance_low takes them as independent"
)
LADDER: Final = (
    "not known: the greatest variance, the pessimistic end, of those with {count} e-folding times from 0 s "
    "(independent slices) over {first} to {last} and infinite (fully correlated), because stations change between "
    "slices; variance_low is the least"
)


class MeanErrors:
    """Error variances of the cells of aggregates on a kriged field of all stations."""

    def __init__(
        self, aggregates: Sequence[Perspective], field: KrigingField, targets_of: TargetsOf, *, memory: Memory
    ) -> None:
        """Take what belongs to all blocks.

        Parameters
        ----------
        aggregates
            Linear aggregates, one on the other, lowest first, at least one.
        field
            What they aggregate.
        targets_of
            Cells of the interpolation as targets.
        memory
            What is known of the correlation between slices.
        """
        self._aggregates, self._field, self._targets_of = aggregates, field, targets_of
        self._over_time = any(
            isinstance(item.operator, Aggregate) and "time" in item.operator.dimensions for item in aggregates
        )
        corners = aggregates[0].source.topology.time.corners
        self._times_s = (corners - corners[0]) / SECOND_NS
        self._in_time = find_time_shares(aggregates, field.counts > 0)
        known = find_correlation(field, self._times_s, memory=memory) if self._over_time else KnownCorrelation((), "")
        self.notes: list[str] = list(known.notes)
        """What a reader of the result should know."""
        self.correlation = known.text
        """Which correlation between slices was used, for people; empty where no mean is over time."""
        self._between = known.between
        if len(known.between) > 1 and (rungs := list_rungs(field, self._in_time.weights, self._times_s)):
            self._between = rungs
            first, last = (format_duration(round(rungs[at].e_folding_s) * SECOND_NS) for at in (1, -2))
            self.correlation = LADDER.format(count=len(rungs), first=first, last=last)
        self._kept: dict[Correlation, list[Combination | None]] = {}

    def get_variances(self, cells: NDArray[np.intp]) -> tuple[Floats, Floats | None]:
        """Return the variances of some cells, shape (time, cells), and the low end where they are the high one.

        The two ends are the least and the greatest over all correlations that are looked at, cell by cell.
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
        """Return the regions that some cells are, and which of them are empty, shape (cells,)."""
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
        weights = self._in_time.weights
        if between not in self._kept:
            made = combinations_of(self._field, weights, times_s=self._times_s, correlation=between)
            stations = self._field.system.stations.count
            if len(self._between) * weights.shape[0] * stations**2 * 16 > KEPT_BYTES:
                return made
            self._kept[between] = made
        return self._kept[between]


def list_rungs(field: KrigingField, weights: "scipy.sparse.csr_array", times_s: Floats) -> tuple[Correlation, ...]:
    """Return the correlations at which means over slices are to be looked at; none where its two ends bound them all.

    They do where each mean is of slices to which the same stations report.

    Parameters
    ----------
    field
        The kriged field.
    weights
        Of the slices in each mean, shape (means, slices).
    times_s
        Of the slices, increasing [s].
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
    """What is known of the correlation between slices."""

    between: tuple[Correlation, ...]
    """The correlation; or the two ends between which it lies, independent slices first."""
    text: str
    """The same for people."""
    notes: tuple[str, ...] = ()
    """Why it is not known where it was to be estimated."""


def find_correlation(field: KrigingField, times_s: Floats, *, memory: Memory) -> KnownCorrelation:
    """Return the correlation between slices as it was given or is estimated, else the two ends between which it lies.

    What is estimated from too few or too short records is not used: it might be the optimistic end, or beyond.
    """
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
            notes = (f"the correlation in time is not used: {fit.describe()}",)
    return KnownCorrelation((INDEPENDENT, ALIKE), UNKNOWN, notes)
