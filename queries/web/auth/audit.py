"""Audit log: append-only JSON lines with time, caller and action.

Each line begins with a checksum of the rest; lines of older versions have none.
"""

import errno
import os
from pathlib import Path
from typing import Final

from hypergrid.archive.disk.row_checksums import format_checked_line
from hypergrid.core.times import format_instant

FILE: Final = "audit.jsonl"


class Audit:
    """Appends to one file, created readable only by its owner.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, *, now_ns: int, label: str, what: str, **more: str | int) -> None:
        """Append an action as one line.

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
            # A single write in append mode, so that lines of several processes never mix.
            written = os.write(handle, data)
            if written < len(data):
                # A full disk took only a part: truncate it, as the next line must start on its own.
                os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR) - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            # If the first line did not fit, remove the file: an empty one would count as a log that was emptied.
            if not os.fstat(handle).st_size:
                self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
