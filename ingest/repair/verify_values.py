"""Compare stored values with raw copies, reading by reading.

The store retains what it replaces. A reading of a raw file or of a stream segment is therefore stored with its value,
in force or superseded; if it is neither, it was lost. Readings in force without a raw copy were amended, withdrawn, or
written from Python; they are counted.

Raw copies are parsed again with the descriptions of their ingest; memory is bounded by a range of time.

Parts of an archive's folder beside its store are examined here, too: the store checks itself, raw copies and the state
of servers (`Archive.check`); each part that ingest keeps has an examiner that knows its format. A new part needs one,
and an entry in `PARTS`.
"""

import math
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Defect
from hypergrid.archive.disk.checksums import read_checked
from hypergrid.archive.disk.lock import is_free
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.readings import Readings, Series, concatenate, equal_values, has_version, share_series
from hypergrid.core.times import Window, format_instant
from hypergrid.formats.partitioned import load_piece
from ingest.batch.report import Stages
from ingest.batch.staging import windows
from ingest.repair.stream_history import ALL_TIME, StreamHistory, StreamReader, committed_upto, stored_upto
from ingest.reprocess.job import FOLDER as REPROCESS
from ingest.reprocess.reading_diff import ParsedAs, find_readings
from ingest.reprocess.remap import parse_raw_copies
from ingest.sources.spool import MARK_FILE, frames_in, mapped, marked, segments
from ingest.streaming.restart import RESTART_FILE
from ingest.streaming.stream_commit import CHECKPOINT, SPOOL, STREAM

VALUES_AT_ONCE: Final = 4_000_000
"""Values of all columns that are in memory at once: some 200 MB, including the stored ones."""
SERIES_LISTED: Final = 10
"""Maximum number of series of a variable that are reported individually."""
_REMEDY: Final = "'hypergrid check --deep --repair' stores what raw copies say"


@dataclass
class UnstoredReadings:
    """Readings of a series in raw copies that are not stored."""

    series: Series
    count: int
    first_ns: int
    """Timestamp of the first of them [ns since 1970 UTC]."""
    raw: float
    """Value of the first in the raw copy."""
    stored: float | None
    """Value in force at its timestamp; None if there is none."""

    def to_defect(self) -> Defect:
        sensor_series, instead = self.series, "nothing" if self.stored is None else _format_value(self.stored)
        what = (
            f"{self.count:,} readings of raw copies are not stored, the first at {format_instant(self.first_ns)}: "
            f"{_format_value(self.raw)} there, {instead} in the archive"
        )
        return Defect(
            "values",
            f"{sensor_series.variable} of station {sensor_series.station} ({sensor_series.source})",
            what,
            _REMEDY,
        )


