"""Every strategy, driven by hand: what all have in common, and which piece each takes first."""

import numpy as np
import pytest

from hypergrid.core.errors import NotFound
from queries.scheduling.job_tree import JobTree, Shape, cut_into_fragments
from queries.scheduling.strategies import SPARE, Ordered, profit_key
from queries.scheduling.strategy import NEVER_S, SchedulingStrategy, Work
from tests.queries.scheduling.trees import random_tree
from tests.support.scheduling.strategies import (
    STRATEGIES,
    LastDitch,
    Order,
    make_deadline_dominant,
    make_profit_dominant,
    make_strategy,
)

ALL = sorted(STRATEGIES)


def tree(rng: np.random.Generator, now_s: float, *, maximum: int = 9) -> JobTree:
    parents, costs, profits = random_tree(rng, maximum=maximum)
    names = tuple(f"operator {number}" for number in range(len(parents)))
    return JobTree(Shape(names, parents, costs, profits), now_s, now_s + float(rng.uniform(1, 60)))


def single(name: str, *, cost_s: float, profit: float, deadline_s: float, ends_s: float = NEVER_S) -> JobTree:
    return JobTree(Shape((name,), (-1,), (cost_s,), (profit,)), 0.0, deadline_s, ends_s=ends_s)


def name_of(work: Work | None) -> str:
    return "nothing" if work is None else work.tree.shape.names[work.fragment.jobs[-1]]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("seed", range(12))
