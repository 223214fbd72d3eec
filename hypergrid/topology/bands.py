"""Elevation bands as cells of a space; each contains stations or grid cells."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.tokens import token
from hypergrid.topology.axes import PER_UNIT
from hypergrid.topology.bins import Bins
from hypergrid.topology.levels import Levels
from hypergrid.topology.space import Grid, SeriesAxis


@dataclass(frozen=True, eq=False)
class Bands:
    """Elevation bands over stations, or over the cells of a ground grid."""

    z: Levels
    """Band axis [mm above sea level]."""
    source: SeriesAxis | Grid
    """Space whose cells the bands contain."""
    heights_m: NDArray[np.float64]
    """Heights of the source cells above sea level, NaN if unknown, shape (source cells,)."""
    terrain: str = ""
    """Token of the elevation layer of a grid; empty for stations."""
    clipped_from: Levels | None = None
    """Originally requested bands, if these are a subset."""

    @property
    def count(self) -> int:
        return self.z.count

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.z.count,)

    @property
    def axes(self) -> tuple[Levels, ...]:
        return (self.z,)

    def replace_axes(self, axes: Sequence[Levels]) -> "Bands":
        return replace(self, z=axes[0], clipped_from=self.clipped_from or self.z)

    def token(self) -> str:
        """Content token of bands and terrain; the stations are in the token of the source."""
        return token("bands", self.z, self.terrain)

    @cached_property
    def band(self) -> NDArray[np.intp]:
        """Band of each source cell, -1 if outside all bands, shape (source cells,)."""
        return self._find_bands(self.z)

    @cached_property
    def is_outside(self) -> NDArray[np.bool_]:
        """Whether a source cell's height is outside all requested bands, shape (source cells,)."""
        return np.isfinite(self.heights_m) & (self._find_bands(self.clipped_from or self.z) < 0)

    def _find_bands(self, z: Levels) -> NDArray[np.intp]:
        ends = z.ends if isinstance(z, Bins) else z.corners + z.length
        # In whole millimetres, like the edges: a height at an edge is not misplaced by rounding.
        height = np.rint(np.where(np.isfinite(self.heights_m), self.heights_m, 0.0) * PER_UNIT["mm"])
        bands = np.searchsorted(z.corners, height, side="right") - 1
        inside = np.isfinite(self.heights_m) & (bands >= 0) & (height < ends[np.maximum(bands, 0)])
        return np.where(inside, bands, -1).astype(np.intp)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Source cells grouped by band, in source order within it; shape (cells in a band,)."""
        # Stable, to keep the source order within a band. Cells outside all bands (-1) come first and are dropped.
        order = np.argsort(self.band, kind="stable")
        return order[np.count_nonzero(self.band < 0) :]

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Start of each band in `order`, then the total; shape (bands + 1,)."""
        return np.searchsorted(self.band[self.order], np.arange(self.count + 1)).astype(np.int64)

    @property
    def max_cells(self) -> int:
        """Largest number of cells in a band."""
        return int(np.diff(self.edges).max())
