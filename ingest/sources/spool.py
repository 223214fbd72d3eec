"""Spool: durable log of received input, in the order of arrival, before any parsing.

It is a folder of append-only segments, each a sequence of frames. A frame is a header and an Arrow record batch; it is
valid once it is complete, as its checksums show, and synchronised to disk. One process writes; any number read, and see
complete frames only. Records are numbered 1, 2, 3, … without gaps, across all segments.
"""

import os
import struct
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow as pa

from hypergrid.core.errors import ArchiveConflict, HyperGridError, NotFound
from hypergrid.core.files import replace_atomically

if sys.platform != "win32":
    import fcntl

MESSAGE: Final = 0
"""A message, whole lines of a file, or a whole file; `place` is that of `SpoolRecord.position`."""
HEADER: Final = 1
"""Header lines of a file; directly before each record of its lines, in the same frame."""
TICK: Final = 2
"""Clock tick: `arrival_ns` only."""
END: Final = 3
"""End of the input: all open slices are to be closed."""
STATE: Final = 4
"""State of the receiver for a restart; other readers ignore it."""
REFUSED: Final = 5
"""Refused input: the payload is the reason, a newline, and the beginning of the input (UTF-8)."""

FRAME_BYTES: Final = 8 << 20
"""Maximum payload of a frame, unless a single record is larger [bytes]."""

