"""The audit log: who changed what and when, a line of JSON each, in a file that is only ever appended to.

Each line begins with the checksum of its rest; lines of older programs have none.
"""

import errno
import os
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.row_checksums import format_checked_line
from hypergrid.core.times import format_instant

FILE: Final = "audit.jsonl"


class Audit:
    """Appends to one file, made for its owner alone to read.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, *, now_ns: int, label: str, what: str, **more: str | int) -> None:
        """Append what somebody did, in one write: lines of several processes never mix.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        line = format_checked_line({"time": format_instant(now_ns), "who": label, "what": what, **more})
        data = f"{line}\n".encode("ascii")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(handle, data)
            if written < len(data):
                # A disk that is full took a part, and the next line must not begin within it.
                os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR) - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            # A first line that did not fit leaves no empty file, which would count as an emptied one.
            if not os.fstat(handle).st_size:
                self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
