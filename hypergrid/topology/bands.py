"""Bands of elevation as the cells of a space: each holds the stations, or the cells of a surface, at its heights."""

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
    """Bands of elevation above stations, or above the cells of a grid on the ground."""

    z: Levels
    """The bands [mm above sea level]."""
    source: SeriesAxis | Grid
    """What they hold."""
    heights_m: NDArray[np.float64]
    """Of each cell of the source above sea level, NaN where unknown, shape (source cells,)."""
    terrain: str = ""
    """Token of the layer that the heights of a grid's cells are from; empty for stations."""
    clipped_from: Levels | None = None
    """The bands that were asked for, where these are some of them."""

    @property
    def count(self) -> int:
        """How many bands."""
        return self.z.count

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one slice."""
        return (self.z.count,)

    @property
    def axes(self) -> tuple[Levels, ...]:
        """The one axis."""
        return (self.z,)

    def replace_axes(self, axes: Sequence[Levels]) -> "Bands":
        """Return some of the bands above the same source."""
        return replace(self, z=axes[0], clipped_from=self.clipped_from or self.z)

    def token(self) -> str:
        """Content token: of the bands and the ground, not of which stations there are, which the source tells."""
        return token("bands", self.z, self.terrain)

    @cached_property
    def band(self) -> NDArray[np.intp]:
        """The band of each cell of the source, -1 where it is in none, shape (source cells,)."""
        return self._find_bands(self.z)

    @cached_property
    def is_outside(self) -> NDArray[np.bool_]:
        """Whether each cell of the source has a height that is in no band that was asked for, shape (source cells,)."""
        return np.isfinite(self.heights_m) & (self._find_bands(self.clipped_from or self.z) < 0)

    def _find_bands(self, z: Levels) -> NDArray[np.intp]:
        ends = z.ends if isinstance(z, Bins) else z.corners + z.length
        height = np.rint(np.where(np.isfinite(self.heights_m), self.heights_m, 0.0) * PER_UNIT["mm"])
        bands = np.searchsorted(z.corners, height, side="right") - 1
        inside = np.isfinite(self.heights_m) & (bands >= 0) & (height < ends[np.maximum(bands, 0)])
        return np.where(inside, bands, -1).astype(np.intp)

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Cells of the source band by band, those of each in the source's order; shape (cells in a band,)."""
        order = np.argsort(self.band, kind="stable")
        return order[np.count_nonzero(self.band < 0) :]

    @cached_property
    def edges(self) -> NDArray[np.int64]:
        """Where each band begins in `order`, and where the last one ends; shape (bands + 1,)."""
        return np.searchsorted(self.band[self.order], np.arange(self.count + 1)).astype(np.int64)

    @property
    def max_cells(self) -> int:
        """Cells that the fullest band holds."""
        return int(np.diff(self.edges).max())
