"""A folder that is watched: new files and what is added to known ones go into the spool, whole lines at a time.

How far a file was read is told by the spool itself: by the newest record of the receiver's state in it, and the lines
that came after it. So there is one truth, and a receiver that is killed anywhere neither loses nor repeats a line. What
was read before is recognised by its checksum: a file that was replaced or cut is told, and read anew. What was changed
in the midst of more than `CHECKED_BYTES` while the file grew, its ends being the same, is not noticed.

What cannot be followed line by line (packed files, NetCDF, a document of JSON, text of wide characters) is handed on as
a whole, once it no longer changes.
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
from hypergrid.core.times import SECOND_NS
from ingest.deployment.deployment_file import FILE_NAME, Deployment, Feed
from ingest.formats import FORMATS, DocumentFormat, Unreadable
from ingest.formats.document_records import loads
from ingest.formats.encoding import has_lines
from ingest.formats.messages import is_lines
from ingest.sources.folder import (
    BINARY,
    HEAD_BYTES,
    HEAD_MOST_BYTES,
    LINE_MOST_BYTES,
    arrival_tables,
    discover,
    is_companion,
    layout_of_lines,
    walk,
)
from ingest.sources.spool import HEADER, REFUSED, Spool, SpoolRecord

SETTLE_S: Final = 5.0
"""A file that has not changed for so long is taken for complete [s]."""
BLOCK_BYTES: Final = 1 << 20
"""Lines that make one record at most [bytes]."""
POLL_BYTES: Final = 32 << 20
"""What one poll takes at most, but for the last record [bytes]."""
WHOLE_MOST_BYTES: Final = 32 << 20
"""A file that is handed on as a whole is no larger [bytes]."""
CHECKED_BYTES: Final = 64 << 10
"""Of a file that grows, so much of what was read is compared as a whole, and of more its ends [bytes]."""
FORGET_S: Final = 7 * 86_400.0
"""A file that is gone for so long is forgotten [s]: longer than a network drive is away. If it comes back later it is
read anew, and the archive knows its readings for duplicates."""
_END_BYTES: Final = 256
_ROWS_LEAST: Final = 3
_PACKED: Final = (".gz", ".zip")

StatKey = tuple[int, int, int]
"""Size [bytes], time of modification [ns], and number (inode) of a file."""


@dataclass(frozen=True)
class TailState:
    """How far a file was read."""

    feed: str
    offset: int = 0
    """Bytes that are in the spool, from the file's start."""
    check: int = 0
    """Their CRC-32."""
    lines: int = 0
    """Lines among them."""
    header: int = 0
    """The first of them that are above the rows [bytes]."""
    whole: bool = False
    """It was handed on as a whole."""
    half: tuple[int, int] = (0, 0)
    """Length and CRC-32 of a last line without an end that was handed on, too."""
    refused: int = -1
    """Its size when it was refused [bytes]; -1 where it was not."""
    refused_by: str = ""
    """Token of the feed that it was refused by, where that is known."""
    seen: StatKey = (-1, 0, 0)
    """What it was like when there was nothing more to read."""
    gone_ns: int = 0
    """Since when it is not in the folder [ns since 1970 UTC]; 0 where it is."""

    def advance(self, record: SpoolRecord, header: bytes) -> "TailState":
        """Return how far it is read with another record, above which a header was sent."""
        payload = record.payload
        if record.kind == REFUSED:
            return replace(self, refused=int(payload.rpartition(b"\n")[2].split()[0]), refused_by="")
        if record.position == 0:
            return TailState(record.feed, len(payload), zlib.crc32(payload), whole=True)
        above, file = header.count(b"\n"), self
        if record.position == above + 1:
            # The first row: whatever was read before was another file.
            file = TailState(record.feed, len(header), zlib.crc32(header), above, len(header))
        if not payload.endswith(b"\n"):
            return replace(file, half=(len(payload), zlib.crc32(payload)))
        offset, lines = file.offset + len(payload), file.lines + payload.count(b"\n")
        return replace(file, offset=offset, check=zlib.crc32(payload, file.check), lines=lines, half=(0, 0))


