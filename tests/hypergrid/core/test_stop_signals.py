"""Signals that stop a program, whatever its threads hold when they arrive."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hypergrid.core.stop_signals import stop_at_signals


def test_a_signal_sets_the_event_and_handlers_are_as_they_were() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with stop_at_signals(signal.SIGUSR2) as stopping:
        assert not stopping.wait(0.01)
        signal.raise_signal(signal.SIGUSR2)
        signal.raise_signal(signal.SIGUSR2)
        assert stopping.wait(60)
    assert signal.getsignal(signal.SIGUSR2) is before
    assert all(thread.name != "stop-signals" or _ends(thread) for thread in threading.enumerate())


def _ends(thread: threading.Thread) -> bool:
    thread.join(60)
    return not thread.is_alive()


def test_a_signal_may_arrive_while_its_thread_holds_the_lock_of_the_event() -> None:
    with stop_at_signals(signal.SIGUSR2) as stopping:
        # As `stopping.wait` does at its start and its end.
        with stopping._cond:
            signal.raise_signal(signal.SIGUSR2)
            time.sleep(0.05)
            assert not stopping.is_set()
        assert stopping.wait(60)


def test_a_hangup_that_is_ignored_stays_so(default_hangup: None) -> None:
    with stop_at_signals(signal.SIGHUP) as stopping:
        signal.raise_signal(signal.SIGHUP)
        assert stopping.wait(60)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with stop_at_signals(signal.SIGHUP) as stopping:
        signal.raise_signal(signal.SIGHUP)
        assert not stopping.wait(0.2)


def test_only_the_main_thread_can_be_stopped_so() -> None:
    def run() -> bool:
        with pytest.raises(ValueError, match="main thread"), stop_at_signals(signal.SIGUSR2):
            raise AssertionError
        return True

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(run).result(60)


def test_handlers_are_as_they_were_where_a_signal_is_refused() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with pytest.raises(OSError, match="Invalid argument"), stop_at_signals(signal.SIGUSR2, signal.SIGKILL):
        raise AssertionError
    assert signal.getsignal(signal.SIGUSR2) is before