def test_every_job_runs_once_after_its_parent_whatever_is_preempted(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    strategy, now_s, ran = make_strategy(name), 0.0, []
    coming = [tree(rng, 5.0 * number) for number in range(12)]
    pushed: list[JobTree] = []
    running: list[Work] = []
    while len(ran) < sum(len(one.shape.names) for one in coming):
        if coming[len(pushed) :] and (rng.random() < 0.2 or not running):
            pushed.append(coming[len(pushed)])
            strategy.push(pushed[-1], now_s)
        # two workers, each of which asks between two blocks
        running = [strategy.challenge(work, now_s) or work for work in running]
        while len(running) < 2 and (work := strategy.next(now_s)) is not None:
            running.append(work)
        now_s += 0.5
        for work in running:
            work.cost_s -= 0.5
        for work in [work for work in running if work.cost_s <= 0]:
            running.remove(work)
            ran += [(work.tree, job) for job in work.fragment.jobs]
            strategy.done(work, now_s)
    assert len(set(ran)) == len(ran)
    order = {one: number for number, one in enumerate(ran)}
    for one in coming:
        for job, parent in enumerate(one.shape.parents):
            assert parent < 0 or order[one, parent] < order[one, job]
    assert strategy.next(now_s) is None
    told = strategy.statistics(now_s)
    assert (told.name, told.pushed, told.waiting, told.postponed, told.laxity_s) == (name, 12, 0, 0, NEVER_S)
    assert told.chosen >= len(pushed)
    assert told.steps > 0


@pytest.mark.parametrize("name", ALL)
def test_a_tree_that_is_withdrawn_runs_no_more(name: str) -> None:
    rng = np.random.default_rng(5)
    strategy = make_strategy(name)
    first, second = tree(rng, 0.0), tree(rng, 0.0)
    strategy.push(first, 0.0)
    begun = strategy.next(0.0)
    assert begun is not None
    strategy.push(second, 0.0)
    assert strategy.withdraw(first) >= 0
    assert strategy.withdraw(first) == 0
    # what had begun may end, and nothing follows from it
    strategy.done(begun, 1.0)
    strategy.put_back(begun, 1.0)
    seen = 0
    while (work := strategy.next(1.0)) is not None:
        assert work.tree is second
        strategy.done(work, 1.0)
        seen += len(work.fragment.jobs)
    assert seen == len(second.shape.names)


@pytest.mark.parametrize("name", ALL)
def test_what_cannot_earn_any_more_is_dropped_with_all_that_waits_for_it(name: str) -> None:
    strategy = make_strategy(name)
    shape = Shape(("a", "b"), (-1, 0), (1.0, 1.0), (0.0, 1.0))
    strategy.push(JobTree(shape, 0.0, 3.0, ends_s=4.0), 0.0)
    strategy.push(single("later", cost_s=1.0, profit=1.0, deadline_s=9.0, ends_s=9.0), 0.0)
    taken = strategy.next(5.0)
    assert name_of(taken) == "later"
    assert strategy.next(5.0) is None
    assert strategy.statistics(5.0).late >= 1


def order_of(name: str, trees: list[JobTree]) -> list[str]:
    strategy = make_strategy(name)
    for one in trees:
        strategy.push(one, 0.0)
    taken = []
    while (work := strategy.next(0.0)) is not None:
        taken.append(name_of(work))
        strategy.done(work, 0.0)
    return taken


def test_each_strategy_takes_first_what_its_name_says() -> None:
    trees = [
        single("old", cost_s=4.0, profit=4.0, deadline_s=50.0),
        single("dense", cost_s=1.0, profit=9.0, deadline_s=60.0),
        single("soon", cost_s=1.0, profit=2.0, deadline_s=20.0),
        single("long", cost_s=30.0, profit=15.0, deadline_s=40.0),
    ]
    assert order_of("fifo", trees) == order_of("round-robin", trees) == ["old", "dense", "soon", "long"]
    assert order_of("basic", trees) == order_of("opt-profit+pd", trees) == ["dense", "soon", "old", "long"]
    assert order_of("earliest-deadline", trees) == ["soon", "long", "old", "dense"]
    assert order_of("least-laxity", trees) == order_of("basic+dd", trees) == ["long", "soon", "old", "dense"]


def test_round_robin_completes_a_query_before_the_next_has_its_turn() -> None:
    shape = Shape(("base", "p", "p'", "q"), (-1, 0, 1, 0), (1.0,) * 4, (0.0, 0.0, 1.0, 9.0))
    strategy = make_strategy("round-robin")
    strategy.push(JobTree(shape, 0.0, 9.0), 0.0)
    strategy.push(JobTree(shape, 1.0, 9.0), 0.0)
    taken = []
    while (work := strategy.next(1.0)) is not None:
        taken.append((name_of(work), work.tree.arrived_s))
        strategy.done(work, 1.0)
    assert taken == [("base", 0), ("p", 0), ("p'", 0), ("q", 0), ("base", 1), ("p", 1), ("p'", 1), ("q", 1)]


def test_a_worker_of_round_robin_does_not_wait_for_what_another_makes() -> None:
    shape = Shape(("base", "p", "q"), (-1, 0, 0), (1.0,) * 3, (0.0, 1.0, 1.0))
    strategy = make_strategy("round-robin")
    strategy.push(JobTree(shape, 0.0, 9.0), 0.0)
    made = strategy.next(0.0)
    assert name_of(made) == "base"
    assert strategy.next(0.0) is None
    strategy.push(single("r", cost_s=1.0, profit=1.0, deadline_s=9.0), 0.0)
    assert name_of(strategy.next(0.0)) == "r"


def running_one(order: Order, first: JobTree, *others: JobTree) -> tuple[SchedulingStrategy, Work]:
    strategy = LastDitch("tried", cut_into_fragments, order)
    strategy.push(first, 0.0)
    running = strategy.next(0.0)
    assert running is not None
    for one in others:
        strategy.push(one, 0.0)
    return strategy, running


def test_what_is_denser_runs_instead_and_what_ran_goes_on_with_what_is_left() -> None:
    strategy, running = running_one(Order(profit_key), single("first", cost_s=9.0, profit=9.0, deadline_s=90.0))
    running.cost_s = 4.0
    strategy.push(single("less", cost_s=1.0, profit=2.0, deadline_s=90.0), 5.0)
    # 9 for the 4 s that are left is denser than 2 for 1
    assert strategy.challenge(running, 5.0) is None
    strategy.push(single("more", cost_s=1.0, profit=3.0, deadline_s=90.0), 5.0)
    assert name_of(strategy.challenge(running, 5.0)) == "more"
    assert [name_of(strategy.next(6.0)), name_of(strategy.next(6.0))] == ["first", "less"]
    assert running.cost_s == 4.0


def test_who_is_about_to_be_late_gets_a_last_ditch_if_it_is_dense_enough() -> None:
    # Profit first: "weak" has 0.6 of the density of what runs, "fair" 0.7, so u = 0.65 lets only "fair" pass.
    strong = single("strong", cost_s=10.0, profit=10.0, deadline_s=90.0)
    weak = single("weak", cost_s=10.0, profit=6.0, deadline_s=14.0)
    fair = single("fair", cost_s=10.0, profit=7.0, deadline_s=15.0)
    strategy, running = running_one(make_profit_dominant(0.65), strong, weak, fair)
    assert strategy.alarm_s() == 4.0
    assert strategy.laxity_s(0.0) == 4.5
    assert strategy.challenge(running, 4.0) is None
    assert strategy.alarm_s() == 5.0
    assert name_of(strategy.challenge(running, 5.0)) == "fair"
    told = strategy.statistics(5.0)
    assert (told.rescued, told.refused, told.preempted, told.postponed) == (1, 1, 1, 1)
    # What was refused is not lost: it runs once nothing else can.
    assert [name_of(strategy.next(15.0)) for _ in range(3)] == ["strong", "weak", "nothing"]


def test_where_laxity_comes_first_only_what_is_much_denser_passes() -> None:
    urgent = single("urgent", cost_s=10.0, profit=10.0, deadline_s=11.0)
    alike = single("alike", cost_s=10.0, profit=12.0, deadline_s=14.0)
    denser = single("denser", cost_s=10.0, profit=14.0, deadline_s=15.0)
    strategy, running = running_one(make_deadline_dominant(1.3), urgent, alike, denser)
    assert name_of(running) == "urgent"
    assert strategy.challenge(running, 4.0) is None
    running.cost_s, running.value = 5.0, 5.0
    assert name_of(strategy.challenge(running, 5.0)) == "denser"
    assert strategy.statistics(5.0).refused == 1


def test_a_piece_without_laxity_waits_until_nothing_else_is_there() -> None:
    strategy = make_strategy("opt-profit+dd")
    strategy.push(single("hopeless", cost_s=10.0, profit=99.0, deadline_s=9.0), 0.0)
    strategy.push(single("possible", cost_s=10.0, profit=1.0, deadline_s=11.0), 0.0)
    assert [name_of(strategy.next(0.0)) for _ in range(3)] == ["possible", "hopeless", "nothing"]


def test_equal_pieces_do_not_take_turns_at_their_last_ditch() -> None:
    # Two pieces of one density, u below 1: each may pass the other once, when it is about to be late, not each block.
    strategy, running = running_one(
        make_profit_dominant(),
        single("one", cost_s=10.0, profit=10.0, deadline_s=11.0),
        single("other", cost_s=10.0, profit=10.0, deadline_s=12.0),
    )
    changes, now_s, held = 0, 0.0, running
    while held.cost_s > 0:
        held.cost_s -= 0.5
        held.value -= 0.5
        now_s += 0.5
        challenged = strategy.challenge(held, now_s)
        changes += challenged is not None
        held = challenged or held
    assert changes == 2


def test_what_waits_no_longer_takes_no_memory_for_ever() -> None:
    strategy = Ordered("tried", cut_into_fragments, profit_key)
    for number in range(20 * SPARE):
        # of two batches one is dense and runs; the other is not, and gets late where it lies
        strategy.push(single("dense", cost_s=1.0, profit=2.0, deadline_s=number + 9.0, ends_s=number + 9.0), number)
        strategy.push(single("thin", cost_s=1.0, profit=1.0, deadline_s=number + 9.0, ends_s=number + 9.0), number)
        work = strategy.next(float(number))
        assert work is not None
        strategy.done(work, float(number))
    assert strategy.statistics(20.0 * SPARE).waiting <= SPARE + 64


def test_a_strategy_that_does_not_exist_is_told_with_those_that_do() -> None:
    with pytest.raises(NotFound, match="unknown strategy 'opt-proft'; did you mean 'opt-profit'"):
        make_strategy("opt-proft")


@pytest.mark.parametrize("name", ALL)
def test_a_decision_takes_no_more_comparisons_than_a_logarithm_allows(name: str) -> None:
    taken = []
    for size in (64, 4096):
        strategy = make_strategy(name)
        for number in range(size):
            strategy.push(
                single(f"q{number}", cost_s=1.0, profit=1.0 + number % 7, deadline_s=size * 9.0 + number), 0.0
            )
        before = strategy.steps
        for step in range(50):
            work = strategy.next(float(step))
            assert work is not None
            assert strategy.challenge(work, float(step)) is None
            strategy.done(work, float(step) + 1)
        taken.append((strategy.steps - before) / 50)
    # 64 times as many waiting pieces: twice the logarithm
    assert taken[1] <= 2.5 * taken[0] + 1


@pytest.mark.parametrize("name", ["basic", "opt-profit", "opt-profit+pd", "hybrid"])
def test_of_equally_dense_batches_the_one_that_is_due_first_runs(name: str) -> None:
    # Costs and profits of 3 and of 7 units have ratios that differ in the last digit.
    shape = Shape(("a",), (-1,), (0.1,), (0.3,))
    strategy = make_strategy(name)
    trees = [JobTree(shape, float(number), 50.0 + number, float(3 + 4 * (number % 2))) for number in range(6)]
    for one in reversed(trees):
        strategy.push(one, 6.0)
    taken = [strategy.next(6.0) for _ in trees]
    assert [work.tree.arrived_s for work in taken if work] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
