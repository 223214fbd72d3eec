"""Points: cells of a grid that lie scattered, each moved so that a position of one's own is its centre."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.moved_modules import FormerNames
from hypergrid.core.tokens import token
from hypergrid.topology.axes import PER_UNIT, Quantum, Regular, quanta
from hypergrid.topology.levels import Levels, levels, levels_json
from hypergrid.topology.space import Grid, System, grid, grid_json, side_of

AXES: Final = (("lon", "lat"), ("x", "y"))
"""Names of the coordinates of points: degrees, or projected metres."""
_GLOBE: Final = (-180.0, -90.0, 360.0, 90.0)
"""West, south, east and north of the positions that there are [degree]; east of 180 they are those west of 0."""


@dataclass(frozen=True, eq=False)
class Points(FormerNames):
    """Cells at positions of one's own, and perhaps on levels, counted point by point, then level by level."""

    former_names = {"along": "replace_axes"}

    at: NDArray[np.int64]
    """Longitude and latitude, or projected x and y, of the cells' centres [quantum], shape (points, 2)."""
    grid: Grid
    """The grid whose cells they are: it gives their size and levels, and tells which stations are too far away."""

    @property
    def z(self) -> Levels | None:
        """Levels: z [m above sea level]; None where the points have the height of the ground."""
        return self.grid.z

    @property
    def axes(self) -> tuple[Levels, ...]:
        """The levels, if there are any: points are no axis."""
        return () if self.z is None else (self.z,)

    def replace_axes(self, axes: Sequence[Levels]) -> "Points":
        """Return the same points on other levels."""
        return replace(self, grid=replace(self.grid, z=axes[0])) if axes else self

    @property
    def system(self) -> System:
        """Coordinates: lonlat, or metres."""
        return self.grid.system

    @property
    def names(self) -> tuple[str, str]:
        """Names of the coordinates: lon and lat, or x and y."""
        return self.grid.x.name, self.grid.y.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels, if there are any, and points."""
        return (*(axis.count for axis in self.axes), len(self.at))

    @property
    def count(self) -> int:
        """How many cells."""
        return int(np.prod(self.shape))

    @property
    def x(self) -> NDArray[np.float64]:
        """Longitude [degree] or projected x [m], shape (points,)."""
        return self._degrees_or_m[:, 0]

    @property
    def y(self) -> NDArray[np.float64]:
        """Latitude [degree] or projected y [m], shape (points,)."""
        return self._degrees_or_m[:, 1]

    @cached_property
    def _degrees_or_m(self) -> NDArray[np.float64]:
        return self.at / PER_UNIT[self.grid.x.quantum]

    @property
    def size(self) -> tuple[float, float]:
        """Sides of a cell along x and y [degree or m]."""
        return self.grid.size

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north of the cells [degree or m]."""
        (west, south), (east, north) = self._degrees_or_m.min(axis=0), self._degrees_or_m.max(axis=0)
        across, along = self.size
        return west - across / 2, south - along / 2, east + across / 2, north + along / 2

    def centres(self, cells: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return x and y of the centres of flat cells [degree or m], shape (cells, 2)."""
        return self._degrees_or_m[cells % len(self.at)]

    def heights_m(self, cells: NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Return the heights of the centres of flat cells above sea level, shape (cells,); None without levels."""
        return None if self.z is None else self.z.centres[cells // len(self.at)]

    def token(self) -> str:
        """Content token."""
        return self._token

    @cached_property
    def _token(self) -> str:
        return token("points", self.at, self.grid.token())


def points(
    *,
    lon: Sequence[object] | NDArray[Any] | None = None,
    lat: Sequence[object] | NDArray[Any] | None = None,
    x: Sequence[object] | NDArray[Any] | None = None,
    y: Sequence[object] | NDArray[Any] | None = None,
    step: object = None,
    z: object = None,
    grid: Grid | None = None,
) -> Points:
    """Describe points to interpolate at, where the cells of a grid would be too many.

    Parameters
    ----------
    lon, lat
        Positions, as many of both: degrees, or "d:mm:ss" text. A position may come several times.
    x, y
        The same in projected metres, in place of `lon` and `lat`.
    step
        Side of the cell around each point, as `grid` takes it: what an estimate with `support="block"` is the mean of.
    z
        Levels above sea level, as `grid` takes them.
    grid
        In place of `step` and `z`: the grid whose cells these are, so that estimates are those of its surface, also of
        a position between its centres. Points lie within it.

    Raises
    ------
    InvalidQuery
        No point, not as many of both coordinates, one that cannot be read, or one that lies outside the grid.

    Examples
    --------
    >>> points(lon=[7.178, 7.1795], lat=[45.8675, 45.869], step="1arcsec").shape
    (2,)
    """
    given = {"lon": lon, "lat": lat, "x": x, "y": y}
    names, columns = _parse_columns({name: column for name, column in given.items() if column is not None})
    quantum: Quantum = "uas" if names == AXES[0] else "mm"
    pairs = zip(names, columns, strict=True)
    at = np.array([[quanta(item, quantum, name) for item in column] for name, column in pairs], np.int64)
    _refuse_outside(at, names, grid)
    if grid is None:
        if step is None:
            message = "points need a step, the side of the cell around each, such as step='1arcsec'; it is missing"
            raise InvalidQuery(message)
        grid = _make_grid_around(at, names, side_of(step, quantum), None if z is None else levels(z))
    elif step is not None or z is not None:
        message = "points take step and z, or the grid whose cells they are; got both; leave out step and z"
        raise InvalidQuery(message)
    return Points(at.T, grid)


def cells_from_json(given: Mapping[str, Any]) -> Grid | Points:
    """Return what the grid of a query's JSON says: a grid or, with the key "points", some positions in it.

    Raises
    ------
    InvalidQuery, NotFound
        What `grid` or `points` raises.
    """
    if "points" not in given:
        return grid(**given)
    at, rest = given["points"], {name: item for name, item in given.items() if name != "points"}
    if not isinstance(at, Mapping):
        message = f'points of a grid are lists of coordinates, {{"lon": [7.178, …], "lat": [45.868, …]}}; got {at!r}'
        raise InvalidQuery(message)
    for name in at:
        if name not in ("lon", "lat", "x", "y"):
            raise NotFound.among(kind="coordinate of points", given=name, existing=["lon", "lat", "x", "y"])
    if set(rest) <= {"step", "z"}:
        return points(**at, **rest)
    return points(**at, grid=grid(**rest))


def cells_json(cells: Grid | Points) -> dict[str, Any]:
    """Return a grid or points as a query's JSON has them, exact to the quantum; `cells_from_json` makes them again."""
    if isinstance(cells, Grid):
        return grid_json(cells)
    listed = dict(zip(cells.names, (cells.x.tolist(), cells.y.tolist()), strict=True))
    if cells.grid != _make_grid_around(cells.at.T, cells.names, cells.grid.x.length, cells.z):
        return {**grid_json(cells.grid), "points": listed}
    alone = {"step": grid_json(cells.grid)["step"], "points": listed}
    return alone if cells.z is None else {**alone, "z": levels_json(cells.z)}


def _parse_columns(given: Mapping[str, object]) -> tuple[tuple[str, str], list[list[object]]]:
    """Return the names of the coordinates, and each as a list."""
    names = next((pair for pair in AXES if set(given) == set(pair)), None)
    if names is None:
        message = f"points need lon and lat, or x and y; got {', '.join(given) or 'neither'}"
        raise InvalidQuery(message)
    columns = []
    for name in names:
        column = given[name]
        listed = column.tolist() if isinstance(column, np.ndarray) else column
        if not isinstance(listed, list | tuple) or not listed:
            message = f"{name} of points needs a list of at least one coordinate; got {column!r}"
            raise InvalidQuery(message)
        columns.append(list(listed))
    if len(columns[0]) != len(columns[1]):
        counts = " and ".join(f"{len(column)} of {name}" for name, column in zip(names, columns, strict=True))
        message = f"points need as many coordinates of both kinds; got {counts}"
        raise InvalidQuery(message)
    return names, columns


def _make_grid_around(at: NDArray[np.int64], names: tuple[str, str], side: int, z: Levels | None) -> Grid:
    """Return the grid whose first cell is that of the least coordinates, and which holds all others; at: x, then y."""
    quantum: Quantum = "uas" if names == AXES[0] else "mm"
    x, y = (
        Regular(name, int(column.min()) - side // 2, side, -(-int(np.ptp(column)) // side) + 1, side, quantum)
        for name, column in zip(names, at, strict=True)
    )
    return Grid(y, x, z)


def _refuse_outside(at: NDArray[np.int64], names: tuple[str, str], cells: Grid | None) -> None:
    """Refuse points outside a grid, or off the globe; metres without a grid may be any."""
    if cells is not None and cells.x.name != names[0]:
        message = f"points of a grid need its coordinates, {cells.x.name} and {cells.y.name}; got {' and '.join(names)}"
        raise InvalidQuery(message)
    if cells is None and names != AXES[0]:
        return
    unit = PER_UNIT["uas" if names == AXES[0] else "mm"]
    west, south, east, north = _GLOBE if cells is None else cells.box
    outside = ((at < np.rint([[west * unit], [south * unit]])) | (at > np.rint([[east * unit], [north * unit]]))).any(
        axis=0
    )
    if outside.any():
        coordinates = ", ".join(f"{coordinate / unit:.10g}" for coordinate in at[:, np.flatnonzero(outside)[0]])
        message = (
            f"points must lie within {west:.10g} to {east:.10g}, {south:.10g} to {north:.10g} ({', '.join(names)}); "
            f"got {coordinates}; leave it out"
        )
        raise InvalidQuery(message)
