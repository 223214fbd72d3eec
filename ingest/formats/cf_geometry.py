"""Geometry of NetCDF time series: the layout of stations, times and variables, and reading of pieces."""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hypergrid.core.readings import Position, Station
from hypergrid.core.times import SECOND_NS
from ingest.formats.base import Unreadable
from ingest.formats.file_metadata import station_at

if TYPE_CHECKING:
    import xarray as xr

GeometryKind = Literal["orthogonal", "incomplete", "contiguous", "indexed", "single"]
NO_TIME: Final = np.iinfo(np.int64).min
"""Fill value of a time: there is no row."""
# Smaller differences are noise of the station's receiver.
MOVED_DEGREES: Final = 1e-3
"""Minimum distance between two positions of a moving station [degree]."""
MOVED_M: Final = 10.0
MOVES_MOST: Final = 1000
"""Maximum number of positions that are kept per station."""

_SINCE: Final = re.compile(r"^\s*(\w+)\s+since\s+(.+?)\s*$")
_SECONDS: Final = {
    **dict.fromkeys(("second", "seconds", "sec", "secs", "s"), 1.0),
    **dict.fromkeys(("millisecond", "milliseconds", "msec", "ms"), 1e-3),
    **dict.fromkeys(("microsecond", "microseconds", "us"), 1e-6),
    **dict.fromkeys(("minute", "minutes", "min", "mins"), 60.0),
    **dict.fromkeys(("hour", "hours", "hr", "hrs", "h"), 3600.0),
    **dict.fromkeys(("day", "days", "d"), 86400.0),
}
_CALENDARS: Final = ("standard", "gregorian", "proleptic_gregorian")
_ELEVATIONS: Final = ("altitude", "surface_altitude", "height_above_mean_sea_level", "height_above_geopotential_datum")
_STATION_HEIGHT: Final = re.compile(r"(?i)station|altitude|elevation|terrain|sea level|ground")
_BLOCK: Final = 1 << 20


@dataclass(frozen=True)
class Geometry:
    """Kind of geometry of a file, and the names of its parts."""

    kind: GeometryKind
    time: str
    """Time variable."""
    station: str
    """Variable with station names; empty if there is none."""
    instance: str
    """Station dimension; empty if there is none."""
    sample: str
    """Dimension along which pieces are split: time, or observations."""
    size: int
    """Length of that dimension."""
    link: str = ""
    """Ragged: variable with counts, or indices."""

    @property
    def is_ragged(self) -> bool:
        """Whether the observations of all stations are along one dimension."""
        return self.kind in ("contiguous", "indexed", "single")


def find_geometry(dataset: "xr.Dataset") -> Geometry:
    """Determine the geometry of a file.

    Raises
    ------
    Unreadable
        The file has another feature type, or an unknown geometry.
    """
    feature = str(dataset.attrs.get("featureType", "timeSeries"))
    if feature.lower() != "timeseries":
        raise Unreadable(f"no time series: its featureType is {feature!r}")
    time = _first(dataset, lambda a: a.get("standard_name") == "time" and "since" in str(a.get("units", "")))
    time = time or _first(dataset, lambda a: " since " in str(a.get("units", "")))
    if time is None:
        raise Unreadable("no time: a variable with units such as 'seconds since 1970-01-01' is needed")
    _origin(dataset, time)
    station = _first(dataset, lambda a: a.get("cf_role") == "timeseries_id")
    station = station or next((n for n in ("station", "station_id", "station_name") if n in dataset.variables), "")
    instance = str(next(iter(dataset[station].dims), "")) if station else ""
    if station and dataset[station].dtype.kind == "S" and dataset[station].ndim == 1 and dataset[station].size > 1:
        # A single name, stored as characters.
        instance = "" if dataset[station].dtype.itemsize == 1 else instance
    dims = tuple(map(str, dataset[time].dims))
    counts = _first(dataset, lambda a: "sample_dimension" in a)
    index = _first(dataset, lambda a: "instance_dimension" in a)
    kind: GeometryKind
    if counts is not None:
        kind, sample = "contiguous", str(dataset[counts].attrs["sample_dimension"])
        instance = instance or str(dataset[counts].dims[0])
    elif index is not None:
        kind, sample = "indexed", str(dataset[index].dims[0])
        instance = instance or str(dataset[index].attrs["instance_dimension"])
    elif len(dims) == 1:
        kind, sample = ("orthogonal" if instance and instance != dims[0] else "single"), dims[0]
    elif len(dims) == 2 and instance in dims:
        kind, sample = "incomplete", next(name for name in dims if name != instance)
    else:
        raise Unreadable(f"no geometry that is known: time has the dimensions {', '.join(dims) or 'none'}")
    size = dict(zip(map(str, dataset.sizes), dataset.sizes.values(), strict=True)).get(sample)
    if size is None:
        raise Unreadable(f"no geometry that is known: there is no dimension {sample!r}")
    return Geometry(kind, time, station, "" if kind == "single" else instance, sample, size, counts or index or "")


