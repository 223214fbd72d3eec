"""Running the application on a loopback port, and stopping it cleanly."""

import asyncio
import ipaddress
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import uvicorn
from fastapi import FastAPI

from hypergrid.errors import HyperGridError

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8765
_DRAIN_S: Final = 5
"""How long open requests may take to end [s]."""


class CannotListen(HyperGridError, OSError):
    """The server cannot listen where it was told to; the message says why and what to do."""


def serve(
    app: FastAPI, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, *, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until Ctrl-C (or SIGTERM); running queries are cancelled then. Prints nothing.

    Parameters
    ----------
    app
        What `create_app` returns.
    host
        A loopback address, or "localhost".
    port
        0 takes any that is free.
    on_ready
        Called with the address of the page once it can be opened.

    Raises
    ------
    CannotListen
        The host is not loopback, or the port is in use.
    """
    with listen(host, port) as listening, _terminating_like_ctrl_c(), suppress(KeyboardInterrupt):
        Server(app, listening, on_ready).run(sockets=[listening])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a loopback address.

    Raises
    ------
    CannotListen
        The host is not loopback, or the port is in use.
    """
    address = ipaddress.ip_address(DEFAULT_HOST if host == "localhost" else _address(host))
    if not address.is_loopback:
        message = (
            f"serving on {host} needs access keys, which this version does not have; "
            f"use --host {DEFAULT_HOST}, and a tunnel (ssh -L) from another machine"
        )
        raise CannotListen(message)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    # Without this a server that just ended would hold its port for a minute; it does not let two share one.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((str(address), port))
        listening.listen(128)
    except (OSError, OverflowError) as error:
        listening.close()
        message = f"cannot listen on {host} port {port}: {_reason(error)}; choose another with --port"
        raise CannotListen(message) from error
    return listening


class Server(uvicorn.Server):
    """Serves an application on a socket that listens already, until `should_exit` is set or a signal comes.

    It stops the queries before it waits for connections: their followers are connections that would not end.
    """

    def __init__(self, app: FastAPI, listening: socket.socket, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app, log_level="warning", access_log=False, timeout_graceful_shutdown=_DRAIN_S, server_header=False
            )
        )
        self._application = app
        self._listening = listening
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and tell where."""
        await super().startup(sockets)
        if self._on_ready is not None and not self.should_exit:
            host, port = self._listening.getsockname()[:2]
            self._on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop the queries, then the connections."""
        await asyncio.to_thread(self._application.state.runner.stop)
        await super().shutdown(sockets)


@contextmanager
def _terminating_like_ctrl_c() -> Iterator[None]:
    """Have SIGTERM end as Ctrl-C does: uvicorn raises the signal again once it is down, and the caller may tidy up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _address(host: str) -> str:
    try:
        return str(ipaddress.ip_address(host.strip("[]")))
    except ValueError as error:
        message = f"a host is an address such as {DEFAULT_HOST}, or localhost; got {host!r}"
        raise CannotListen(message) from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
