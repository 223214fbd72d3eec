"""Signals that stop a program which works until it is asked to end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue


@contextmanager
def stop_at_signals(*numbers: signal.Signals) -> Iterator[threading.Event]:
    """Give an event that is set once one of these signals arrives within the block; for the main thread.

    A hang-up (SIGHUP) that is ignored, as under `nohup`, stays so.
    """
    stopping, arrived = threading.Event(), SimpleQueue[bool]()

    def pass_on() -> None:
        if arrived.get():
            stopping.set()

    # A handler interrupts its thread anywhere, even while it holds the event's lock, where setting the event would
    # deadlock. A simple queue takes what is put while another `put` or `get` is under way.
    before = {}
    try:
        for number in numbers:
            if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, lambda *_: arrived.put(True))  # noqa: FBT003 - positional only
        threading.Thread(target=pass_on, name="stop-signals", daemon=True).start()
        yield stopping
    finally:
        arrived.put(False)  # noqa: FBT003
        for number, handler in before.items():
            signal.signal(number, handler)
