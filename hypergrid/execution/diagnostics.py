"""Notes of a run for readers of its result, and masks of extrapolated cells."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # loads its parts lazily: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.flags import MEANINGS
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.methods.conditioning import min_stations
from hypergrid.interpolation.methods.detrended import DetrendedField
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.perspective import Aggregate, Convert, Interpolate, Perspective
from hypergrid.topology import Bands, Grid, Instants, Points, SeriesAxis, Space, ZoneCells

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpaceCover:
    """Source cells of each target cell in a block, as ranges of pairs."""

    needed: NDArray[np.intp]
    """Flat indices of the source cells that the block needs, without duplicates, shape (needed,)."""
    members: NDArray[np.intp]
    """Indices into `needed`, target by target, shape (pairs,)."""
    first: NDArray[np.int64]
    """Index of the first pair of each target cell, shape (targets,)."""
    stop: NDArray[np.int64]
    """Index after the last pair of each target cell, shape (targets,)."""
    full: NDArray[np.int64]
    """Source cells under a whole target cell, shape (targets,), or (1,) if equal for all."""
    weights: Floats | None = None
    """Weight of each pair in the aggregate, shape (pairs,); None if all are equal."""
    of_sum: bool = False
    """Whether weights are shares in a sum; otherwise only their ratios matter, as in a mean."""
    parts: Floats | None = None
    """Share of its target's area that each pair covers, shape (pairs,); None if coverage counts cells."""

    def matrix(self, data: Floats | None) -> "scipy.sparse.csr_array":
        """Arrange data of the pairs, 1 for None, as a matrix of shape (targets, needed)."""
        data = np.ones(len(self.members)) if data is None else data
        pointers = np.append(self.first, self.stop[-1:])
        return scipy.sparse.csr_array((data, self.members, pointers), (len(self.first), len(self.needed)))

    def sum_weighted(self, folded: Floats, count: NDArray[np.int64]) -> Floats:
        """Compute weighted sums over the pairs of each target.

        If only the ratios of weights matter, the weights of present values are scaled to add up to their count, so a
        sum and a count yield a weighted mean just as they yield a mean.

        Parameters
        ----------
        folded
            Sums, 0 for missing values, shape (needed, n).
        count
            Number of values in each sum, shape (needed, n), or (1, n) if equal for all.
        """
        matrix = self.matrix(self.weights)
        sums = matrix @ folded
        if self.of_sum:
            return np.asarray(sums)
        mass, number = _sum_totals(matrix, count), _sum_totals(self.matrix(None), count)
        return np.asarray(sums * (number / np.where(mass > 0, mass, 1.0)))

    def sum_counts(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Sum counts over the pairs of each target, shape (targets, n); `count` as in `sum_weighted`."""
        # The matrix product turns the counts into floats.
        return np.rint(_sum_totals(self.matrix(None), count)).astype(np.int64)

    def coverage(self, count: NDArray[np.int64], slices: NDArray[np.int64]) -> Floats:
        """Compute the covered share of each target, by area and over time, shape (targets, n).

        Parameters
        ----------
        count
            Number of slices in which each source cell has a value, shape (needed, n) or (1, n).
        slices
            Number of slices that a target cell could have, shape (1, n) or (1, 1).
        """
        return _sum_totals(self.matrix(self.parts), count) / np.maximum(slices, 1)


def _sum_totals(matrix: "scipy.sparse.csr_array", count: NDArray[np.int64]) -> Floats:
    if len(count) == 1:
        return np.asarray(matrix.sum(axis=1))[:, None] * count
    return np.asarray(matrix @ count.astype(np.float64))


Counts = NDArray[np.int64]


@dataclass
class Tally:
    """Counts of the values of a surface, accumulated block by block."""

    values: int = 0
    missing: int = 0
    empty: int = 0
    """Missing values without any input."""
    uncovered: int = 0
    """Missing values with less input than `min_coverage` requires."""
    infinite: int = 0

    def add(self, value: Floats, count: Counts | None, possible: Counts | None, min_coverage: float) -> None:
        """Count the values of a block; counts broadcast to its shape, unknown `possible` is 0."""
        self.values += value.size
        finite = np.isfinite(value)
        if finite.all():
            return
        missing = np.isnan(value)
        self.infinite += int(value.size - np.count_nonzero(finite) - np.count_nonzero(missing))
        self.missing += int(np.count_nonzero(missing))
        if count is None:
            return
        empty = missing & (count == 0)
        self.empty += int(np.count_nonzero(empty))
        if min_coverage and possible is not None:
            self.uncovered += int(np.count_nonzero(missing & ~empty & (count < min_coverage * possible * (1 - 1e-12))))

    def notes(self, surface: Perspective) -> list[str]:
        """Describe missing and infinite values, one sentence per note."""
        results = []
        if self.missing:
            what, share = _describe_counts(surface), coverage_of(surface)
            rest = self.missing - self.empty - self.uncovered
            reasons = {
                f"without any {what}": self.empty,
                f"with fewer than min_coverage = {share:g} of those that are possible": self.uncovered,
                "left without a value by the steps of the query, although something was there": rest,
            }
            breakdown = ", ".join(f"{number:,} {reason}" for reason, number in reasons.items() if number)
            results.append(f"{self.missing:,} of {self.values:,} values are missing: {breakdown}")
        if self.infinite:
            results.append(
                f"{self.infinite:,} of {self.values:,} values are infinite: something was divided by 0, or is beyond "
                "what a number can hold"
            )
        return results


def coverage_of(surface: Perspective) -> float:
    """Return the minimum coverage for the counts of a surface; 0 without an aggregate."""
    operator = _find_counted(surface).operator
    return operator.min_coverage if isinstance(operator, Aggregate) else 0.0


def _find_counted(surface: Perspective) -> Perspective:
    """Find the step whose counts a surface shows; converts above it keep them."""
    while isinstance(surface.operator, Convert):
        surface = surface.source
    return surface


def _describe_counts(surface: Perspective) -> str:
    surface = _find_counted(surface)
    if isinstance(surface.operator, Interpolate):
        return "station that reports within reach"
    if not isinstance(surface.operator, Aggregate):
        return "reading"
    source = surface.source
    # Values of an array at its instants count as readings.
    of_array = isinstance(source.topology.time, Instants) and isinstance(source.topology.space, SeriesAxis)
    of_cells = not (source.holds_readings or of_array)
    return "source cell that has a value" if of_cells else "reading"


def replace_infinite(values: Floats) -> tuple[Floats, str]:
    """Replace infinite values of an array by NaN; the note is empty without any."""
    infinite = np.isinf(values)
    number = int(np.count_nonzero(infinite))
    if not number:
        return values, ""
    return np.where(infinite, np.nan, values), f"{number:,} infinite values of the array are taken as missing"


class RunDiagnostics:
    """Notes and masks collected over the blocks of a run; repeated cells are counted once."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """Notes for readers of the result."""
        self.extrapolated: dict[str, NDArray[np.bool_]] = {}
        """By grid: mask of the cells wholly or partly outside the stations' range of elevation, if that is used."""
        self._notes_by_topic: dict[str, str] = {}
        self._heights_m: dict[str, tuple[float, float]] = {}
        """By field: lowest and highest elevation of its stations [m], if elevation is used."""
        self._unknown_masks: dict[str, NDArray[np.bool_]] = {}
        """By field and grid: mask of the cells without covariates."""
        self._leverages: dict[str, Floats] = {}
        """By field and grid: leverage of each cell over the greatest of a station; 0 if not yet known."""
        self._unreached_counts: dict[str, NDArray[np.int64]] = {}
        """By field: number of slices in which too few reporting stations reach each cell; -1 if not yet known."""

    def set_note(self, about: str, note: str) -> None:
        """Set or replace the note on a topic; an empty note is not shown."""
        self._notes_by_topic[about] = note
        self.notes[:] = filter(None, self._notes_by_topic.values())

    def has_note(self, about: str) -> bool:
        """Return whether a note, even an empty one, was set on a topic."""
        return about in self._notes_by_topic

    def note_missing_covariates(
        self, field: str, grid: Grid | Points, cells: NDArray[np.intp], names: tuple[str, ...]
    ) -> None:
        self._unknown_masks.setdefault(field + grid.token(), np.zeros(grid.count, dtype=bool))[cells] = True
        unknown = sum(int(np.count_nonzero(mask)) for mask in self._unknown_masks.values())
        self.set_note("cells", f"{unknown} cells without {' or '.join(names)} are missing")

    def set_station_heights(self, field: str, heights_m: Floats) -> None:
        """Record the range of the elevations of a field's stations [m], shape (stations,)."""
        if len(heights_m):
            self._heights_m[field] = float(heights_m.min()), float(heights_m.max())

    def mark_extrapolated(
        self, key: str, field: Field | None, grid: Grid | Points, cells: NDArray[np.intp], targets: Targets
    ) -> None:
        """Mark the grid cells outside the elevation range of the stations they use."""
        if isinstance(field, DetrendedField):
            outside = field.mask_outside(targets)
        elif key in self._heights_m:
            low, high = self._heights_m[key]
            parts = targets.covariates[ELEVATION].reshape(targets.count, targets.parts)
            outside = np.any((parts < low) | (parts > high), axis=1)
        else:
            return
        self.extrapolated.setdefault(grid.token(), np.zeros(grid.count, dtype=bool))[cells] |= outside

    def note_extrapolation(
        self, key: str, label: str, grid: Grid | Points, cells: NDArray[np.intp], leverage: Floats | None
    ) -> None:
        """Note how many cells need extrapolation of a drift.

        Parameters
        ----------
        leverage
            Leverage of the cells over the greatest of a station, shape (cells,); None without a drift.
        """
        if leverage is None:
            return
        leverages = self._leverages.setdefault(key + grid.token(), np.zeros(grid.count))
        leverages[cells] = leverage
        outside = int(np.count_nonzero(leverages > 1.0))
        if outside:
            note = (
                f"{label}: {outside:,} of {grid.count:,} cells lie beyond the stations in the functions of its drift "
                f"(up "
                f"to {np.sqrt(leverages.max()):.2g} times as far as any station): there the drift is extrapolated, "
                f"and its "
                "errors grow with that distance"
            )
            self.set_note(f"beyond {key}", note)

    def carry_marks(self, source: Space, target: Space, cells: NDArray[np.intp], space: SpaceCover) -> None:
        """Mark target cells that cover a marked source cell; note what no target covers."""
        for note in list_outside_notes(target):
            self.set_note(note, note)
        marks = self.extrapolated.get(source.token()) if isinstance(source, Grid) else None
        if marks is not None:
            before = np.append(0, np.cumsum(marks[space.needed][space.members]))
            coarser = self.extrapolated.setdefault(target.token(), np.zeros(target.count, dtype=bool))
            coarser[cells] |= before[space.stop] > before[space.first]

    def has_reach(self, key: str, cells: NDArray[np.intp]) -> bool:
        """Return whether `note_unreached` has counted all these cells."""
        slice_counts = self._unreached_counts.get(key)
        return slice_counts is not None and bool((slice_counts[cells] >= 0).all())

    def note_unreached(
        self,
        key: str,
        grid: Grid | Points,
        cells: NDArray[np.intp],
        field: Field,
        counts: NDArray[np.int64],
        radius_m: float,
    ) -> None:
        """Note how many estimates are missing because too few reporting stations are within the radius.

        Parameters
        ----------
        counts
            Stations used in every slice, shape (slices, cells).
        """
        slice_counts = self._unreached_counts.setdefault(key, np.full(grid.count, -1, dtype=np.int64))
        has_reports = field.counts > 0
        slice_counts[cells] = np.count_nonzero(counts[has_reports] == 0, axis=0)
        known = slice_counts[slice_counts >= 0]
        if known.any():
            needed = min_stations(field)
            what = f"{needed} station{'s' if needed > 1 else ''} that report{'' if needed > 1 else 's'}"
            note = (
                f"{known.sum():,} of {known.size * len(counts):,} estimates ({np.count_nonzero(known):,} of "
                f"{known.size:,} cells in some slice) are missing: fewer than {what} within radius_m = {radius_m:g} m"
            )
            self.set_note(f"unreached {key}", note)


_MAX_NAMED: Final = 20
"""Maximum number of names in a note."""


def list_outside_notes(target: Space) -> list[str]:
    """List notes on zones outside the grid, empty bands, and places outside all bands."""
    if isinstance(target, ZoneCells):
        held, zones = target.share_in_grid, target.zones.names
        masks_by_problem = {
            "zones outside the grid": held == 0,
            "zones partly outside the grid": (held > 0) & (held < 1),
        }
        return [
            f"{what}: {_format_names([zones[i] for i in np.flatnonzero(mask)])}"
            for what, mask in masks_by_problem.items()
            if mask.any()
        ]
    if not isinstance(target, Bands):
        return []
    unknown = np.isnan(target.heights_m)
    masks_by_problem = {"without a known elevation": unknown, "with an elevation outside all bands": target.is_outside}
    space = target.source
    nonempty_masks = {what: mask for what, mask in masks_by_problem.items() if mask.any()}
    kind, notes = "cell", [f"{mask.sum():,} cells {what} are in no band" for what, mask in nonempty_masks.items()]
    if isinstance(space, SeriesAxis):
        names = [series.station for series in space.series]
        kind = "station"
        notes = [
            f"stations {what} are in no band: {_format_names([names[i] for i in np.flatnonzero(mask)])}"
            for what, mask in nonempty_masks.items()
        ]
    empty = [f"{low:.7g} to {high:.7g} m" for low, high in target.z.bounds[np.diff(target.edges) == 0]]
    return [*notes, f"bands that hold no {kind}: {_format_names(empty)}"] if empty else notes


def note_unlike_bands(spaces: Sequence[Space]) -> list[str]:
    """List notes on merged elevation bands that are made of different cells or stations."""
    bands = [space for space in spaces if isinstance(space, Bands)]
    for other in bands[1:]:
        first, second = bands[0].source, other.source
        if not isinstance(first, SeriesAxis) or not isinstance(second, SeriesAxis):
            if first.token() != second.token():
                return ["the bands that are merged are made of different cells on the ground"]
            continue
        first_stations, two = _band_stations(bands[0], first), _band_stations(other, second)
        alone = {"first": sorted(first_stations - two), "other": sorted(two - first_stations)}
        parts = [
            f"{_format_names(names)} in the {source_name} source alone" for source_name, names in alone.items() if names
        ]
        if parts:
            return [f"the bands that are merged are made of different stations: {', '.join(parts)}"]
    return []


def _band_stations(bands: Bands, axis: SeriesAxis) -> set[str]:
    return {axis.series[i].station for i in bands.order.tolist()}


def note_all_missing(surface: Perspective, left_out: Mapping[str, int]) -> str:
    """Say why every value is missing: what flags left out, and how much of a cell had to be there."""
    flagged = [
        f"{left_out[reason]:,} {meaning.replace('_', ' ')}"
        for flag, meaning in MEANINGS.items()
        if (reason := f"flag {flag}") in left_out
    ]
    asked = []
    for item in surface.list_chain():
        operator = item.operator
        if isinstance(operator, Aggregate) and operator.min_coverage > 0:
            default = " (its default)" if operator.min_coverage == operator.row.min_coverage else ""
            asked.append(f"{operator.function} {operator.min_coverage:.0%}{default}")
    reasons = []
    if flagged:
        reasons.append(
            f"readings are left out by their flags, {', '.join(flagged)} (hypergrid quality names the tests that set "
            "them, accept_flags takes such readings as well)"
        )
    if asked:
        reasons.append(
            f"of what a cell could hold {', '.join(dict.fromkeys(asked))} must be there; min_coverage says how much, "
            "0 takes what there is"
        )
    return "every value is missing" + (f": {'; '.join(reasons)}" if reasons else "")


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
