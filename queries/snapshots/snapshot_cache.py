"""Answers that are worked out once for each version of an archive."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hypergrid.query import OpenArchive

MOST_KEPT: Final = 16
"""Answers of a snapshot that are kept, the newest."""

Found = TypeVar("Found")


class AtSnapshot(Generic[Found]):
    """Answers of the newest snapshot, each worked out once for it; may be asked from any thread.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    work
        Works an answer out, of the archive at that snapshot and what was asked.
    """

    def __init__(self, archive: OpenArchive, work: Callable[[OpenArchive, int | None], Found]) -> None:
        self._archive, self._work = archive, work
        self._lock = threading.Lock()
        self._held: dict[int | None, tuple[str, Found]] = {}

    def of(self, asked: int | None = None) -> Found:
        """Return the answer."""
        with self._lock:
            self._archive = self._archive.latest()
            snapshot, found = self._held.get(asked, ("", None))
            if found is None or snapshot != self._archive.snapshot:
                found = self._work(self._archive, asked)
                others = [item for item in self._held.items() if item[1][0] == self._archive.snapshot]
                self._held = dict([*others[-MOST_KEPT + 1 :], (asked, (self._archive.snapshot, found))])
            return found
