"""A line of JSON for each request; and where the records of a server go."""

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from hypergrid.cli.console import escape_invisible
from hypergrid.core.times import format_instant
from queries.web.middleware.request_limits import AccessLogEntry


class _Utc(logging.Formatter):
    """Begins each record with its time, in UTC, and its level; what a terminal would obey is shown, not sent."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the lines of a record."""
        return escape_invisible(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Return the time of a record; a format is not taken."""
        _ = datefmt
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def log_to_stderr() -> None:
    """Have records of level WARNING and above written to standard error, each with its time (UTC) and level."""
    logging.basicConfig(level=logging.WARNING, handlers=[stderr_handler()])


def stderr_handler() -> logging.Handler:
    """Return what writes the records of a server to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Utc("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


class RequestLog:
    """Writes a line for each request that is over; what it holds is what `Served` holds, so no secret.

    Parameters
    ----------
    place
        A file, appended to, or "-": standard error.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(self, target: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock = None if target == "-" else Path(target), clock
        self._lock = threading.Lock()

    def write_entry(self, entry: AccessLogEntry) -> None:
        """Write a line; a disk that is full ends no request."""
        fields = {**asdict(entry), "seconds": round(entry.seconds, 6)}
        # Text that a client chose is escaped, so that it is one line whatever it holds.
        line = json.dumps({"time": format_instant(self._clock()), **fields}, ensure_ascii=True)
        with self._lock:
            try:
                if self._path is None:
                    print(line, file=sys.stderr, flush=True)
                else:
                    # Opened anew each time, so that it can be moved away.
                    with self._path.open("a", encoding="ascii") as file:
                        file.write(f"{line}\n")
            except OSError:
                pass
