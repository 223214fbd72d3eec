"""Export readings of an archive to files, in pieces and atomically."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final, Literal
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MISSING
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import SECOND_NS, format_instant
from hypergrid.core.units import convert
from hypergrid.formats.readings.netcdf import write_netcdf
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, Selection, SeriesKind
from hypergrid.formats.readings.tables import write_csv, write_parquet

FORMATS: Final = (".csv", ".parquet", ".nc", ".smet")
"""Supported suffixes, one per format."""

OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class ExportReport:
    """Summary of an export."""

    files: tuple[Path, ...]
    readings: int
    snapshot: str
    """Snapshot that was read."""


def export_readings(
    archive: Archive, out: str | Path, selection: Selection | None = None, *, progress: OnProgress = lambda _done: None
) -> ExportReport:
    """Export readings of an archive; existing files are replaced once everything is written.

    Parameters
    ----------
    archive
        At the snapshot, and as of the instant, to read.
    out
        The suffix gives the format. `.csv` and `.parquet` are one long table, one row per reading, with a deployment
        file beside it that describes its columns for ingest. `.nc` is one file per kind of series (a variable, at a
        height, of a statistic), `.smet` one per station; several files have the kind or the station in their names.
    selection
        Readings to export; all if absent. For `.smet`, which has no flags, the default is those good or not evaluated.
    progress
        Called with the fraction done.

    Raises
    ------
    NotFound
        The suffix, the folder, a variable, a station or a series does not exist.
    InvalidQuery
        The path is a folder, or the format cannot store the readings; the message names one that can.
    """
    target = Path(out)
    _check_target(target)
    wanted = selection or Selection()
    # SMET has no flags: suspect and failed readings would look like good ones.
    if target.suffix == ".smet" and not wanted.flags:
        wanted = replace(wanted, flags=(*ACCEPTED_BY_DEFAULT, MISSING))
    chosen = SelectedReadings(archive, wanted)
    scratch = _Scratch()
    try:
        readings = _WRITERS[target.suffix](chosen, target, scratch, progress)
        files = scratch.keep()
    finally:
        scratch.drop()
    progress(1.0)
    return ExportReport(files, readings, archive.snapshot)


def _check_target(target: Path) -> None:
    if target.suffix not in FORMATS:
        raise NotFound.among(kind="ending of an export", given=target.suffix or target.name, existing=FORMATS)
    if not target.parent.is_dir():
        raise NotFound(f"the folder {target.parent} of the export {target.name} does not exist; make it first")
    if target.is_dir():
        raise InvalidQuery(f"the export {target} needs the name of a file; a folder is there; choose another name")


class _Scratch:
    """Temporary files beside their targets."""

    def __init__(self) -> None:
        self._targets: dict[Path, Path] = {}

    def path(self, target: Path) -> Path:
        scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
        self._targets[target] = scratch
        return scratch

    def keep(self) -> tuple[Path, ...]:
        for target, scratch in self._targets.items():
            scratch.replace(target)
        return tuple(self._targets)

    def drop(self) -> None:
        for scratch in self._targets.values():
            scratch.unlink(missing_ok=True)


def _read_pieces(
    chosen: SelectedReadings, kinds: Sequence[SeriesKind], progress: OnProgress
) -> Iterator[list[ReadingsPiece]]:
    """Yield the pieces of kinds; each list covers one time window."""
    names = dict.fromkeys(kind.variable.name for kind in kinds)
    windows = chosen.spans(tuple(kinds))
    for index, window in enumerate(windows):
        progress(index / len(windows))
        yield [piece for name in names for piece in chosen.read(name, window) if piece.kind in kinds]


def _write_table(chosen: SelectedReadings, target: Path, scratch: _Scratch, progress: OnProgress) -> int:
    opened = write_csv if target.suffix == ".csv" else write_parquet
    described = target.with_name(f"{target.stem}.deployment.toml")
    text = format_deployment(chosen, file=target.name, format_name=target.suffix.removeprefix("."))
    scratch.path(described).write_text(text, encoding="utf-8")
    count = 0
    with opened(scratch.path(target)) as rows:
        for pieces in _read_pieces(chosen, chosen.kinds, progress):
            for piece in pieces:
                rows.add(piece)
                count += len(piece.readings)
    return count


def _write_netcdf(chosen: SelectedReadings, target: Path, scratch: _Scratch, progress: OnProgress) -> int:
    count = 0
    with ExitStack() as stack:
        files = {
            kind.label: stack.enter_context(write_netcdf(scratch.path(path), chosen, kind))
            for kind, path in zip(chosen.kinds, _make_paths(target, [k.label for k in chosen.kinds]), strict=True)
        }
        for pieces in _read_pieces(chosen, chosen.kinds, progress):
            for piece in pieces:
                files[piece.kind.label].add(piece)
                count += len(piece.readings)
    return count


def _write_smet(chosen: SelectedReadings, target: Path, scratch: _Scratch, progress: OnProgress) -> int:
    names = list(dict.fromkeys(station for kind in chosen.kinds for station in kind.stations))
    paths = {name: scratch.path(path) for name, path in zip(names, _make_paths(target, names), strict=True)}
    rows, count = Smet(chosen, paths), 0
    for pieces in _read_pieces(chosen, chosen.kinds, progress):
        rows.add(pieces)
        count += sum(len(piece.readings) for piece in pieces)
    return count


def _make_paths(target: Path, names: Sequence[str]) -> list[Path]:
    """Return one path per name: the target itself, or several with suffixes."""
    if len(names) == 1:
        return [target]
    # Quoting keeps files in the target's folder, whatever the station names contain.
    return [
        target.with_name(f"{target.stem}-{quote(name.replace(' ', '_'), safe='')}{target.suffix}") for name in names
    ]


_WRITERS: Final = {".csv": _write_table, ".parquet": _write_table, ".nc": _write_netcdf, ".smet": _write_smet}


def format_deployment(chosen: SelectedReadings, *, file: str, format_name: str) -> str:
    """Format the deployment file of a table: network, variables, stations and columns."""
    archive = chosen.archive
    parts = [
        f"# How to read {file} back: hypergrid ingest ARCHIVE {file} --deployment THIS",
        _format_table("network", {"name": archive.name, "slice_s": archive.slice_s}),
        *([_format_table("publication", stated)] if (stated := archive.publication.attributes()) else []),
        "# The flags are those of the archive.",
        _format_table("quality", {"run": False, "zone_guard": False}),
    ]
    for variable in {kind.variable.name: kind.variable for kind in chosen.kinds}.values():
        fields = {"name": variable.name, "unit": variable.unit, "standard_name": variable.standard_name}
        parts.append(_format_table("[variable]", {**fields, "long_name": variable.long_name or variable.name}))
    feed: dict[str, Any] = {"name": "export", "files": file, "format": format_name}
    feed |= {"variable_column": "variable", "value_column": "value", "flag_column": "flag"}
    if format_name == "csv":
        feed |= {"delimiter": ",", "time_format": "iso", "nodata": ["", "NaN"]}
    parts += [_format_table("[feed]", feed), "[feed.columns]"]
    parts += [_format_column(kind, format_name) for kind in chosen.kinds]
    parts += list(_format_stations(chosen.stations))
    return "\n".join([*parts, ""])


def _format_column(kind: SeriesKind, format_name: str) -> str:
    series, unit = kind.sample, kind.variable.unit
    label = kind.label if format_name == "csv" or not unit else f"{kind.label} [{unit}]"
    fields = {"variable": kind.variable.name, "unit": unit, "height_m": series.height_m, "replicate": series.replicate}
    # 0 means an unknown interval, for which a deployment has no key.
    fields |= {"statistic": series.statistic, "interval_s": series.interval_s or None, "stamp": series.stamp}
    inner = ", ".join(f"{name} = {_format_value(value)}" for name, value in fields.items() if value is not None)
    return f"{_format_value(label)} = {{{inner}}}"


def _format_stations(stations: Mapping[str, Station]) -> Iterator[str]:
    for station in stations.values():
        first, *others = station.positions
        yield _format_table(
            "[station]", {"id": station.id, "name": station.name or station.id, **_position_fields(first)}
        )
        for moved in others:
            if moved.from_ns is not None:
                yield _format_table(
                    "[station.moved]", {"from": format_instant(moved.from_ns), **_position_fields(moved)}
                )


def _position_fields(position: Position) -> dict[str, float | None]:
    coordinates = {"lon": position.lon, "lat": position.lat, "elevation_m": position.elevation_m}
    return {name: None if math.isnan(value) else float(value) for name, value in coordinates.items()}


def _format_table(name: str, content: Mapping[str, Any]) -> str:
    return "\n".join(
        [f"[{name}]", *(f"{key} = {_format_value(value)}" for key, value in content.items() if value is not None)]
    )


def _format_value(value: object) -> str:
    """Format a value as TOML: text, number, boolean or list of these."""
    # Except DEL, which TOML requires to be escaped.
    return json.dumps(value).replace("\x7f", "\\u007f")


FIELDS: Final = {
    "air_temperature": ("TA", "K"),
    "dew_point_temperature": ("TD", "K"),
    "surface_temperature": ("TSS", "K"),
    "ground_surface_temperature": ("TSG", "K"),
    "relative_humidity": ("RH", "dimensionless"),
    "wind_speed": ("VW", "m s-1"),
    "wind_gust": ("VW_MAX", "m s-1"),
    "wind_direction": ("DW", "degree"),
    "solar_radiation": ("ISWR", "W m-2"),
    "reflected_radiation": ("RSWR", "W m-2"),
    "longwave_radiation": ("ILWR", "W m-2"),
    "outgoing_longwave_radiation": ("OLWR", "W m-2"),
    "snow_height": ("HS", "m"),
    "precipitation": ("PSUM", "mm"),
    "precipitation_rate": ("PINT", "mm h-1"),
    "air_pressure": ("P", "Pa"),
}
"""SMET name and unit by variable; other variables keep their name and the archive's unit."""
NODATA: Final = -999


