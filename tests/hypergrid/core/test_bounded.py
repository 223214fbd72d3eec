"""What is kept in bounded memory: the books are right whatever comes, and a forked child begins with nothing."""

import os

from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.lru_cache import LruCache


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 40)), max_size=40))
def test_the_least_recently_used_goes_and_what_is_put_again_counts_once(asked: list[tuple[int, int]]) -> None:
    store, oracle = LruCache[int, str](60), list[tuple[int, int]]()
    for key, size in asked:
        assert store.peek(key) == next((str(held) for name, held in oracle if name == key), None)
        oracle = [*(item for item in oracle if item[0] != key), (key, size)]
        store.put(key, str(size), size)
        while sum(held for _, held in oracle) > 60:
            oracle.pop(0)
        found = store.statistics()
        assert (found.entries, found.held_bytes) == (len(oracle), sum(held for _, held in oracle))
    assert store.statistics().hits + store.statistics().misses == len(asked)


def test_a_forked_child_holds_nothing_and_waits_for_no_lock() -> None:
    store = LruCache[str, str](60)
    store.put("a", "held", 10)
    with store._lock:  # as another thread would hold it
        child = os.fork()
        if not child:
            os._exit(0 if store.statistics().held_bytes == 0 and store.peek("a") is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert store.peek("a") == "held"