SCHEMA: Final = pa.schema(
    [
        pa.field("seq", pa.int64(), nullable=False),
        pa.field("arrival_ns", pa.int64(), nullable=False),
        pa.field("feed", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("origin", pa.string(), nullable=False),
        pa.field("place", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)
"""Schema of the batches that `frames` yields."""
_STORED: Final = SCHEMA.set(2, pa.field("feed", pa.string(), nullable=False))
_RECORD_COLUMNS: Final = ("arrival_ns", "feed", "origin", "payload", "place", "kind", "seq")
"""Columns that hold the fields of a `SpoolRecord`, in their order."""

_HEADER: Final = struct.Struct("<8sQIII")
_CHECK: Final = struct.Struct("<I")
_HEADER_BYTES: Final = _HEADER.size + _CHECK.size
_MAGIC: Final = b"HGspool1"
_MARK: Final = struct.Struct("<8sQ")
MARK_FILE: Final = "durable"
_PARTIAL: Final = ".partial"


class NotWritten(HyperGridError, OSError):
    """Records could not be written to disk; the writer keeps them, and partial writes are ignored."""


class Damaged(HyperGridError, ValueError):
    """Records that had been on disk are missing or have changed."""


class SpoolRecord(NamedTuple):
    """Received input, unmodified."""

    arrival_ns: int
    """Arrival time [ns since 1970 UTC]."""
    feed: str = ""
    origin: str = ""
    """Topic of a message, or path of a file relative to the watched folder."""
    payload: bytes = b""
    position: int = 0
    """First line number of lines, from 1; 0 for a whole file; for a message: minus its packet
    identifier, or -65,536 if it has none."""
    kind: int = MESSAGE
    seq: int = 0
    """Record number; 0: the record is not in a spool yet."""

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch) -> "Iterator[SpoolRecord]":
        return map(cls._make, zip(*(batch.column(name).to_pylist() for name in _RECORD_COLUMNS), strict=True))


@dataclass(frozen=True, slots=True)
class _SpoolFrame:
    offset: int
    first: int
    count: int
    length: int
    check: int

    @property
    def last(self) -> int:
        return self.first + self.count - 1

    @property
    def body(self) -> int:
        return self.offset + _HEADER_BYTES

    @property
    def stop(self) -> int:
        return self.body + self.length


def segment_name(first: int) -> str:
    return f"segment-{first:016d}.spool"


def held_bytes(folder: Path) -> int:
    """Return the size of the segments on disk [bytes]; one that is retired meanwhile counts as 0."""
    held = 0
    for _, path in segments(folder):
        with suppress(FileNotFoundError):
            held += path.stat().st_size
    return held


def segments(folder: Path) -> list[tuple[int, Path]]:
    """Return the first record number and the path of each segment, in order."""
    return sorted((segment_first(path), path) for path in folder.glob("segment-*.spool"))


def segment_first(path: Path) -> int:
    return int(path.stem.partition("-")[2])


class Spool:
    """Writer of a spool; thread-safe.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Spool.open(Path(folder) / "spool") as spool:
    ...         spool.append([SpoolRecord(1, "net", "net/7/up", b"{}", -1)])
    ...         spool.flush()
    1
    1
    """

    def __init__(
        self, folder: Path, lock: int, *, state: Callable[[], bytes] | None, bounds: tuple[int, float]
    ) -> None:
        self.folder = folder
        self._lock_file, self._state, self._bounds = lock, state, bounds
        # Two locks, so that appending does not wait for the disk.
        self._lock, self._writing = threading.Lock(), threading.Lock()
        self._pending: list[SpoolRecord] = []
        self._rolls: list[int] = []
        self._file: int | None = None
        self._made = time.monotonic()
        self._end, self._torn = 0, False
        self._size, self._next = 0, 1
        self._marked_seq = 0
        self._begins_with_state = False
        self._durable = self._recover()
        self._next = self._durable + 1
        self._mark = os.open(folder / MARK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        self._write_mark()

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        state: Callable[[], bytes] | None = None,
        segment_bytes: int = 64 << 20,
        segment_s: float = 3600.0,
    ) -> "Spool":
        """Open or create the spool in a folder for writing; truncate an incomplete end.

        Parameters
        ----------
        state
            Returns the content of the first record of each further segment (kind `STATE`), as of the records appended
            before. If it is None, there is no such record, and if segments begin with one, no further segment is
            started.
        segment_bytes, segment_s
            Size [bytes] and age [s] from which on a new segment is started.

        Raises
        ------
        hypergrid.core.errors.ArchiveConflict
            Another process writes to it.
        Damaged
            Records that had been on disk can no longer be read.
        """
        if sys.platform == "win32":
            raise HyperGridError(f"writing {folder} needs flock, which this system lacks; receive on Linux or macOS")
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            # The kernel releases the lock when the process ends, even if it is killed.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise ArchiveConflict(f"another process receives into {folder}; end it, or use another archive") from error
        try:
            return cls(folder, lock, state=state, bounds=(segment_bytes, segment_s))
        except BaseException:
            os.close(lock)
            raise

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def durable(self) -> int:
        """Number of the last record that is on disk."""
        return self._durable

    def append(self, records: Iterable[SpoolRecord], *, may_roll: bool = True) -> int:
        """Buffer records and return the number of the last one; `flush` writes them to disk.

        If `may_roll` is False, no new segment begins with them: `state` is then not called from this thread.

        Raises
        ------
        ValueError
            A name cannot be encoded in UTF-8; no record is taken.
        """
        records = list(records)
        for record in records:
            _check_names(record)
        with self._lock:
            if may_roll and self._is_due():
                # Before anything is changed, because `state` may fail.
                state = [] if self._state is None else [SpoolRecord(time.time_ns(), payload=self._state(), kind=STATE)]
                self._rolls.append(self._next)
                self._pending.extend(state)
                self._next += len(state)
                self._size = 0
            before = len(self._pending)
            self._pending.extend(records)
            self._next += len(self._pending) - before
            self._size += sum(len(record.payload) for record in self._pending[before:])
            return self._next - 1

    def _is_due(self) -> bool:
        if self._rolls or self._next == 1 or (self._state is None and self._begins_with_state):
            return False
        return self._size >= self._bounds[0] or time.monotonic() - self._made >= self._bounds[1]

    def flush(self) -> int:
        """Write all buffered records to disk at once, and return the number of the last one.

        Raises
        ------
        NotWritten
            The write failed; the records are kept, and the next call tries again.
        """
        with self._writing:
            with self._lock:
                records, self._pending = self._pending, []
                rolls, self._rolls = self._rolls, []
            first = self._durable + 1
            try:
                if self._marked_seq < self._durable:
                    self._write_mark()
                if not records:
                    return self._durable
                # Records before the roll still belong to the old segment.
                cut = rolls[0] - first if rolls else 0
                if cut:
                    self._write(records[:cut], first)
                if rolls:
                    self._finish_segment()
                self._write(records[cut:], first + cut)
            except OSError as error:
                # Some records may have been written before the error.
                kept = self._durable + 1 - first
                with self._lock:
                    self._pending = records[kept:] + self._pending
                    self._rolls = ([rolls[0]] if rolls and self._file is not None else []) + self._rolls
                reason = error.strerror or str(error)
                raise NotWritten(
                    f"the spool in {self.folder} cannot be written: {reason}; {len(records) - kept} records wait, "
                    "make room on the disk"
                ) from error
            return self._durable

    def close(self) -> None:
        """Flush, and release the lock."""
        try:
            self.flush()
        finally:
            self._finish_segment()
            os.close(self._mark)
            os.close(self._lock_file)

    def _write(self, records: Sequence[SpoolRecord], first: int) -> None:
        """Append records to the current or a new segment and synchronise it, atomically."""
        data = b"".join(_frame_records(records, first))
        if self._file is None:
            self._make_segment(data, first)
        else:
            # A failed write may have left part of a frame.
            if self._torn:
                os.ftruncate(self._file, self._end)
            self._torn = True
            _write_all(self._file, data, self._end)
            _synchronise_data(self._file)
            self._end, self._torn = self._end + len(data), False
        self._durable = first + len(records) - 1
        self._write_mark()

    def _make_segment(self, data: bytes, first: int) -> None:
        # A segment gets its final name only with its first frame, so that there is never an empty one: the previous
        # segment, with the receiver's state, might have been retired already.
        path = self.folder / segment_name(first)
        partial = path.with_suffix(_PARTIAL)
        made = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_all(made, data, 0)
            os.fsync(made)
            partial.replace(path)
            _synchronise(self.folder)
        except OSError:
            os.close(made)
            partial.unlink(missing_ok=True)
            path.unlink(missing_ok=True)
            raise
        self._file, self._end, self._made = made, len(data), time.monotonic()

    def _finish_segment(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write_mark(self) -> None:
        """Publish how far readers may read; called after the data is on disk."""
        mark = _MARK.pack(_MAGIC, self._durable)
        os.pwrite(self._mark, mark + _CHECK.pack(zlib.crc32(mark)), 0)
        self._marked_seq = self._durable

    def _recover(self) -> int:
        """Open the last segment after its last complete frame, and return the number of the last record."""
        # Left by a crash before the rename.
        for partial in self.folder.glob(f"*{_PARTIAL}"):
            partial.unlink()
        known = segments(self.folder)
        if not known:
            return marked(self.folder) or 0
        first, path = known[-1]
        last, stop = first - 1, 0
        buffer = mapped(path)
        for frame in frames_in(buffer):
            if zlib.crc32(buffer[frame.body : frame.stop]) != frame.check or frame.first != last + 1:
                break
            last, stop = frame.last, frame.stop
        if last >= first:
            self._begins_with_state = is_state(self.folder, first)
        # Readers may have used the records up to the mark, so they must be present.
        promised = marked(self.folder) or 0
        if promised > last:
            raise Damaged(
                f"{path} is damaged at byte {stop}: records {last + 1} to {promised} had been on the disk; restore the "
                f"file from a copy, or remove {self.folder / MARK_FILE} to go on without them"
            )
        self._file = os.open(path, os.O_RDWR)
        os.ftruncate(self._file, stop)
        os.fsync(self._file)
        _synchronise(self.folder)
        self._end = self._size = stop
        return last


def _check_names(record: SpoolRecord) -> None:
    for name in (record.feed, record.origin):
        try:
            name.isascii() or name.encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"a record's feed and origin have to be text; {name!r} has half a character: escape it"
            ) from error


def _frame_records(records: Sequence[SpoolRecord], first: int) -> Iterator[bytes]:
    """Yield the bytes of frames; a file header is never separated from its lines."""
    start = size = 0
    for index, record in enumerate(records):
        size += len(record.payload)
        whole = record.kind != HEADER and (size >= FRAME_BYTES or index - start >= 65_535)
        if whole or index == len(records) - 1:
            yield _frame(records[start : index + 1], first + start)
            start, size = index + 1, 0


def _frame(records: Sequence[SpoolRecord], first: int) -> bytes:
    arrival, feed, origin, payload, position, kind, _ = zip(*records, strict=True)
    columns = [
        pa.array(range(first, first + len(records)), pa.int64()),
        pa.array(arrival, pa.int64()),
        pa.array(feed, pa.string()),
        pa.array(origin, pa.string()),
        pa.array(position, pa.int64()),
        pa.array(kind, pa.int8()),
        pa.array(payload, pa.binary()),
    ]
    body = pa.RecordBatch.from_arrays(columns, schema=_STORED).serialize().to_pybytes()
    header = _HEADER.pack(_MAGIC, first, len(records), len(body), zlib.crc32(body))
    return header + _CHECK.pack(zlib.crc32(header)) + body


# Not all systems have fdatasync.
_synchronise_data: Final = getattr(os, "fdatasync", os.fsync)


def _write_all(file: int, data: bytes, offset: int) -> None:
    done = 0
    while done < len(data):
        done += os.pwrite(file, memoryview(data)[done:], offset + done)


def _synchronise(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def mapped(path: Path) -> memoryview:
    """Return the memory-mapped content of a segment."""
    if not path.stat().st_size:
        return memoryview(b"")
    with pa.memory_map(str(path)) as file:
        return memoryview(file.read_buffer())


def frames_in(buffer: memoryview) -> Iterator[_SpoolFrame]:
    """Yield the frames of a segment up to the first incomplete one; their bodies are not verified."""
    offset = 0
    while offset + _HEADER_BYTES <= len(buffer):
        magic, first, count, length, check = _HEADER.unpack_from(buffer, offset)
        (header_check,) = _CHECK.unpack_from(buffer, offset + _HEADER.size)
        if magic != _MAGIC or header_check != zlib.crc32(buffer[offset : offset + _HEADER.size]):
            return
        frame = _SpoolFrame(offset, first, count, length, check)
        if frame.stop > len(buffer):
            return
        yield frame
        offset = frame.stop


def marked(folder: Path) -> int | None:
    """Return the last durable record by the spool's mark; None without a valid mark."""
    try:
        content = (folder / MARK_FILE).read_bytes()
    except FileNotFoundError:
        return None
    if len(content) != _MARK.size + _CHECK.size or _CHECK.unpack_from(content, _MARK.size)[0] != zlib.crc32(
        content[: _MARK.size]
    ):
        return None
    magic, last = _MARK.unpack_from(content)
    return int(last) if magic == _MAGIC else None


def durable(folder: Path) -> int:
    """Return the number of the last durable record, or 0; cheap enough to be polled.

    After a power failure it may be lower than before, until the spool is opened for writing again.
    """
    promised = marked(folder)
    if promised is not None:
        return promised
    last = 0
    for first, path in segments(folder)[-1:]:
        last = first - 1
        buffer = mapped(path)
        for frame in frames_in(buffer):
            if zlib.crc32(buffer[frame.body : frame.stop]) != frame.check:
                break
            last = frame.last
    return last


def frames(folder: Path, after: int, upto: int, *, batch_bytes: int = FRAME_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield records with after < seq <= upto in batches of about `batch_bytes` [bytes].

    The batches have the schema `SCHEMA`, and are in order.

    Raises
    ------
    hypergrid.core.errors.NotFound
        The records have been retired, or are not on disk yet.
    Damaged
        The records can no longer be read.
    """
    held: list[pa.RecordBatch] = []
    size = 0
    for path, buffer, frame in _locate_frames(folder, after, upto):
        body = buffer[frame.body : frame.stop]
        if zlib.crc32(body) != frame.check:
            raise Damaged(f"{path} is damaged at byte {frame.offset}; restore it from a copy")
        batch = pa.ipc.read_record_batch(pa.py_buffer(body), _STORED)
        start = max(0, after + 1 - frame.first)
        held.append(batch.slice(start, min(frame.count, upto + 1 - frame.first) - start))
        size += frame.length
        if size >= batch_bytes:
            yield _join_batches(held)
            held, size = [], 0
    if held:
        yield _join_batches(held)


def is_state(folder: Path, seq: int) -> bool:
    """Return whether a record holds the state of the receiver; errors as in `frames`."""
    (batch,) = frames(folder, seq - 1, seq)
    return bool(batch.column("kind")[0].as_py() == STATE)


def _join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    whole = pa.concat_batches(batches)
    columns = whole.columns
    columns[2] = columns[2].dictionary_encode()
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def spans(folder: Path, after: int, upto: int, pieces: int) -> list[tuple[int, int]]:
    """Split records with after < seq <= upto into at most `pieces` similar ranges (after, upto).

    Ranges end at frame ends, so that each range has the headers of its files' lines. Errors as in `frames`.
    """
    frame_ends = [(frame.last, frame.length) for _, _, frame in _locate_frames(folder, after, upto)]
    ranges: list[tuple[int, int]] = []
    total, done = sum(length for _, length in frame_ends), 0
    for last, length in frame_ends:
        done += length
        if done * pieces >= total * (len(ranges) + 1):
            end = min(last, upto)
            ranges.append((ranges[-1][1] if ranges else after, end))
    return ranges


def reach(folder: Path, after: int, *, most_bytes: int, most_records: int = sys.maxsize) -> int:
    """Return the last record that can be read from `after` within the bounds.

    It is the end of a frame. At least one frame is included; without more records the result is `after`. Errors as in
    `frames`.
    """
    upto, size = after, 0
    for _, _, frame in _locate_frames(folder, after, durable(folder)):
        size += frame.length
        if upto > after and (size > most_bytes or frame.last - after > most_records):
            break
        upto = frame.last
    return upto


def _locate_frames(folder: Path, after: int, upto: int) -> Iterator[tuple[Path, memoryview, _SpoolFrame]]:
    """Yield the frames that have records with after < seq <= upto."""
    if upto <= after:
        return
    known = segments(folder)
    if known and known[0][0] > after + 1:
        raise NotFound(
            f"the spool in {folder} begins with record {known[0][0]}; those from {after + 1} on were retired"
        )
    reached = after
    for index, (first, path) in enumerate(known):
        if first > upto:
            break
        if index + 1 < len(known) and known[index + 1][0] <= after + 1:
            continue
        buffer = mapped(path)
        for frame in frames_in(buffer):
            if frame.last <= reached:
                continue
            if frame.first > reached + 1:
                break
            yield path, buffer, frame
            reached = frame.last
            if reached >= upto:
                return
    if durable(folder) >= upto:
        raise Damaged(f"the spool in {folder} is damaged: record {reached + 1} cannot be found; restore it from a copy")
    raise NotFound(f"the spool in {folder} has no record {reached + 1} yet; ask for those up to {durable(folder)}")


def last_record(content: bytes) -> int:
    """Return the last record number in a segment's content; 0 without a complete frame."""
    return max((frame.last for frame in frames_in(memoryview(content))), default=0)


def put_segment(folder: Path, first: int, content: bytes) -> None:
    """Put a complete segment into a spool without a writer; it may replace a shorter one."""
    with replace_atomically(folder / segment_name(first), durable=True) as partial:
        partial.write_bytes(content)
        # The mark is that of an older last segment.
        (folder / MARK_FILE).unlink(missing_ok=True)
    _synchronise(folder)


def bring_back(folder: Path, first: int, content: bytes) -> bool:
    """Put a retired segment back before the existing ones, unless records would be missing in between."""
    known = segments(folder)
    if known and last_record(content) + 1 != known[0][0]:
        return False
    put_segment(folder, first, content)
    return True


def retire(folder: Path, upto: int) -> None:
    """Remove segments whose records are all <= upto.

    The last segment is always kept, because it is being written.
    """
    known = segments(folder)
    for (_, path), (following, _) in zip(known[:-1], known[1:], strict=True):
        if following - 1 > upto:
            break
        path.unlink()
        _synchronise(folder)
