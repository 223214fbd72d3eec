"""Segments of sorted tuples: Arrow files in a folder that is removed at the end.

A snapshot of a join references its segments without copying them. Segments named by the last snapshot therefore stay
until the next one, and the folder stays if a join ends without `finish`. A resumed join has a folder of its own with
hard links to these segments, so the two joins cannot disturb each other; the old folder is removed once it is unused.
"""

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join.spilling.runs import TupleColumns

PREFIX = "hypergrid-join-"
OWNER, NAMED = "owner", "named"
"""Files in a folder: a lock held while its join lives, and a mark that a snapshot names segments of it."""
IO_WEIGHT = 0.2
"""Weight of the newest segment in the moving averages of write and read time."""


class Segments:
    """A folder of segments, and its disk statistics.

    Parameters
    ----------
    parent
        Parent of the folder; None: the system's folder for temporary files.
    seconds
        Clock for measuring disk time [s].
    """

    def __init__(self, parent: str | os.PathLike[str] | None, seconds: Callable[[], float] = time.perf_counter) -> None:
        # The first array that Arrow makes of numpy's loads pandas, which would count as time of the disk.
        pa.array(np.empty(0))
        self._seconds = seconds
        try:
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        except OSError as error:
            raise InvalidQuery(
                f"a join that spills needs a folder to write to; {parent or tempfile.gettempdir()}: {error.strerror}"
            ) from error
        # Locked before it gets its name, so that no other join finds an unlocked owner and removes the folder.
        owner = os.open(self.folder / f"{OWNER}.new", os.O_CREAT | os.O_RDWR)
        fcntl.flock(owner, fcntl.LOCK_EX)
        (self.folder / f"{OWNER}.new").rename(self.folder / OWNER)
        self._is_named: set[str] = set()
        self._old_folder: Path | None = None
        self._sizes: dict[str, int] = {}
        self._unsynced: set[str] = set()
        self._count = 0
        self._write_s = self._read_s = 0.0
        self.io_s = 0.0
        """Total disk time [s]."""
        self.written = 0
        """Number of segments written so far."""
        # Also runs for a join that is dropped without `finish`.
        self._end = weakref.finalize(self, _leave_folder, self.folder, owner, self._is_named)
        _sweep_orphans(self.folder.parent)

    @property
    def segment_s(self) -> float:
        """Moving average of the time to write and read a segment [s]; 0 before the first."""
        return self._write_s + self._read_s

    @property
    def disk_bytes(self) -> int:
        return sum(self._sizes.values())

    def __len__(self) -> int:
        return len(self._sizes)

    def write(self, columns: TupleColumns) -> str:
        """Write tuples to a new segment; return its name.

        Raises
        ------
        OSError
            The segment could not be written; no partial file stays.
        """
        start = self._seconds()
        name = f"{self._count:08d}.arrow"
        path = self.folder / name
        batch = pa.record_batch([pa.array(column) for column in columns], names=list(TupleColumns._fields))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        content = sink.getvalue()
        try:
            path.write_bytes(content)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        self._count += 1
        self.written += 1
        self._sizes[name] = content.size
        self._unsynced.add(name)
        took = self._seconds() - start
        self.io_s += took
        self._write_s += IO_WEIGHT * (took - self._write_s) if self._write_s else took
        return name

    def read(self, name: str) -> TupleColumns:
        """Read a segment without removing it."""
        start = self._seconds()
        with pa.OSFile(str(self.folder / name)) as source:
            table = pa.ipc.open_file(source).get_batch(0)
            columns = TupleColumns(*(np.array(table.column(column), copy=True) for column in TupleColumns._fields))
        took = self._seconds() - start
        self.io_s += took
        self._read_s += IO_WEIGHT * (took - self._read_s) if self._read_s else took
        return columns

    def drop(self, name: str) -> None:
        """Drop a segment; its file stays if the last snapshot names it."""
        del self._sizes[name]
        self._unsynced.discard(name)
        if name not in self._is_named:
            (self.folder / name).unlink()

    def name_segments(self) -> None:
        """Sync live segments to disk for a snapshot; remove those that only the previous one names."""
        # A power cut must not lose segments that a snapshot names.
        for name in self._unsynced:
            descriptor = os.open(self.folder / name, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        self._unsynced.clear()
        (self.folder / NAMED).touch()
        for name in self._is_named - self._sizes.keys():
            (self.folder / name).unlink(missing_ok=True)
        self._is_named.clear()
        self._is_named.update(self._sizes)
        self._forget_old_folder()

    def adopt(self, folder: Path, names: Iterable[str]) -> None:
        """Take over a snapshot's segments from the folder of the join that made it.

        Raises
        ------
        InvalidQuery
            A segment is missing.
        """
        for name in names:
            try:
                os.link(folder / name, self.folder / name)
            except FileNotFoundError as error:
                raise InvalidQuery(
                    f"a join can be resumed only with the segments that its snapshot names; {folder / name} is gone: "
                    "resume from the newest snapshot, on the machine that made it"
                ) from error
            except OSError:
                # The file system has no hard links, or the folders are on different ones.
                shutil.copyfile(folder / name, self.folder / name)
            self._sizes[name] = (self.folder / name).stat().st_size
            self._count = max(self._count, int(name.split(".")[0]) + 1)
        self._old_folder = folder

    def close(self) -> None:
        """Remove the folder, and that of the join it was resumed from."""
        self._is_named.clear()
        self._sizes.clear()
        self._forget_old_folder()
        self._end()

    def _forget_old_folder(self) -> None:
        if self._old_folder is not None and _is_abandoned(self._old_folder):
            shutil.rmtree(self._old_folder, ignore_errors=True)
        self._old_folder = None


def _leave_folder(folder: Path, owner: int, named: set[str]) -> None:
    if not named:
        shutil.rmtree(folder, ignore_errors=True)
    os.close(owner)


def _is_abandoned(folder: Path) -> bool:
    """Tell whether no process holds the lock of a folder."""
    try:
        descriptor = os.open(folder / OWNER, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def _sweep_orphans(parent: Path) -> None:
    """Remove the folders of joins that were killed before a snapshot named their segments."""
    for folder in parent.glob(f"{PREFIX}*"):
        if not (folder / NAMED).exists() and _is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
