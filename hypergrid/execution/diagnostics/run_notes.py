"""What a run has to say beside its values: notes for the reader, and which cells of a grid are extrapolated."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.diagnostics.coverage_notes import outside_of
from hypergrid.execution.diagnostics.space_cover import SpaceCover
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.methods.conditioning import least_stations
from hypergrid.interpolation.methods.detrended import Detrended
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.topology import Grid, Points, Space

Floats = NDArray[np.float64]


class Remarks:
    """Gathered over the blocks of a run; a cell that is asked for more than once is counted once."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        """What a reader of the result should know."""
        self.extrapolated: dict[str, NDArray[np.bool_]] = {}
        """By grid, which cells lie outside the stations' range of elevation, wholly or in part, where it is used."""
        self._said: dict[str, str] = {}
        self._heights_m: dict[str, tuple[float, float]] = {}
        """By field, lowest and highest elevation of its stations, where it is used."""
        self._unknown: dict[str, NDArray[np.bool_]] = {}
        """By field and grid, which cells have no covariates."""
        self._leverages: dict[str, Floats] = {}
        """By field and grid, the leverage of each cell over the greatest of a station; 0 where not yet known."""
        self._unreached: dict[str, NDArray[np.int64]] = {}
        """By field, in how many slices each cell has too few stations of those that report; -1 where not yet known."""

    def say(self, about: str, note: str) -> None:
        """Tell a reader of the result something, instead of what was said about the same before; empty: nothing."""
        self._said[about] = note
        self.notes[:] = filter(None, self._said.values())

    def has_said(self, about: str) -> bool:
        """Return whether something was said about it."""
        return about in self._said

    def without_covariates(
        self, field: str, grid: Grid | Points, cells: NDArray[np.intp], names: tuple[str, ...]
    ) -> None:
        """Say that some cells are missing since their covariates are."""
        self._unknown.setdefault(field + grid.token(), np.zeros(grid.count, dtype=bool))[cells] = True
        unknown = sum(int(np.count_nonzero(found)) for found in self._unknown.values())
        self.say("cells", f"{unknown} cells without {' or '.join(names)} are missing")

    def stations_lie(self, field: str, heights_m: Floats) -> None:
        """Take the elevations of a field's stations [m], shape (stations,)."""
        if len(heights_m):
            self._heights_m[field] = float(heights_m.min()), float(heights_m.max())

    def mark(
        self, key: str, field: Field | None, grid: Grid | Points, cells: NDArray[np.intp], targets: Targets
    ) -> None:
        """Keep which cells of a grid lie outside the elevations of the stations that they are estimated from."""
        if isinstance(field, Detrended):
            outside = field.outside(targets)
        elif key in self._heights_m:
            low, high = self._heights_m[key]
            parts = targets.covariates[ELEVATION].reshape(targets.count, targets.parts)
            outside = np.any((parts < low) | (parts > high), axis=1)
        else:
            return
        self.extrapolated.setdefault(grid.token(), np.zeros(grid.count, dtype=bool))[cells] |= outside

    def beyond(self, key: str, who: str, grid: Grid | Points, cells: NDArray[np.intp], leverage: Floats | None) -> None:
        """Say how many cells lie beyond what the stations tell of a drift.

        Parameters
        ----------
        leverage
            Of the cells, over the greatest of a station, shape (cells,); None without a drift.
        """
        if leverage is None:
            return
        found = self._leverages.setdefault(key + grid.token(), np.zeros(grid.count))
        found[cells] = leverage
        outside = int(np.count_nonzero(found > 1.0))
        if outside:
            note = (
                f"{who}: {outside:,} of {grid.count:,} cells lie beyond the stations in the functions of its drift (up "
                f"to {np.sqrt(found.max()):.2g} times as far as any station): there the drift is extrapolated, and its "
                "errors grow with that distance"
            )
            self.say(f"beyond {key}", note)

    def carry(self, source: Space, target: Space, cells: NDArray[np.intp], space: SpaceCover) -> None:
        """Mark the cells of a coarser grid, or the zones, that cover a marked one, and say what is in no cell."""
        for note in outside_of(target):
            self.say(note, note)
        marks = self.extrapolated.get(source.token()) if isinstance(source, Grid) else None
        if marks is not None:
            before = np.append(0, np.cumsum(marks[space.needed][space.members]))
            coarser = self.extrapolated.setdefault(target.token(), np.zeros(target.count, dtype=bool))
            coarser[cells] |= before[space.stop] > before[space.first]

    def knows_reach(self, key: str, cells: NDArray[np.intp]) -> bool:
        """Return whether `unreached` was told of all these cells."""
        told = self._unreached.get(key)
        return told is not None and bool((told[cells] >= 0).all())

    def unreached(
        self,
        key: str,
        grid: Grid | Points,
        cells: NDArray[np.intp],
        field: Field,
        counts: NDArray[np.int64],
        radius_m: float,
    ) -> None:
        """Say how many estimates are missing because too few of the stations that report are within the radius.

        Parameters
        ----------
        counts
            Stations used in every slice, shape (slices, cells).
        """
        found = self._unreached.setdefault(key, np.full(grid.count, -1, dtype=np.int64))
        heard = field.counts > 0
        found[cells] = np.count_nonzero(counts[heard] == 0, axis=0)
        known = found[found >= 0]
        if known.any():
            needed = least_stations(field)
            what = f"{needed} station{'s' if needed > 1 else ''} that report{'' if needed > 1 else 's'}"
            note = (
                f"{known.sum():,} of {known.size * len(counts):,} estimates ({np.count_nonzero(known):,} of "
                f"{known.size:,} cells in some slice) are missing: fewer than {what} within radius_m = {radius_m:g} m"
            )
            self.say(f"unreached {key}", note)
