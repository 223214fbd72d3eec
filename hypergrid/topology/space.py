"""Spaces: the joint axis of stations, and regular grids of cells."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.moved_modules import FormerNames
from hypergrid.core.readings import Series
from hypergrid.core.tokens import token
from hypergrid.topology.axes import PER_UNIT, Quantum, Regular, axis_of, is_count, quanta
from hypergrid.topology.levels import Levels, levels, levels_json

System = Literal["lonlat", "metres"]


@dataclass(frozen=True, eq=False)
class SeriesAxis:
    """Joint axis of stations: one cell per series, at the station's position."""

    series: tuple[Series, ...]
    x: NDArray[np.float64]
    """Longitude [degree] or projected x [m], NaN where unknown, shape (series,)."""
    y: NDArray[np.float64]
    """Latitude [degree] or projected y [m], NaN where unknown, shape (series,)."""
    elevation_m: NDArray[np.float64]
    system: System = "lonlat"
    moved: tuple[str, ...] = ()
    """Stations that moved during the requested time."""

    @property
    def count(self) -> int:
        return len(self.series)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.series),)

    def token(self) -> str:
        return self._token

    @cached_property
    def _token(self) -> str:
        # Cached: station tokens took much of the time of rebuilding standing queries.
        return token(self.series, self.x, self.y, self.elevation_m, self.system)


