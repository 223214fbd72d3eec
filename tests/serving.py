"""Servers of applications on loopback ports of their own, in threads, as long as tests need them."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from fastapi import FastAPI

from queries.web.server import Server, listen

LONGEST_S = 60
DRAIN_S = 5

Message = MutableMapping[str, Any]


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application; give its address, without a slash at the end."""
    with _running(app) as (_, address):
        yield address


class SharedServer:
    """A server for many tests: the application behind its port is that of the test that runs.

    Starting and stopping a server takes longer than most tests. Nothing of one test reaches the next: its application
    is taken away, what it computed is stopped, and its connections are closed.
    """

    def __init__(self) -> None:
        self._app: FastAPI | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def __call__(
        self,
        scope: Message,
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Have the application of the test answer."""
        if scope["type"] == "lifespan":
            # Each application begins and ends with its test: the server itself has nothing to start or to stop.
            self._loop = asyncio.get_running_loop()
            for event in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{event}.complete"})
            return
        assert self._app is not None, "a request came after its test"
        await self._app(scope, receive, send)

    @property
    def state(self) -> Any:  # noqa: ANN401 - as Starlette has it
        """What the application of the test holds; between tests, a runner that has nothing to stop."""
        return SimpleNamespace(runner=SimpleNamespace(stop=lambda: None)) if self._app is None else self._app.state

    @contextmanager
    def running(self) -> Iterator["SharedServer"]:
        """Serve, until no test needs it any more."""
        with _running(self) as (server, address):
            self._server, self._address = server, address
            yield self

    @contextmanager
    def serving(self, app: FastAPI) -> Iterator[str]:
        """Put an application behind the port; give the address, without a slash at the end."""
        assert self._app is None, "the server has an application; another one needs tests.serving.serving"
        assert self._loop is not None
        self._app = app
        try:
            yield self._address
        finally:
            asyncio.run_coroutine_threadsafe(self._clear(app), self._loop).result(LONGEST_S)
            self._app = None

    async def _clear(self, app: FastAPI) -> None:
        """Stop what is computed and close the connections, as a server that ends does."""
        await asyncio.to_thread(app.state.runner.stop)
        state = self._server.server_state
        for connection in list(state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._silence()
        except TimeoutError:
            # Whoever takes nothing, or asks without an end.
            for connection in list(state.connections):
                connection.transport.abort()
            for task in list(state.tasks):
                task.cancel()
            await self._silence()

    async def _silence(self) -> None:
        """Wait until there is neither a connection nor an answer."""
        while self._server.server_state.connections or self._server.server_state.tasks:
            await asyncio.sleep(0.001)


@contextmanager
def _running(app: FastAPI | SharedServer) -> Iterator[tuple[Server, str]]:
    ready = threading.Event()
    with listen("127.0.0.1", 0) as listening:
        server = Server(app, listening, lambda _address: ready.set())  # type: ignore[arg-type]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert ready.wait(LONGEST_S), "the server did not start"
        try:
            yield server, f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(LONGEST_S)
        assert not thread.is_alive(), "the server did not stop"
