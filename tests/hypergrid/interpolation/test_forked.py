"""A forked child computes what its parent does, whatever the parent's threads were at: none of them is in the child."""

import multiprocessing
import threading
from collections.abc import Callable

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from hypergrid.core import blas
from hypergrid.interpolation import variogram
from hypergrid.interpolation.kernels import covariance, threads
from hypergrid.interpolation.points import Stations, Targets
from hypergrid.interpolation.solvers import field
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.system import KrigingSystem

pytestmark = pytest.mark.skipif(
    "fork" not in multiprocessing.get_all_start_methods(), reason="processes are not forked on this platform"
)


def in_child(work: Callable[[], bool], *, limit_s: float = 120.0) -> None:
    """Run some work in a forked child, which must end in time and find it true."""

    def run() -> None:
        raise SystemExit(0 if work() else 3)

    child = multiprocessing.get_context("fork").Process(target=run, daemon=True)
    child.start()
    child.join(limit_s)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs, f"the child did not end within {limit_s:g} s"
    assert child.exitcode == 0


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "2")


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> Callable[[], np.ndarray]:
    """A query that is cut into pieces, on compiled loops and threads."""
    monkeypatch.setattr(covariance, "WORTH_COMPILED", 0)
    monkeypatch.setattr(field, "WORTH_COMPILED", 0)
    monkeypatch.setattr(field, "PIECE_PAIRS", 2_000)
    rng = np.random.default_rng(0)
    stations = Stations(rng.uniform(0, 1e4, (20, 2)), tuple(map(str, range(20))))
    values = rng.normal(size=(40, 20))
    targets = Targets(rng.uniform(0, 1e4, (5_000, 2)))

    def ask() -> np.ndarray:
        kriged = KrigingField(KrigingSystem.of(stations, variogram("exponential", psill=1.0, range_m=3000.0)), values)
        kriged.expect(targets.count, 1)
        return kriged.estimate(targets)

    return ask


def test_a_large_query_in_a_child_ends_and_is_the_same(large: Callable[[], np.ndarray]) -> None:
    before = large()
    assert threads._threads._pools, "the query was not shared between threads"
    in_child(lambda: bool(np.array_equal(large(), before)))
    assert np.array_equal(large(), before)


def test_a_child_forked_in_the_middle_of_a_query_has_its_own_turn() -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def wait(_: int) -> None:
        at_work.set()
        go_on.wait(120)

    busy = threading.Thread(target=threads.share, args=(wait, range(2)))
    busy.start()
    at_work.wait(120)

    def share_again() -> bool:
        names: set[str] = set()
        threads.share(lambda _: names.add(threading.current_thread().name), range(4))
        return all(name.startswith("kriging") for name in names) and blas._limit._users == 0

    try:
        in_child(share_again)
    finally:
        go_on.set()
        busy.join()
    assert share_again(), "the parent's threads are used again"


def test_a_child_does_not_wait_for_a_lock_that_no_thread_of_its_own_holds() -> None:
    def limited() -> bool:
        with blas.one_thread():
            inside = [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]
        return set(inside) == {1} and blas._limit._users == 0

    with blas._limit._lock:
        in_child(limited)
    assert limited()


def test_a_child_forked_within_the_limit_on_threads_has_it_lifted() -> None:
    def threads_now() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    before = threads_now()
    context = blas.one_thread()
    with context:
        in_child(lambda: threads_now() == before and blas._limit._users == 0)
        assert set(threads_now()) == {1}
    assert threads_now() == before
