"""A lock between processes, which the kernel frees when its holder dies."""

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
    """Hold the lock of a folder or of a file (made where it is missing) inside the context; wait until it is free.

    On a read-only file system, which others may write to elsewhere, the lock is held of a file that is there.
    It also keeps out other threads of this process, and this thread: a second one inside the first never begins.
    `on_wait` is called once where somebody else holds it.

    Raises
    ------
    FileNotFoundError
        The folder that the file lies in is missing, or was removed during the wait.
    HyperGridError
        This system has no `flock`; archives can be read on it, but not written.
    """
    if sys.platform == "win32":
        message = f"writing {path.parent} needs flock, which this system lacks; write archives on Linux or macOS"
        raise HyperGridError(message)
    flags = os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT
    descriptor = _open_file(path, flags)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Who held it may have removed the file: then this lock is nobody's, and the one that is there now counts.
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
    """Hold the lock of a file (made where it is missing) inside the context; refuse at once where somebody else does.

    What `holder` says of this process is written into the file, for those who are refused.

    Raises
    ------
    ArchiveConflict
        Somebody holds it; the message is what that one's `holder` says.
    HyperGridError
        This system has no `flock`.
    """
    if sys.platform == "win32":
        message = f"holding {path} needs flock, which this system lacks; use Linux or macOS"
        raise HyperGridError(message)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder_text = os.pread(descriptor, 1000, 0).decode(errors="replace").strip()
            raise ArchiveConflict(holder_text or "another process") from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, holder.encode(), 0)
        yield
    finally:
        os.close(descriptor)


def is_free(path: Path) -> bool:
    """Return whether nobody holds the lock of a file; it is not kept."""
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
        return os.open(path, os.O_RDONLY)


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