@dataclass
class RawComparisonReport:
    """Result of comparing stored values with raw copies."""

    readings: int = 0
    """Readings in force that a raw copy has."""
    other: int = 0
    """Readings in force that no raw copy has."""
    waiting_from: int | None = None
    """First record of the spool that was not compared, because rows from there on may wait; None: all were compared."""
    lost: list[UnstoredReadings] = field(default_factory=list)
    other_arrivals: int = 0
    """Readings in force that a raw copy has, but with another arrival than in any copy."""
    gave_way: int = 0
    """Readings of remapped files that are not stored, because another reading was in force and stayed."""
    warnings: tuple[str, ...] = ()
    """Parts not compared by design, such as files whose mapping is missing in an older ledger."""
    failed: list[Defect] = field(default_factory=list)
    """Parts that could not be compared because of damage."""

    @classmethod
    def nothing(cls, why: str) -> "RawComparisonReport":
        """Return the report for an archive so damaged that nothing could be compared."""
        return cls(failed=[_not_compared("all values", why)])

    @property
    def is_complete(self) -> bool:
        return not self.failed and not self.warnings and self.waiting_from is None

    def defects(self) -> Iterator[Defect]:
        """Yield failed comparisons, then lost readings: per variable some series, and the rest in one defect."""
        yield from self.failed
        by_variable: dict[str, list[UnstoredReadings]] = {}
        for loss in self.lost:
            by_variable.setdefault(loss.series.variable, []).append(loss)
        for name, losses in by_variable.items():
            yield from (loss.to_defect() for loss in losses[:SERIES_LISTED])
            if more := losses[SERIES_LISTED:]:
                what = f"{sum(loss.count for loss in more):,} readings of raw copies are not stored"
                yield Defect("values", f"{name} of {len(more)} more series", what, _REMEDY)

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON, without missing readings and failures, which are reported as defects."""
        metadata = ("readings", "other", "other_arrivals", "gave_way", "waiting_from")
        return {**{name: getattr(self, name) for name in metadata}, "warnings": list(self.warnings)}


def _not_compared(where: str, why: str) -> Defect:
    remedy = "mend what is damaged, from a backup or by 'hypergrid check --repair', then compare again"
    return Defect("not compared", where, why, remedy)


OnLost = Callable[[str, Window, Readings, Readings], None]
"""Called with the lost readings of a variable in a window: those that were in force, and superseded ones."""


def verify(
    archive: Archive, *, progress: Callable[[str, float], None] | None = None, on_lost: OnLost | None = None
) -> RawComparisonReport:
    """Compare the values of an archive with those of its raw copies, without changing it.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        The ledger of files cannot be read.
    """
    stages = Stages(time.perf_counter, progress)
    with tempfile.TemporaryDirectory(prefix="hypergrid-") as folder:
        return _ValueComparison(archive, Path(folder), stages, on_lost).run()


@dataclass
class _ValueComparison:
    archive: Archive
    scratch: Path
    stages: Stages
    on_lost: OnLost | None
    report: RawComparisonReport = field(default_factory=RawComparisonReport)
    _warnings: list[str] = field(default_factory=list)
    _lost: dict[Series, UnstoredReadings] = field(default_factory=dict)

    def run(self) -> RawComparisonReport:
        archive, report = self.archive, self.report
        once, anew = parse_raw_copies(
            archive, self.scratch, self.stages, self._warnings.append, partial(self._fail, "raw copies of files")
        )
        streams = self._streams()
        spans = [span for parsed_as in (*once, *anew) for span in parsed_as.spans]
        spans += [part.span for history in streams.values() for part in history.parts]
        cuts = windows(spans, maximum=VALUES_AT_ONCE, chunks_ns=archive.slices.chunks_ns)
        with self.stages.stage("compare values") as on_progress:
            for index, window in enumerate(cuts):
                self._window(window, once, anew, streams)
                on_progress((index + 1) / len(cuts))
        report.other = sum(archive.readings(name) for name in archive.variables) - report.readings
        report.lost = sorted(self._lost.values(), key=lambda loss: loss.series)
        report.warnings = tuple(self._warnings)
        return report

    def _fail(self, where: str, why: str) -> None:
        self.report.failed.append(_not_compared(where, why))

    def _streams(self) -> Mapping[str, StreamHistory]:
        upto = stored_upto(self.archive)
        if upto < committed_upto(self.archive):
            self.report.waiting_from = upto + 1
        always = dict.fromkeys(self.archive.variables, [ALL_TIME])
        with self.stages.stage("records of streams"):
            fail = partial(self._fail, "raw copies of streams")
            return StreamReader(self.archive, self.archive.files(), self.scratch, fail).read(always, upto=upto)

    def _window(
        self, window: Window, once: Sequence[ParsedAs], anew: Sequence[ParsedAs], streams: Mapping[str, StreamHistory]
    ) -> None:
        pieces = [(parsed_as, parsed_as.pieces_around(window, 0), False) for parsed_as in once]
        pieces += [(parsed_as, parsed_as.pieces_around(window, 0), True) for parsed_as in anew]
        for name in self.archive.variables:
            parts = [
                (parsed_as.versions(name, rows).select_window(window), is_anew) for parsed_as, rows, is_anew in pieces
            ]
            parts += [(streams[name].within(window), False)] if name in streams else []
            if any(len(part) for part, _ in parts):
                try:
                    self._compare(name, window, parts)
                except DamagedArchive as error:
                    start, stop = format_instant(window.start_ns), format_instant(window.stop_ns)
                    self._fail(name, f"from {start} to {stop} it was not compared: {error}")

    def _compare(self, name: str, window: Window, parts: Sequence[tuple[Readings, bool]]) -> None:
        """Compare a variable in a window; each part comes with whether it was remapped.

        Remapped readings may have met other readings that had replaced the originals, and then gave way.
        """
        stored = self.archive.read(name, window=window)
        replaced = self.archive.read(name, window=window, superseded=True)
        stored, replaced, *copies = share_series(stored, replaced, *(part for part, _ in parts))
        raw = concatenate(copies)
        is_anew = np.repeat([is_anew for _, is_anew in parts], [len(part) for part, _ in parts])
        order = np.lexsort((raw.time_ns, raw.index))
        raw, is_anew = raw.take_rows(order), is_anew[order]
        at, is_in_force = _find_in_force(stored, raw)
        backed = np.unique(at[is_in_force])
        self.report.readings += len(backed)
        alike = is_in_force & ((stored.arrival_ns[at] == raw.arrival_ns) | is_anew)
        self.report.other_arrivals += len(backed) - len(np.unique(at[alike]))
        left = np.flatnonzero(~is_in_force)
        left = left[~has_version(replaced, raw.take_rows(left))]
        gave_way = is_anew[left] & (at[left] >= 0)
        self.report.gave_way += int(np.count_nonzero(gave_way))
        left = left[~gave_way]
        if not len(left):
            return
        self._note(raw.take_rows(left), stored, at[left])
        if self.on_lost is not None:
            # The last version in raw copies was in force, unless another version in them is in force now. Index -1
            # (nothing in force) addresses the extra last element.
            is_backed = np.zeros(len(stored) + 1, np.bool_)
            is_backed[at[is_in_force]] = True
            is_last = np.append(_is_first(raw)[1:], True)
            goes_in_force = is_last[left] & ~is_backed[at[left]]
            self.on_lost(name, window, raw.take_rows(left[goes_in_force]), raw.take_rows(left[~goes_in_force]))

    def _note(self, raw: Readings, stored: Readings, at: NDArray[np.intp]) -> None:
        """Record lost readings, which must be ordered by series, then time."""
        begins = np.flatnonzero(np.diff(raw.index, prepend=-1))
        for first, stop in zip(begins.tolist(), [*begins[1:].tolist(), len(raw)], strict=True):
            series, count = raw.series[int(raw.index[first])], stop - first
            if (known := self._lost.get(series)) is not None:
                known.count += count
                continue
            value = None if at[first] < 0 else float(stored.value[at[first]])
            self._lost[series] = UnstoredReadings(
                series, count, int(raw.time_ns[first]), float(raw.value[first]), value
            )


def _format_value(value: float) -> str:
    return "a missing value" if math.isnan(value) else repr(value)


def _find_in_force(stored: Readings, raw: Readings) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return each raw reading's stored index (-1: none), and whether the values are equal."""
    is_first = _is_first(raw)
    at = find_readings(stored, raw.take_rows(is_first))[np.cumsum(is_first) - 1]
    known = np.flatnonzero(at >= 0)
    alike = np.zeros(len(raw), np.bool_)
    alike[known] = equal_values(stored.value[at[known]], raw.value[known])
    return at, alike


