"""Export readings of an archive to files, in pieces and atomically."""

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MISSING
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import format_instant
from hypergrid.formats.readings.netcdf import write_netcdf
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, Selection, SeriesKind
from hypergrid.formats.readings.smet import Smet
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
        f"# How to read {file} back: hypergrid ingest {file} --archive DIR --deployment THIS",
        _format_table("network", {"name": archive.name, "slice_s": archive.slice_s}),
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
