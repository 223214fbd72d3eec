"""HTTP server: listening, limits for slow clients, and clean shutdown."""

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
from uvicorn.protocols.http.h11_impl import H11Protocol

from hypergrid.core.errors import CannotListen
from queries.web.auth.access import Access
from queries.web.middleware.request_limits import RESERVED, address_of

DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_PORT: Final = 8765
_DRAIN_S: Final = 5
"""How long open requests may take to finish on shutdown [s]."""
UNTAKEN_MS: Final = 60_000
"""Timeout for a peer to acknowledge sent data [ms]."""
BACKLOG: Final = 2048
"""Pending connections in the listen queue, such as those that arrive during startup."""
HEAD_S: Final = 10.0
"""Timeout for a complete request head, and for the first request of a connection [s]."""
MOST_CONNECTIONS: Final = 1000
"""Limit of open connections."""
MOST_OF_AN_ADDRESS: Final = 250
"""Limit of open connections per address, except for trusted proxies."""
MOST_RESERVED: Final = 20
"""Connections reserved for monitoring beyond these limits, one request each."""
RESERVED_HEAD_S: Final = 2.0
"""Timeout for a request head on a reserved connection [s]."""
MOST_HEAD_BYTES: Final = 32 * 1024
"""Largest request head [bytes]."""


def serve(
    app: FastAPI, host: str = DEFAULT_HOST, port: int = DEFAULT_PORT, *, on_ready: Callable[[str], None] | None = None
) -> None:
    """Serve until Ctrl-C (or SIGTERM), which also cancels running queries. Prints nothing.

    Parameters
    ----------
    app
        What `create_app` returns; its `Access` decides whether other machines may connect.
    host
        An address, or "localhost".
    port
        0 selects a free port.
    on_ready
        Called with the address of the page once it can be opened.

    Raises
    ------
    CannotListen
        The host is not loopback and there are no keys, or the port is in use.
    """
    access = app.state.access
    with listen(host, port, access) as listening, _terminating_like_ctrl_c(), suppress(KeyboardInterrupt):
        Server(app, listening, on_ready).run(sockets=[listening])


def is_loopback(host: str) -> bool:
    """Return whether a host is reachable only from this machine.

    Raises
    ------
    CannotListen
        It is neither an address nor "localhost".
    """
    return _parse_host(host).is_loopback


def listen(host: str, port: int, access: Access | None = None) -> socket.socket:
    """Open a listening socket.

    Raises
    ------
    CannotListen
        The host is not loopback and access control is off; or the port is in use.
    """
    address = _parse_host(host)
    if not address.is_loopback:
        check_keys(host, access)
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    # The protocol is given explicitly because asyncio only then sets TCP_NODELAY: without it the body of each answer
    # waits 40 ms for the acknowledgement of its head.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    # Otherwise the port would stay blocked for a minute after a server ended; this does not let two servers share it.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Inherited by connections: the system closes those whose peer is gone or does not acknowledge data.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNTAKEN_MS)
    try:
        listening.bind((str(address), port))
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        raise CannotListen(
            f"cannot listen on {host} port {port}: {_reason(error)}; choose another with --port"
        ) from error
    return listening


class Connection(H11Protocol):
    """A connection with timeouts for request heads, for which uvicorn alone would wait indefinitely."""

    _head_timer: asyncio.TimerHandle | None = None
    _address: str = ""
    _is_reserved: bool = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first request head."""
        super().connection_made(transport)
        self._address = address_of((self.client or ("",))[0])
        if len(self.connections) > MOST_CONNECTIONS or self._are_too_many():
            if sum(getattr(connection, "_is_reserved", False) for connection in self.connections) >= MOST_RESERVED:
                transport.abort()
                return
            self._is_reserved = True
            self.app_state = {**self.app_state, RESERVED: True}
        self._head_timer = self.loop.call_later(RESERVED_HEAD_S if self._is_reserved else HEAD_S, self._give_up)

    def data_received(self, data: bytes) -> None:
        """Cancel the timer when a request head is complete; start it if a head is incomplete and none runs."""
        super().data_received(data)
        # Without a cycle in progress, a head has begun but is incomplete.
        is_waiting = self.cycle is None or self.cycle.response_complete
        if not is_waiting:
            self._cancel_timer()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_S, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_timer()
        super().connection_lost(exc)

    def _are_too_many(self) -> bool:
        if self.client and self.client[0] in self.config.app.state.access.rules.trusted_proxies:  # type: ignore[union-attr]
            return False
        return (
            sum(getattr(connection, "_address", "") == self._address for connection in self.connections)
            > MOST_OF_AN_ADDRESS
        )

    def _cancel_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class Server(uvicorn.Server):
    """Serves an application on a listening socket, until `should_exit` is set or a signal arrives.

    Queries are stopped before connections are drained.
    """

    def __init__(self, app: FastAPI, listening: socket.socket, on_ready: Callable[[str], None] | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=Connection,
                ws="none",
                # Its log records go to the same handlers as all others, with time and level.
                log_config=None,
                log_level="warning",
                access_log=False,
                proxy_headers=False,
                timeout_graceful_shutdown=_DRAIN_S,
                server_header=False,
                h11_max_incomplete_event_size=MOST_HEAD_BYTES,
            )  # fmt: skip
        )
        self._application = app
        self._listening = listening
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_ready is not None and not self.should_exit:
            host, port = self._listening.getsockname()[:2]
            self._on_ready(f"http://{f'[{host}]' if ':' in host else host}:{port}/")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Off the event loop, as stopping waits for the current blocks.
        await asyncio.to_thread(self._application.state.runner.stop)
        # Only now: the event streams of followers end with their queries.
        await super().shutdown(sockets)


@contextmanager
def _terminating_like_ctrl_c() -> Iterator[None]:
    """Make SIGTERM raise KeyboardInterrupt like Ctrl-C, so that the caller can clean up.

    uvicorn raises the signal again after its shutdown. SIGHUP, from a closed terminal, is treated the same unless it is
    ignored (nohup).
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {signal.SIGTERM: signal.signal(signal.SIGTERM, signal.default_int_handler)}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def check_keys(host: str, access: Access | None) -> None:
    """Refuse to listen beyond loopback unless access control is required and a valid key exists.

    Raises
    ------
    CannotListen
        There is no valid key, or the application does not require one.
    """
    keys = [] if access is None or access.store is None else access.store.keys()
    if access is None or not access.required or all(key.state(access.clock()) != "valid" for key in keys):
        raise CannotListen(
            f"serving on {host} needs access keys, and there is none that opens anything; make one with 'hypergrid "
            f"keys create ARCHIVE NAME', or use --host {DEFAULT_HOST}, and a tunnel (ssh -L) from another machine"
        )


def _parse_host(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        return ipaddress.ip_address(DEFAULT_HOST if host == "localhost" else host.strip("[]"))
    except ValueError as error:
        raise CannotListen(f"a host is an address such as {DEFAULT_HOST}, or localhost; got {host!r}") from error


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)).lower() if isinstance(error, OSError) else str(error)
