"""Readings of an archive to files, piece by piece: a file is there whole or not at all."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MISSING
from hypergrid.formats.readings.description import format_deployment
from hypergrid.formats.readings.netcdf import write_netcdf
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, Selection, SeriesKind
from hypergrid.formats.readings.smet import Smet
from hypergrid.formats.readings.tables import write_csv, write_parquet

FORMATS: Final = (".csv", ".parquet", ".nc", ".smet")
"""Endings of files, each a format."""

OnProgress = Callable[[float], None]


@dataclass(frozen=True)
class ExportReport:
    """What was written."""

    files: tuple[Path, ...]
    readings: int
    snapshot: str
    """Snapshot that was read."""


def export_readings(
    archive: Archive, out: str | Path, selection: Selection | None = None, *, progress: OnProgress = lambda _done: None
) -> ExportReport:
    """Write readings of an archive to files; what was there is replaced once all is written.

    Parameters
    ----------
    archive
        At the snapshot, and as of the instant, that are wanted.
    out
        The ending says the format. `.csv` and `.parquet` are one long table, a row a reading, with a deployment file
        beside it that tells ingest what is in its columns. `.nc` is a file for each kind of series (a variable, at a
        height, of a statistic), `.smet` one for each station; where there are several, their names follow the file's.
    selection
        What is wanted; all where absent, of `.smet`, which has no flags, all that is good or not evaluated.
    progress
        Called with the fraction that is done.

    Raises
    ------
    NotFound
        There is no such ending, folder, variable, station or series.
    InvalidQuery
        The path is a folder, or the format cannot hold the readings; the message says which can.
    """
    target = Path(out)
    _check_target(target)
    wanted = selection or Selection()
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
        message = f"the folder {target.parent} of the export {target.name} does not exist; make it first"
        raise NotFound(message)
    if target.is_dir():
        message = f"the export {target} needs the name of a file; a folder is there; choose another name"
        raise InvalidQuery(message)


class _Scratch:
    """Files in the making, beside the places that they will have."""

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
    """Yield the pieces of kinds, those of one stretch of time together."""
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
    """Return a path for each name: the target, or where there are several, the target's name and theirs."""
    if len(names) == 1:
        return [target]
    # Whatever a station is called, its file lies beside the others.
    return [
        target.with_name(f"{target.stem}-{quote(name.replace(' ', '_'), safe='')}{target.suffix}") for name in names
    ]


_WRITERS: Final = {".csv": _write_table, ".parquet": _write_table, ".nc": _write_netcdf, ".smet": _write_smet}