class Smet:
    """SMET 1.1 ASCII files (WSL Institute for Snow and Avalanche Research SLF), one per station, a row per time.

    Fields have SMET's name of their quantity; `units_multiplier` and `units_offset` convert to SMET's unit, so the
    numbers are those of the archive. SMET has no flags: unless flags are requested, only good or not evaluated readings
    are written. Other readings are nodata, as are times without a reading of a series.
    """

    def __init__(self, chosen: SelectedReadings, paths: dict[str, Path]) -> None:
        self._paths = paths
        self._fields = _make_fields(chosen.kinds)
        for name, path in paths.items():
            path.write_text(_format_header(chosen.archive, name, self._fields), encoding="utf-8", newline="\n")

    def add(self, pieces: Sequence[ReadingsPiece]) -> None:
        """Append the rows of all kinds in one time window."""
        for name, path in self._paths.items():
            rows = [_select_station(piece, name) for piece in pieces]
            times = np.unique(np.concatenate([np.empty(0, np.int64), *(time_ns for time_ns, _ in rows)]))
            if not len(times):
                continue
            table = np.full((len(times), len(self._fields)), float(NODATA))
            for piece, (time_ns, values) in zip(pieces, rows, strict=True):
                if (values == NODATA).any():
                    raise InvalidQuery(
                        f"{piece.kind.label!r} of station {name!r} has the value {NODATA}, which means no value in "
                        "SMET; export it as .csv, .parquet or .nc"
                    )
                column = [kind.label for kind, *_ in self._fields].index(piece.kind.label)
                table[np.searchsorted(times, time_ns), column] = np.where(np.isnan(values), float(NODATA), values)
            with path.open("a", encoding="utf-8", newline="\n") as stream:
                _write_rows(stream, times, table)


