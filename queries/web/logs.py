"""A line of JSON for each request."""

import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from hypergrid.times import format_instant
from queries.web.requests import Served


class RequestLog:
    """Writes a line for each request that is over; what it holds is what `Served` holds, so no secret.

    Parameters
    ----------
    place
        A file, appended to, or "-": standard error.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(self, place: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._place, self._clock = None if place == "-" else Path(place), clock
        self._lock = threading.Lock()

    def served(self, one: Served) -> None:
        """Write a line; a disk that is full ends no request."""
        fields = {**asdict(one), "seconds": round(one.seconds, 6)}
        # Text that a client chose is escaped, so that it is one line whatever it holds.
        line = json.dumps({"time": format_instant(self._clock()), **fields}, ensure_ascii=True)
        with self._lock:
            try:
                if self._place is None:
                    print(line, file=sys.stderr, flush=True)
                else:
                    # Opened anew each time, so that it can be moved away.
                    with self._place.open("a", encoding="ascii") as file:
                        file.write(f"{line}\n")
            except OSError:
                pass
