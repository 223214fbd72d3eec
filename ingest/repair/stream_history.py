"""Read the readings of streams again, from raw copies of their segments and from the spool.

Records are parsed with the deployments of their time. Readings within the requested windows are written to files, so
that memory is bounded by a segment and some millions of readings.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, FileEntry
from hypergrid.archive.disk.raw_copies import RAW, read_back
from hypergrid.core.errors import DamagedArchive, HyperGridError
from hypergrid.core.readings import Readings, Series, concatenate, renumber_series, share_series
from hypergrid.core.times import Window
from ingest.batch.staging import Span
from ingest.deployment.deployment_file import DeploymentVersion, read_versions
from ingest.sources.spool import durable, reach, segment_name, segments
from ingest.streaming.repeats import SentMessages
from ingest.streaming.restart import first_needed
from ingest.streaming.spool_decoder import Dictionary, RowBatch, parse_by_version
from ingest.streaming.stream_commit import (
    DEPLOYMENTS,
    SPOOL,
    STREAM,
    kept_segments,
    ledger_of,
    readings_by_variable,
)

MOST_HELD: Final = 2_000_000
"""Readings held in memory before they are written to files."""
ALL_TIME: Final = Window(np.iinfo(np.int64).min, np.iinfo(np.int64).max)
_COLUMNS: Final = ("index", "time_ns", "value", "flag", "arrival_ns")


def committed_upto(archive: Archive) -> int:
    """Return the last record of the spool that an archive's streams accounted for; 0 if none."""
    return max((ledger_of(archive, stream).upto for stream in archive.streams), default=0)


def stored_upto(archive: Archive) -> int:
    """Return the last spool record up to which no row waits to be stored, or 0."""
    ledgers = [ledger_of(archive, stream) for stream in archive.streams]
    if not ledgers:
        return 0
    # Until a restarted stream has caught up with the one before it, rows of that one may wait, too.
    telling = [ledgers[-1], *(ledger for ledger in ledgers[:-1] if ledger.upto > ledgers[-1].upto)]
    return min(first_needed(ledger) for ledger in telling) - 1


@dataclass(frozen=True, eq=False)
class _HistoryPart:
    """Consecutive readings of a variable in a file."""

    path: Path
    series: tuple[Series, ...]
    span: Span
    """Their range of time, and number."""

    @classmethod
    def write(cls, path: Path, timed_readings: Sequence[tuple[Readings, NDArray[np.int64]]]) -> "_HistoryPart":
        """Write readings and when each was received to a file."""
        # Kept in order of arrival, because amendments must follow what they amend.
        whole = concatenate(share_series(*(readings for readings, _ in timed_readings)))
        columns = {name: getattr(whole, name) for name in _COLUMNS}
        with path.open("wb") as file:
            np.savez(file, came_ns=np.concatenate([came_ns for _, came_ns in timed_readings]), **columns)
        return cls(path, whole.series, (int(whole.time_ns.min()), int(whole.time_ns.max()), len(whole)))

    def within(self, window: Window, start_ns: float, stop_ns: float) -> Readings:
        """Return the readings with timestamps in a window that were received from `start_ns` until before `stop_ns`."""
        with np.load(self.path) as columns:
            time_ns, came_ns = columns["time_ns"], columns["came_ns"]
            chosen = window.holds(time_ns) & (came_ns >= start_ns) & (came_ns < stop_ns)
            return Readings(self.series, *(columns[name][chosen] for name in _COLUMNS))


@dataclass(frozen=True)
class StreamHistory:
    """Stream readings of a variable in order of arrival."""

    parts: Sequence[_HistoryPart]

    @property
    def series(self) -> tuple[Series, ...]:
        return tuple(dict.fromkeys(each for part in self.parts for each in part.series))

    def within(self, window: Window, start_ns: float = -np.inf, stop_ns: float = np.inf) -> Readings:
        """Return the readings with timestamps in a window that were received from `start_ns` until before `stop_ns`."""
        parts = [
            renumber_series(part.within(window, start_ns, stop_ns), self.series)
            for part in self.parts
            if part.span[0] < window.stop_ns and part.span[1] >= window.start_ns
        ]
        return concatenate([Readings.empty(self.series), *parts])


