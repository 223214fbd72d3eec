"""An asyncio event that other threads set."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


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
