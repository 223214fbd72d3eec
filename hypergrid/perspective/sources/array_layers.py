"""Layers that come with an array in memory: what `hg.base` takes beside the readings."""

from collections.abc import Mapping
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.units import convert
from hypergrid.layers.layer import Layer, make_layer
from hypergrid.topology.space import System

UNIT_OF: Final[Mapping[System, str]] = {"lonlat": "degree", "metres": "m"}
"""Unit of the coordinates of each system."""


def make_array_layers(given: Mapping[str, object], system: System) -> dict[str, Layer]:
    """Return layers by name.

    Parameters
    ----------
    given
        By name a `Layer`, or an `xarray.DataArray` of the dimensions (lat, lon) or (y, x) in any order, with both as
        evenly spaced coordinates, NaN where nothing is known; `attrs["units"]`.
    system
        Coordinates of the readings; those of the layers must be the same.

    Raises
    ------
    InvalidQuery
        Something else than a layer or an array, other dimensions, or coordinates of the other kind.
    InvalidLayer, InvalidUnit
        The cells cannot be a layer, or the unit not be used.
    """
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        message = f"layers needs a mapping, such as {{'elevation': dataarray}}; got {type(given).__name__}"
        raise InvalidQuery(message)
    return {name: _make_layer(name, field, system) for name, field in given.items()}


def read_coordinate(values: xr.Variable, name: str, unit: str) -> NDArray[np.float64]:
    """Return a coordinate [unit], by the unit in its attributes where there is one; shape (cells,).

    Raises
    ------
    InvalidQuery
        It holds no numbers.
    InvalidUnit
        Its unit is unknown, or measures something else.
    """
    try:
        numbers, given = values.to_numpy().astype(np.float64), str(values.attrs.get("units", unit))
    except (TypeError, ValueError) as error:
        message = f"coordinate {name!r} needs numbers in {unit!r}; got {values.dtype}: {error}; convert it"
        raise InvalidQuery(message) from error
    # CF says by the unit which of the two it is: degrees_east, degree_N, ….
    if unit == "degree" and given.startswith("degree"):
        return numbers
    try:
        return convert(numbers, given, unit)
    except InvalidUnit as error:
        message = f"coordinate {name!r} needs values in {unit!r}: {error}; set its attrs['units'] to what they are in"
        raise InvalidUnit(message) from error


def _make_layer(name: str, field: object, system: System) -> Layer:
    row, column = ("lat", "lon") if system == "lonlat" else ("y", "x")
    if isinstance(field, Layer):
        if field.system != system:
            message = f"layer {name!r} is in {field.system}, the stations are in {system}; reproject one of them"
            raise InvalidQuery(message)
        return field
    if not isinstance(field, xr.DataArray):
        message = f"layer {name!r} needs an xarray.DataArray or a hypergrid Layer; got {type(field).__name__}"
        raise InvalidQuery(message)
    if set(field.dims) != {row, column} or any(axis not in field.coords for axis in (row, column)):
        message = (
            f"layer {name!r} needs the dimensions and coordinates ({row}, {column}), as the stations have; got "
            f"{tuple(map(str, field.dims))} with {sorted(map(str, field.coords))}; rename, squeeze or reproject it"
        )
        raise InvalidQuery(message)
    try:
        return make_layer(
            name,
            x=read_coordinate(field[column].variable, column, UNIT_OF[system]),
            y=read_coordinate(field[row].variable, row, UNIT_OF[system]),
            values=field.transpose(row, column).to_numpy().astype(np.float64),
            unit=str(field.attrs["units"]) if "units" in field.attrs else None,
            system=system,
            description="array",
        )
    except InvalidUnit as error:
        remedy = ", or give the layer another name: 'elevation' is kept in metres" if name == "elevation" else ""
        advice = "" if "coordinate" in str(error) else f"; set its attrs['units'] to the unit of its values{remedy}"
        message = f"layer {name!r}: {error}{advice}"
        raise InvalidUnit(message) from error
