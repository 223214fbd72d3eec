"""Readings of an archive for those who read them alone: long tables, coverages and NetCDF, in memory and bounded."""

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
    Chosen,
    Piece,
    Rows,
    Selection,
    coverage_collection,
    csv,
    netcdf,
    parquet,
)
from hypergrid.query import OpenArchive

MOST_READINGS: Final = 1_000_000
"""Readings that one answer holds at most: 100 MB of CSV."""
_EVER: Final = (parse_instant("1900-01-01"), parse_instant("2261-12-31"))


def archive_at(archive: OpenArchive, snapshot: str | None, as_of: str | None = None) -> Archive:
    """Return the archive at a snapshot, the newest where absent, and as of an instant.

    Raises
    ------
    NotFound, InvalidTime
        There is no such snapshot; no such instant.
    """
    newest = archive.latest().store
    found = newest if snapshot in (None, newest.snapshot) else Archive.open(newest.path, snapshot=snapshot)
    return found if as_of is None else found.as_of(parse_instant(as_of))


def window_of(start: str | None, stop: str | None) -> Window | None:
    """Return the time from a start to a stop (not included), either of which may be open; None: all."""
    if start is None and stop is None:
        return None
    first, last = (
        default if text is None else parse_instant(text) for text, default in zip((start, stop), _EVER, strict=True)
    )
    return Window(first, last)


def about(chosen: Chosen) -> float:
    """Return about how many readings are chosen, as if stations reported regularly; nothing is read for that."""
    count = 0.0
    for kind in chosen.kinds:
        extent = chosen.archive.extent(kind.variable.name)
        wanted = chosen.selection.window
        part = extent if extent is None or wanted is None else extent.intersect(wanted)
        if part is not None:
            interval_s = kind.sample.interval_s or chosen.archive.slice_s
            count += len(kind.numbers) * (part.stop_ns - part.start_ns) / (interval_s * SECOND_NS)
    return count


def pieces_of(chosen: Chosen, most: int = MOST_READINGS) -> list[Piece]:
    """Return the chosen readings, those of a kind one piece after the other in time.

    Raises
    ------
    TooLarge
        There are more than `most`; as far as stations report regularly, none is read then.
    """
    # Counting takes a tenth of the time that reading takes, and next to no memory.
    if about(chosen) > most and (least := _least(chosen, most)) > most:
        raise _too_many(least, most)
    found: list[Piece] = []
    count, names = 0, dict.fromkeys(kind.variable.name for kind in chosen.kinds)
    for window in chosen.spans(chosen.kinds):
        for name in names:
            for piece in chosen.read(name, window):
                found.append(piece)
                count += len(piece.readings)
            if count > most:
                raise _too_many(count, most)
    return found


def _least(chosen: Chosen, most: int) -> int:
    """Return how many readings are chosen at least, counted until they are more than `most`."""
    wanted, count = chosen.selection, 0
    for kind in chosen.kinds:
        numbers = np.array(kind.numbers, np.intp)
        count += chosen.archive.least_readings(
            kind.variable.name, window=wanted.window, series=numbers, flags=wanted.flags, most=most - count
        )
        if count > most:
            break
    return count


def _too_many(count: int, most: int) -> TooLarge:
    who, remedy = (
        "the answer",
        "ask for one part after the other (start, stop, station, variable), or, where the archive is, use "
        "hypergrid export",
    )
    return TooLarge(who, "readings or more", count, most, remedy)


@dataclass(frozen=True)
class Format:
    """A form that readings are served in."""

    name: str
    media_type: str
    suffix: str
    to_bytes: Callable[[Chosen, Sequence[Piece]], bytes]


FORMATS: Registry[Format] = Registry("format of readings")
"""Forms by name."""


def _written(begin: Callable[[io.BytesIO], AbstractContextManager[Rows]], pieces: Sequence[Piece]) -> bytes:
    sink = io.BytesIO()
    with begin(sink) as rows:
        for piece in pieces:
            rows.add(piece)
    return sink.getvalue()


def _csv(_chosen: Chosen, pieces: Sequence[Piece]) -> bytes:
    return _written(lambda sink: csv(sink, INTERVALS), pieces)


def _parquet(_chosen: Chosen, pieces: Sequence[Piece]) -> bytes:
    return _written(lambda sink: parquet(sink, INTERVALS), pieces)


def _covjson(chosen: Chosen, pieces: Sequence[Piece]) -> bytes:
    told = coverage_collection(chosen, pieces, flags=True) | {"hypergrid:snapshot": chosen.archive.snapshot}
    return json.dumps(told, allow_nan=False, separators=(",", ":")).encode()


def _netcdf(chosen: Chosen, pieces: Sequence[Piece]) -> bytes:
    """Return one kind of series: a file of CF has one sample dimension, that ERDDAP reads as a table."""
    if len(chosen.kinds) != 1:
        names = ", ".join(kind.key for kind in chosen.kinds)
        message = f"a NetCDF file holds one kind of series, and these are {len(chosen.kinds)}; ask for one of: {names}"
        raise InvalidQuery(message)
    return _written(lambda sink: netcdf(sink, chosen, chosen.kinds[0]), pieces)


FORMATS.add("csv", Format("csv", "text/csv", ".csv", _csv))
FORMATS.add("parquet", Format("parquet", "application/vnd.apache.parquet", ".parquet", _parquet))
FORMATS.add("covjson", Format("covjson", MEDIA_TYPE, ".covjson", _covjson))
FORMATS.add("netcdf", Format("netcdf", "application/x-netcdf", ".nc", _netcdf))

__all__ = ["FORMATS", "MOST_READINGS", "Format", "Selection", "archive_at", "pieces_of", "window_of"]
