"""Export of readings as long tables, coverages and NetCDF, in memory and bounded."""

import io
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.registry import Registry
from hypergrid.core.times import SECOND_NS, Window, parse_instant
from hypergrid.formats.covjson import MEDIA_TYPE
from hypergrid.formats.readings import (
    INTERVALS,
    ReadingsPiece,
    RowWriter,
    SelectedReadings,
    coverage_collection,
    write_csv,
    write_netcdf,
    write_parquet,
)
from hypergrid.query import OpenArchive

# 100 MB of CSV.
MOST_READINGS: Final = 1_000_000
"""Readings in one answer, at most."""
EVER: Final = (parse_instant("1900-01-01"), parse_instant("2261-12-31"))
"""First and last instant of requests without bounds [ns since 1970 UTC]."""


def archive_at(archive: OpenArchive, snapshot: str | None, as_of: str | None = None) -> Archive:
    """Open the archive at a snapshot, by default the newest, and as of an instant.

    Raises
    ------
    NotFound, InvalidTime
        Unknown snapshot; invalid instant.
    """
    newest = archive.latest().store
    store = newest if snapshot in (None, newest.snapshot) else Archive.open(newest.path, snapshot=snapshot)
    return store if as_of is None else store.as_of(parse_instant(as_of))


def window_of(start: str | None, stop: str | None) -> Window | None:
    """Parse the window from a start to an excluded stop, both optional; None: all."""
    if start is None and stop is None:
        return None
    first, last = (
        default if text is None else parse_instant(text) for text, default in zip((start, stop), EVER, strict=True)
    )
    return Window(first, last)


def estimate_count(chosen: SelectedReadings) -> float:
    """Estimate the number of selected readings without reading, assuming regular reporting."""
    count = 0.0
    for kind in chosen.kinds:
        extent = chosen.archive.extent(kind.variable.name)
        wanted = chosen.selection.window
        part = extent if extent is None or wanted is None else extent.intersect(wanted)
        if part is not None:
            interval_s = kind.sample.interval_s or chosen.archive.slice_s
            count += len(kind.numbers) * (part.stop_ns - part.start_ns) / (interval_s * SECOND_NS)
    return count


def pieces_of(chosen: SelectedReadings, maximum: int = MOST_READINGS) -> list[ReadingsPiece]:
    """Read the selected readings; pieces of a kind follow one another in time.

    Raises
    ------
    TooLarge
        There are more than `maximum`; if regular reporting already implies that, none is read.
    """
    # Counting takes a tenth of the time of reading, and next to no memory.
    if estimate_count(chosen) > maximum and (lower_bound := _count_at_least(chosen, maximum)) > maximum:
        raise _too_many_error(lower_bound, maximum)
    pieces: list[ReadingsPiece] = []
    count, names = 0, dict.fromkeys(kind.variable.name for kind in chosen.kinds)
    for window in chosen.spans(chosen.kinds):
        for name in names:
            for piece in chosen.read(name, window):
                pieces.append(piece)
                count += len(piece.readings)
            if count > maximum:
                raise _too_many_error(count, maximum)
    return pieces


def _count_at_least(chosen: SelectedReadings, maximum: int) -> int:
    """Count the selected readings until they exceed `maximum`."""
    wanted, count = chosen.selection, 0
    for kind in chosen.kinds:
        numbers = np.array(kind.numbers, np.intp)
        count += chosen.archive.count_at_least(
            kind.variable.name, window=wanted.window, series=numbers, flags=wanted.flags, maximum=maximum - count
        )
        if count > maximum:
            break
    return count


def _too_many_error(count: int, maximum: int) -> TooLarge:
    return TooLarge(
        "the answer", "readings or more", count, maximum,
        "ask for one part after the other (start, stop, station, variable), or, where the archive is, use "
        "hypergrid export",
    )  # fmt: skip


@dataclass(frozen=True)
class ReadingsFormat:
    """An export format of readings."""

    name: str
    media_type: str
    suffix: str
    to_bytes: Callable[[SelectedReadings, Sequence[ReadingsPiece]], bytes]


FORMATS: Registry[ReadingsFormat] = Registry("format of readings")
"""Export formats by name."""


def _write_pieces(
    begin: Callable[[io.BytesIO], AbstractContextManager[RowWriter]], pieces: Sequence[ReadingsPiece]
) -> bytes:
    sink = io.BytesIO()
    with begin(sink) as rows:
        for piece in pieces:
            rows.add(piece)
    return sink.getvalue()


def _covjson(chosen: SelectedReadings, pieces: Sequence[ReadingsPiece]) -> bytes:
    document = coverage_collection(chosen, pieces, flags=True) | {"hypergrid:snapshot": chosen.archive.snapshot}
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _netcdf(chosen: SelectedReadings, pieces: Sequence[ReadingsPiece]) -> bytes:
    """Write one kind of series."""
    # A CF file has one sample dimension, which ERDDAP reads as a table.
    if len(chosen.kinds) != 1:
        names = ", ".join(kind.key for kind in chosen.kinds)
        raise InvalidQuery(
            f"a NetCDF file holds one kind of series, and these are {len(chosen.kinds)}; ask for one of: {names}"
        )
    return _write_pieces(lambda sink: write_netcdf(sink, chosen, chosen.kinds[0]), pieces)


for _format in (
    ReadingsFormat(
        "csv", "text/csv", ".csv", lambda _, pieces: _write_pieces(lambda sink: write_csv(sink, INTERVALS), pieces)
    ),
    ReadingsFormat(
        "parquet", "application/vnd.apache.parquet", ".parquet",
        lambda _, pieces: _write_pieces(lambda sink: write_parquet(sink, INTERVALS), pieces),
    ),
    ReadingsFormat("covjson", MEDIA_TYPE, ".covjson", _covjson),
    ReadingsFormat("netcdf", "application/x-netcdf", ".nc", _netcdf),
):  # fmt: skip
    FORMATS.add(_format.name, _format)
