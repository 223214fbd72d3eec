"""NetCDF files with CF's discrete sampling geometries, feature type timeSeries.

Supported are the orthogonal and the incomplete multidimensional, the contiguous ragged and the indexed ragged array,
and the file of one station. A file is read in pieces along its time (or
observations). A cell with a fill value is a reading without a value, but if its time is a fill value, there is no
reading. Numbers are unpacked with `scale_factor` and `add_offset`; `valid_range` is left to the quality tests.

Source: CF conventions 1.11, chapter 9 and appendix H.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from hypergrid.core.flags import MEANINGS, NOT_EVALUATED
from hypergrid.core.readings import Position, Stamp, Station, Statistic
from hypergrid.core.times import SECOND_NS
from ingest.formats.base import (
    FORMATS,
    LARGEST,
    TOO_LARGE,
    BadRow,
    DocumentFormat,
    Layout,
    Parsed,
    ReadOptions,
    Unreadable,
)
from ingest.formats.file_metadata import (
    ColumnMetadata,
    FileMetadata,
    column_of,
    station_at,
    statistic_of,
    usual_interval_s,
)
from ingest.formats.timestamps import EARLIEST_NS, LATEST_NS, OUT_OF_RANGE

if TYPE_CHECKING:
    import xarray as xr

HDF5: Final = b"\x89HDF\r\n\x1a\n"
CLASSIC: Final = (b"CDF\x01", b"CDF\x02")
_LOOKED_AT: Final = 1000
"""Number of times from which the interval is inferred."""
_METHOD: Final = re.compile(r"time: *(\w+)")
_WITHIN: Final = re.compile(r"(?i)\b(\d+) ?(min|minutes?|hours?|h)\b *(average|mean|maximum|minimum|sum|total)")
_LAST: Final = re.compile(r"(?i)\blast (?:(\d+) )?(hours?|minutes?|min)\b")
_KIND: Final = re.compile(r"(?i)\b(average|mean|maximum|minimum|sum|total)\b")
_HEIGHT: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(cm|m)\b")
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


def read_station_names(dataset: "xr.Dataset", shape: Geometry, otherwise: str) -> tuple[str, ...]:
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


def place_stations(dataset: "xr.Dataset", shape: Geometry, station_names: tuple[str, ...]) -> tuple[Station, ...]:
    """Return the stations with their positions; moving ones get one for each move."""
    where = _positions(dataset)
    if not {"lon", "lat"} <= set(where):
        return tuple(station_at(name, float("nan"), float("nan")) for name in station_names)
    titles = _titles(dataset, shape, station_names)
    parts = [where["lon"], where["lat"], *([where["elevation"]] if "elevation" in where else [])]
    if all(shape.sample not in dataset[name].dims for name in parts):
        still = [np.broadcast_to(_unpack_values(dataset[name]), (len(station_names),)) for name in parts]
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
    step = max(1, (1 << 20) // max(1, len(station_names)))
    for start in range(0, shape.size, step):
        stop = min(shape.size, start + step)
        code, time_ns = read_codes(dataset, shape, start, stop), read_times(dataset, shape, start, stop)
        columns = [read_numbers(dataset, shape, name, start, stop) for name in parts]
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


def read_times(
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
    if values.dtype.kind in "iu" and unit_s >= 1 and _packing(raw) == (1.0, 0.0):
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


def read_codes(dataset: "xr.Dataset", shape: Geometry, start: int, stop: int) -> NDArray[np.int64]:
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


def read_numbers(dataset: "xr.Dataset", shape: Geometry, name: str, start: int, stop: int) -> NDArray[np.float64]:
    """Return a variable of a piece's rows, NaN for fill values."""
    raw = dataset[name].isel({shape.sample: slice(start, stop)}).load()
    if not shape.is_ragged:
        raw = raw.transpose(shape.sample, shape.instance)
    return _unpack_values(raw).ravel()


def _unpack_values(variable: "xr.DataArray") -> NDArray[np.float64]:
    return np.where(_fill_values(variable), np.nan, _scale_number(variable, variable.values.astype(np.float64)))


def _scale_number(variable: "xr.DataArray", number: NDArray[np.float64]) -> NDArray[np.float64]:
    scale, offset = _packing(variable)
    return number if (scale, offset) == (1.0, 0.0) else number * scale + offset


def _packing(variable: "xr.DataArray") -> tuple[float, float]:
    """Return the scale and the offset of packed numbers; 1 and 0 if they are not packed."""
    scale, offset = variable.attrs.get("scale_factor", 1.0), variable.attrs.get("add_offset", 0.0)
    return float(np.ravel(scale)[0]), float(np.ravel(offset)[0])