class TailStates:
    """How far each file was read, by its path from the watched folder."""

    def __init__(self) -> None:
        self.known: dict[str, TailState] = {}
        self._headers: dict[str, bytes] = {}

    def state(self) -> dict[str, Any]:
        """Return it as of what was appended to the spool."""
        return {name: asdict(file) for name, file in self.known.items()}

    def restore(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """Go on from a state that was written as JSON."""
        self.known.clear()
        for name, file in state.items():
            values: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in file.items()}
            self.known[name] = TailState(**values)

    def replay(self, record: SpoolRecord) -> None:
        """Take note of a record of a file, a header or a refusal that is in the spool, and came after the state."""
        name = record.origin
        if record.kind == HEADER:
            self._headers[name] = record.payload
        else:
            file = self.known.get(name, TailState(record.feed))
            self.known[name] = file.advance(record, self._headers.pop(name, b""))


@dataclass
class _FileStat:
    """What this process knows of a file besides."""

    status: StatKey = (-1, 0, 0)
    changed_s: float = 0.0
    """When its status became that, by the clock of `poll` [s]."""
    compared: StatKey | None = None
    """What it was like when what had been read was last compared."""
    ends: tuple[bytes, bytes] = (b"", b"")
    """How what was read begins and ends."""
    done: bool = False
    """There is nothing to do until it changes."""
    last_message: str = ""


@dataclass(frozen=True)
class PollResult:
    """What one look at the folder gave."""

    records: int
    """Appended to the spool."""
    waiting: int
    """Files that may give more without being changed: more is to be read, or it is not known that they are complete."""


@dataclass
class _FileRead:
    """One look at one file."""

    name: str
    path: Path
    stream: BinaryIO
    feed: Feed
    settled: bool
    """It has not changed for long enough to be complete."""
    final: bool
    """There comes no more: a last line needs no end."""
    room: int
    """What may be taken at most [bytes]."""
    records: list[SpoolRecord]


