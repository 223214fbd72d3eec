"""Processes that a test waits for, which end in any case."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def kill_at_exit(process: subprocess.Popen[Any], limit_s: float = 300.0) -> Iterator[None]:
    """Kill a process where the block ends, or after some time, so that nobody waits for it or its output for ever."""
    timer = threading.Timer(limit_s, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        process.kill()
