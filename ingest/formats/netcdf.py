"""NetCDF files with CF's discrete sampling geometries, feature type timeSeries.

Supported are the orthogonal and the incomplete multidimensional, the contiguous ragged and the indexed ragged array,
and the file of one station; `cf_geometry.py` determines which it is. A file is read in pieces along its time (or
observations). A cell with a fill value is a reading without a value, but if its time is a fill value, there is no
reading. Numbers are unpacked with `scale_factor` and `add_offset`; `valid_range` is left to the quality tests.

Source: CF conventions 1.11, chapter 9 and appendix H.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import MEANINGS, NOT_EVALUATED
from hypergrid.core.readings import Stamp, Statistic
from hypergrid.core.times import SECOND_NS
from ingest.formats import cf_geometry as geometry
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
from ingest.formats.cf_geometry import Geometry
from ingest.formats.file_metadata import ColumnMetadata, FileMetadata, column_of, statistic_of, usual_interval_s
from ingest.formats.timestamps import EARLIEST_NS, LATEST_NS, OUT_OF_RANGE

if TYPE_CHECKING:
    import xarray as xr

HDF5: Final = b"\x89HDF\r\n\x1a\n"
CLASSIC: Final = (b"CDF\x01", b"CDF\x02")
PACKED_MOST: Final = 1000
"""Maximum ratio of declared to actual file size."""
_SMALL_BYTES: Final = 64 << 20
_LOOKED_AT: Final = 1000
"""Number of times from which the interval is inferred."""
_METHOD: Final = re.compile(r"time: *(\w+)")
_WITHIN: Final = re.compile(r"(?i)\b(\d+) ?(min|minutes?|hours?|h)\b *(average|mean|maximum|minimum|sum|total)")
_LAST: Final = re.compile(r"(?i)\blast (?:(\d+) )?(hours?|minutes?|min)\b")
_KIND: Final = re.compile(r"(?i)\b(average|mean|maximum|minimum|sum|total)\b")
_HEIGHT: Final = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) ?(cm|m)\b")


@dataclass(frozen=True)
class Detail:
    """Data for parsing a piece separately."""

    geometry: Geometry
    stations: tuple[str, ...]
    lower: str | None
    """Variable of time bounds that replaces the stamps by its lower bound, if stamps are inside."""


def sniff(head: bytes, file: str) -> str | None:
    """Recognise NetCDF by its signature."""
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
        shape = geometry.find_geometry(dataset)
        stations = geometry.names(dataset, shape, path.stem)
        present = geometry.data_variables(dataset, shape)
        wanted = tuple(name for name in present if options.columns is None or name in options.columns)
        _refuse_bomb(dataset, path, wanted)
        first = geometry.times(dataset, shape, 0, min(_LOOKED_AT, shape.size))
        shown = first[first != geometry.NO_TIME]
        stamp, interval_s, lower = _bounds(dataset, shape, first)
        interval_s = interval_s or _interval(dataset, shape, first)
        columns = {name: _column(dataset, name, interval_s, stamp) for name in wanted}
        metadata = FileMetadata(
            columns,
            geometry.stations(dataset, shape, stations),
            first_ns=int(shown.min()) if len(shown) else None,
            zone="UTC",
        )
        ignored = tuple(name for name in present if name not in wanted)
        detail = Detail(shape, stations, lower)
        header = tuple(str(name) for name in dataset.variables)
    station = stations[0] if len(stations) == 1 else ""
    return Layout((options.station_column, *header), wanted, ignored, options, station, 0, 0, metadata, detail=detail)


def _refuse_bomb(dataset: "xr.Dataset", path: Path, wanted: tuple[str, ...]) -> None:
    declared = sum(int(dataset[name].size) * dataset[name].dtype.itemsize for name in wanted)
    held = path.stat().st_size
    # Checked first, because a damaged file can declare any size.
    if declared > max(_SMALL_BYTES, PACKED_MOST * held):
        raise Unreadable(f"declares {declared} bytes and holds {held}; no packing is that good")


def _interval(dataset: "xr.Dataset", shape: Geometry, first: NDArray[np.int64]) -> float:
    """Return the usual interval between rows of a station [s]."""
    code = geometry.codes(dataset, shape, 0, min(_LOOKED_AT, shape.size))
    return usual_interval_s(first[(code == code[0]) & (first != geometry.NO_TIME)]) if len(code) else 0.0


def _bounds(dataset: "xr.Dataset", shape: Geometry, first: NDArray[np.int64]) -> tuple[Stamp | None, float, str | None]:
    """Return what stamps mark, the interval [s], and `Detail.lower`, from the time bounds."""
    name = dataset[shape.time].attrs.get("bounds")
    if name not in dataset.variables:
        return None, 0.0, None
    stop = min(_LOOKED_AT, shape.size)
    low, high = (geometry.times(dataset, shape, 0, stop, bounds=str(name), edge=edge) for edge in (0, 1))
    there = (first != geometry.NO_TIME) & (low != geometry.NO_TIME) & (high != geometry.NO_TIME)
    if not there.any():
        return None, 0.0, None
    interval_s = float(np.median(high[there] - low[there])) / SECOND_NS
    if (first[there] == high[there]).all():
        return "end", interval_s, None
    return "start", interval_s, None if (first[there] == low[there]).all() else str(name)


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
    return replace(column, height_m=geometry.height_of(dataset, name, otherwise=_height(long_name)))


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
        code = geometry.codes(dataset, shape, start, stop)
        if detail.lower is None:
            time_ns = geometry.times(dataset, shape, start, stop)
        else:
            time_ns = geometry.times(dataset, shape, start, stop, bounds=detail.lower, edge=0)
        values = {name: geometry.numbers(dataset, shape, name, start, stop) for name in layout.columns}
        flags = _flags(dataset, shape, layout.columns, start, stop)
    there = time_ns != geometry.NO_TIME
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