def _fill_values(variable: "xr.DataArray") -> NDArray[np.bool_]:
    """Return the mask of fill and missing values."""
    values = variable.values
    mask = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    # Both attributes are in the packed type, so they are compared before unpacking.
    for key in ("_FillValue", "missing_value"):
        for marker in np.ravel(variable.attrs.get(key, [])):
            mask |= values == np.asarray(marker).astype(values.dtype)
    return np.asarray(mask)


@dataclass(frozen=True)
class Detail:
    """Data for parsing a piece separately."""

    geometry: Geometry
    stations: tuple[str, ...]
    lower: str
    """Variable of time bounds that replaces the stamps by its lower bound, if stamps are inside; empty: none."""


def sniff(head: bytes, file: str) -> str | None:
    if head.startswith(HDF5):
        return "HDF5's signature (NetCDF 4)"
    return "NetCDF's classic signature" if head.startswith(CLASSIC) else None


@contextmanager
def _open_dataset(path: Path) -> "Iterator[xr.Dataset]":
    # Imported here because xarray takes long to load, and files of other formats do not need it.
    import xarray as xr  # noqa: PLC0415

    with path.open("rb") as stream:
        engine = "h5netcdf" if stream.read(len(HDF5)) == HDF5 else "scipy"
    try:
        # Not decoded by xarray: packed numbers, fill values and times are decoded here, piece by piece.
        with xr.open_dataset(
            path, engine=engine, decode_cf=False, cache=False, create_default_indexes=False
        ) as dataset:
            yield dataset
    except Unreadable:
        raise
    except Exception as error:  # whatever the libraries raise for a damaged file
        raise Unreadable(f"damaged: it cannot be read as NetCDF: {str(error)[:120]}") from error


def layout(path: Path, options: ReadOptions) -> Layout:
    """Read the structure of the file, and the metadata of its stations and variables.

    Raises
    ------
    Unreadable
        It is damaged, not a time series, or declares much more than its size allows.
    """
    with _open_dataset(path) as dataset:
        shape = find_geometry(dataset)
        stations = read_station_names(dataset, shape, path.stem)
        wanted, ignored = options.divide_columns(data_variables(dataset, shape))
        _refuse_bomb(dataset, path, wanted)
        first = read_times(dataset, shape, 0, min(_LOOKED_AT, shape.size))
        shown = first[first != NO_TIME]
        stamp, interval_s, lower = _bounds(dataset, shape, first)
        interval_s = interval_s or _interval(dataset, shape, first)
        columns = {name: _column(dataset, name, interval_s, stamp) for name in wanted}
        metadata = FileMetadata(
            columns,
            place_stations(dataset, shape, stations),
            first_ns=int(shown.min()) if len(shown) else None,
            zone="UTC",
        )
        detail = Detail(shape, stations, lower)
        header = tuple(str(name) for name in dataset.variables)
    station = stations[0] if len(stations) == 1 else ""
    return Layout((options.station_column, *header), wanted, ignored, options, station, 0, 0, metadata, detail=detail)


def _refuse_bomb(dataset: "xr.Dataset", path: Path, wanted: tuple[str, ...]) -> None:
    declared = sum(int(dataset[name].size) * dataset[name].dtype.itemsize for name in wanted)
    held = path.stat().st_size
    # Checked first, because a damaged file can declare any size.
    if declared > max(64 << 20, 1000 * held):
        raise Unreadable(f"declares {declared} bytes and holds {held}; no packing is that good")


def _interval(dataset: "xr.Dataset", shape: Geometry, first: NDArray[np.int64]) -> float:
    """Return the usual interval between rows of a station [s]."""
    code = read_codes(dataset, shape, 0, min(_LOOKED_AT, shape.size))
    return usual_interval_s(first[(code == code[0]) & (first != NO_TIME)]) if len(code) else 0.0


def _bounds(dataset: "xr.Dataset", shape: Geometry, first: NDArray[np.int64]) -> tuple[Stamp | None, float, str]:
    """Return what stamps mark, the interval [s], and `Detail.lower`, from the time bounds."""
    name = str(dataset[shape.time].attrs.get("bounds", ""))
    if name not in dataset.variables:
        return None, 0.0, ""
    stop = min(_LOOKED_AT, shape.size)
    low, high = (read_times(dataset, shape, 0, stop, bounds=name, edge=edge) for edge in (0, 1))
    there = (first != NO_TIME) & (low != NO_TIME) & (high != NO_TIME)
    if not there.any():
        return None, 0.0, ""
    interval_s = float(np.median(high[there] - low[there])) / SECOND_NS
    if (first[there] == high[there]).all():
        return "end", interval_s, ""
    return "start", interval_s, "" if (first[there] == low[there]).all() else name


