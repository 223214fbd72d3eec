"""Cache of answers that are computed once per snapshot of an archive."""

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from hypergrid.query import OpenArchive

MOST_KEPT: Final = 16
"""Answers cached per snapshot; the newest are kept."""

Answer = TypeVar("Answer")


class SnapshotCache(Generic[Answer]):
    """Answers at the newest snapshot, each computed once; thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    work
        Computes an answer from the archive at that snapshot and the request.
    """

    def __init__(self, archive: OpenArchive, work: Callable[[OpenArchive, int | None], Answer]) -> None:
        self._archive, self._compute = archive, work
        self._lock = threading.Lock()
        self._held: dict[int | None, tuple[str, Answer]] = {}

    def get_answer(self, asked: int | None = None) -> Answer:
        """Return the answer, computing it on a miss."""
        # Held during the computation, so that concurrent requests share it.
        with self._lock:
            self._archive = self._archive.latest()
            snapshot, answer = self._held.get(asked, ("", None))
            if answer is None or snapshot != self._archive.snapshot:
                answer = self._compute(self._archive, asked)
                # Answers of earlier snapshots are evicted.
                others = [item for item in self._held.items() if item[1][0] == self._archive.snapshot]
                self._held = dict([*others[-MOST_KEPT + 1 :], (asked, (self._archive.snapshot, answer))])
            return answer
