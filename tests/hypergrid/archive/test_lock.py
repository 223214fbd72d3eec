"""The lock between processes where nothing can be written: readers hold it all the same."""

import errno
import os
from pathlib import Path

import pytest

from hypergrid.archive.disk.lock import is_free, wait_for_lock


def test_the_lock_of_a_read_only_file_system_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, opened = tmp_path / "lock", os.open
    lock.touch()

    def read_only(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return opened(path, flags, mode)

    monkeypatch.setattr(os, "open", read_only)
    with wait_for_lock(lock):
        assert not is_free(lock)
    assert is_free(lock)
    with pytest.raises(OSError, match="Read-only"), wait_for_lock(tmp_path / "other"):
        pass
