"""Whether data can be served: some of them are read now and then, once for all that ask."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import CHUNK_SERIES
from hypergrid.core.errors import NotFound
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import OpenArchive

KEPT_S: Final = 5.0
"""How long an examination counts [s]."""
LIMIT_S: Final = 2.0
"""How long an examination may take; longer, and the disk counts as one that does not answer [s]."""
BUDGET_S: Final = 0.05
"""How long one examination reads chunks; the next one continues where it stopped [s]."""

_LOG: Final = logging.getLogger(__name__)

Troubles = Mapping[str, str]
"""What is wrong, in words, by what was examined."""


class SharedExamination:
    """Examines something in a thread of its own, once for all that ask, and keeps what it gave for a moment.

    A disk that hangs holds that one thread, and nobody else.

    Parameters
    ----------
    examine
        Returns what is wrong.
    clock
        Returns seconds that only grow.
    """

    def __init__(self, examine: Callable[[], Troubles], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._examine, self._clock = examine, clock
        self._changed = threading.Condition()
        self._started_s: float | None = None
        self._ended_s = -np.inf
        self._is_late = False
        self._troubles: Troubles = {}

    def troubles(self) -> Troubles:
        """Return what is wrong, by an examination of the last `KEPT_S`; waits for at most `LIMIT_S`."""
        with self._changed:
            if self._started_s is None and self._clock() - self._ended_s >= KEPT_S:
                self._started_s = self._clock()
                threading.Thread(target=self._run, name="readiness", daemon=True).start()
            if self._started_s is not None:
                left_s = self._started_s + LIMIT_S - self._clock()
                self._changed.wait_for(lambda: self._started_s is None, max(left_s, 0.0))
            return self._troubles if self._started_s is None else self._report_late()

    def _report_late(self) -> Troubles:
        trouble = f"it has not answered for {LIMIT_S:g} s; look at its disk, or at its store"
        if not self._is_late:
            self._is_late = True
            _LOG.error("archive: %s", trouble)
        return {"archive": trouble}

    def _run(self) -> None:
        try:
            troubles = self._examine()
        except Exception:
            _LOG.exception("the server's health cannot be examined")
            troubles = {"archive": "its examination failed; the server's log says why"}
        with self._changed:
            self._started_s, self._ended_s, self._troubles, self._is_late = None, self._clock(), troubles, False
            self._changed.notify_all()


class NewestData:
    """Reads what answers with the newest values need, from the disk and not from what the server has in memory.

    Parameters
    ----------
    archive
        The archive that is served.
    clock
        Returns seconds that only grow.
    """

    def __init__(self, archive: OpenArchive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._archive, self._clock = archive, clock
        self._next_column = 0

    def trouble(self) -> str:
        """Return why the head, its snapshot or the newest chunks cannot be read; empty: they can."""
        try:
            try:
                self._read()
            except NotFound:
                # The snapshot expired while it was read.
                self._read()
        except Exception as error:  # noqa: BLE001 - whatever a damaged file makes the libraries raise
            return f"it cannot be read: {' '.join(str(error).split())[:500] or type(error).__name__}"
        return ""

    def _read(self) -> None:
        self._archive.latest()
        archive = Archive.open(self._archive.path)
        # The first chunks of all variables, then the second ones.
        columns = sorted((first, name) for name in archive.variables for first in _firsts(archive, name))
        ends_s = self._clock() + BUDGET_S
        for _ in columns:
            # It moves on only behind what was read: what is damaged is read again by the next examination.
            first, name = columns[self._next_column % len(columns)]
            _read_newest(archive, name, first)
            self._next_column += 1
            if self._clock() >= ends_s:
                break


def _firsts(archive: Archive, name: str) -> range:
    """Return the first series of each chunk of a variable."""
    return range(0, len(archive.series(name)), CHUNK_SERIES)


def _read_newest(archive: Archive, name: str, first: int) -> None:
    """Read the newest slice of as many series of a variable as one chunk holds."""
    extent = archive.extent(name)
    if extent is not None:
        newest = Window(extent.stop_ns - round(archive.slice_s * SECOND_NS), extent.stop_ns)
        series = np.arange(first, min(first + CHUNK_SERIES, len(archive.series(name))))
        archive.read(name, window=newest, series=series)
