"""Scattered cells of a grid, each centred on a given position."""

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
"""Coordinate names of points: degrees, or projected metres."""
_GLOBE: Final = (-180.0, -90.0, 360.0, 90.0)
"""West, south, east and north limits of positions [degree]; 180 to 360 equals -180 to 0."""


@dataclass(frozen=True, eq=False)
class Points(FormerNames):
    """Cells at given positions and optional levels; points vary fastest, then levels."""

    former_names = {"along": "replace_axes"}

    at: NDArray[np.int64]
    """Cell centres, longitude and latitude or projected x and y [quantum], shape (points, 2)."""
    grid: Grid
    """Grid that defines cell size, levels and the distance limit of stations."""

    @property
    def z(self) -> Levels | None:
        """Levels: z [m above sea level]; None at ground height."""
        return self.grid.z

    @property
    def axes(self) -> tuple[Levels, ...]:
        """Levels, if any; points are not an axis."""
        return () if self.z is None else (self.z,)

    def replace_axes(self, axes: Sequence[Levels]) -> "Points":
        """Return the same points on other levels."""
        return replace(self, grid=replace(self.grid, z=axes[0])) if axes else self

    @property
    def system(self) -> System:
        return self.grid.system

    @property
    def names(self) -> tuple[str, str]:
        """Coordinate names: lon and lat, or x and y."""
        return self.grid.x.name, self.grid.y.name

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels (if any), points."""
        return (*(axis.count for axis in self.axes), len(self.at))

    @property
    def count(self) -> int:
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
        """Return centre x and y of flat cells [degree or m], shape (cells, 2)."""
        return self._degrees_or_m[cells % len(self.at)]

    def heights_m(self, cells: NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Return centre heights of flat cells [m above sea level], shape (cells,); None without levels."""
        return None if self.z is None else self.z.centres[cells // len(self.at)]

    def token(self) -> str:
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
    """Make points to interpolate at, without computing a whole grid.

    Parameters
    ----------
    lon, lat
        Positions, equally many of both: degrees, or "d:mm:ss" text. Repeated positions are allowed.
    x, y
        The same in projected metres, instead of `lon` and `lat`.
    step
        Side of the cell around each point, as for `grid`; with `support="block"` an estimate is the mean over this
        cell.
    z
        Levels above sea level, as for `grid`.
    grid
        Instead of `step` and `z`: the grid whose cells these are. Estimates are then those of its surface, also between
        its centres. Points must lie within it.

    Raises
    ------
    InvalidQuery
        No point, unequal numbers of coordinates, an unreadable coordinate, or one outside the grid.

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
            raise InvalidQuery(
                "points need a step, the side of the cell around each, such as step='1arcsec'; it is missing"
            )
        grid = _make_grid_around(at, names, side_of(step, quantum), None if z is None else levels(z))
    elif step is not None or z is not None:
        raise InvalidQuery("points take step and z, or the grid whose cells they are; got both; leave out step and z")
    return Points(at.T, grid)


def cells_from_json(given: Mapping[str, Any]) -> Grid | Points:
    """Return the grid of a query's JSON or, with the key "points", positions in it.

    Raises
    ------
    InvalidQuery, NotFound
        As `grid` or `points`.
    """
    if "points" not in given:
        return grid(**given)
    at, rest = given["points"], {name: item for name, item in given.items() if name != "points"}
    if not isinstance(at, Mapping):
        raise InvalidQuery(
            f'points of a grid are lists of coordinates, {{"lon": [7.178, …], "lat": [45.868, …]}}; got {at!r}'
        )
    NotFound.refuse_unknown("coordinate of points", at, ("lon", "lat", "x", "y"))
    if set(rest) <= {"step", "z"}:
        return points(**at, **rest)
    return points(**at, grid=grid(**rest))


def cells_json(cells: Grid | Points) -> dict[str, Any]:
    """Return the JSON form, exact to the quantum; `cells_from_json` restores the cells."""
    if isinstance(cells, Grid):
        return grid_json(cells)
    listed = dict(zip(cells.names, (cells.x.tolist(), cells.y.tolist()), strict=True))
    # A grid that `points` would rebuild around them is not stored.
    if cells.grid != _make_grid_around(cells.at.T, cells.names, cells.grid.x.length, cells.z):
        return {**grid_json(cells.grid), "points": listed}
    alone = {"step": grid_json(cells.grid)["step"], "points": listed}
    return alone if cells.z is None else {**alone, "z": levels_json(cells.z)}


def _parse_columns(given: Mapping[str, object]) -> tuple[tuple[str, str], list[list[object]]]:
    names = next((pair for pair in AXES if set(given) == set(pair)), None)
    if names is None:
        raise InvalidQuery(f"points need lon and lat, or x and y; got {', '.join(given) or 'neither'}")
    columns = []
    for name in names:
        column = given[name]
        listed = column.tolist() if isinstance(column, np.ndarray) else column
        if not isinstance(listed, list | tuple) or not listed:
            raise InvalidQuery(f"{name} of points needs a list of at least one coordinate; got {column!r}")
        columns.append(list(listed))
    if len(columns[0]) != len(columns[1]):
        counts = " and ".join(f"{len(column)} of {name}" for name, column in zip(names, columns, strict=True))
        raise InvalidQuery(f"points need as many coordinates of both kinds; got {counts}")
    return names, columns


def _make_grid_around(at: NDArray[np.int64], names: tuple[str, str], side: int, z: Levels | None) -> Grid:
    """Return the grid around points whose first cell is centred on the least coordinates.

    `at` holds x, then y.
    """
    quantum: Quantum = "uas" if names == AXES[0] else "mm"
    # One cell more than sides fit: the first is centred on the least coordinate, and the greatest must be inside too.
    x, y = (
        Regular(name, int(column.min()) - side // 2, side, -(-int(np.ptp(column)) // side) + 1, side, quantum)
        for name, column in zip(names, at, strict=True)
    )
    return Grid(y, x, z)


def _refuse_outside(at: NDArray[np.int64], names: tuple[str, str], cells: Grid | None) -> None:
    """Refuse points outside the grid or, without one, off the globe; projected metres are unlimited."""
    if cells is not None and cells.x.name != names[0]:
        raise InvalidQuery(
            f"points of a grid need its coordinates, {cells.x.name} and {cells.y.name}; got {' and '.join(names)}"
        )
    if cells is None and names != AXES[0]:
        return
    unit = PER_UNIT["uas" if names == AXES[0] else "mm"]
    west, south, east, north = _GLOBE if cells is None else cells.box
    # Compared in quanta, so that a point on the edge is not refused by rounding.
    outside = ((at < np.rint([[west * unit], [south * unit]])) | (at > np.rint([[east * unit], [north * unit]]))).any(
        axis=0
    )
    if outside.any():
        coordinates = ", ".join(f"{coordinate / unit:.10g}" for coordinate in at[:, np.flatnonzero(outside)[0]])
        raise InvalidQuery(
            f"points must lie within {west:.10g} to {east:.10g}, {south:.10g} to {north:.10g} ({', '.join(names)}); "
            f"got {coordinates}; leave it out"
        )
