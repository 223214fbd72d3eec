"""Notes of a run for readers of its result, and masks of extrapolated cells."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.diagnostics.missing_values import SpaceCover
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.methods.conditioning import min_stations
from hypergrid.interpolation.methods.detrended import DetrendedField
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.perspective import Aggregate, Perspective
from hypergrid.topology import Bands, Grid, Points, SeriesAxis, Space, ZoneCells

Floats = NDArray[np.float64]


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
        """Note that cells are missing because their covariates are."""
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


def note_all_missing(surface: Perspective) -> str:
    """Explain a result without any values by the coverage that its steps require."""
    asked = []
    for item in surface.list_chain():
        operator = item.operator
        if isinstance(operator, Aggregate) and operator.min_coverage > 0:
            default = " (its default)" if operator.min_coverage == operator.row.min_coverage else ""
            asked.append(f"{operator.function} {operator.min_coverage:.0%}{default}")
    if not asked:
        return "every value is missing"
    return (
        f"every value is missing: of what a cell could hold {', '.join(dict.fromkeys(asked))} must be there; "
        "min_coverage says how much, 0 takes what there is"
    )


def _format_names(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return f"{', '.join(names[:_MAX_NAMED])}{more}"
