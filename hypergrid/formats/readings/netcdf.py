"""CF discrete sampling geometries in NetCDF: time series as an indexed ragged array.

One file holds one kind of series.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import h5netcdf
import h5py
import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.flags import MEANINGS, TESTS
from hypergrid.core.times import MICROSECOND_NS, format_instant
from hypergrid.core.units import DIMENSIONLESS_TEXT
from hypergrid.core.version import VERSION
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, SeriesKind
from hypergrid.formats.readings.tables import RowWriter

_CHUNK: Final = 65_536
_TIME_ATTRIBUTES: Final = {"units": "microseconds since 1970-01-01T00:00:00Z", "calendar": "proleptic_gregorian"}
_ROUNDED: Final = "rounded down to whole microseconds; the archive has finer stamps, which CSV and Parquet keep"
_METHODS: Final = {"sample": "point", "mean": "mean", "total": "sum", "max": "maximum", "min": "minimum"}


@contextmanager
def write_netcdf(sink: Path | BinaryIO, chosen: SelectedReadings, kind: SeriesKind) -> Iterator[RowWriter]:
    """Open a file for one kind of series.

    It has instants in whole microseconds, as readers of NetCDF keep them; finer ones are rounded down, and the time's
    `comment` says so. It has flags, and attributes of ACDD 1.3.
    """
    with h5netcdf.File(sink, "w") as file:
        made = _NetCdf(file, chosen, kind)
        yield made
        made.finish()


class _NetCdf:
    def __init__(self, file: h5netcdf.File, chosen: SelectedReadings, kind: SeriesKind) -> None:
        self._file, self._kind, self._rows = file, kind, 0
        self._span_ns: tuple[int, int] | None = None
        bounded = kind.sample.stamp != "instant" and kind.sample.interval_s > 0
        file.dimensions = {"obs": None, "station": len(kind.stations), **({"nv": 2} if bounded else {})}
        file.attrs.update(_global_attributes(chosen.archive, kind))
        _write_positions(file, chosen.archive, kind)
        self._name = kind.variable.name
        self._columns = {"time": np.int64, self._name: np.float64, f"{self._name}_flag": np.int8}
        self._columns |= {f"{self._name}_failed_tests": np.uint16, "arrival": np.int64, "station_index": np.int32}
        for name, dtype in self._columns.items():
            fill = np.nan if name == self._name else None
            made = file.create_variable(
                name, ("obs",), dtype, fillvalue=fill, chunks=(_CHUNK,), compression="gzip", compression_opts=4,
                shuffle=True,
            )  # fmt: skip
            made.attrs.update(_attributes(name, kind))
        if bounded:
            file["time"].attrs["bounds"] = "time_bounds"
            file.create_variable("time_bounds", ("obs", "nv"), np.int64, chunks=(_CHUNK, 2), compression="gzip")

    def add(self, piece: ReadingsPiece) -> None:
        readings = piece.readings
        if (readings.time_ns % MICROSECOND_NS).any():
            self._file["time"].attrs["comment"] = _ROUNDED
        start, stop = self._rows, self._rows + len(readings)
        self._file.resize_dimension("obs", stop)
        time_us = readings.time_ns // MICROSECOND_NS
        rows = {
            "time": time_us,
            self._name: readings.value,
            f"{self._name}_flag": readings.flag.astype(np.int8),
            f"{self._name}_failed_tests": readings.tests_or_none_set(),
            # Earlier versions stored the nanoseconds of the machine's clock as arrivals.
            "arrival": readings.arrival_ns // MICROSECOND_NS,
            "station_index": piece.station.astype(np.int32),
        }
        for name, values in rows.items():
            self._file[name][start:stop] = values
        if "nv" in self._file.dimensions:
            length_us = round(self._kind.sample.interval_s * 1e6)
            first = time_us - length_us if self._kind.sample.stamp == "end" else time_us
            self._file["time_bounds"][start:stop] = np.stack([first, first + length_us], axis=1)
        self._rows = stop
        begins, ends = piece.intervals_ns()
        span = self._span_ns or (int(begins[0]), int(ends[0]))
        self._span_ns = min(int(begins.min()), span[0]), max(int(ends.max()), span[1])

    def finish(self) -> None:
        if self._span_ns is not None:
            first, last = map(format_instant, self._span_ns)
            self._file.attrs.update({"time_coverage_start": first, "time_coverage_end": last})


def _global_attributes(archive: Archive, kind: SeriesKind) -> dict[str, Any]:
    """Return the global attributes of CF, ACDD 1.3 and ERDDAP (cdm_…)."""
    variable, statistic = kind.variable, kind.sample.statistic
    commit = next((snapshot for snapshot in archive.snapshots if snapshot.id == archive.snapshot), None)
    made = {} if commit is None else {"date_created": format_instant(commit.time_ns)}
    return {
        "Conventions": "CF-1.11, ACDD-1.3",
        "featureType": "timeSeries",
        "cdm_data_type": "TimeSeries",
        "cdm_timeseries_variables": "station, station_name, lon, lat, alt",
        "id": f"{archive.name}.{kind.key}.{archive.snapshot}",
        "title": f"{kind.label}: readings of {archive.name}",
        "summary": f"Readings ({statistic}) of {variable.long_name or variable.name} [{variable.unit}] at "
        f"{len(kind.stations)} stations of {archive.name}, with flags after QARTOD and the tests that set them.",
        "keywords": ", ".join(dict.fromkeys(filter(None, (variable.standard_name, variable.name, archive.name)))),
        "standard_name_vocabulary": "CF Standard Name Table",
        "source": f"HyperGrid archive {archive.name!r}",
        "history": f"read from snapshot {archive.snapshot} by HyperGrid {VERSION}",
        "processing_level": "values as the stations gave them, in the archive's unit; flagged, none removed",
        **made,
        **archive.publication.attributes(),
        **_find_extent(archive, kind),
        "hypergrid_archive": archive.name,
        "hypergrid_snapshot": archive.snapshot,
    }


def _find_extent(archive: Archive, kind: SeriesKind) -> dict[str, float]:
    """Return the bounding box of the stations with a known position."""
    positions = [archive.stations[name].position for name in kind.stations if name in archive.stations]
    extent: dict[str, float] = {}
    for key, column in (("lon", "lon"), ("lat", "lat"), ("vertical", "elevation_m")):
        held = np.array([getattr(position, column) for position in positions], np.float64)
        held = held[np.isfinite(held)]
        if len(held):
            extent |= {f"geospatial_{key}_min": float(held.min()), f"geospatial_{key}_max": float(held.max())}
    return extent


def _write_positions(file: h5netcdf.File, archive: Archive, kind: SeriesKind) -> None:
    stations = [archive.stations.get(name) for name in kind.stations]
    titles = [station.name if station else "" for station in stations]
    for key, texts, attributes in (
        ("station", kind.stations, {"cf_role": "timeseries_id", "long_name": "station"}),
        ("station_name", titles, {"standard_name": "platform_name", "long_name": "name of the station"}),
    ):
        made = file.create_variable(key, ("station",), h5py.string_dtype())
        made[:] = np.array(texts, object)
        made.attrs.update(attributes)
    for key, column, attributes in (
        ("lon", "lon", {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east"}),
        ("lat", "lat", {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north"}),
        (
            "alt",
            "elevation_m",
            {"standard_name": "altitude", "long_name": "elevation of the station", "units": "m", "positive": "up"},
        ),
    ):
        made = file.create_variable(key, ("station",), np.float64, fillvalue=np.nan)
        made[:] = np.array(
            [getattr(station.position, column) if station else np.nan for station in stations], np.float64
        )
        made.attrs.update(attributes)
    if kind.sample.height_m is not None:
        standard_name, positive = ("depth", "down") if kind.sample.height_m < 0 else ("height", "up")
        made = file.create_variable("sensor_height", (), np.float64)
        made[...] = abs(kind.sample.height_m)
        made.attrs.update(
            {
                "standard_name": standard_name,
                "long_name": f"{standard_name} of the sensor",
                "units": "m",
                "positive": positive,
            }
        )


def _attributes(name: str, kind: SeriesKind) -> dict[str, Any]:
    variable, sample = kind.variable, kind.sample
    if name == "time":
        return {"standard_name": "time", "long_name": "time of the reading (UTC)", "axis": "T", **_TIME_ATTRIBUTES}
    if name == "arrival":
        return {"long_name": "when the reading arrived", **_TIME_ATTRIBUTES}
    if name == "station_index":
        return {"instance_dimension": "station", "long_name": "which station"}
    if name.endswith("_flag") and name != variable.name:
        values = np.array(list(MEANINGS), np.int8)
        return {"standard_name": "quality_flag", "flag_values": values, "flag_meanings": " ".join(MEANINGS.values())}
    if name.endswith("_failed_tests") and name != variable.name:
        masks = np.array([1 << bit for bit in range(len(TESTS))], np.uint16)
        return {"long_name": "tests that set the flag", "flag_masks": masks, "flag_meanings": " ".join(TESTS)}
    height = " sensor_height" if sample.height_m is not None else ""
    unit = "1" if variable.unit in DIMENSIONLESS_TEXT else variable.unit
    attributes: dict[str, Any] = {
        "long_name": variable.long_name or variable.name,
        "units": unit,
        "coordinates": f"time lon lat alt station_name arrival{height}",
        "coverage_content_type": "physicalMeasurement",
        "ancillary_variables": f"{name}_flag {name}_failed_tests",
        "cell_methods": f"time: {_METHODS[sample.statistic]}",
    }
    return attributes if variable.standard_name is None else {**attributes, "standard_name": variable.standard_name}
