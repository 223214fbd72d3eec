"""Layout of a surface's cells, and pictures of single time cells."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.execution import Part
from hypergrid.topology import Bands, Grid, Points, Topology

Kind = Literal["map", "series"]


@dataclass(frozen=True, eq=False)
class SurfaceLayout:
    """Cells of a surface by dimension."""

    kind: Kind
    """Whether the surface is a map (lon and lat, or x and y) or a table of series."""
    names: tuple[str, str] | None
    """Names of the two horizontal dimensions of a map, ("lat", "lon") or ("y", "x"); None for series."""
    x: NDArray[np.float64]
    """Cell centres, shape (columns,) [degree or m]; for series their positions."""
    y: NDArray[np.float64]
    """Cell centres, shape (rows,) [degree or m]."""
    levels_m: NDArray[np.float64] | None
    """Centres of a map's levels above sea level [m], shape (levels,); None without levels."""
    times_ns: NDArray[np.int64]
    """Start of each time cell [ns since 1970 UTC], shape (frames,)."""
    variable: str
    units: str
    """Unit of the values."""


@dataclass(frozen=True, eq=False)
class SurfacePicture:
    """One time cell of a map in its current state."""

    layout: SurfaceLayout
    time_index: int
    level: int
    """Index of the level, from 0; 0 for a map without levels."""
    values: NDArray[np.float64]
    """[the result's unit], shape (rows, columns); NaN if missing or not computed."""
    computed: NDArray[np.bool_]
    """Mask of the computed cells, same shape."""
    estimate: NDArray[np.float64]
    """The values, with cells not yet computed estimated from those around them, same shape."""
    fraction: float
    """Share of all cells of the surface that is computed, 0 to 1."""
    error: float = 0.0
    """Root mean square error of the estimates, by cross-validation on computed cells; NaN if unknown."""


def layout_of(topology: Topology, *, variable: str, units: str) -> SurfaceLayout:
    """Lay out the cells of a topology."""
    space = topology.space
    if isinstance(space, Grid):
        names = (space.y.name, space.x.name)
        levels_m = None if space.z is None else space.z.centres
        return SurfaceLayout(
            "map", names, space.x.centres, space.y.centres, levels_m, topology.time.corners, variable, units
        )
    if isinstance(space, Points):
        x, y = space.centres(np.arange(space.count)).T
    else:
        # A band has no single position.
        x, y = (np.full(space.count, np.nan),) * 2 if isinstance(space, Bands) else (space.x, space.y)
    return SurfaceLayout("series", None, x, y, None, topology.time.corners, variable, units)


def make_finished_picture(
    layout: SurfaceLayout, dataset: xr.Dataset, time_index: int, level: int, part: Part = "value"
) -> SurfacePicture:
    """Extract the values or the variance of one time cell of a finished map.

    Raises
    ------
    InvalidQuery
        The query did not ask for its variance.
    """
    if part not in dataset:
        raise InvalidQuery('this query was not asked for its variance; add "variance": true, or ask for its values')
    at = (time_index,) if layout.levels_m is None else (time_index, level)
    values = np.asarray(dataset[part].to_numpy()[at], np.float64)
    # A finished map needs no estimates: they equal the values.
    return SurfacePicture(layout, time_index, level, values, np.ones(values.shape, np.bool_), values, 1.0)


def check_frame(layout: SurfaceLayout, time_index: int, level: int) -> None:
    """Reject a time cell or level outside the surface, or a surface without a map.

    Raises
    ------
    InvalidQuery
        The surface has no map.
    NotFound
        It has no such time cell or level; the message has both numbers.
    """
    if layout.kind != "map":
        raise InvalidQuery(
            "this query answers with series, not with a map, so it has no frames; ask for its series instead"
        )
    frames = len(layout.times_ns)
    if not 0 <= time_index < frames:
        raise NotFound(f"the surface has the time cells 0 to {frames - 1}; got {time_index}; ask for one of them")
    levels = 1 if layout.levels_m is None else len(layout.levels_m)
    if not 0 <= level < levels:
        raise NotFound(f"the surface has the levels 0 to {levels - 1}; got {level}; ask for one of them")


def value_range(dataset: xr.Dataset) -> tuple[float, float] | None:
    """Compute minimum and maximum [its unit], None if every cell is missing."""
    values = dataset["value"].to_numpy()
    present = values[np.isfinite(values)]
    return (float(present.min()), float(present.max())) if present.size else None
