"""Jobs that are tied to who follows them: when the last follower has gone, nobody wants them any more."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from hypergrid.core.errors import NotFound
from queries.jobs.job_history import Past
from queries.jobs.runner import Runner

FIRST_S: Final = 30.0
"""How long a tied job waits for its first follower [s]."""
GRACE_S: Final = 5.0
"""How long one may be away, as a browser that connects anew [s]."""


class OrphanJobCanceller:
    """Stops tied jobs; to be used in the thread of the server's loop.

    Parameters
    ----------
    runner
        What runs the jobs.
    first_s, grace_s
        As `FIRST_S` and `GRACE_S`.
    """

    def __init__(self, runner: Runner, *, first_s: float = FIRST_S, grace_s: float = GRACE_S) -> None:
        self._runner, self._first_s, self._grace_s = runner, first_s, grace_s
        self._tied: set[str] = set()
        self._followers: Counter[str] = Counter()

    def tie(self, job_id: str) -> None:
        """Have a job stopped when nobody follows it."""
        self._tied.add(job_id)
        self._schedule_check(job_id, self._first_s)

    @contextmanager
    def count_follower(self, job_id: str) -> Iterator[None]:
        """Count as a follower of a job."""
        self._followers[job_id] += 1
        try:
            yield
        finally:
            self._followers[job_id] -= 1
            if not self._followers[job_id]:
                del self._followers[job_id]
                if job_id in self._tied:
                    self._schedule_check(job_id, self._grace_s)

    def _schedule_check(self, job_id: str, seconds: float) -> None:
        # The server's loop may be closing.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(seconds, self._cancel_orphan, job_id)

    def _cancel_orphan(self, job_id: str) -> None:
        if job_id not in self._followers:
            self._tied.discard(job_id)
            with suppress(NotFound, Past):
                self._runner.cancel(job_id)
