"""Tied jobs, which are cancelled when their last follower disconnects."""

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
"""Grace period for a follower to reconnect, such as a browser [s]."""


class OrphanJobCanceller:
    """Cancels tied jobs without followers; used only on the event loop's thread.

    Parameters
    ----------
    runner
        The job runner.
    first_s, grace_s
        As `FIRST_S` and `GRACE_S`.
    """

    def __init__(self, runner: Runner, *, first_s: float = FIRST_S, grace_s: float = GRACE_S) -> None:
        self._runner, self._first_s, self._grace_s = runner, first_s, grace_s
        self._tied: set[str] = set()
        self._followers: Counter[str] = Counter()

    def tie(self, job_id: str) -> None:
        """Cancel a job once it has no followers."""
        self._tied.add(job_id)
        self._schedule_check(job_id, self._first_s)

    @contextmanager
    def count_follower(self, job_id: str) -> Iterator[None]:
        """Count a follower of a job within the context."""
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
        # The event loop may be closing.
        with suppress(RuntimeError):
            asyncio.get_running_loop().call_later(seconds, self._cancel_orphan, job_id)

    def _cancel_orphan(self, job_id: str) -> None:
        if job_id not in self._followers:
            self._tied.discard(job_id)
            with suppress(NotFound, Past):
                self._runner.cancel(job_id)
