"""Interprocess lock that the kernel releases when its holder dies."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hypergrid.core.errors import ArchiveConflict, HyperGridError

if sys.platform != "win32":
    import fcntl


@contextmanager
def wait_for_lock(path: Path, *, on_wait: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Hold the lock of a folder or (created if missing) file; waits if held.

    On a read-only file system, which other machines may write to, an existing file is locked. The lock excludes other
    threads of this process as well, and is not reentrant: nesting it in one thread deadlocks. `on_wait` is called once
    if another holder must be waited for.

    Raises
    ------
    FileNotFoundError
        The folder of the file is missing or was removed during the wait.
    HyperGridError
        This system has no `flock`; it can read archives but not write them.
    """
    if sys.platform == "win32":
        raise HyperGridError(
            f"writing {path.parent} needs flock, which this system lacks; write archives on Linux or macOS"
        )
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = _open_file(path, flags)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # The previous holder may have removed the file: then this lock protects nothing, and the current file must be
        # locked.
        while not _is_at(path, descriptor):
            renewed = _open_file(path, flags)
            os.close(descriptor)
            descriptor = renewed
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def try_lock(path: Path, holder: str) -> Iterator[None]:
    """Hold the lock of a file (created if missing); raises if already held.

    `holder` describes this process; it is written into the file for the error of a process that is refused.

    Raises
    ------
    ArchiveConflict
        The lock is held; the message is the `holder` text of the process that holds it.
    HyperGridError
        This system has no `flock`.
    """
    with _hold(path, otherwise="another process") as descriptor:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield


@contextmanager
def lock_for_child(path: Path) -> Iterator[int]:
    """Hold the lock of a file for a process started in the context; yield the descriptor to pass to it.

    The child inherits the lock with the descriptor, and holds it until it ends in whatever way.

    Raises
    ------
    ArchiveConflict
        The lock is held.
    HyperGridError
        This system has no `flock`.
    """
    with _hold(path, otherwise=f"another process holds {path}") as descriptor:
        yield descriptor


@contextmanager
def _hold(path: Path, *, otherwise: str) -> Iterator[int]:
    """Hold the lock of a file (created if missing), and yield its descriptor.

    Raises
    ------
    ArchiveConflict
        The lock is held; the message is what its holder wrote into the file, or `otherwise`.
    HyperGridError
        This system has no `flock`.
    """
    if sys.platform == "win32":
        raise HyperGridError(f"holding {path} needs flock, which this system lacks; use Linux or macOS")
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder_text = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
            raise ArchiveConflict(holder_text or otherwise) from error
        yield descriptor
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """Return whether the lock of a file is free, without keeping it."""
    if sys.platform == "win32" or not path.exists():
        return True
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open_file(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags, 0o644)
    except OSError as error:
        if error.errno not in (errno.EROFS, errno.EACCES) or not path.is_file():
            raise
        # Read-only file system: lock the existing file.
        return os.open(path, os.O_RDONLY)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
