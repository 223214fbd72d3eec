"""Long tables for pandas: readings as they were reported, and results by cell."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from hypergrid.core.errors import TooLarge
from hypergrid.core.lazy_libraries import pd, xr
from hypergrid.core.readings import Readings
from hypergrid.core.result_names import GRID_MAPPING, STANDARD_ERROR, by_role, drop_bounds, index_stations
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.perspective import Base
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import Instants, SeriesAxis

READING_BYTES: Final = 160
"""Memory per reading while a table is made: the columns read, those of the table, and their order [bytes]."""
_CELL_BYTES: Final = 24
"""Memory per cell and column of a result's table, and of the table that it is made from [bytes]."""
_FIRST_NS: Final = 6 * 3600 * SECOND_NS
"""Window in which the first readings are searched at first, four times as long after each attempt [ns]."""
_REMEDY: Final = (
    "ask for less with .clip(time=(start, stop)) or .select(station=…), aggregate first, or write a file: "
    "hypergrid export ARCHIVE -o readings.parquet"
)
_DISTINGUISHING: Final = ("height_m", "statistic", "replicate", "interval_s")
"""Properties of series that get a column if they differ."""


def tabulate_readings(
    base: Base, window: Window | None, *, allowed_bytes: int, first: int | None = None
) -> pd.DataFrame:
    """Return the readings of a base, ordered by time.

    Parameters
    ----------
    base
        Source, its window, and the accepted flags.
    window
        Keep only the readings whose intervals start in this window; None: all.
    allowed_bytes
        Memory budget of the table [bytes].
    first
        Return this number of readings at most, the earliest.

    Returns
    -------
    Columns station, time (of the stamp, UTC), value, flag (of an archive), lon and lat [degree] or x and y [m],
    elevation [m], and the properties in which the series differ; variable and unit in `attrs`.

    Raises
    ------
    TooLarge
        The table does not fit into the budget.
    """
    inside = base.window if window is None else base.window.intersect(window)
    if inside is None:
        return _make_table(base, base.source.series_axis(base.window), Readings.empty())
    if first is None:
        _check_size(base, inside, allowed_bytes)
        readings = _read(base, inside)
    else:
        readings = _read_first(base, inside, first)
    ordered = readings.take_rows(np.lexsort((readings.index, readings.time_ns))[:first])
    return _make_table(base, base.source.series_axis(inside), ordered)


def _check_size(base: Base, window: Window, allowed_bytes: int) -> None:
    source = base.source
    if not isinstance(source, ArchiveSource):
        return
    rows = source.readings
    if rows * READING_BYTES > allowed_bytes:
        # Flags alone are read, which are a twentieth of the readings.
        rows = source.archive.count_at_least(
            source.variable.name,
            window=window,
            series=source.series_numbers,
            flags=base.accept_flags,
            maximum=allowed_bytes / READING_BYTES,
        )
    if rows * READING_BYTES > allowed_bytes:
        projected = rows * READING_BYTES
        raise TooLarge(f"the table of {source.variable.name}", "bytes", projected, allowed_bytes, _REMEDY)


def _read(base: Base, window: Window) -> Readings:
    """Return the accepted readings of a window; `index` counts the selected series."""
    read = base.source.read(window)
    if isinstance(read, Readings):
        return read.take_rows(np.isin(read.flag, base.accept_flags))
    axis = base.source.time_axis(window)
    times_ns = axis.times_ns if isinstance(axis, Instants) else np.empty(0, np.int64)
    instants, series = np.nonzero(np.isfinite(read))
    flags, arrivals = np.zeros(len(series), np.uint8), np.zeros(len(series), np.int64)
    values = read[instants, series].astype(np.float64)
    return Readings((), series.astype(np.int32), times_ns[instants], values, flags, arrivals)


def _read_first(base: Base, window: Window, count: int) -> Readings:
    """Return at least the first readings of a window, if it has as many."""
    length_ns = _FIRST_NS
    while True:
        part = Window(window.start_ns, min(window.stop_ns, window.start_ns + length_ns))
        readings = _read(base, part)
        if len(readings) >= count or part.stop_ns == window.stop_ns:
            return readings
        length_ns *= 4


def _make_table(base: Base, axis: SeriesAxis, readings: Readings) -> pd.DataFrame:
    source, index = base.source, readings.index
    names = [item.station for item in axis.series]
    labels = list(dict.fromkeys(names))
    codes = np.array([labels.index(name) for name in names], np.int32)
    x, y = ("lon", "lat") if axis.system == "lonlat" else ("x", "y")
    columns: dict[str, Any] = {
        "station": pd.Categorical.from_codes(codes[index], categories=pd.Index(labels)),  # type: ignore[arg-type]
        "time": pd.DatetimeIndex(readings.time_ns.astype("datetime64[ns]"), tz="UTC"),
        "value": readings.value,
    }
    if isinstance(source, ArchiveSource):
        columns["flag"] = readings.flag
    columns |= {name: values[index] for name, values in ((x, axis.x), (y, axis.y), ("elevation", axis.elevation_m))}
    for name in _DISTINGUISHING:
        own = [getattr(item, name) for item in axis.series]
        if len(set(own)) > 1:
            columns[name] = np.array(own)[index]
    table = pd.DataFrame(columns)
    table.attrs = {"variable": source.variable.name, "unit": source.variable.unit}
    return table


def make_rows(dataset: xr.Dataset) -> pd.DataFrame:
    """Return a result as long rows: time, place, value, count, without bounds."""
    own = by_role(dataset).drop_vars([GRID_MAPPING, STANDARD_ERROR], errors="ignore")
    return drop_bounds(index_stations(own)).to_dataframe().reset_index()


def _is_constant(coordinate: xr.DataArray) -> bool:
    return len(pd.unique(coordinate.to_numpy().ravel())) == 1


def tabulate_result(dataset: xr.Dataset, *, allowed_bytes: int) -> pd.DataFrame:
    """Return a result as a table with a row per cell, times in UTC, its unit in `attrs`.

    Raises
    ------
    TooLarge
        The table does not fit into the budget [bytes].
    """
    dataset = by_role(dataset)
    projected = dataset["value"].size * len(dataset.variables) * _CELL_BYTES
    if projected > allowed_bytes:
        raise TooLarge("the table of the result", "bytes", projected, allowed_bytes, "keep it as an array: .compute()")
    own = [name for name in (*_DISTINGUISHING, "source") if name in dataset and _is_constant(dataset[name])]
    table = make_rows(dataset.drop_vars(own)).drop(columns="series", errors="ignore")
    if table["time"].dtype.kind == "M":
        table["time"] = table["time"].dt.tz_localize("UTC")
    places = [name for name in ("station", "zone", "point") if name in table]
    dims = [str(name) for name in dataset["value"].dims if name in table and name not in places]
    table = table[list(dict.fromkeys([*places, *dims, *map(str, dataset.data_vars), *table.columns]))]
    table.attrs = {"unit": str(dataset["value"].attrs.get("units", ""))}
    return table
