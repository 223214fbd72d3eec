"""Memory of large results, used again."""

import gc
import mmap
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hypergrid.execution.running.result_cache import BUFFER_POOL, LARGE_BYTES, MAX_BYTES, allocate

LARGE = (LARGE_BYTES // 8,)

pytestmark = pytest.mark.skipif(not hasattr(mmap, "MADV_FREE"), reason="this system cannot lend memory back")


def sizes() -> tuple[int, ...]:
    """Return the sizes of the pieces kept, oldest first [bytes]."""
    with BUFFER_POOL._lock:
        BUFFER_POOL._keep_returned()
        return tuple(map(len, BUFFER_POOL._pieces))


def forget() -> None:
    with BUFFER_POOL._lock:
        BUFFER_POOL._returned.clear()
        BUFFER_POOL._pieces.clear()


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    gc.collect()
    forget()
    yield
    gc.collect()
    forget()


def place(array: np.ndarray) -> int:
    return int(array.ctypes.data)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    first = allocate(LARGE).reshape(2, -1)
    first[:] = 1.0
    here, view = place(first), first[1, 5:9]
    del first
    assert sizes() == ()
    second = allocate(LARGE)
    assert place(second) != here
    assert view.tolist() == [1.0] * 4
    del view
    assert sizes() == (LARGE_BYTES,)
    assert place(allocate(LARGE)) == here


def test_only_memory_of_the_same_size_is_taken() -> None:
    del_me = allocate(LARGE)
    del del_me
    other = allocate((LARGE[0] + 8,))
    other[:] = 2.0
    assert sizes() == (LARGE_BYTES,)


def test_small_arrays_are_the_allocator_s() -> None:
    small = allocate((10, 10))
    assert small.shape == (10, 10)
    del small
    assert sizes() == ()


def test_what_is_kept_is_bounded_and_the_oldest_goes() -> None:
    count = MAX_BYTES // LARGE_BYTES
    arrays = [allocate((LARGE[0] + 8 * (number == 0),)) for number in range(count + 1)]
    while arrays:
        arrays.pop(0)
    assert sum(sizes()) <= MAX_BYTES
    assert LARGE_BYTES + 64 not in sizes()


def test_threads_never_share_a_piece() -> None:
    def work(number: int) -> bool:
        for _ in range(20):
            mine = allocate(LARGE)
            mine[::512] = number
            if not (mine[::512] == number).all():
                return False
            del mine
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))
    assert len(sizes()) <= 4
