"""Where the cells of a surface lie, and one time cell of it as a picture."""

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
    """Cells of a surface, as its dimensions have them."""

    kind: Kind
    """Whether the surface is a map (lon and lat, or x and y) or a table of series."""
    names: tuple[str, str] | None
    """Names of the two horizontal dimensions of a map, ("lat", "lon") or ("y", "x"); None for series."""
    x: NDArray[np.float64]
    """Cell centres, shape (columns,) [degree or m]; of series their positions."""
    y: NDArray[np.float64]
    """Cell centres, shape (rows,) [degree or m]."""
    levels_m: NDArray[np.float64] | None
    """Centres of the levels of a map above sea level, shape (levels,); None where it has none."""
    times_ns: NDArray[np.int64]
    """Where each time cell starts [ns since 1970 UTC], shape (frames,)."""
    variable: str
    units: str
    """Unit of the values."""


@dataclass(frozen=True, eq=False)
class SurfacePicture:
    """One time cell of a map as it stands."""

    layout: SurfaceLayout
    time_index: int
    level: int
    """Which level of a map that has several, from 0; 0 where there are none."""
    values: NDArray[np.float64]
    """[the result's unit], shape (rows, columns); NaN where missing or not computed."""
    computed: NDArray[np.bool_]
    """Which cells are computed, same shape."""
    estimate: NDArray[np.float64]
    """The values, with what those around tell where none is computed yet, same shape."""
    fraction: float
    """Share of all cells of the surface that is computed, 0 to 1."""
    error: float = 0.0
    """Root mean square error of the estimates, from computed cells that are left out; NaN where it is not known."""


def layout_of(topology: Topology, *, variable: str, units: str) -> SurfaceLayout:
    """Return where the cells of a topology lie."""
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
        # A band has no one place.
        x, y = (np.full(space.count, np.nan),) * 2 if isinstance(space, Bands) else (space.x, space.y)
    return SurfaceLayout("series", None, x, y, None, topology.time.corners, variable, units)


def make_finished_picture(
    layout: SurfaceLayout, dataset: xr.Dataset, time_index: int, level: int, part: Part = "value"
) -> SurfacePicture:
    """Return one time cell of a finished map, on one of its levels where it has any: its values, or their variance.

    Raises
    ------
    InvalidQuery
        Its variance was not asked for.
    """
    if part not in dataset:
        message = 'this query was not asked for its variance; add "variance": true, or ask for its values'
        raise InvalidQuery(message)
    at = (time_index,) if layout.levels_m is None else (time_index, level)
    values = np.asarray(dataset[part].to_numpy()[at], np.float64)
    return SurfacePicture(layout, time_index, level, values, np.ones(values.shape, np.bool_), values, 1.0)


def check_frame(layout: SurfaceLayout, time_index: int, level: int) -> None:
    """Refuse a time cell or a level that the surface does not have, or any of a surface without a map.

    Raises
    ------
    InvalidQuery
        The surface has no map.
    NotFound
        It has no such time cell or level; both numbers are in the message.
    """
    if layout.kind != "map":
        message = "this query answers with series, not with a map, so it has no frames; ask for its series instead"
        raise InvalidQuery(message)
    frames = len(layout.times_ns)
    if not 0 <= time_index < frames:
        message = f"the surface has the time cells 0 to {frames - 1}; got {time_index}; ask for one of them"
        raise NotFound(message)
    levels = 1 if layout.levels_m is None else len(layout.levels_m)
    if not 0 <= level < levels:
        message = f"the surface has the levels 0 to {levels - 1}; got {level}; ask for one of them"
        raise NotFound(message)


def value_range(dataset: xr.Dataset) -> tuple[float, float] | None:
    """Return least and greatest value [its unit], None where every cell is missing."""
    values = dataset["value"].to_numpy()
    present = values[np.isfinite(values)]
    return (float(present.min()), float(present.max())) if present.size else None