def _first(dataset: "xr.Dataset", right) -> str | None:  # noqa: ANN001 - a test of attributes
    return next((str(name) for name in dataset.variables if right(dataset[name].attrs)), None)


def data_variables(dataset: "xr.Dataset", shape: Geometry) -> tuple[str, ...]:
    """Return the variables with a number for each row."""
    dims = {shape.sample} if shape.is_ragged else {shape.instance, shape.sample}
    bounds = {str(dataset[name].attrs.get("bounds", "")) for name in dataset.variables}
    auxiliary_names = {shape.time, shape.station, shape.link, *bounds, *_positions(dataset).values()}
    return tuple(
        str(name)
        for name in dataset.variables
        if set(dataset[name].dims) == dims
        and dataset[name].dtype.kind in "iuf"
        and name not in auxiliary_names
        and "flag_meanings" not in dataset[name].attrs
        and " since " not in str(dataset[name].attrs.get("units", ""))
    )


def _positions(dataset: "xr.Dataset") -> dict[str, str]:
    """Return the variables with longitude, latitude and elevation."""
    coordinates: dict[str, str] = {}
    for name in dataset.variables:
        attributes = dataset[name].attrs
        standard, units = str(attributes.get("standard_name", "")), str(attributes.get("units", ""))
        if standard == "longitude" or (not standard and re.fullmatch(r"degrees?_?(east|E)", units)):
            coordinates.setdefault("lon", str(name))
        elif standard == "latitude" or (not standard and re.fullmatch(r"degrees?_?(north|N)", units)):
            coordinates.setdefault("lat", str(name))
        elif standard in _ELEVATIONS:
            # A standard name for elevations takes precedence over a height.
            coordinates["elevation"] = str(name)
        elif standard == "height" and _STATION_HEIGHT.search(str(attributes.get("long_name", ""))):
            # CF defines a height above the surface; but a "Station height" is the station's elevation.
            coordinates.setdefault("elevation", str(name))
    return coordinates


def height_of(dataset: "xr.Dataset", name: str, *, otherwise: float | None) -> float | None:
    """Return the height of a variable's sensor [m] from its scalar coordinate; depths are negative."""
    for word in str(dataset[name].attrs.get("coordinates", "")).split():
        if word not in dataset.variables or dataset[word].size != 1:
            continue
        attributes = dataset[word].attrs
        if attributes.get("standard_name") in ("height", "depth") and attributes.get("units") in ("m", "cm"):
            metres = float(dataset[word].values.ravel()[0]) * (0.01 if attributes["units"] == "cm" else 1.0)
            return -metres if attributes["standard_name"] == "depth" else metres
    return otherwise


def names(dataset: "xr.Dataset", shape: Geometry, otherwise: str) -> tuple[str, ...]:
    """Return the names of the stations; `otherwise` if the file does not name them.

    Raises
    ------
    Unreadable
        A name is empty or repeated.
    """
    if not shape.station:
        count = dataset.sizes.get(shape.instance, 1) if shape.instance else 1
        return (otherwise,) if count == 1 else tuple(f"{otherwise}-{index + 1}" for index in range(count))
    station_names = tuple(_texts(dataset[shape.station], dataset.sizes.get(shape.instance, 1) if shape.instance else 1))
    wrong = [name for name in station_names if not name or station_names.count(name) > 1]
    if wrong:
        raise Unreadable(f"station named twice or not at all: {wrong[0]!r} in {shape.station}")
    return station_names


def _texts(variable: "xr.DataArray", count: int) -> list[str]:
    values = variable.values
    if values.dtype.kind == "S" and values.dtype.itemsize == 1 and values.size > count:
        # Characters are along the last dimension, or the last two.
        values = values.reshape(count, -1)
        return [b"".join(row.tolist()).decode("utf-8", errors="replace").strip("\0 ") for row in values]
    flat = np.asarray(values).ravel().tolist()
    return [(item.decode("utf-8", "replace") if isinstance(item, bytes) else str(item)).strip("\0 ") for item in flat]


