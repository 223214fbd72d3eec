"""Layers: fields that do not change with time, such as elevation, on a regular grid."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidLayer
from hypergrid.core.tokens import token
from hypergrid.core.units import check_unit, convert
from hypergrid.topology.space import System

Floats = NDArray[np.float64]

# Stations carry the same quantity in this unit.
UNITS: Final[Mapping[str, str]] = {"elevation": "m"}
"""Fixed unit of layers by name."""

# 32-bit coordinates are not more precise.
_UNEVEN: Final = 1e-4
"""Tolerated deviation of a centre from a regular grid [cells]."""
# Degrees in 64 bits are accurate to about 1e-10 of a cell.
_ROUNDING: Final = 1e-8
"""Distance within which a position counts as a centre [cells]."""


@dataclass(frozen=True, eq=False)
class Layer:
    """An immutable field at cell centres, rows from the south, columns from the west.

    Rows of projected layers begin at the least y. Centres may also be given in descending order, and values in any unit
    that converts to the fixed one of the layer's name.

    Examples
    --------
    >>> ground = Layer("elevation", x=[0, 100], y=[100, 0], values=[[1, 2], [3, 4]], unit="km", system="metres")
    >>> ground.unit, float(ground.sample([[50.0, 0.0]])[0])
    ('m', 3500.0)
    """

    name: str
    """Name in queries; "elevation" is converted to metres."""
    x: Floats
    """Centres of the columns, longitude [degree] or projected x [m], ascending and regular, shape (columns,)."""
    y: Floats
    """Centres of the rows, latitude [degree] or projected y [m], ascending and regular, shape (rows,)."""
    values: Floats
    """Values [unit], NaN if unknown, shape (rows, columns)."""
    unit: str = "unknown"
    """Unit of the values; the fixed unit of the name if unknown."""
    system: System = "lonlat"
    """Coordinates of the centres: longitudes and latitudes, or metres."""
    description: str = ""
    """Provenance: source, coordinate reference system, resampling."""

    def __post_init__(self) -> None:
        """Copy, order, convert and validate the arrays.

        Raises
        ------
        InvalidLayer
            An empty name, fewer than two rows or columns, centres that are not regular, mismatched shapes, infinite
            values, or only NaN.
        InvalidUnit
            The unit is unknown, or does not convert to the fixed unit of the name.
        """
        if not self.name:
            raise InvalidLayer("a layer needs a name; got an empty one; name what it holds, for example 'elevation'")
        stated = check_unit(self.unit or "unknown")
        object.__setattr__(self, "unit", UNITS.get(self.name, stated))
        x, y, values = (np.asarray(each, np.float64) for each in (self.x, self.y, self.values))
        if _descends(x) and values.ndim == 2:
            x, values = x[::-1], values[:, ::-1]
        if _descends(y) and values.ndim == 2:
            y, values = y[::-1], values[::-1]
        for field, given in (("x", x), ("y", y), ("values", convert(values, stated, self.unit))):
            array = np.array(given, np.float64, order="C")
            array[np.isnan(array)] = np.nan  # one bit pattern of NaN, so that equal layers have equal bytes
            array.setflags(write=False)
            object.__setattr__(self, field, array)
        self._check_centres("x", self.x)
        self._check_centres("y", self.y)
        if self.values.shape != (len(self.y), len(self.x)):
            needed = f"values of shape (rows, columns) = {(len(self.y), len(self.x))}"
            raise InvalidLayer(f"layer {self.name!r} needs {needed}; got {self.values.shape}; transpose or crop them")
        if np.isinf(self.values).any():
            raise InvalidLayer(
                f"layer {self.name!r} needs finite values, or NaN where unknown; got infinity; mark it NaN"
            )
        if np.isnan(self.values).all():
            raise InvalidLayer(
                f"layer {self.name!r} holds no value: each cell is NaN; check its extent and its no-data value"
            )

    def _check_centres(self, axis: str, centres: Floats) -> None:
        words = f"layer {self.name!r} needs two or more {axis} centres, ascending and evenly spaced"
        if centres.ndim != 1 or len(centres) < 2:
            raise InvalidLayer(f"{words}; got the shape {centres.shape}; give a larger part of the field")
        steps = np.diff(centres)
        step = (centres[-1] - centres[0]) / (len(centres) - 1)
        even = np.abs(centres - np.linspace(centres[0], centres[-1], len(centres))) <= _UNEVEN * abs(step)
        if not (step > 0.0 and even.all()):
            raise InvalidLayer(f"{words}; got steps from {steps.min():g} to {steps.max():g}; resample it to even steps")

    @cached_property
    def token(self) -> str:
        """Content token of cells, values and unit; name and description do not count."""
        return token("layer", self.x, self.y, self.values, self.unit, self.system)

    @property
    def step(self) -> tuple[float, float]:
        """Cell size along x and y [degree or m]."""
        return (
            float((self.x[-1] - self.x[0]) / (len(self.x) - 1)),
            float((self.y[-1] - self.y[0]) / (len(self.y) - 1)),
        )

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Outer edges of the cells [degree or m]: west, south, east, north."""
        across, along = self.step
        return (
            float(self.x[0] - across / 2),
            float(self.y[0] - along / 2),
            float(self.x[-1] + across / 2),
            float(self.y[-1] + along / 2),
        )

    def sample(self, points: ArrayLike) -> Floats:
        """Interpolate the values bilinearly between cell centres.

        Within half a cell outside the outermost centres the edge value is used; a layer of all longitudes has no
        eastern or western edge.

        Parameters
        ----------
        points
            x and y in the coordinates of the layer [degree or m], shape (points, 2). Longitudes may start at -180 or
            at 0.

        Returns
        -------
        Values [unit], shape (points,); NaN outside the cells, for a NaN point, and if any of the four surrounding
        centres with a weight is NaN.
        """
        places = np.asarray(points, np.float64).reshape(-1, 2)
        places = np.where(np.isfinite(places), places, np.nan)
        column, row = self._find_columns(places[:, 0]), self._find_rows(places[:, 1])
        return interpolate_bilinear(self.values, row=row, column=column, closes=self._closes)

    def covers(self, *, x: Floats, y: Floats) -> bool:
        """Return whether any pair of x and y [degree or m] lies in a cell.

        The value there may be NaN.
        """
        inside = (
            _find_between(self._find_columns(x), len(self.x) - 1)[2],
            _find_between(self._find_rows(y), len(self.y) - 1)[2],
        )
        return bool(inside[0].any() and inside[1].any())

    def _find_columns(self, x: Floats) -> Floats:
        if self.system == "lonlat":
            x = x - 360.0 * np.rint((x - (self.x[0] + self.x[-1]) / 2) / 360.0)
        return np.asarray((x - self.x[0]) / self.step[0])

    def _find_rows(self, y: Floats) -> Floats:
        return np.asarray((y - self.y[0]) / self.step[1])

    @property
    def _closes(self) -> bool:
        """Whether the cells span all longitudes, so that the first column follows the last."""
        across = self.step[0]
        return self.system == "lonlat" and abs(len(self.x) * across - 360.0) <= _UNEVEN * across


