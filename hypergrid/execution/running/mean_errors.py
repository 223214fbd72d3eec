"""Error variances of a surface of means (or sums) of interpolated estimates, a block of cells at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.execution.running.weight_shares import (
    find_cells_below,
    find_space_shares,
    find_time_shares,
    refuse_mixed,
)
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

Floats = NDArray[np.float64]
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
