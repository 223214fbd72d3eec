"""A server of an application on a loopback port of its own, in a thread, as long as a test needs it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from fastapi import FastAPI

from queries.web.server import Server, listen

LONGEST_S = 30


@contextmanager
def serving(app: FastAPI) -> Iterator[str]:
    """Serve an application; give its address, without a slash at the end."""
    ready = threading.Event()
    with listen("127.0.0.1", 0) as listening:
        server = Server(app, listening, lambda _address: ready.set())
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert ready.wait(LONGEST_S), "the server did not start"
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(LONGEST_S)
        assert not thread.is_alive(), "the server did not stop"
