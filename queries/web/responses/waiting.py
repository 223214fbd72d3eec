"""Waiting for a query within one request: as long as the client waits, and no longer than is said."""

import asyncio
import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import xarray as xr
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.times import SECOND_NS, parse_duration
from queries.jobs.records import Job
from queries.jobs.runner import Runner
from queries.web.responses.etags import entity_tag, etag_headers
from queries.web.responses.files import surface_response

LONGEST_S: Final = 60.0
"""Longest that a request waits for a query [s]."""
_LOOKED_S: Final = 0.5
"""How often it is looked whether the client still waits [s]."""
_PREFERENCE: Final = re.compile(r"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*", re.IGNORECASE)


class TookTooLong(HyperGridError, TimeoutError):
    """A query did not end within the request that asked for it; asked again it would take as long."""


def patience_s(request: Request, wait: str | None) -> float:
    """Return how long a client wants to wait for an answer [s]: by `wait=5s`, or by `Prefer: wait=5` (RFC 7240).

    Raises
    ------
    InvalidQuery
        `wait` is no duration.
    """
    if wait is not None:
        try:
            asked_s = float(wait) if wait.isdecimal() else parse_duration(wait) / SECOND_NS
        except InvalidTime as error:
            message = f"wait needs a duration such as 5s; got {wait[:80]!r}"
            raise InvalidQuery(message) from error
        return min(asked_s, LONGEST_S)
    preferences = ",".join(request.headers.getlist("prefer")).split(",")
    matches = [match for preference in preferences if (match := _PREFERENCE.fullmatch(preference.partition(";")[0]))]
    return min(float(matches[0][1]), LONGEST_S) if matches else 0.0


async def wait_for_end(runner: Runner, job_id: str, request: Request, *, seconds: float) -> Job:
    """Return a job once it has ended, or as it stands when time is up or the client has gone away.

    Raises
    ------
    NotFound
        No such job is remembered.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    with threadsafe_event(partial(runner.listen, job_id)) as changed:
        while True:
            changed.clear()
            job = runner.job(job_id)
            left = until - loop.time()
            if job.has_ended or left <= 0 or await request.is_disconnected():
                return job
            with suppress(TimeoutError):
                await asyncio.wait_for(changed.wait(), min(left, _LOOKED_S))


async def wait_for_response(
    runner: Runner, job: Job, request: Request, *, seconds: float, form: str
) -> Response | None:
    """Return the result of a job that ends while its client waits; None where it does not.

    Parameters
    ----------
    runner, job
        What was asked for.
    request
        Who waits.
    seconds
        How long, 0 not at all.
    form
        Name of a format of results.

    Raises
    ------
    HyperGridError
        Why the job failed.
    """
    if seconds <= 0:
        return None
    job = await wait_for_end(runner, job.id, request, seconds=seconds)
    if job.error is not None:
        raise job.error
    if job.state != "done":
        if not job.has_ended and await request.is_disconnected():
            # Nobody was told where to look for it.
            runner.cancel(job.id)
        return None
    headers = {"X-Query-Id": job.id, "Preference-Applied": f"wait={math.ceil(seconds)}"}
    tag = etag_headers(entity_tag(job.token, job.snapshot, form, 0, 0))
    result = runner.result(job.id)
    return await run_in_threadpool(surface_response, result, form, headers={**headers, **tag})


async def compute_dataset(runner: Runner, document: Mapping[str, Any], request: Request) -> xr.Dataset:
    """Return the answer of a query that is asked for and forgotten in one request; whoever goes away stops it.

    Raises
    ------
    HyperGridError
        What `Runner.submit` raises, or why it failed.
    TookTooLong
        It took too long.
    """
    job = await run_in_threadpool(partial(runner.submit, document, passing=True))
    try:
        job = await wait_for_end(runner, job.id, request, seconds=LONGEST_S)
        if job.error is not None:
            raise job.error
        if not job.has_ended:
            message = f"no answer within {LONGEST_S:g} s; ask for less at a time, or post the query to /api/v1/queries"
            raise TookTooLong(message)
        return runner.result(job.id)
    finally:
        with suppress(NotFound):
            runner.forget(job.id)


@contextmanager
def threadsafe_event(listen: Callable[[Callable[..., None]], Callable[[], None]]) -> Iterator[asyncio.Event]:
    """Give an event that is set at each change; who waits for it clears it before each look.

    Parameters
    ----------
    listen
        Has what it is given called at each change, from any thread, with whatever; returns what ends that.
    """
    loop = asyncio.get_running_loop()
    changed = asyncio.Event()

    def wake(*_: object) -> None:
        # A change may come while the server's loop is closing.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(changed.set)

    leave = listen(wake)
    try:
        yield changed
    finally:
        leave()