def _is_first(raw: Readings) -> NDArray[np.bool_]:
    """Tell which of the ordered readings are the first of their series and timestamp."""
    return np.r_[True, ~raw.mark_repeats()][: len(raw)]


@dataclass(frozen=True)
class DamagedSegment:
    """Unreadable records of a segment."""

    path: Path
    offset: int
    """Start of the damage [bytes]."""
    first: int
    """First unreadable record; a frame is damaged as a whole, because its checksum does not show which record is."""
    last: int | None
    """Last unreadable record; None if the end of the segment is unknown."""


def damaged_segments(folder: Path, *, upto: int = 0) -> Iterator[DamagedSegment]:
    """Yield the unreadable parts of a spool; segments that are retired meanwhile are skipped.

    Parameters
    ----------
    upto
        Last record that is known to have been durable, regardless of the spool's own mark; 0 if unknown.
    """
    # Read before the segments, so that records written meanwhile lie beyond it.
    promised = marked(folder)
    known = segments(folder)
    ends: list[int | None] = [first - 1 for first, _ in known[1:]]
    last = None if promised is None else max(promised, upto)
    for (first, path), end in zip(known, [*ends, last], strict=True):
        with suppress(FileNotFoundError):
            yield from _damaged(path, first, end)


def _damaged(path: Path, first: int, end: int | None) -> Iterator[DamagedSegment]:
    """Yield the unreadable parts of a segment up to record `end`; None: up to its end."""
    buffer, reached, offset = mapped(path), first - 1, 0
    for frame in frames_in(buffer):
        if frame.first != reached + 1 or (end is not None and reached >= end):
            break
        if zlib.crc32(buffer[frame.body : frame.stop]) != frame.check:
            yield DamagedSegment(path, frame.offset, frame.first, frame.last)
        reached, offset = frame.last, frame.stop
    # Records beyond the mark were being written during a power failure, and were never acknowledged.
    if (offset < len(buffer) or not buffer.nbytes) if end is None else reached < end:
        yield DamagedSegment(path, offset, reached + 1, end)


_BLOCK: Final = 512
"""Block size of Hadoop's CRC-32 checksums [bytes]; the default, which no session changes."""
_CRC_HEAD: Final = b"crc\x00" + _BLOCK.to_bytes(4)


