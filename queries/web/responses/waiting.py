"""Waiting for a query within a request, limited by a timeout and the client's connection."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.times import SECOND_NS, parse_duration
from queries.jobs.job_history import Past
from queries.jobs.records import Job
from queries.jobs.runner import Runner
from queries.web.responses.etags import entity_tag, etag_headers
from queries.web.responses.files import surface_response

LONGEST_S: Final = 60.0
"""Longest that a request waits for a query [s]."""
_LOOKED_S: Final = 0.5
"""Interval at which the client's connection is checked [s]."""
_PREFERENCE: Final = re.compile(r"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*", re.IGNORECASE)


class TookTooLong(HyperGridError, TimeoutError):
    """A query did not finish within the request; a retry would take as long."""


def patience_s(request: Request, wait: str | None) -> float:
    """Parse how long a client wants to wait [s]: `wait=5s`, or `Prefer: wait=5` (RFC 7240).

    Raises
    ------
    InvalidQuery
        `wait` is not a duration.
    """
    if wait is not None:
        try:
            asked_s = float(wait) if wait.isdecimal() else parse_duration(wait) / SECOND_NS
        except InvalidTime as error:
            raise InvalidQuery(f"wait needs a duration such as 5s; got {wait[:80]!r}") from error
        return min(asked_s, LONGEST_S)
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    matches = [match for preference in preferences if (match := _PREFERENCE.fullmatch(preference.partition(";")[0]))]
    return min(float(matches[0][1]), LONGEST_S) if matches else 0.0


async def wait_for_end(runner: Runner, job_id: str, request: Request | None, *, seconds: float) -> Job:
    """Wait until a job ends, the time is up or the client, if there is one, disconnects; return it.

    Raises
    ------
    NotFound
        The job is unknown.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    with threadsafe_event(partial(runner.listen, job_id)) as changed:
        while True:
            # Cleared before the state is read, so that no change is missed.
            changed.clear()
            job = runner.job(job_id)
            left = until - loop.time()
            if job.has_ended or left <= 0 or (request is not None and await request.is_disconnected()):
                return job
            with suppress(TimeoutError):
                # Returns without a change as well, to notice a client that disconnected.
                await asyncio.wait_for(changed.wait(), min(left, _LOOKED_S))


async def wait_for_response(
    runner: Runner, job: Job, request: Request, *, seconds: float, form: str
) -> Response | None:
    """Answer with a job's result if it ends while its client waits; else None.

    Parameters
    ----------
    runner, job
        The runner and its job.
    request
        The waiting request.
    seconds
        Timeout [s]; 0: do not wait.
    form
        Name of a result format.

    Raises
    ------
    HyperGridError
        The error of a failed job.
    """
    if seconds <= 0:
        return None
    job = await wait_for_end(runner, job.id, request, seconds=seconds)
    if job.error is not None:
        raise job.error
    if job.state != "done":
        if not job.has_ended and await request.is_disconnected():
            # The client was not sent the job's address, so no request can use the result.
            runner.cancel(job.id)
        return None
    headers = {"X-Query-Id": job.id, "Preference-Applied": f"wait={math.ceil(seconds)}"}
    tag = etag_headers(entity_tag(job.token, job.snapshot, form, 0, 0))
    result = runner.result(job.id)
    return await run_in_threadpool(surface_response, result, form, headers={**headers, **tag})


async def compute_dataset(
    runner: Runner, document: Mapping[str, Any], request: Request | None, *, seconds: float | None = None
) -> xr.Dataset:
    """Compute a query within one request, or (None) apart from any, without keeping the job; disconnecting cancels it.

    `seconds` is the timeout [s]; None: `LONGEST_S`.

    Raises
    ------
    HyperGridError
        An error of `Runner.submit`, or of the failed job.
    TookTooLong
        The timeout expired.
    """
    seconds = LONGEST_S if seconds is None else seconds
    job = await run_in_threadpool(partial(runner.submit, document, passing=True))
    try:
        job = await wait_for_end(runner, job.id, request, seconds=seconds)
        if job.error is not None:
            raise job.error
        if not job.has_ended:
            raise TookTooLong(
                f"no answer within {seconds:g} s; ask for less at a time, or post the query to /api/v1/queries"
            )
        return runner.result(job.id)
    finally:
        with suppress(NotFound):
            runner.forget(job.id)


@contextmanager
def threadsafe_event(listen: Callable[[Callable[..., None]], Callable[[], None]]) -> Iterator[asyncio.Event]:
    """Bridge change callbacks from any thread to an asyncio event, cleared before each check.

    Parameters
    ----------
    listen
        Registers a callback and returns its unsubscribe function.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake(*_: object) -> None:
        # A change may arrive while the event loop is closing.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(changed.set)

    leave = listen(wake)
    try:
        yield changed
    finally:
        leave()


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
