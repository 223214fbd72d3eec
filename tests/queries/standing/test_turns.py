"""Slices that come faster than they are computed: who has begun ends, who waits gets a share, and the bound holds."""

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from hypergrid.core.errors import TooLarge
from queries.scheduling.job_tree import JobTree
from queries.scheduling.step_graph import GraphStep, StepGraph
from queries.standing import planning, shared_steps
from queries.standing.service import StandingQueries
from queries.standing.statistics import FAIRNESS_SHARE
from tests.queries.standing.live import STATIONS, Live
from tests.queries.standing.test_runner import HOT, MAP, MEAN, query
from tests.support.standing_runner import is_fresh, settle

Slowly = Callable[[float], list[float]]


@pytest.fixture
def slowly(standing: StandingQueries, monkeypatch: pytest.MonkeyPatch) -> Slowly:
    """Let each block take so many seconds of a clock that is returned, and nothing else take any."""

    def begin(block_s: float) -> list[float]:
        clock = [0.0]
        monkeypatch.setattr(standing.runner, "_monotonic", lambda: clock[0])
        for name in ("_round_start_s", "_polled_at_s", "_kept_at_s"):
            monkeypatch.setattr(standing.runner, name, 0.0)
        compute = shared_steps.SnapshotEvaluation.compute

        def computed(self: shared_steps.SnapshotEvaluation, step: shared_steps.EvaluationStep) -> Iterator[float]:
            for blocks, _ in enumerate(compute(self, step), start=1):
                clock[0] += block_s
                step.seconds = blocks * block_s
                yield block_s

        monkeypatch.setattr(shared_steps.SnapshotEvaluation, "compute", computed)
        return clock

    return begin


def crowd(standing: StandingQueries, *, archives: int = 1) -> None:
    """Alerts that take all the time, and archive queries that the strategy never comes to."""
    for number in range(4):
        standing.add(query(f"alert{number}", {**MEAN, "time": f"{2 * number + 2}min"}, condition=HOT))
    for number in range(archives):
        grid = {**MAP["grid"], "shape": [3, 3 + number]}
        kept = query(f"kept{number}", MEAN, {**MAP, "grid": grid}, weight=0.001, **{"class": "archive"})
        standing.add(kept)
    settle(standing.runner)
    standing.runner._polled_at_s = -1.0


def rush(standing: StandingQueries, live: Live, clock: list[float], slices: int) -> Iterator[int]:
    """Let a slice come each three blocks."""
    for slice_ in range(10, 10 + slices):
        live.everywhere(slice_, 5.0)
        for _ in range(3):
            if not standing.runner.work():
                clock[0] += 1.0
        yield slice_


@pytest.mark.parametrize("archives", [1, 3])
def test_the_longest_waiting_query_gets_its_share_within_the_bound(
    standing: StandingQueries, live: Live, slowly: Slowly, archives: int
) -> None:
    clock = slowly(1.0)
    crowd(standing, archives=archives)
    longest_s = 0.0
    for _ in rush(standing, live, clock, 120):
        told = standing.statistics()
        assert told.oldest_s <= told.longest_wait_s
        longest_s = max(longest_s, told.oldest_s)
    assert told.overloaded
    assert told.postponed > 10
    assert told.fair_turns >= 2
    assert all(standing.runner.state(f"kept{number}").evaluations >= 1 for number in range(archives))
    # And the bound is no more than it must be.
    assert longest_s > 0.5 * told.sharing.seconds_apart / FAIRNESS_SHARE


def test_a_query_that_failed_once_gets_its_share_all_the_same(
    standing: StandingQueries, live: Live, slowly: Slowly
) -> None:
    clock = slowly(1.0)
    crowd(standing)
    standing.runner._record_failure("kept0", OSError("disk full, once"), clock[0])
    for _ in rush(standing, live, clock, 120):
        told = standing.statistics()
        assert told.oldest_s <= told.longest_wait_s
    assert standing.runner.state("kept0").evaluations >= 2
    assert standing.runner.state("kept0").failures == 0


@pytest.mark.parametrize("overload", [2.0, 8.0])
def test_what_takes_longer_than_a_slice_ends_all_the_same(
    standing: StandingQueries,
    live: Live,
    slowly: Slowly,
    monkeypatch: pytest.MonkeyPatch,
    overload: float,
) -> None:
    clock = slowly(0.25)
    monkeypatch.setattr(shared_steps, "BLOCK_CELLS", 16)
    for number in range(4):
        grid = {**MAP["grid"], "shape": [5, 6 + number]}
        standing.add(query(f"hot{number}", MEAN, {**MAP, "grid": grid}, condition=HOT))
    settle(standing.runner)
    begun_s = clock[0]
    live.everywhere(10, 5.0)
    settle(standing.runner)
    period_s = (clock[0] - begun_s) / overload
    before, begun_s, due_s, slice_ = standing.statistics().evaluations, clock[0], clock[0], 10
    while clock[0] - begun_s < 60 * period_s:
        if clock[0] >= due_s:
            slice_ += 1
            live.everywhere(slice_, 5.0)
            due_s += period_s
        if not standing.runner.work():
            clock[0] += 0.02
    answered = [one for one in standing.updates if one.name.startswith("hot")][before:]  # type: ignore[attr-defined]
    blocks = (clock[0] - begun_s) / 0.25
    # Of all blocks most were for something: a step of stations takes one, a map one for so many cells.
    assert sum(one.cells for one in answered) >= 0.4 * blocks * shared_steps.BLOCK_CELLS
    assert {one.name for one in answered} == {f"hot{number}" for number in range(4)}
    settle(standing.runner)
    assert is_fresh(standing.runner)


