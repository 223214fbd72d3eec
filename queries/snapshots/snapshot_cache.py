"""Answers that are worked out once for each version of an archive."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hypergrid.query import OpenArchive

MOST_KEPT: Final = 16
"""Answers of a snapshot that are kept, the newest."""

Answer = TypeVar("Answer")


class SnapshotCache(Generic[Answer]):
    """Answers of the newest snapshot, each worked out once for it; may be asked from any thread.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    work
        Works an answer out, of the archive at that snapshot and what was asked.
    """

    def __init__(self, archive: OpenArchive, work: Callable[[OpenArchive, int | None], Answer]) -> None:
        self._archive, self._compute = archive, work
        self._lock = threading.Lock()
        self._held: dict[int | None, tuple[str, Answer]] = {}

    def get_answer(self, asked: int | None = None) -> Answer:
        """Return the answer."""
        with self._lock:
            self._archive = self._archive.latest()
            snapshot, answer = self._held.get(asked, ("", None))
            if answer is None or snapshot != self._archive.snapshot:
                answer = self._compute(self._archive, asked)
                others = [item for item in self._held.items() if item[1][0] == self._archive.snapshot]
                self._held = dict([*others[-MOST_KEPT + 1 :], (asked, (self._archive.snapshot, answer))])
            return answer