def _select_station(piece: ReadingsPiece, name: str) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    if name not in piece.kind.stations:
        return np.empty(0, np.int64), np.empty(0)
    mask = piece.station == piece.kind.stations.index(name)
    return piece.readings.time_ns[mask], piece.readings.value[mask]


def _write_rows(stream: IO[str], times: NDArray[np.int64], table: NDArray[np.float64]) -> None:
    unit: Literal["s", "ns"] = "s" if not (times % SECOND_NS).any() else "ns"
    texts = np.datetime_as_string(times.astype("datetime64[ns]"), unit=unit).tolist()
    for text, row in zip(texts, table.tolist(), strict=True):
        stream.write(f"{text} {' '.join(str(NODATA) if value == NODATA else repr(value) for value in row)}\n")


Field = tuple[SeriesKind, str, float, float]
"""Kind of series, field name, and the multiplier and offset that convert to SMET's unit."""


def _make_fields(kinds: Sequence[SeriesKind]) -> list[Field]:
    fields: list[Field] = []
    for kind in kinds:
        name, unit = FIELDS.get(kind.variable.name, (kind.variable.name.upper(), kind.variable.unit))
        multiplier, offset = 1.0, 0.0
        try:
            offset = float(convert(0.0, kind.variable.unit, unit))
            multiplier = float(convert(1.0, kind.variable.unit, unit)) - offset
        except InvalidUnit:
            name = kind.variable.name.upper()
        taken = sum(field[1] == name or field[1].startswith(f"{name}_") for field in fields)
        # Rounding removes the error of the difference of two conversions.
        fields.append((kind, f"{name}_{taken + 1}" if taken else name, round(multiplier, 12), round(offset, 9)))
    return fields


def _format_header(archive: Archive, name: str, fields: Sequence[Field]) -> str:
    station = archive.stations.get(name)
    position = station.position if station else None
    coordinates = {
        "latitude": position.lat if position else math.nan,
        "longitude": position.lon if position else math.nan,
        "altitude": position.elevation_m if position else math.nan,
    }
    lines = ["SMET 1.1 ASCII", "[HEADER]", f"station_id = {_format_line(name)}"]
    if station is not None and station.name:
        lines.append(f"station_name = {_format_line(station.name)}")
    lines += [f"{key} = {NODATA if math.isnan(value) else repr(float(value))}" for key, value in coordinates.items()]
    lines += [
        f"nodata = {NODATA}",
        "tz = 0",
        "source = "
        + "; ".join(filter(None, (f"HyperGrid archive {_format_line(archive.name)}", archive.publication.attribution))),
        f"comment = snapshot {archive.snapshot}; {'; '.join(f'{f} is {k.label}' for k, f, *_ in fields)}",
        "fields = timestamp " + " ".join(field for _, field, *_ in fields),
        "units_multiplier = 1 " + " ".join(f"{multiplier:.12g}" for *_, multiplier, _ in fields),
        "units_offset = 0 " + " ".join(f"{offset:.12g}" for *_, offset in fields),
    ]
    return "\n".join([*lines, "[DATA]", ""])


def _format_line(text: str) -> str:
    return " ".join(text.split())