@dataclass
class StreamReader:
    """Reads what streams brought again; readings are written to files until they are asked for."""

    archive: Archive
    files: Sequence[FileEntry]
    """Ledger of files, which includes segments of streams."""
    scratch: Path
    """Folder for unpacked segments and for the results."""
    warn: Callable[[str], None]
    """Called for records that cannot be read, with the reason."""
    _windows: Mapping[str, Sequence[Window]] = field(default_factory=dict)
    _names: dict[str, Dictionary] = field(default_factory=dict)
    _sent: dict[str, SentMessages] = field(default_factory=dict)
    _pending: dict[str, list[tuple[Readings, NDArray[np.int64]]]] = field(default_factory=dict)
    _parts: dict[str, list[_HistoryPart]] = field(default_factory=dict)
    _held: int = 0
    """Readings that are not in a file yet."""

    def read(self, windows: Mapping[str, Sequence[Window]], *, after: int = 0, upto: int) -> dict[str, StreamHistory]:
        """Read the readings within each variable's windows, from records with after < seq <= upto."""
        try:
            described = read_versions(self.archive.path / STREAM / DEPLOYMENTS)
        except DamagedArchive as error:
            self.warn(f"what streams brought cannot be read again: {error}")
            return {}
        self._windows = windows
        for folder, first in self._segments():
            last = min(upto, durable(folder))
            try:
                self._add(folder, max(after, first - 1), last, described)
            except (HyperGridError, OSError) as error:
                self.warn(f"records {first} to {last} of a stream cannot be read again: {error}")
        self._write_parts()
        return {name: StreamHistory(parts) for name, parts in self._parts.items()}

    def _segments(self) -> Iterator[tuple[Path, int]]:
        """Yield each archived segment's folder and first record, in order, then the whole spool."""
        spool = self.archive.path / SPOOL
        there, kept = segments(spool), kept_segments(self.files)
        for first in sorted(kept):
            # Later segments are still in the spool.
            if there and first >= there[0][0]:
                break
            try:
                content = read_back(self.archive.path / RAW, kept[first])
            except (HyperGridError, OSError) as error:
                self.warn(f"a segment of a stream, from record {first} on, cannot be read again: {error}")
                continue
            folder = self.scratch / f"segment-{first}"
            folder.mkdir()
            path = folder / segment_name(first)
            path.write_bytes(content)
            yield folder, first
            # At most one unpacked segment is on disk.
            path.unlink()
        if there:
            yield spool, there[0][0]

    def _add(self, folder: Path, after: int, upto: int, described: list[DeploymentVersion]) -> None:
        """Add the records of a spool with after < seq <= upto."""
        while after < upto:
            stop = min(upto, reach(folder, after, most_bytes=64 << 20))
            for pieces in parse_by_version(folder, after, stop, described):
                for piece in pieces:
                    # A repeated message has the timestamp of the first one.
                    rows = self._names.setdefault(piece.group, Dictionary()).encode(piece.rows)
                    rows = replace(rows, time_ns=self._sent.setdefault(piece.group, SentMessages()).first_times(rows))
                    self._add_rows(rows)
            after = stop

    def _add_rows(self, rows: RowBatch) -> None:
        variables = {name: self.archive.variable(name) for name in self._windows}
        for name, (readings, came_ns) in readings_by_variable(rows, variables).items():
            inside = np.zeros(len(readings), np.bool_)
            for window in self._windows[name]:
                inside |= window.holds(readings.time_ns)
            if inside.any():
                self._pending.setdefault(name, []).append((readings.take_rows(inside), came_ns[inside]))
                self._held += int(np.count_nonzero(inside))
        if self._held > MOST_HELD:
            self._write_parts()

    def _write_parts(self) -> None:
        for name, timed_readings in self._pending.items():
            path = self.scratch / f"came-{sum(map(len, self._parts.values()))}.npz"
            self._parts.setdefault(name, []).append(_HistoryPart.write(path, timed_readings))
        self._pending, self._held = {}, 0