def stations(dataset: "xr.Dataset", shape: Geometry, station_names: tuple[str, ...]) -> tuple[Station, ...]:
    """Return the stations with their positions; moving ones get one for each move."""
    where = _positions(dataset)
    if not {"lon", "lat"} <= set(where):
        return tuple(station_at(name, float("nan"), float("nan")) for name in station_names)
    titles = _titles(dataset, shape, station_names)
    parts = [where["lon"], where["lat"], *([where["elevation"]] if "elevation" in where else [])]
    if all(shape.sample not in dataset[name].dims for name in parts):
        still = [np.broadcast_to(_unpack_values(dataset[name], ...), (len(station_names),)) for name in parts]
        lon, lat, up = (*still, np.full(len(station_names), np.nan))[:3]
        return tuple(
            station_at(*arguments, name=title)
            for *arguments, title in zip(station_names, lon.tolist(), lat.tolist(), up.tolist(), titles, strict=True)
        )
    return _moving_stations(dataset, shape, station_names, titles, parts)


def _titles(dataset: "xr.Dataset", shape: Geometry, station_names: tuple[str, ...]) -> tuple[str, ...]:
    for name in dataset.variables:
        variable, standard_name = dataset[name], str(dataset[name].attrs.get("standard_name", ""))
        if variable.dtype.kind not in "SOU" or name == shape.station:
            continue
        if standard_name == "platform_name" or re.fullmatch(r"(?i)(station|platform)_?name", str(name)):
            if shape.sample in variable.dims:
                variable = variable.isel({shape.sample: 0})
            texts = _texts(variable, len(station_names))
            if len(texts) == len(station_names):
                return tuple(texts)
    return station_names


