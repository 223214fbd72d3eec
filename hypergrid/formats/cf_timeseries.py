"""Read station series from CF NetCDF files (featureType timeSeries), for studies without an archive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.units import KNOWN_VARIABLES, check_unit

Box = tuple[float, float, float, float]
"""West, south, east, north [degree]."""

# Parsed literally, these spellings would be other units.
SPELLINGS: Final = {"degrees Celsius": "degC", "degree Celsius": "degC", "degrees_celsius": "degC", "celsius": "degC"}
"""CF spelling of units that files spell differently."""

MOVES_DEGREES: Final = 0.01
"""Largest deviation of a station's position from its median [degree]; beyond it the station has moved."""

ROLES: Final[dict[str, tuple[str, ...]]] = {
    "lon": ("longitude", "lon"),
    "lat": ("latitude", "lat"),
    "elevation": ("surface_altitude", "altitude", "height", "elevation"),
}
"""Standard names, or variable names, of the station coordinates."""


def read_timeseries(
    path: Path, variable: str, *, within: Box | None = None, without: Sequence[str] = ()
) -> xr.DataArray:
    """Read a variable of a file into an array for `hg.base`.

    Parameters
    ----------
    path
        NetCDF file; the variable has the dimension time and one other, the stations.
    variable
        Its name in the file.
    within
        Bounding box of the selected stations; all if absent.
    without
        Names of stations to exclude.

    Returns
    -------
    Shape (time, station), with lon, lat [degree] and elevation [m, NaN if the file has none]; stations without any
    value are dropped.

    Raises
    ------
    NotFound
        The file, the variable or an excluded station does not exist.
    InvalidQuery
        The file is not NetCDF 4 or lacks station positions, stations move, none is in the box, or the box is not
        west, south, east, north.
    """
    if within is not None and not (within[0] < within[2] and within[1] < within[3]):
        raise InvalidQuery(
            f"within needs west below east and south below north (west south east north, degree); got {within}"
        )
    if not path.is_file():
        raise NotFound(f"there is no file {path}")
    try:
        opened = xr.open_dataset(path, engine="h5netcdf")
    except (OSError, ValueError) as error:
        raise InvalidQuery(f"{path} cannot be read as NetCDF 4: {error}") from error
    with opened as data:
        series = [str(name) for name, item in data.data_vars.items() if _is_series(item)]
        NotFound.refuse_unknown(f"series of stations in {path.name}", [variable], series)
        return _make_array(data, data[variable], path, within, tuple(without))


def _is_series(item: xr.DataArray) -> bool:
    return item.ndim == 2 and "time" in item.dims and item.dtype.kind in "fiu"


def _make_array(
    data: xr.Dataset, item: xr.DataArray, path: Path, within: Box | None, without: tuple[str, ...]
) -> xr.DataArray:
    joint = next(dim for dim in item.dims if dim != "time")
    places = {role: _read_coordinate(data, role, str(joint), path) for role in ROLES}
    values = item.transpose("time", joint).to_numpy().astype(np.float64)
    kept = np.asarray(np.isfinite(values).any(axis=0))
    if within is not None:
        west, south, east, north = within
        lon, lat = places["lon"], places["lat"]
        kept = kept & (lon >= west) & (lon < east) & (lat >= south) & (lat < north)
    labels = (data[joint].to_numpy() if joint in data.coords else np.arange(len(kept))).astype(str)
    NotFound.refuse_unknown(f"station of {path.name}", without, labels.tolist())
    kept = kept & ~np.isin(labels, without)
    if not kept.any():
        where = f" in the box {within}" if within is not None else ""
        raise InvalidQuery(f"{path.name}: no station{where} has a value of {item.name}; give another box or variable")
    known = next((v for v in KNOWN_VARIABLES.values() if v.standard_name == item.attrs.get("standard_name")), None)
    coords: dict[str, Any] = {"time": data["time"].to_numpy(), "station": labels[kept]}
    coords |= {role: ("station", coordinate[kept]) for role, coordinate in places.items()}
    unit = str(item.attrs.get("units", "unknown"))
    return xr.DataArray(
        values[:, kept],
        dims=("time", "station"),
        coords=coords,
        name=known.name if known is not None else str(item.name),
        attrs={"units": check_unit(SPELLINGS.get(unit, unit))},
    )


def _read_coordinate(data: xr.Dataset, role: str, joint: str, path: Path) -> NDArray[np.float64]:
    """Return the coordinate of each station for a role; the median if given over time."""
    # Standard names take precedence over variable names.
    for item in data.variables.values():
        if item.attrs.get("standard_name") in ROLES[role] and joint in item.dims and set(item.dims) <= {joint, "time"}:
            return _require_fixed(item, role, joint, path)
    for name in ROLES[role]:
        if name in data.variables and joint in data[name].dims and set(data[name].dims) <= {joint, "time"}:
            return _require_fixed(data[name].variable, role, joint, path)
    if role == "elevation":
        return np.full(data.sizes[joint], np.nan)
    raise InvalidQuery(
        f"{path.name} does not say the {ROLES[role][0]} of its stations (a variable with that standard_name)"
    )


def _require_fixed(item: xr.Variable, role: str, joint: str, path: Path) -> NDArray[np.float64]:
    if "time" not in item.dims:
        return np.asarray(item.to_numpy(), dtype=np.float64)
    values = np.asarray(item.transpose("time", joint).to_numpy(), dtype=np.float64)
    known = np.isfinite(values).any(axis=0)
    settled = np.full(values.shape[1], np.nan)
    settled[known] = np.nanmedian(values[:, known], axis=0)
    spread = np.nanmax(np.abs(values[:, known] - settled[known]), initial=0.0)
    if role != "elevation" and spread > MOVES_DEGREES:
        raise InvalidQuery(
            f"{path.name}: a station moves by {spread:.3g} degree in {role}; cut the file where it was moved"
        )
    return settled
