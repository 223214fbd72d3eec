"""Layers that come with an array in memory: what `hg.base` takes beside the readings."""

from collections.abc import Mapping

import numpy as np
import xarray as xr

from hypergrid.errors import InvalidQuery, InvalidUnit
from hypergrid.topology import Layer, make_layer
from hypergrid.topology.space import System


def array_layers(given: Mapping[str, object], system: System) -> dict[str, Layer]:
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
    return {name: _layer(name, field, system) for name, field in given.items()}


def _layer(name: str, field: object, system: System) -> Layer:
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
            x=field[column].to_numpy().astype(np.float64),
            y=field[row].to_numpy().astype(np.float64),
            values=field.transpose(row, column).to_numpy().astype(np.float64),
            unit=str(field.attrs["units"]) if "units" in field.attrs else None,
            system=system,
            description="array",
        )
    except InvalidUnit as error:
        remedy = ", or give the layer another name: 'elevation' is kept in metres" if name == "elevation" else ""
        message = f"layer {name!r}: {error}; set its attrs['units'] to the unit of its values{remedy}"
        raise InvalidUnit(message) from error
