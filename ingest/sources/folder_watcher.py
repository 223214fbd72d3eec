"""Folder watcher: appends new files, and new lines of known files, to the spool.

The read position of each file is stored in the spool itself: in the newest state record of the receiver, and the line
records after it. With this single source of truth, a receiver that is killed at any time neither loses nor repeats a
line. Content that was read before is recognised by its checksum: a file that was replaced or truncated is reported and
read again. A change in the middle of more than `CHECKED_BYTES` known bytes of a growing file, whose ends are the same,
is not detected.

Files that cannot be followed line by line (compressed files, NetCDF, JSON documents, text of wide characters) are
appended as a whole once they no longer change.
"""

import os
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, BinaryIO, Final

from hypergrid.core.errors import NotFound
from hypergrid.core.times import SECOND_NS, floor_to_microsecond
from ingest.deployment.deployment_file import FILE_NAME, Deployment, Feed
from ingest.formats import FORMATS, DocumentFormat, Unreadable
from ingest.formats.csv_sniffer import has_lines
from ingest.formats.document_records import loads
from ingest.formats.messages import is_lines
from ingest.sources.folder import (
    BINARY,
    HEAD_BYTES,
    HEAD_MOST_BYTES,
    LINE_MOST_BYTES,
    discover,
    is_companion,
    is_packed,
    is_single_packed,
    layout_of_lines,
    read_first_lines,
    walk,
)
from ingest.sources.spool import HEADER, REFUSED, Spool, SpoolRecord

SETTLE_S: Final = 5.0
"""A file that has not changed for this long is assumed to be complete [s]."""
BLOCK_BYTES: Final = 1 << 20
"""Maximum length of the lines in one record [bytes]."""
POLL_BYTES: Final = 32 << 20
"""Maximum size of one poll, except for the last record [bytes]."""
WHOLE_MOST_BYTES: Final = 32 << 20
"""Maximum size of a file that is appended as a whole [bytes]."""
CHECKED_BYTES: Final = 64 << 10
"""Known bytes of a growing file up to which all are compared, not only the ends [bytes]."""
# Longer than a network drive is away. If the file returns later, it is read again, and the archive recognises its
# readings as duplicates.
FORGET_S: Final = 7 * 86_400.0
"""Time after which a missing file is forgotten [s]."""

StatKey = tuple[int, int, int]
"""Size [bytes], modification time [ns], and inode number of a file."""


@dataclass(frozen=True)
class TailState:
    """Read position of a file."""

    feed: str
    offset: int = 0
    """Number of bytes from the file's start that are in the spool."""
    check: int = 0
    """CRC-32 of these bytes."""
    lines: int = 0
    """Number of lines in these bytes."""
    header: int = 0
    """Length of the header above the rows [bytes]."""
    whole: bool = False
    """Whether the file was appended as a whole."""
    half: tuple[int, int] = (0, 0)
    """Length and CRC-32 of an unterminated last line that was appended, too."""
    refused: int = -1
    """Size when the file was refused [bytes]; -1 if it was not."""
    refused_by: str = ""
    """Token of the feed that refused the file, if known."""
    seen: StatKey = (-1, 0, 0)
    """Status when there was nothing more to read."""
    gone_ns: int = 0
    """Time since which the file is missing in the folder [ns since 1970 UTC]; 0 if present."""

    def advance(self, record: SpoolRecord, header: bytes) -> "TailState":
        """Return the position after another record, which follows `header`."""
        payload = record.payload
        if record.kind == REFUSED:
            return replace(self, refused=int(payload.rpartition(b"\n")[2].split()[0]), refused_by="")
        if record.position == 0:
            return TailState(record.feed, len(payload), zlib.crc32(payload), whole=True)
        above, file = header.count(b"\n"), self
        if record.position == above + 1:
            # The first row: bytes read before belong to another file.
            file = TailState(record.feed, len(header), zlib.crc32(header), above, len(header))
        if not payload.endswith(b"\n"):
            return replace(file, half=(len(payload), zlib.crc32(payload)))
        offset, lines = file.offset + len(payload), file.lines + payload.count(b"\n")
        return replace(file, offset=offset, check=zlib.crc32(payload, file.check), lines=lines, half=(0, 0))