def check_parts(folder: Path, archive: Archive | None, notify: Callable[[str, float], None]) -> Iterator[Defect]:
    """Yield the defects of all parts of an archive's folder that ingest keeps."""
    for position, (name, examine) in enumerate(PARTS):
        if (folder / name).exists():
            notify("beside the store", position / len(PARTS))
            yield from examine(folder, archive)
    notify("beside the store", 1.0)


def check_spool(folder: Path, archive: Archive | None) -> Iterator[Defect]:
    """Yield the damaged segments of the spool, and the consequences."""
    spool = folder / SPOOL
    committed, stored = (0, 0) if archive is None else (committed_upto(archive), stored_upto(archive))
    has_mark = bool(segments(spool)) and (spool / MARK_FILE).exists()
    if has_mark and marked(spool) is None and is_free(spool / "lock"):
        what = "does not tell any more up to which record the spool was on the disk"
        yield Defect("damaged", f"{SPOOL}/{MARK_FILE}", what, "the next 'hypergrid stream' writes it anew")
    for damaged_segment in damaged_segments(spool, upto=committed):
        yield _segment(damaged_segment, stored)


def _segment(damaged_segment: DamagedSegment, stored: int) -> Defect:
    if damaged_segment.last is None:
        records = (
            f"it ends in bytes from {damaged_segment.offset:,} on that are no whole record, after record "
            f"{damaged_segment.first - 1:,}"
        )
    else:
        records = (
            f"records {damaged_segment.first:,} to {damaged_segment.last:,} cannot be read, from byte "
            f"{damaged_segment.offset:,} on"
        )
    restore = "restore the file from a backup or another copy"
    if damaged_segment.last is not None and damaged_segment.last <= stored:
        what = f"{records}; what they brought is in the archive"
        remedy = f"{restore}; without one nothing is lost but what 'check --deep' compares"
    else:
        what = f"{records}; what they brought is not in the archive yet, and nothing else has it"
        remedy = f"{restore} before the stream goes on, which stops there"
    return Defect("damaged", f"{SPOOL}/{damaged_segment.path.name}", what, remedy)


def check_anew(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Yield the defects of the restart note of a stream."""
    try:
        read_checked(folder / STREAM / RESTART_FILE)
    except FileNotFoundError:
        return
    except (OSError, DamagedArchive):
        yield Defect(
            "damaged", f"{STREAM}/{RESTART_FILE}", "is another than it was",
            "the next 'hypergrid stream' writes it anew from what the archive tells of streams",
        )  # fmt: skip


def check_checkpoint(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Compare Spark's checkpoint with Hadoop's checksum files, unless a stream is running."""
    # A running stream is changing the files.
    if not is_free(folder / STREAM / "lock"):
        return
    for beside in sorted((folder / STREAM / CHECKPOINT).rglob(".*.crc")):
        path = beside.with_name(beside.name[1:].removesuffix(".crc"))
        # Where Spark was killed it leaves ".2.<uuid>.tmp", cut anywhere, which it never reads.
        is_scratch = path.name.startswith(".") and path.suffix == ".tmp"
        if not is_scratch and path.is_file() and not _fits(path.read_bytes(), beside.read_bytes()):
            where = str(path.relative_to(folder))
            remedy = "'hypergrid stream' begins anew from its spool: remove the folder stream/checkpoint, then start it"
            yield Defect("damaged", where, "it, or the file of its checksums, is another than it was", remedy)


def _fits(content: bytes, sums: bytes) -> bool:
    """Return whether content matches a checksum file of Hadoop."""
    blocks = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
    return sums == _CRC_HEAD + b"".join(zlib.crc32(block).to_bytes(4) for block in blocks)


def check_pieces(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Yield the damaged pieces of an interrupted reprocessing."""
    for path in sorted((folder / REPROCESS).rglob("*.npz")):
        try:
            load_piece(path)
        except FileNotFoundError:
            continue
        except (OSError, DamagedArchive):
            remedy = "the next start of the same 'hypergrid reprocess' computes it once more; or remove it"
            yield Defect("damaged", str(path.relative_to(folder)), "is not what was written", remedy)


PARTS: Final[tuple[tuple[str, Callable[[Path, Archive | None], Iterator[Defect]]], ...]] = (
    (SPOOL, check_spool),
    (f"{STREAM}/{RESTART_FILE}", check_anew),
    (f"{STREAM}/{CHECKPOINT}", check_checkpoint),
    (REPROCESS, check_pieces),
)
"""Parts and their examiners, for an archive that may be None if it cannot be opened.

The store checks the deployments of streams, because its backups need them.
"""
