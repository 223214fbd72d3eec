"""Connection of the Python client: requests with retries, event streams, and the errors of a server.

It is written once, as coroutines. With a blocking transport they never suspend, so `drive` runs them without an event
loop.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Mapping
from contextlib import aclosing
from typing import Any, Final, Protocol, TypeVar

import httpx

from hypergrid.core import errors
from hypergrid.core.errors import HyperGridError

T = TypeVar("T")

PREFIX: Final = "/api/v1"
_PAUSE_S: Final = 1.0
"""Pause before retrying a request that got no answer [s]."""
_LONGEST_PAUSE_S: Final = 10.0
"""Upper limit of the pause for `Retry-After` [s]."""
LAST_EVENTS: Final = ("done", "error", "cancelled")
"""Names of the events that end a stream."""
_RAISED: Final = {
    "not-found": errors.NotFound, "invalid-query": errors.InvalidQuery, "invalid-function": errors.InvalidFunction,
    "invalid-unit": errors.InvalidUnit, "invalid-time": errors.InvalidTime, "singular-system": errors.SingularSystem,
    "cancelled": errors.Cancelled, "store-unavailable": errors.StoreUnavailable,
}  # fmt: skip
"""Error classes of local queries, by the last part of a problem's type."""


class ServerProblem(HyperGridError, RuntimeError):
    """The server cannot fulfil the request.

    Parameters
    ----------
    problem
        Its problem document (RFC 9457).
    """

    def __init__(self, problem: Mapping[str, Any]) -> None:
        super().__init__(f"{problem.get('title', 'It did not work')}: {problem.get('detail', 'no reason was given')}")
        self.problem = dict(problem)
        self.status = int(problem.get("status", 0))


def error_of(problem: Mapping[str, Any]) -> HyperGridError:
    """Make the error that a local query would raise, else a `ServerProblem`."""
    kind = _RAISED.get(str(problem.get("type", "")).rpartition(":")[2])
    return ServerProblem(problem) if kind is None else kind(str(problem.get("detail", "")))


class Transport(Protocol):
    """HTTP requests and pauses, by blocking calls or on an event loop."""

    async def request(self, request: httpx.Request, *, streamed: bool) -> httpx.Response:
        """Send a request; return the answer, read completely unless it succeeds and is streamed."""

    def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        """Read a streamed answer line by line."""

    async def release(self, answer: httpx.Response) -> None:
        """Release the connection of a streamed answer."""

    async def sleep(self, seconds: float) -> None: ...

    async def close(self) -> None: ...


class BlockingTransport:
    """Requests by blocking calls: its coroutines never suspend."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http

    async def request(self, request: httpx.Request, *, streamed: bool) -> httpx.Response:
        answer = self._http.send(request, stream=streamed)
        if not answer.is_success:
            answer.read()
        return answer

    async def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        for line in answer.iter_lines():
            yield line

    async def release(self, answer: httpx.Response) -> None:
        answer.close()

    async def sleep(self, seconds: float) -> None:
        # Blocks, as its caller has no event loop.
        time.sleep(seconds)  # noqa: ASYNC251

    async def close(self) -> None:
        self._http.close()


class AsyncTransport:
    """Requests on the event loop of asyncio."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def request(self, request: httpx.Request, *, streamed: bool) -> httpx.Response:
        answer = await self._http.send(request, stream=streamed)
        if not answer.is_success:
            await answer.aread()
        return answer

    def lines(self, answer: httpx.Response) -> AsyncIterator[str]:
        return answer.aiter_lines()

    async def release(self, answer: httpx.Response) -> None:
        await answer.aclose()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        await self._http.aclose()


class ServerConnection:
    """Requests to one server, retried where that is safe.

    Parameters
    ----------
    http
        The blocking or asynchronous client of httpx, with address, headers and timeout.
    tries
        Attempts per request, if the server allows a retry or a GET gets no answer.
    """

    def __init__(self, http: httpx.Client | httpx.AsyncClient, *, tries: int) -> None:
        self._http, self._tries = http, max(tries, 1)
        self._transport: Transport = BlockingTransport(http) if isinstance(http, httpx.Client) else AsyncTransport(http)

    @property
    def url(self) -> str:
        return str(self._http.base_url)

    async def send(self, method: str, path: str, *, streamed: bool = False, **options: Any) -> httpx.Response:  # noqa: ANN401 - those of httpx
        """Send a request below `/api/v1`, with retries.

        Raises
        ------
        HyperGridError
            The server refuses the request, or does not answer.
        """
        for left in reversed(range(self._tries)):
            request = self._http.build_request(method, f"{PREFIX}/{path}", **options)
            try:
                answer = await self._transport.request(request, streamed=streamed)
            except httpx.TransportError as error:
                # Other methods may have taken effect and are not retried.
                if left and method == "GET":
                    await self._transport.sleep(_PAUSE_S)
                    continue
                raise self._no_answer(error) from error
            if answer.is_success:
                return answer
            if not left or "retry-after" not in answer.headers:
                break
            await self._transport.sleep(min(_seconds(answer.headers["retry-after"]), _LONGEST_PAUSE_S))
        raise error_of(_problem(answer))

    async def sleep(self, seconds: float) -> None:
        await self._transport.sleep(seconds)

    async def events(self, job_id: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        """Yield name and content of a job's events until its end; a stream that breaks off is resumed.

        Raises
        ------
        HyperGridError
            The job is unknown, or the server does not answer any more.
        """
        headers: dict[str, str] = {}
        left = self._tries
        while True:
            answer = await self.send("GET", f"queries/{job_id}/events", streamed=True, headers=headers)
            failure: httpx.TransportError | None = None
            try:
                async with aclosing(parse_events(self._transport.lines(answer))) as events:
                    async for name, event_id, content in events:
                        headers["Last-Event-ID"], left = event_id, self._tries
                        yield name, content
                        if name in LAST_EVENTS:
                            return
            except httpx.TransportError as error:
                failure = error
            finally:
                await self._transport.release(answer)
            left -= 1
            if not left:
                raise self._no_answer(failure) from failure
            await self._transport.sleep(_PAUSE_S)

    async def close(self) -> None:
        await self._transport.close()

    def _no_answer(self, reason: Exception | None) -> ServerProblem:
        return ServerProblem({"title": "The server does not answer", "detail": f"{self.url}: {reason or 'no reason'}"})


async def parse_events(lines: AsyncIterator[str]) -> AsyncGenerator[tuple[str, str, dict[str, Any]]]:
    """Yield name, id and JSON content of server-sent events; an unfinished last one is dropped."""
    fields: dict[str, str] = {}
    async for line in lines:
        name, _, value = line.partition(":")
        if name:
            fields[name] = value.removeprefix(" ")
        elif not line and "data" in fields:
            yield fields.get("event", ""), fields.get("id", ""), json.loads(fields["data"])
            fields = {}


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine of a blocking transport to its end, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of a blocking transport waited for an event loop")


def _seconds(text: str) -> float:
    return float(text) if text.isdecimal() and len(text) < 9 else _PAUSE_S


def _problem(answer: httpx.Response) -> dict[str, Any]:
    try:
        document = answer.json()
    except ValueError:
        document = None
    if isinstance(document, dict) and "title" in document:
        return document
    return {
        "title": f"The server answered {answer.status_code}",
        "detail": answer.text[:200],
        "status": answer.status_code,
    }