def interpolate_bilinear(values: Floats, *, row: Floats, column: Floats, closes: bool = False) -> Floats:
    """Interpolate a field bilinearly between its cell centres.

    Parameters
    ----------
    values
        Shape (rows, columns), two or more of each, NaN if unknown.
    row, column
        Positions [cells] from the centre of the first cell, shape (places,).
    closes
        Whether the first column follows the last, so that no column is outside.

    Returns
    -------
    Values, shape (places,): the edge value within half a cell outside the outermost centres, NaN further out, and
    NaN if any of the four surrounding centres with a weight is NaN.
    """
    below, above, inside_rows = _find_between(row, values.shape[0] - 1)
    columns = values.shape[1]
    left, right, inside_columns = _find_between(column % columns if closes else column, columns - (0 if closes else 1))
    interpolated = np.zeros(row.shape)
    for corner_row, row_share in ((below, 1.0 - above), (below + 1, above)):
        for corner_column, column_share in ((left, 1.0 - right), (left + 1, right)):
            share = row_share * column_share
            # Zero times NaN is NaN: a missing corner without a weight must not count.
            interpolated += np.where(share > 0.0, share * values[corner_row, corner_column % columns], 0.0)
    return np.where(inside_rows & inside_columns, interpolated, np.nan)


def _find_between(position: Floats, last: int) -> tuple[NDArray[np.intp], Floats, NDArray[np.bool_]]:
    """Return each position's preceding centre, the next one's weight, and whether it is inside."""
    nearest = np.rint(position)
    position = np.where(np.abs(position - nearest) < _ROUNDING, nearest, position)
    inside = (position >= -0.5 - _ROUNDING) & (position <= last + 0.5 + _ROUNDING)
    clamped = np.clip(np.where(inside, position, 0.0), 0.0, last)
    before = np.minimum(clamped.astype(np.intp), last - 1)
    return before, clamped - before, inside


def _descends(centres: Floats) -> bool:
    return centres.ndim == 1 and len(centres) > 1 and bool(centres[0] > centres[-1])
