"""The queue of blocks: shares, small work first, what is overtaken, what is stopped."""

import threading
import time
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import Cancelled
from hypergrid.core.pacing import give_way, pace_work, ranges, time_waited_s
from hypergrid.interpolation.kernels.threads import share
from queries.jobs.block_queue import SMALL_WEIGHT, BlockQueue, FairShares

LARGE_S = 100.0
BLOCK_S = 0.05
WAIT_S = 30.0


class Clock:
    """Stands still but for whoever computes: with one worker, all that happens is known beforehand."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Work:
    """Some pieces of work in threads of their own, none of which begins before all wait."""

    def __init__(self, queue: BlockQueue, clock: Clock) -> None:
        self.queue, self.clock = queue, clock
        self.blocks: list[str] = []
        self._held, self._holding = threading.Event(), threading.Event()
        self._threads = [threading.Thread(target=self._hold)]
        self._threads[0].start()
        assert self._holding.wait(WAIT_S)

    def _hold(self) -> None:
        with self.queue.turn("nobody"):
            self._holding.set()
            assert self._held.wait(WAIT_S)

    def _begin(self, do: Callable[[], None]) -> None:
        waiting = len(self.queue._waiting)
        thread = threading.Thread(target=do)
        self._threads.append(thread)
        thread.start()
        until_s = time.monotonic() + WAIT_S
        while len(self.queue._waiting) == waiting and time.monotonic() < until_s:
            time.sleep(0.001)

    def add(self, owner: str, blocks: int, *, projected_s: float = LARGE_S) -> None:
        def do() -> None:
            with self.queue.turn(owner, projected_s=projected_s):
                for _ in range(blocks):
                    self.blocks.append(owner)
                    self.clock.now_s += BLOCK_S
                    give_way()

        self._begin(do)

    def end(self) -> list[str]:
        """Let all go, and return whose blocks were computed, in order."""
        self._held.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()
        return self.blocks


@pytest.fixture
def work() -> Work:
    clock = Clock()
    return Work(BlockQueue(1, clock=clock), clock)


def test_owners_share_alike_however_many_queries_each_has(work: Work) -> None:
    for _ in range(5):
        work.add("many", 20)
    work.add("one", 40)
    blocks = work.end()
    assert abs(Counter(blocks[:80])["one"] - 40) <= 1
    assert Counter(blocks) == {"many": 100, "one": 40}


def test_of_one_owner_the_smallest_comes_first_and_of_equal_ones_the_earliest(work: Work) -> None:
    clock, blocks = work.clock, work.blocks
    for name, projected_s in (("b", 30.0), ("c", 30.0), ("a", 20.0)):

        def do(name: str = name, projected_s: float = projected_s) -> None:
            with work.queue.turn("me", projected_s=projected_s):
                for _ in range(3):
                    blocks.append(name)
                    clock.now_s += BLOCK_S
                    give_way()

        work._begin(do)
    assert work.end() == [*"aaabbbccc"]


def test_small_work_goes_before_large_work_of_ten_others(work: Work) -> None:
    for number in range(10):
        work.add(f"large {number}", 10)
    work.add("small", 3, projected_s=0.1)
    assert "small" in work.end()[:2]
    assert [place for place, owner in enumerate(work.blocks) if owner == "small"][-1] <= 5


def test_small_work_leaves_a_quarter_to_large_work(work: Work) -> None:
    for _ in range(10):
        work.add("small", 10, projected_s=0.1)
    work.add("large", 40)
    blocks = work.end()
    small = Counter(blocks[:80])["small"]
    assert abs(small - 80 * SMALL_WEIGHT / (SMALL_WEIGHT + 1)) <= 2


def test_work_that_takes_long_is_no_small_work_any_more(work: Work) -> None:
    work.add("liar", 100, projected_s=0.1)
    work.add("large", 100)
    blocks = work.end()
    # A second, then as much as the other.
    assert abs(Counter(blocks[:100])["liar"] - 55) <= 8


def test_who_was_away_saves_nothing_up() -> None:
    shares: FairShares[str] = FairShares()
    shares.join("busy")
    shares.charge("busy", 100.0)
    shares.join("new")
    assert shares.used_s("new") == 100.0
    shares.charge("new", 5.0)
    shares.leave("new")
    shares.join("new")
    assert shares.used_s("new") == 105.0


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0.0, 10.0)), max_size=60))
def test_shares_remember_debts_alone(steps: list[tuple[str, bool, float]]) -> None:
    shares: FairShares[str] = FairShares()
    have: Counter[str] = Counter()
    for key, joins, seconds in steps:
        if joins or not have[key]:
            others = [shares.used_s(other) for other in have if have[other]]
            shares.join(key)
            have[key] += 1
            assert not others or shares.used_s(key) >= min(others)
        else:
            shares.charge(key, seconds)
            shares.leave(key)
            have[key] -= 1
    for key in have:
        while have[key]:
            shares.leave(key)
            have[key] -= 1
    assert not shares._used_s


def test_what_does_not_give_way_is_overtaken_by_small_work_and_waits_then() -> None:
    queue = BlockQueue(1)
    order, go_on, computing = list[str](), threading.Event(), threading.Event()

    def stubborn() -> None:
        with queue.turn("stubborn", projected_s=LARGE_S):
            computing.set()
            assert go_on.wait(WAIT_S)
            give_way()
            order.append("stubborn")

    def small() -> None:
        with queue.turn("small") as turn:
            go_on.set()
            while not any(other.owner == "stubborn" for other in queue._waiting):
                time.sleep(0.001)
            order.append("small")
            assert turn.waited_s >= 0.1

    threads = [threading.Thread(target=stubborn), threading.Thread(target=small)]
    threads[0].start()
    assert computing.wait(WAIT_S)
    threads[1].start()
    for thread in threads:
        thread.join(WAIT_S)
    assert order == ["small", "stubborn"]
    assert queue._free == 1


def test_large_work_overtakes_nothing() -> None:
    queue, begun = BlockQueue(1), threading.Event()

    def large() -> None:
        with queue.turn("large", projected_s=LARGE_S):
            begun.set()

    with queue.turn("stubborn", projected_s=LARGE_S):
        thread = threading.Thread(target=large)
        thread.start()
        assert not begun.wait(0.4)
    assert begun.wait(WAIT_S)
    thread.join(WAIT_S)


def test_work_that_nobody_wants_ends_at_the_next_question_or_while_it_waits(work: Work) -> None:
    stop, ends = threading.Event(), list[str]()

    def waiting() -> None:
        with pytest.raises(Cancelled), work.queue.turn("waiting", stop=stop):
            ends.append("began")
        ends.append("ended")

    work._begin(waiting)
    stop.set()
    work.queue.wake()
    work._threads[-1].join(WAIT_S)
    assert ends == ["ended"]
    work.end()
    with pytest.raises(Cancelled), work.queue.turn("computing", stop=stop):
        give_way()
    assert work.queue._free == 1


def test_helping_threads_pause_while_the_one_that_they_help_waits() -> None:
    queue = BlockQueue(1)
    done, rival_done = list[int](), list[int]()
    begun, rival = threading.Event(), threading.Event()

    def piece(number: int) -> None:
        begun.set()
        for _ in range(10):
            time.sleep(0.01)
            give_way()
        done.append(number)

    def small() -> None:
        assert begun.wait(WAIT_S)
        with queue.turn("small"):
            time.sleep(0.2)
            before = len(done)
            time.sleep(0.3)
            rival_done.append(len(done) - before)
        rival.set()

    thread = threading.Thread(target=small)
    thread.start()
    with queue.turn("large", projected_s=LARGE_S):
        share(piece, range(12))
        assert time_waited_s() > 0.3
    thread.join(WAIT_S)
    assert sorted(done) == list(range(12))
    assert rival.is_set()
    assert rival_done == [0]


def test_helping_threads_end_with_the_one_that_they_help() -> None:
    queue, stop, done = BlockQueue(1), threading.Event(), list[int]()

    def piece(number: int) -> None:
        for _ in range(100):
            time.sleep(0.01)
            give_way()
        done.append(number)

    threading.Timer(0.1, stop.set).start()
    with pytest.raises(Cancelled), queue.turn("me", stop=stop):
        share(piece, range(4))
    assert done == []


def test_whoever_waits_for_many_short_pieces_gives_way_meanwhile() -> None:
    class Pace:
        waited_s, asked = 0.0, 0

        def give_way(self) -> None:
            self.asked += 1

    pace = Pace()
    with pace_work(pace):
        share(lambda _: time.sleep(0.01), range(30))
    assert pace.asked >= 2


@pytest.mark.parametrize("count", [0, 1, 7, 1000])
def test_ranges_cover_all_and_take_their_time(count: int) -> None:
    assert list(ranges(count)) == ([(0, count)] if count else [])
    with BlockQueue(1).turn("me"):
        cut = []
        for first, stop in ranges(count):
            time.sleep((stop - first) * 1e-3)
            cut.append((first, stop))
    assert [place for first, stop in cut for place in range(first, stop)] == list(range(count))
    assert all(stop - first <= 100 for first, stop in cut)