class TailStates:
    """Read positions of all files, by path relative to the watched folder."""

    def __init__(self) -> None:
        self.known: dict[str, TailState] = {}
        self._headers: dict[str, bytes] = {}

    def state(self) -> dict[str, Any]:
        """Return the positions up to the last append to the spool, as plain values."""
        return {name: asdict(file) for name, file in self.known.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore a state that was written as JSON."""
        self.known.clear()
        for name, file in state.items():
            values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in file.items()}
            self.known[name] = TailState(**values)

    def replay(self, record: SpoolRecord) -> None:
        """Apply a record of a file, header or refusal that follows the state in the spool."""
        name = record.origin
        if record.kind == HEADER:
            self._headers[name] = record.payload
        else:
            file = self.known.get(name, TailState(record.feed))
            self.known[name] = file.advance(record, self._headers.pop(name, b""))


@dataclass
class _FileStat:
    """Status of a file that is kept in this process only."""

    status: StatKey = (-1, 0, 0)
    changed_s: float = 0.0
    """When the status changed last, by the clock of `poll` [s]."""
    compared: StatKey | None = None
    """Status when the known bytes were last compared."""
    ends: tuple[bytes, bytes] = (b"", b"")
    """First and last of the known bytes."""
    done: bool = False
    """Whether nothing is to be done until the file changes."""
    last_message: str = ""


@dataclass(frozen=True)
class PollResult:
    """Result of one poll of the folder."""

    records: int
    """Number of records appended to the spool."""
    waiting: int
    """Number of files with unread lines, or that may be incomplete."""


@dataclass
class _FileRead:
    """One read of one file."""

    name: str
    path: Path
    stream: BinaryIO
    feed: Feed
    settled: bool
    """Whether it has not changed for long enough to be complete."""
    final: bool
    """Whether no more input follows: a last line needs no line end."""
    room: int
    """Maximum number of bytes to take."""
    records: list[SpoolRecord]


class WatchedFolder:
    """Follows those files of a folder that match a feed.

    Parameters
    ----------
    files
        Read positions, which are updated.
    notify
        Receives messages for the user, of one sentence each.
    exclude
        Subfolder to skip: the archive.
    now_ns
        Clock for arrival times [ns since 1970 UTC], of which whole microseconds are taken.
    """

    def __init__(
        self,
        folder: Path,
        deployment: Deployment,
        files: TailStates,
        *,
        notify: Callable[[str], None],
        exclude: Path | None = None,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder, self._notify, self._exclude = folder, notify, exclude
        self._now_ns = lambda: floor_to_microsecond(now_ns())
        self._files = files.known
        self._seen: dict[str, _FileStat] = {}
        self._missing = False
        self._deployment, self._tables = deployment, {path.resolve() for path in deployment.tables}
        self._tokens = {feed.name: feed.token() for feed in deployment.feeds}
        self._feeds: dict[str, Feed | None] = {}

    def poll(self, spool: Spool, now_s: float, *, final: bool = False) -> PollResult:
        """Append new content to the spool, without flushing it.

        Parameters
        ----------
        now_s
            Monotonic clock [s].
        final
            No more input follows: files are complete as they are, and a last line needs no line end. The line is
            appended again once it has one.
        """
        if not self._is_there():
            return PollResult(0, 1)
        records = waiting = size = 0
        present_names: set[str] = set()
        for _, path in walk([self.folder], self._exclude):
            # Names that are not valid UTF-8 cannot be stored: their bytes are escaped.
            name = os.fsencode(path.relative_to(self.folder).as_posix()).decode("utf-8", "backslashreplace")
            present_names.add(name)
            feed = self._feed_of(name, path)
            if feed is None:
                continue
            seen = self._seen.setdefault(name, _FileStat())
            settled = final
            try:
                status = _status(os.stat(path))
                if status != seen.status:
                    seen.status, seen.changed_s, seen.done, seen.last_message = status, now_s, False, ""
                if (seen.done and not final) or not status[0]:
                    continue
                if size >= POLL_BYTES:
                    waiting += 1
                    continue
                settled = final or now_s - seen.changed_s >= SETTLE_S
                with path.open("rb") as stream:
                    look = _FileRead(name, path, stream, feed, settled, final, POLL_BYTES - size, [])
                    waiting += self._read_file(look, seen, spool)
            except (FileNotFoundError, NotFound):
                # It was deleted after it was listed.
                continue
            except OSError as error:
                waiting += not settled
                if not seen.last_message:
                    seen.last_message = f"{name} cannot be read: {error.strerror}"
                    self._notify(f"{seen.last_message}; we try again")
                continue
            records += len(look.records)
            size += sum(len(record.payload) for record in look.records)
        self._forget(present_names)
        return PollResult(records, waiting)

    def _is_there(self) -> bool:
        there = self.folder.is_dir()
        if there == self._missing:
            self._notify(
                f"the watched folder {self.folder} is {'there again' if there else 'not there; we wait for it'}"
            )
        self._missing = not there
        return there

    def _feed_of(self, name: str, path: Path) -> Feed | None:
        if name not in self._feeds:
            self._feeds[name] = self._infer_feed(path)
        return self._feeds[name]

    def _infer_feed(self, path: Path) -> Feed | None:
        if path.name == FILE_NAME or path.resolve() in self._tables or is_companion(path, self._deployment):
            return None
        plain = path.name[:-3] if is_single_packed(path.name) else path.name
        feeds = [feed for feed in self._deployment.feeds if feed.files]
        if is_packed(path.name) and not is_single_packed(path.name):
            # The feed is determined from its members once it is complete.
            return feeds[0] if feeds else None
        return next((feed for feed in feeds if fnmatchcase(plain, feed.files)), None)

    def _read_file(self, look: _FileRead, seen: _FileStat, spool: Spool) -> bool:
        """Append new content of a file; return whether there may be more without a change."""
        status = _status(os.fstat(look.stream.fileno()))
        file = self._files.get(look.name, TailState(look.feed.name))
        if file.feed != look.feed.name and not file.whole:
            file = TailState(look.feed.name)
        token = self._tokens[look.feed.name]
        # A changed feed may accept a file that was refused before.
        if file.refused == status[0] and file.refused_by in (token, ""):
            seen.done = True
            return False
        if not self._is_same(look, file, seen, status):
            file = TailState(look.feed.name)
        file, more = replace(file, refused=-1, refused_by=""), False
        try:
            more = self._read(look, file)
        except Unreadable as error:
            text = f"{error}\n{status[0]} bytes".encode()
            look.records.append(SpoolRecord(self._now_ns(), look.feed.name, look.name, text, 0, REFUSED))
            self._notify(f"{look.name} is refused: {error}")
        if look.records:
            spool.append(look.records)
        header = b""
        for record in look.records:
            if record.kind != HEADER:
                file = file.advance(record, header)
            header = record.payload if record.kind == HEADER else b""
        if file.refused >= 0:
            file = replace(file, refused_by=token)
        # Only after append: at the start of a segment, the spool requests the state without these records.
        seen.compared = status
        seen.ends = _ends(look.stream, file.offset)
        seen.done = look.settled and not more
        self._files[look.name] = replace(file, seen=status) if seen.done else file
        return not seen.done

    def _is_same(self, look: _FileRead, file: TailState, seen: _FileStat, status: StatKey) -> bool:
        """Return whether the known bytes are still there; the user is notified if not."""
        size, before = status[0], seen.compared
        if not file.offset or status in (before, file.seen):
            return True
        if size < file.offset or (file.whole and size != file.offset):
            what = f"has {size} bytes, of which {file.offset} had been read"
        else:
            grew = before is not None and before[2] == status[2] and size > before[0] and not file.whole
            if grew and file.offset > CHECKED_BYTES:
                same = _ends(look.stream, file.offset) == seen.ends
            else:
                same = _check_of(look.stream, file.offset) == file.check
            if same:
                return True
            what = f"begins otherwise than the {file.offset} bytes that had been read"
        self._notify(f"{look.name} was replaced: it {what}; it is read anew")
        return False

    def _read(self, look: _FileRead, file: TailState) -> bool:
        """Read a file or its next lines; return whether there may be more.

        Raises
        ------
        Unreadable
            It cannot be followed.
        """
        if file.offset:
            return not file.whole and self._lines(look, file, _read_at(look.stream, 0, file.header))
        look.stream.seek(0)
        head, form = read_first_lines(look.stream), FORMATS[look.feed.format]
        packed = is_packed(look.path.name)
        # A final carriage return may be the first half of a line end.
        if packed or not has_lines(head.removesuffix(b"\r"), look.feed.options.text.encoding):
            return self._whole(look, file)
        if isinstance(form, DocumentFormat):
            lines = form.name == "messages" and (_is_message(head) or (look.settled and _has_messages(look.path, head)))
            return self._lines(look, file, b"") if lines else self._whole(look, file)
        whole = head if look.final else head[: head.rfind(b"\n") + 1]
        if not whole:
            if len(head) >= HEAD_MOST_BYTES:
                raise Unreadable(f"{BINARY}: no end of line within {len(head)} bytes")
            return False
        enough = look.settled or len(head) >= HEAD_BYTES
        try:
            layout = layout_of_lines(whole, look.path.name, look.feed, form)
        except Unreadable:
            if enough:
                raise
            return True
        if not enough and whole.count(b"\n", layout.data_start) < 3:
            # The header can only be recognised with the first rows.
            return True
        return self._lines(look, file, head[: layout.data_start])

    def _lines(self, look: _FileRead, file: TailState, header: bytes) -> bool:
        """Take whole lines, each block after a copy of the file's header."""
        line_number, offset, taken = (file.lines or header.count(b"\n")) + 1, file.offset or len(header), 0
        while block := _read_at(look.stream, offset, BLOCK_BYTES):
            stop = block.rfind(b"\n") + 1
            if not stop and len(block) >= LINE_MOST_BYTES:
                raise Unreadable(f"{BINARY}: no end of line within {LINE_MOST_BYTES} bytes from byte {offset}")
            # An unterminated last line is appended once, even if the file is polled again.
            if not stop and look.final and file.half != (len(block), zlib.crc32(block)):
                stop = len(block)
            if not stop:
                break
            if taken >= look.room:
                return True
            arrival, lines = self._now_ns(), block[:stop]
            if header:
                look.records.append(SpoolRecord(arrival, file.feed, look.name, header, 0, HEADER))
            look.records.append(SpoolRecord(arrival, file.feed, look.name, lines, line_number))
            line_number, offset, taken = line_number + lines.count(b"\n"), offset + stop, taken + stop
        return False

    def _whole(self, look: _FileRead, file: TailState) -> bool:
        """Take a file as a whole once it is complete."""
        if not look.settled:
            return True
        size, feed = os.fstat(look.stream.fileno()).st_size, file.feed
        if look.path.suffix.lower() == ".zip":
            files = discover([look.path], self._deployment).files
            if not files:
                return False
            feed = files[0].feed
        if size > WHOLE_MOST_BYTES:
            raise Unreadable(
                f"too large: {size} bytes in a file that has to be taken as a whole, of at most {WHOLE_MOST_BYTES}; "
                "'hypergrid ingest' reads it"
            )
        look.records.append(SpoolRecord(self._now_ns(), feed, look.name, _read_at(look.stream, 0, size)))
        return False

    def _forget(self, present_names: set[str]) -> None:
        """Record which files are missing or back, and forget those that are missing for too long."""
        now_ns = self._now_ns()
        for name, file in list(self._files.items()):
            if name in present_names:
                if file.gone_ns:
                    self._files[name] = replace(file, gone_ns=0)
            elif not file.gone_ns:
                self._files[name] = replace(file, gone_ns=now_ns)
            elif now_ns - file.gone_ns > FORGET_S * SECOND_NS:
                self._files.pop(name)
        for name in (self._seen.keys() | self._feeds.keys()) - self._files.keys() - present_names:
            self._seen.pop(name, None)
            self._feeds.pop(name, None)


def _status(facts: os.stat_result) -> StatKey:
    return facts.st_size, facts.st_mtime_ns, facts.st_ino


def _read_at(stream: BinaryIO, offset: int, size: int) -> bytes:
    stream.seek(offset)
    return stream.read(size)


def _ends(stream: BinaryIO, offset: int) -> tuple[bytes, bytes]:
    """Return the first and the last of the known bytes of a file."""
    size = min(offset, 256)
    return _read_at(stream, 0, size), _read_at(stream, offset - size, size)


def _check_of(stream: BinaryIO, size: int) -> int:
    """Return the CRC-32 of the first `size` bytes of a file."""
    stream.seek(0)
    check, left = 0, size
    while left and (block := stream.read(min(left, BLOCK_BYTES))):
        check, left = zlib.crc32(block, check), left - len(block)
    return check


def _is_message(head: bytes) -> bool:
    """Return whether the first line is complete and a message."""
    first, end, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        return bool(end) and isinstance(loads(first), dict)
    except ValueError:
        return False


def _has_messages(path: Path, head: bytes) -> bool:
    """Return whether lines are messages, if the first line is damaged or unterminated."""
    is_single_line = b"\n" not in head and not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    return is_single_line or is_lines(path)
