"""Request log as JSON lines, and log formatting of the server."""

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
    """Prefixes records with UTC time and level, and escapes control characters for terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_invisible(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """Format the time of a record, ignoring `datefmt`."""
        _ = datefmt
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def log_to_stderr() -> None:
    """Log records of level WARNING and above to standard error, with time (UTC) and level."""
    logging.basicConfig(level=logging.WARNING, handlers=[stderr_handler()])


def stderr_handler() -> logging.Handler:
    """Make the handler that logs to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Utc("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


class RequestLog:
    """Writes a line per finished request: the fields of `AccessLogEntry`, so no secrets.

    Parameters
    ----------
    target
        A file, appended to, or "-": standard error.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(self, target: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock = None if target == "-" else Path(target), clock
        self._lock = threading.Lock()

    def write_entry(self, entry: AccessLogEntry) -> None:
        """Write a line; errors such as a full disk are ignored."""
        fields = {**asdict(entry), "seconds": round(entry.seconds, 6)}
        # Text chosen by the client is escaped, so that each entry is one line.
        line = json.dumps({"time": format_instant(self._clock()), **fields}, ensure_ascii=True)
        with self._lock:
            try:
                if self._path is None:
                    print(line, file=sys.stderr, flush=True)
                else:
                    # Reopened each time, so that the file can be rotated.
                    with self._path.open("a", encoding="ascii") as file:
                        file.write(f"{line}\n")
            except OSError:
                pass