def _moving_stations(
    dataset: "xr.Dataset", shape: Geometry, station_names: tuple[str, ...], titles: tuple[str, ...], parts: list[str]
) -> tuple[Station, ...]:
    histories: list[list[Position]] = [[] for _ in station_names]
    step = max(1, _BLOCK // max(1, len(station_names)))
    for start in range(0, shape.size, step):
        stop = min(shape.size, start + step)
        code, time_ns = codes(dataset, shape, start, stop), times(dataset, shape, start, stop)
        columns = [numbers(dataset, shape, name, start, stop) for name in parts]
        lon, lat, up = (*columns, np.full(len(code), np.nan))[:3]
        # Positions off the globe are invalid, as in `station_at`; the comparisons also reject NaN.
        known = (lon >= -180.0) & (lon <= 360.0) & (np.abs(lat) <= 90.0) & (code >= 0)
        order = np.flatnonzero(known)[np.argsort(code[known], kind="stable")]
        edges = np.searchsorted(code[order], np.arange(len(station_names) + 1))
        for index, history in enumerate(histories):
            rows = order[edges[index] : edges[index + 1]]
            for row in _position_changes(lon[rows], lat[rows], up[rows], history):
                at = int(rows[row])
                since = None if not history else int(time_ns[at])
                history.append(Position(since, float(lon[at]), float(lat[at]), float(up[at])))
    nowhere = [Position(None, float("nan"), float("nan"), float("nan"))]
    return tuple(
        Station(name, title, tuple(history[:MOVES_MOST] or nowhere))
        for name, title, history in zip(station_names, titles, histories, strict=True)
    )


def _position_changes(
    lon: NDArray[np.float64], lat: NDArray[np.float64], up: NDArray[np.float64], history: list[Position]
) -> list[int]:
    """Return the rows at which a station has moved since the last change."""
    starts: list[int] = []
    last = (history[-1].lon, history[-1].lat, history[-1].elevation_m) if history else None
    start = 0
    while start < len(lon) and len(starts) < MOVES_MOST:
        if last is not None:
            away = (np.abs(lon[start:] - last[0]) > MOVED_DEGREES) | (np.abs(lat[start:] - last[1]) > MOVED_DEGREES)
            away |= np.abs(up[start:] - last[2]) > MOVED_M
            if not away.any():
                break
            start += int(np.argmax(away))
        starts.append(start)
        last = (lon[start], lat[start], up[start])
        start += 1
    return starts


def _origin(dataset: "xr.Dataset", name: str) -> tuple[float, int]:
    """Return the unit of a time variable [s] and its origin [ns since 1970 UTC]."""
    attributes = dataset[name].attrs
    text, calendar = str(attributes.get("units", "")), str(attributes.get("calendar", "standard")).lower()
    match = _SINCE.match(text)
    if match is None or match[1].lower() not in _SECONDS or calendar not in _CALENDARS:
        raise Unreadable(f"no time that is known: units {text!r}, calendar {calendar!r}")
    try:
        origin = pd.Timestamp(match[2])
    except ValueError as error:
        raise Unreadable(f"no time that is known: units {text!r}") from error
    origin = origin.tz_localize("UTC") if origin.tzinfo is None else origin.tz_convert("UTC")
    return _SECONDS[match[1].lower()], int(origin.as_unit("ns").value)


def times(
    dataset: "xr.Dataset", shape: Geometry, start: int, stop: int, *, bounds: str = "", edge: int = 0
) -> NDArray[np.int64]:
    """Return the instants of a piece's rows [ns], or one edge of `bounds`; `NO_TIME` for fill values."""
    unit_s, origin_ns = _origin(dataset, shape.time)
    variable = dataset[bounds or shape.time]
    if bounds:
        variable = variable.isel({variable.dims[-1]: edge})
    # Loaded once, because an unloaded piece is read and decompressed at every access.
    raw = variable.isel({shape.sample: slice(start, stop)}).load()
    if shape.kind == "incomplete":
        raw = raw.transpose(shape.sample, shape.instance)
    filled = _fill_values(raw)
    values = raw.values
    if values.dtype.kind in "iu" and unit_s >= 1 and not _packing(raw):
        # Integers are converted exactly, without float64.
        whole = values.astype(np.int64) * round(unit_s * SECOND_NS) + origin_ns
    else:
        # Clipped below, so that the conversion to int64 cannot overflow.
        number = np.where(filled, 0.0, _scale_number(raw, values.astype(np.float64)))
        # Days in float64 are exact to about 0.1 microseconds; rounding restores the intended time.
        whole = np.rint(np.clip(number * unit_s, -9e9, 9e9) * 1e6).astype(np.int64) * 1000 + origin_ns
    whole = np.where(filled, NO_TIME, whole).ravel()
    repeats = dataset.sizes[shape.instance] if shape.kind == "orthogonal" else 1
    return np.repeat(whole, repeats) if repeats != 1 else whole


def codes(dataset: "xr.Dataset", shape: Geometry, start: int, stop: int) -> NDArray[np.int64]:
    """Return the station index of each row of a piece; -1 if invalid."""
    if shape.kind == "single":
        return np.zeros(stop - start, np.int64)
    count = dataset.sizes[shape.instance]
    if shape.kind == "contiguous":
        sizes = dataset[shape.link].values.astype(np.int64)
        ends = np.cumsum(np.where(sizes < 0, 0, sizes))
        indices = np.searchsorted(ends, np.arange(start, stop), side="right")
    elif shape.kind == "indexed":
        indices = dataset[shape.link].isel({shape.sample: slice(start, stop)}).values.astype(np.int64)
    else:
        return np.tile(np.arange(count), stop - start)
    return np.where((indices < 0) | (indices >= count), -1, indices)


def numbers(dataset: "xr.Dataset", shape: Geometry, name: str, start: int, stop: int) -> NDArray[np.float64]:
    """Return a variable of a piece's rows, NaN for fill values."""
    raw = dataset[name].isel({shape.sample: slice(start, stop)}).load()
    if not shape.is_ragged:
        raw = raw.transpose(shape.sample, shape.instance)
    return _unpack_values(raw, ...).ravel()


def _unpack_values(variable: "xr.DataArray", rows) -> NDArray[np.float64]:  # noqa: ANN001 - a numpy index
    values = variable.values[rows]
    number = _scale_number(variable, values.astype(np.float64))
    return np.where(_fill_values(variable), np.nan, number)


def _scale_number(variable: "xr.DataArray", number: NDArray[np.float64]) -> NDArray[np.float64]:
    scale, offset = _packing(variable) or (1.0, 0.0)
    return number if (scale, offset) == (1.0, 0.0) else number * scale + offset


def _packing(variable: "xr.DataArray") -> tuple[float, float] | None:
    keys = ("scale_factor", "add_offset")
    if not any(key in variable.attrs for key in keys):
        return None
    scale, offset = (
        np.ravel(variable.attrs.get(key, default))[0] for key, default in zip(keys, (1.0, 0.0), strict=True)
    )
    return float(scale), float(offset)


def _fill_values(variable: "xr.DataArray") -> NDArray[np.bool_]:
    """Return the mask of fill and missing values."""
    values = variable.values
    mask = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    # Both attributes are in the packed type, so they are compared before unpacking.
    for key in ("_FillValue", "missing_value"):
        for marker in np.ravel(variable.attrs.get(key, [])):
            mask |= values == np.asarray(marker).astype(values.dtype)
    return np.asarray(mask)