def _column(dataset: "xr.Dataset", name: str, interval_s: float, stamp: Stamp | None) -> ColumnMetadata:
    attributes = dataset[name].attrs
    long_name = str(attributes.get("long_name", ""))
    method = _METHOD.search(str(attributes.get("cell_methods", "")))
    statistic = statistic_of(method[1]) if method else None
    if statistic is None:
        statistic, length_s, ends = _words(long_name)
        interval_s = max(interval_s, length_s)
        stamp = "end" if ends else stamp
    column = column_of(
        name,
        str(attributes.get("units", "")),
        standard_name=str(attributes.get("standard_name", "")),
        long_name=long_name,
        statistic=statistic,
        interval_s=interval_s,
        stamp=stamp if statistic not in (None, "sample") else None,
    )
    return replace(column, height_m=height_of(dataset, name, otherwise=_height(long_name)))


def _words(text: str) -> tuple[Statistic | None, float, bool]:
    """Parse statistic, interval [s], and whether the stamp is its end, from a long name.

    Examples
    --------
    >>> _words("Wind Gust at 10m 10 Min Maximum"), _words("Rainfall in last 12 Hours")
    (('max', 600.0, False), ('total', 43200.0, True))
    """
    match = _LAST.search(text)
    if match:
        length_s = int(match[1] or 1) * (3600.0 if match[2].lower().startswith("h") else 60.0)
        kind = _KIND.search(text)
        return statistic_of(kind[1] if kind else "total"), length_s, True
    match = _WITHIN.search(text)
    if match:
        return statistic_of(match[3]), int(match[1]) * (3600.0 if match[2].lower().startswith("h") else 60.0), False
    return None, 0.0, False


def _height(text: str) -> float | None:
    match = _HEIGHT.search(text)
    return None if match is None else float(match[1]) * (0.01 if match[2] == "cm" else 1.0)


def cut(path: Path, layout: Layout, chunk_bytes: int) -> list[int]:
    """Return the bounds of pieces along time, or along the observations of a ragged file."""
    detail: Detail = layout.detail
    each = 8 * (len(layout.columns) + 3) * (1 if detail.geometry.is_ragged else max(1, len(detail.stations)))
    step = max(1, chunk_bytes // each)
    return [*range(0, detail.geometry.size, step), detail.geometry.size] if detail.geometry.size else [0, 0]


def parse(path: Path, layout: Layout, start: int, stop: int) -> Parsed:
    """Parse a piece: rows by time, then by station."""
    detail: Detail = layout.detail
    shape = detail.geometry
    with _open_dataset(path) as dataset:
        code = read_codes(dataset, shape, start, stop)
        time_ns = read_times(dataset, shape, start, stop, bounds=detail.lower)
        values = {name: read_numbers(dataset, shape, name, start, stop) for name in layout.columns}
        flags = _flags(dataset, shape, layout.columns, start, stop)
    there = time_ns != NO_TIME
    reasons: dict[int, tuple[str, str]] = {}
    for column, mask, reason in (
        (shape.time, there & ((time_ns < EARLIEST_NS) | (time_ns >= LATEST_NS)), OUT_OF_RANGE),
        (shape.station, there & (code < 0), "no station: an index that no station has"),
        *((name, there & np.isinf(column), "bad number: infinite") for name, column in values.items()),
        *((name, there & (np.abs(column) > LARGEST), TOO_LARGE) for name, column in values.items()),
    ):
        for row in np.flatnonzero(mask).tolist():
            reasons.setdefault(row, (column, reason))
    sound = there.copy()
    sound[list(reasons)] = False
    bad = tuple(BadRow(row + 1, column, "", why) for row, (column, why) in sorted(reasons.items()))
    kept, new_code = np.unique(code[sound], return_inverse=True)
    return Parsed(
        tuple(detail.stations[index] for index in kept.tolist()),
        new_code.astype(np.int32),
        time_ns[sound],
        {name: column[sound] for name, column in values.items()},
        bad,
        len(code),
        flags=None if flags is None else flags[sound],
    )


def _flags(
    dataset: "xr.Dataset", shape: Geometry, wanted: tuple[str, ...], start: int, stop: int
) -> NDArray[np.uint8] | None:
    """Return the flags of the rows if the file has one variable with QARTOD flags, else None."""
    # A row has one flag, so it must have one variable.
    if len(wanted) != 1 or not shape.is_ragged:
        return None
    for name in str(dataset[wanted[0]].attrs.get("ancillary_variables", "")).split():
        if name not in dataset.variables or dataset[name].dims != dataset[wanted[0]].dims:
            continue
        attributes = dataset[name].attrs
        values = np.atleast_1d(attributes.get("flag_values", ())).tolist()
        if dict(zip(values, str(attributes.get("flag_meanings", "")).split(), strict=False)) == MEANINGS:
            flags = dataset[name].isel({shape.sample: slice(start, stop)}).values
            return np.where(np.isin(flags, list(MEANINGS)), flags, NOT_EVALUATED).astype(np.uint8)
    return None


FORMATS.add("netcdf", DocumentFormat("netcdf", layout, cut, parse, sniff))