def test_what_was_begun_before_a_slice_sees_that_slice_in_the_end(
    standing: StandingQueries, live: Live, slowly: Slowly, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slowly(0.25)
    monkeypatch.setattr(shared_steps, "BLOCK_CELLS", 16)
    standing.add(query("hot", MEAN, MAP, condition=HOT))
    settle(standing.runner)
    live.everywhere(10, 5.0)
    clock[0] += 1.0
    for _ in range(3):
        assert standing.runner.work()
    live.everywhere(11, 40.0)
    clock[0] += 1.0
    before = standing.runner.state("hot").evaluations
    while standing.runner.state("hot").evaluations == before:
        assert standing.runner.work()
    assert standing.alerts() == []
    settle(standing.runner)
    assert is_fresh(standing.runner)
    (alert,) = standing.alerts()
    assert (alert["happening"], alert["since"]) == ("raised", "2007-10-01T00:20:00Z")


def test_a_query_that_needs_too_much_memory_fails_alone(
    standing: StandingQueries, live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing.add(query("small", MEAN))
    standing.add(query("large", MEAN, MAP))
    monkeypatch.setattr(planning, "SMALL_BYTES", 0)
    monkeypatch.setattr(planning, "free_bytes", lambda: 2 * 16 * 4 * 6)
    live.everywhere(10, 5.0)
    settle(standing.runner)
    assert standing.runner.state("small").evaluations == 1
    assert standing.statistics().failing == ("large",)
    assert "bytes of memory" in standing.runner.state("large").error


def test_where_all_is_fresh_all_tokens_were_earned(standing: StandingQueries, live: Live) -> None:
    standing.add(query("one", MEAN, select={"station": "1"}))
    standing.add(query("all", MEAN))
    for slice_ in range(10, 20):
        live.add(slice_, {station: 5.0 for station in STATIONS if station != "1"})
        settle(standing.runner)
    assert is_fresh(standing.runner)
    assert standing.statistics().token_score == pytest.approx(1.0)


def test_what_waits_is_offered_to_the_strategy_for_all_the_tokens_that_it_saved(
    standing: StandingQueries, live: Live, slowly: Slowly, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = slowly(1.0)
    crowd(standing)
    profits: list[dict[str, float]] = []
    push = standing.runner._strategy.push

    def pushed(tree: JobTree, now_s: float) -> None:
        profits.append({name: profit for name, profit in zip(tree.shape.names, tree.shape.profits, strict=True)})
        push(tree, now_s)

    monkeypatch.setattr(standing.runner._strategy, "push", pushed)
    expected, compared = 0.0, 0
    for _ in rush(standing, live, clock, 12):
        state = standing.runner.state("kept0")
        if state.evaluations:
            break
        expected = 0.001 + 0.9 * expected
        if state.steps and profits and state.steps[-1].token in profits[-1]:
            assert profits[-1][state.steps[-1].token] == pytest.approx(expected)
            compared += 1
    assert compared >= 3


def test_a_retry_is_offered_no_token(standing: StandingQueries, live: Live) -> None:
    standing.add(query("all", MEAN))
    live.everywhere(10, 5.0)
    settle(standing.runner)
    live.everywhere(11, 5.0)
    standing.runner._poll(standing.runner._monotonic())
    once = standing.runner._tokens._saved["all"]
    assert once > 0
    standing.runner._begin_round(standing.runner._monotonic())
    assert standing.runner._tokens._saved["all"] == once


def test_who_asks_for_figures_disturbs_no_strategy(
    standing: StandingQueries, live: Live, wait_until: Callable[..., None]
) -> None:
    for number in range(20):
        standing.add(query(f"q{number}", {**MEAN, "time": f"{2 * (number % 5) + 2}min"}, condition=HOT))
    errors: list[Exception] = []
    done = threading.Event()

    def ask() -> None:
        while not done.is_set():
            try:
                standing.statistics()
            except Exception as error:  # noqa: BLE001 - any would do
                errors.append(error)

    asking = [threading.Thread(target=ask) for _ in range(2)]
    standing.runner.start()
    for one in asking:
        one.start()
    try:
        for slice_ in range(10, 25):
            live.everywhere(slice_, 5.0)
            time.sleep(0.02)
        wait_until(lambda: is_fresh(standing.runner))
    finally:
        done.set()
        for one in asking:
            one.join()
    assert not errors
    assert standing.statistics().trouble == ""


def test_adding_a_query_looks_only_at_what_it_reads() -> None:
    """However many stand, each new one is compared with its own steps alone."""
    graph = StepGraph()
    looked: list[str] = []

    class Sources(dict[str, tuple[str, ...]]):
        def __getitem__(self, key: str) -> tuple[str, ...]:
            looked.append(key)
            return super().__getitem__(key)

    graph._sources = Sources()
    for number in range(300):
        steps = [GraphStep("base"), GraphStep(f"m{number}", ("base",)), GraphStep(f"i{number}", (f"m{number}",))]
        graph.add(f"q{number}", steps, weight=1.0, validity_s=1.0)
    assert len(looked) <= 3 * 300
    assert len(graph.tree(now_s=0.0).shape.names) == 601


def test_a_surface_that_no_memory_holds_is_refused_when_it_is_made(standing: StandingQueries) -> None:
    grid = {**MAP["grid"], "step": "0.001arcsec", "shape": [40000, 40000]}
    with pytest.raises(TooLarge, match="standing query 'big'.*bytes of memory.*give it a window or a clip"):
        standing.add(query("big", MEAN, {**MAP, "grid": grid}, window="4min"))
    assert standing.listing() == []