@dataclass(frozen=True)
class Grid(FormerNames):
    """Cells on two regular axes and an optional height axis.

    In flat order x varies fastest, then y, then z.
    """

    former_names = {"along": "replace_axes"}

    y: Regular
    """Rows: lat, or y [m]."""
    x: Regular
    """Columns: lon, or x [m]."""
    z: Levels | None = None
    """Levels: z [m above sea level]; None for a surface at ground height."""

    @property
    def axes(self) -> tuple[Levels, ...]:
        """Levels (if any), rows and columns: slowest first, as in `shape`."""
        return (self.y, self.x) if self.z is None else (self.z, self.y, self.x)

    def replace_axes(self, axes: Sequence[Levels]) -> "Grid":
        """Return a grid with other cells along the same dimensions, in the order of `axes`.

        Raises
        ------
        TypeError
            Rows or columns that are not regular.
        """
        *z, y, x = axes
        if not isinstance(y, Regular) or not isinstance(x, Regular):
            raise TypeError("a grid's rows and columns are regular")
        return Grid(y, x, *z)

    @property
    def system(self) -> System:
        return "lonlat" if self.x.quantum == "uas" else "metres"

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Levels (if any), rows and columns."""
        return tuple(axis.count for axis in self.axes)

    @property
    def size(self) -> tuple[float, float]:
        """Sides of a cell along x and y [degree or m]."""
        return self.x.length / PER_UNIT[self.x.quantum], self.y.length / PER_UNIT[self.y.quantum]

    @property
    def box(self) -> tuple[float, float, float, float]:
        """West, south, east and north of the grid [degree or m]."""
        unit = PER_UNIT[self.x.quantum]
        return self.x.origin / unit, self.y.origin / unit, self.x.stop / unit, self.y.stop / unit

    def centres(self, cells: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return centre x and y of flat cells [degree or m], shape (cells, 2)."""
        rows, columns = np.divmod(cells, self.x.count)
        # With levels, rows are counted over all levels.
        return np.stack([self.x.centres[columns], self.y.centres[rows % self.y.count]], axis=1)

    def heights_m(self, cells: NDArray[np.intp]) -> NDArray[np.float64] | None:
        """Return centre heights of flat cells [m above sea level], shape (cells,); None without levels."""
        return None if self.z is None else self.z.centres[cells // (self.y.count * self.x.count)]

    def token(self) -> str:
        return self._token

    @cached_property
    def _token(self) -> str:
        return token(*self.axes)


def grid(
    *,
    lon: object = None,
    lat: object = None,
    x: object = None,
    y: object = None,
    step: object = None,
    shape: Sequence[int] | None = None,
    z: object = None,
) -> Grid:
    """Make a grid of cells.

    Parameters
    ----------
    lon, lat
        Start and stop, half-open, or only the start together with `shape`: degrees, or "d:mm:ss" text.
    x, y
        The same in projected metres, instead of `lon` and `lat`.
    step
        Cell side: degrees (metres with `x` and `y`), or text such as "1arcsec", "0.5arcmin", "100m".
    shape
        Rows and columns.
    z
        Levels above sea level, for estimates in the air instead of on the ground. `[1000, 1500, 2000]` are the heights
        of the estimates [m]. Or levels as cells with estimates at their middles: `{"start": 400, "stop": 2400, "step":
        500}` (or "count" instead of "stop") has a first level of 400 to 900 m with its estimate at 650 m; `{"edges":
        [0, 800, 1500, 3000]}` has estimates at 400, 1150 and 2250 m.

    Raises
    ------
    InvalidQuery, NotFound
        An unreadable coordinate, a step that is not above zero, or a grid without cells.

    Examples
    --------
    >>> grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23)).shape
    (23, 23)
    >>> grid(x=0, y=0, step=100, shape=(8, 9), z={"start": 400, "stop": 2400, "step": 500}).shape
    (4, 8, 9)
    """
    geographic = lon is not None and lat is not None and x is None and y is None
    projected = x is not None and y is not None and lon is None and lat is None
    if not geographic and not projected:
        raise InvalidQuery(f"a grid needs lon and lat, or x and y; got lon={lon!r}, lat={lat!r}, x={x!r}, y={y!r}")
    if step is None:
        raise InvalidQuery("a grid needs a step, the side of a cell, such as step='1arcsec' or step=100; it is missing")
    quantum: Quantum = "uas" if geographic else "mm"
    step_quanta = side_of(step, quantum)
    if shape is not None and not (
        isinstance(shape, list | tuple) and len(shape) == 2 and all(is_count(item) for item in shape)
    ):
        raise InvalidQuery(f"a grid's shape needs two whole numbers above zero, rows and columns; got {shape!r}")
    rows, columns = shape if shape is not None else (None, None)
    names = ("lat", "lon") if geographic else ("y", "x")
    made = Grid(
        axis_of(names[0], lat if geographic else y, rows, step_quanta, quantum),
        axis_of(names[1], lon if geographic else x, columns, step_quanta, quantum),
        None if z is None else levels(z),
    )
    if geographic:
        _check_globe(made)
    return made


def side_of(step: object, quantum: Quantum) -> int:
    """Parse a cell side [quantum].

    Raises
    ------
    InvalidQuery
        It is unreadable or not above zero.
    """
    side = quanta(step, quantum, "step")
    if side <= 0:
        raise InvalidQuery(f"a grid needs a step above zero; got {step!r}")
    return side


def grid_json(cells: Grid) -> dict[str, Any]:
    """Return the JSON form of a grid, exact to the quantum; `grid(**…)` restores it."""
    if cells.system == "metres":
        corner: dict[str, Any] = {"x": cells.x.origin / 1000, "y": cells.y.origin / 1000, "step": cells.x.step / 1000}
    else:
        # Decimal degrees cannot represent 1e-6 arc-seconds exactly.
        corner = {"lon": _format_sexagesimal(cells.x.origin), "lat": _format_sexagesimal(cells.y.origin)}
        corner["step"] = f"{cells.x.step / 1e6:.10g}arcsec"
    corner["shape"] = [cells.y.count, cells.x.count]
    return corner if cells.z is None else {**corner, "z": levels_json(cells.z)}


def _format_sexagesimal(quanta: int) -> str:
    seconds, micro = divmod(abs(quanta), 1_000_000)
    text = f"{seconds // 3600}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    fraction = f".{micro:06d}".rstrip("0").rstrip(".")
    return ("-" if quanta < 0 else "") + text + fraction


def _check_globe(made: Grid) -> None:
    # Longitudes may count from -180 or from 0 degrees.
    unit = PER_UNIT["uas"]
    for axis, name, low, high in ((made.y, "latitudes", -90, 90), (made.x, "longitudes", -180, 360)):
        if not (low * unit <= axis.origin and axis.stop <= high * unit):
            got = f"{axis.origin / unit} to {axis.stop / unit}"
            raise InvalidQuery(f"a grid's {name} must lie within {low} to {high} degrees; got {got}")