class WatchedFolder:
    """Follows the files of a folder that feeds read.

    Parameters
    ----------
    files
        How far they were read; kept up to date.
    tell
        Is told what people should know, in one sentence.
    exclude
        A folder within that is left out: the archive.
    settle_s
        A file that has not changed for so long is taken for complete [s].
    now_ns
        The clock that tells arrivals [ns since 1970 UTC].
    """

    def __init__(
        self,
        folder: Path,
        deployment: Deployment,
        files: TailStates,
        *,
        notify: Callable[[str], None],
        exclude: Path | None = None,
        settle_s: float = SETTLE_S,
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self.folder, self._notify, self._exclude = folder, notify, exclude
        self._settle_s, self._now_ns = settle_s, now_ns
        self._files = files.known
        self._seen: dict[str, _FileStat] = {}
        self._missing = False
        self._deployment, self._tables = deployment, arrival_tables(deployment)
        self._tokens = {feed.name: feed.token() for feed in deployment.feeds}
        self._feeds: dict[str, Feed | None] = {}

    def poll(self, spool: Spool, now_s: float, *, final: bool = False) -> PollResult:
        """Append what is new to the spool, which is not flushed.

        Parameters
        ----------
        now_s
            A clock that only goes forward [s].
        final
            There comes no more: files are complete as they are, and a last line needs no end. It is appended again once
            it has one.
        """
        if not self._is_there():
            return PollResult(0, 1)
        records = waiting = size = 0
        present_names: set[str] = set()
        for _, path in walk([self.folder], self._exclude):
            # A name that is no text cannot be kept: its bytes are shown.
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
                settled = final or now_s - seen.changed_s >= self._settle_s
                with path.open("rb") as stream:
                    look = _FileRead(name, path, stream, feed, settled, final, POLL_BYTES - size, [])
                    waiting += self._read_file(look, seen, spool)
            except (FileNotFoundError, NotFound):
                # It vanished since it was listed.
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
        plain = path.name[:-3] if path.name.lower().endswith(".gz") else path.name
        feeds = [feed for feed in self._deployment.feeds if feed.files]
        if path.suffix.lower() == ".zip":
            # Which feed reads it is told by what is in it, once it is complete.
            return feeds[0] if feeds else None
        return next((feed for feed in feeds if fnmatchcase(plain, feed.files)), None)

    def _read_file(self, look: _FileRead, seen: _FileStat, spool: Spool) -> bool:
        """Append what is new in a file, and return whether there may be more without a change."""
        status = _status(os.fstat(look.stream.fileno()))
        file = self._files.get(look.name, TailState(look.feed.name))
        if file.feed != look.feed.name and not file.whole:
            file = TailState(look.feed.name)
        token = self._tokens[look.feed.name]
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
        # Not before: where a segment begins, the spool asks for the state without these records.
        seen.compared = status
        seen.ends = _ends(look.stream, file.offset)
        seen.done = look.settled and not more
        self._files[look.name] = replace(file, seen=status) if seen.done else file
        return not seen.done

    def _is_same(self, look: _FileRead, file: TailState, seen: _FileStat, status: StatKey) -> bool:
        """Tell whether what was read of a file is still there; people are told if not."""
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
        """Take a file as a whole, or its next lines; return whether there may be more without a change.

        Raises
        ------
        Unreadable
            It cannot be followed.
        """
        if file.offset:
            return not file.whole and self._lines(look, file, _read_at(look.stream, 0, file.header))
        head, form = _head(look.stream), FORMATS[look.feed.format]
        packed = look.path.suffix.lower() in _PACKED
        # A return at the end may be the first half of the end of a line.
        if packed or not has_lines(head.removesuffix(b"\r"), look.feed.options.text.encoding):
            return self._whole(look, file)
        if isinstance(form, DocumentFormat):
            lines = form.name == "messages" and (_is_message(head) or (look.settled and _has_messages(look.path, head)))
            return self._lines(look, file, b"") if lines else self._whole(look, file)
        whole = head if look.final else head[: head.rfind(b"\n") + 1]
        if not whole:
            if len(head) >= HEAD_MOST_BYTES:
                message = f"{BINARY}: no end of line within {len(head)} bytes"
                raise Unreadable(message)
            return False
        enough = look.settled or len(head) >= HEAD_BYTES
        try:
            layout = layout_of_lines(whole, look.path.name, look.feed, form)
        except Unreadable:
            if enough:
                raise
            return True
        if not enough and whole.count(b"\n", layout.data_start) < _ROWS_LEAST:
            # The first rows tell what the header is.
            return True
        return self._lines(look, file, head[: layout.data_start])

    def _lines(self, look: _FileRead, file: TailState, header: bytes) -> bool:
        """Take whole lines, each block after the header that it needs."""
        line_number, offset, taken = (file.lines or header.count(b"\n")) + 1, file.offset or len(header), 0
        while block := _read_at(look.stream, offset, BLOCK_BYTES):
            stop = block.rfind(b"\n") + 1
            if not stop and len(block) >= LINE_MOST_BYTES:
                message = f"{BINARY}: no end of line within {LINE_MOST_BYTES} bytes from byte {offset}"
                raise Unreadable(message)
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
        """Take a file once it is complete."""
        if not look.settled:
            return True
        size, feed = os.fstat(look.stream.fileno()).st_size, file.feed
        if look.path.suffix.lower() == ".zip":
            files = discover([look.path], self._deployment).files
            if not files:
                return False
            feed = files[0].feed
        if size > WHOLE_MOST_BYTES:
            message = (
                f"too large: {size} bytes in a file that has to be taken as a whole, of at most {WHOLE_MOST_BYTES}; "
                "'hypergrid ingest' reads it"
            )
            raise Unreadable(message)
        look.records.append(SpoolRecord(self._now_ns(), feed, look.name, _read_at(look.stream, 0, size)))
        return False

    def _forget(self, present_names: set[str]) -> None:
        """Note which files are gone from the folder and which are back, and forget those that are gone for long."""
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
    """Return how the first bytes of a file begin and end."""
    size = min(offset, _END_BYTES)
    return _read_at(stream, 0, size), _read_at(stream, offset - size, size)


def _check_of(stream: BinaryIO, size: int) -> int:
    """Return the CRC-32 of the first bytes of a file."""
    stream.seek(0)
    check, left = 0, size
    while left and (block := stream.read(min(left, BLOCK_BYTES))):
        check, left = zlib.crc32(block, check), left - len(block)
    return check


def _head(stream: BinaryIO) -> bytes:
    """Return the first bytes of a file: enough for its first lines."""
    head = _read_at(stream, 0, HEAD_BYTES)
    while head.count(b"\n") < _ROWS_LEAST and len(head) < HEAD_MOST_BYTES and (more := stream.read(HEAD_BYTES)):
        head += more
    return head


def _is_message(head: bytes) -> bool:
    """Tell whether the first line is whole, and a message."""
    first, end, _ = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        return bool(end) and isinstance(loads(first), dict)
    except ValueError:
        return False


def _has_messages(path: Path, head: bytes) -> bool:
    """Tell whether lines are messages, of a file whose first line is damaged, or has no end yet."""
    is_single_line = b"\n" not in head and not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")
    return is_single_line or is_lines(path)
